// Audio comes when somebody wants to hear it, once, and one clip is heard at a time.

/**
 * Ask for clips by message, and keep what came.
 *
 * load(id)   a promise of the clip's address; a rejected one says what is wrong, and may be asked again
 * forget()   gives the memory back
 */
export function loader({ send, hear }) {
  const asked = new Map();
  hear((message, buffers) => {
    const waiting = asked.get(message?.clip);
    if (!waiting || (message.kind !== "audio" && message.kind !== "error")) return;
    if (message.kind === "error") {
      asked.delete(message.clip);
      waiting.reject(new Error(message.message));
    } else {
      waiting.url = URL.createObjectURL(new Blob([buffers[0]], { type: message.mime }));
      waiting.resolve(waiting.url);
    }
  });
  return {
    load(id) {
      if (!asked.has(id)) {
        const waiting = {};
        waiting.promise = new Promise((resolve, reject) => Object.assign(waiting, { resolve, reject }));
        asked.set(id, waiting);
        send({ kind: "load", clip: id });
      }
      return asked.get(id).promise;
    },
    forget() {
      asked.forEach(({ url }) => url && URL.revokeObjectURL(url));
      asked.clear();
    },
  };
}

const SLACK_S = 0.25; // a clip's clock may be ahead of the page's

/** One audio at a time: who begins stops whoever is heard. */
export function soloist() {
  let now = null;
  return {
    begins(audio) {
      if (now && now !== audio) now.pause();
      now = audio;
    },
  };
}

/**
 * An audio element that loads when it is first played; `shell` has clips, solo and signal.
 *
 * on.change()       after every change that is to be seen: time, playing or not, loading, error
 * play, pause, toggle, seek(s), dispose; playing, seconds, loading, started, problem, plays
 * heardSeconds      how much of it was played, for tests where one must listen before one votes
 */
export function sound({ clips, solo, signal }, { id, audioSeconds, on }) {
  const audio = document.createElement("audio");
  audio.preload = "none";
  let frame = 0;
  let last = null;
  let ms = 0;
  let from = 0;

  const count = () => {
    const now = audio.currentTime;
    const before = ms;
    ms = performance.now();
    // A clip goes on while its page stands still; what went further than time was a jump.
    const most = (ms - before) / 1000 + SLACK_S;
    if (last != null && now > last && now - last < most) state.heardSeconds += now - last;
    last = audio.paused ? null : now;
  };
  const tick = () => {
    count();
    on.change();
    if (!audio.paused) frame = requestAnimationFrame(tick);
  };
  const fail = (error) => {
    if (error.name === "AbortError") return;
    // What the browser says of a format it does not know helps nobody who listens.
    const unknown = audio.error || error.name === "NotSupportedError";
    state.problem = unknown ? "this clip cannot be played: the browser does not know its format" : error.message;
    on.change();
  };
  const load = async () => {
    if (audio.src) return;
    state.loading = true;
    on.change();
    try {
      audio.src = await clips.load(id);
      state.problem = null;
    } finally {
      state.loading = false;
      on.change();
    }
  };
  const state = {
    problem: null, loading: false, started: false, heardSeconds: 0, plays: 0,
    get playing() { return !audio.paused && !audio.ended; },
    get seconds() { return audio.currentTime; },
    pause: () => audio.pause(),
    toggle: () => (audio.paused ? state.play() : audio.pause()),
    async play() {
      try {
        await load();
        solo.begins(audio);
        // Where it begins: when the browser says that it plays, some of it was heard already.
        from = audio.ended ? 0 : audio.currentTime;
        ms = performance.now();
        await audio.play();
      } catch (error) {
        fail(error);
      }
    },
    async seek(seconds) {
      try {
        await load();
        state.started = true;
        audio.currentTime = Math.max(0, Math.min(seconds, audioSeconds));
        on.change();
      } catch (error) {
        fail(error);
      }
    },
    dispose() {
      cancelAnimationFrame(frame);
      audio.pause();
      audio.removeAttribute("src");
    },
  };

  const listen = (name, act) => audio.addEventListener(name, act, { signal });
  listen("play", () => {
    state.started = true;
    state.plays += 1;
    last = from;
    cancelAnimationFrame(frame);
    tick();
    on.play?.();
  });
  for (const name of ["pause", "seeked", "timeupdate"]) {
    listen(name, () => { count(); on.change(); });
  }
  listen("ended", () => {
    count();
    state.started = false;
    on.change();
    on.ended?.();
  });
  listen("error", () => audio.src && fail(audio.error));
  return state;
}
