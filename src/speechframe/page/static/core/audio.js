// Audio comes when somebody wants to hear it, once, and one clip is heard at a time.

/**
 * Ask for clips by message, and keep what came.
 *
 * load(id)   a promise of the clip's address; a rejected one says what is wrong, and may be asked again
 * forget()   gives the memory back
 */
export function loader(model) {
  const asked = new Map();
  const heard = (message, buffers) => {
    const waiting = asked.get(message?.clip);
    if (!waiting || (message.kind !== "audio" && message.kind !== "error")) return;
    if (message.kind === "error") {
      asked.delete(message.clip);
      waiting.reject(new Error(message.message));
    } else {
      waiting.url = URL.createObjectURL(new Blob([buffers[0]], { type: message.mime }));
      waiting.resolve(waiting.url);
    }
  };
  model.on("msg:custom", heard);
  return {
    load(id) {
      if (!asked.has(id)) {
        const waiting = Promise.withResolvers ? Promise.withResolvers() : deferred();
        asked.set(id, waiting);
        model.send({ kind: "load", clip: id });
      }
      return asked.get(id).promise;
    },
    forget() {
      model.off("msg:custom", heard);
      asked.forEach(({ url }) => url && URL.revokeObjectURL(url));
      asked.clear();
    },
  };
}

function deferred() {
  const out = {};
  out.promise = new Promise((resolve, reject) => Object.assign(out, { resolve, reject }));
  return out;
}

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
 * An audio element that loads when it is first played.
 *
 * on.change()       after every change that is to be seen: time, playing or not, loading, error
 * toggle, seek(s), pause, playing, seconds, problem
 * heardSeconds      how much of it was played, for tests where one must listen before one votes
 */
export function sound({ id, audioSeconds, clips, solo, on, signal }) {
  const audio = document.createElement("audio");
  audio.preload = "none";
  let frame = 0;
  let last = null;
  let from = 0;
  const state = { problem: null, loading: false, started: false, heardSeconds: 0, plays: 0 };

  const count = () => {
    const now = audio.currentTime;
    if (last != null && now > last && now - last < 1) state.heardSeconds += now - last;
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
  const play = async () => {
    try {
      await load();
      solo.begins(audio);
      // Where it begins: when the browser says that it plays, some of it was heard already.
      from = audio.ended ? 0 : audio.currentTime;
      await audio.play();
    } catch (error) {
      fail(error);
    }
  };

  audio.addEventListener("play", () => {
    state.started = true;
    state.plays += 1;
    last = from;
    cancelAnimationFrame(frame);
    tick();
    on.play?.();
  }, { signal });
  for (const name of ["pause", "seeked", "timeupdate"]) {
    audio.addEventListener(name, () => { count(); on.change(); }, { signal });
  }
  audio.addEventListener("ended", () => {
    count();
    state.started = false;
    on.change();
    on.ended?.();
  }, { signal });
  audio.addEventListener("error", () => audio.src && fail(audio.error), { signal });

  return {
    audio,
    play,
    pause: () => audio.pause(),
    toggle: () => (audio.paused ? play() : audio.pause()),
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
    get playing() { return !audio.paused && !audio.ended; },
    get seconds() { return audio.currentTime; },
    get started() { return state.started; },
    get loading() { return state.loading; },
    get problem() { return state.problem; },
    get heardSeconds() { return state.heardSeconds; },
    get plays() { return state.plays; },
    dispose() {
      cancelAnimationFrame(frame);
      audio.pause();
      audio.removeAttribute("src");
    },
  };
}
