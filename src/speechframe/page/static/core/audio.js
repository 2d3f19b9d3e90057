// Load and play audio. A clip is loaded once, on first use, and only one clip of the page plays at a time.

import { el } from "./dom.js";
import { fillIn } from "./words.js";

/**
 * Make a loader, which requests clips by message and keeps their audio.
 *
 * load(id)   returns a promise of the clip's address. After an error, the next call tries again
 * typeOf(id) returns the content type of a loaded clip
 * forget()   frees the memory
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
      waiting.mime = message.mime;
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
    typeOf: (id) => asked.get(id).mime,
    forget() {
      asked.forEach(({ url }) => url && URL.revokeObjectURL(url));
      asked.clear();
    },
  };
}

export const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];
const ENDINGS = { mpeg: "mp3", "x-matroska": "mkv", quicktime: "mov" };

/** Let the browser save a clip as a file. `name` is the name of the file without its ending. `text` is shown then. */
export async function downloadClip({ clips, say }, id, name, text = "{file} is downloaded") {
  try {
    const href = await clips.load(id);
    const kind = clips.typeOf(id).split("/")[1].split(";")[0];
    const download = `${name.replace(/[\\/:*?"<>|]+/g, "_")}.${ENDINGS[kind] ?? kind.replace("x-", "")}`;
    el("a", { href, download }).click();
    say(fillIn(text, { file: download }));
  } catch (error) {
    say(error.message, true);
  }
}

const UNPLAYABLE = "this clip cannot be played, because the browser does not support its format";
const SLACK_S = 0.25; // tolerance between the clock of a clip and the clock of the page

/** Make an object that lets only one sound play. `begins(audio)` pauses the sound that played before. */
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
 * Make a sound, which loads on first use. The first argument has clips, solo, tuning and signal of a shell of
 * `makeWidget`.
 *
 * gain              factor of the volume, 0 to 1, that makes clips equally loud
 * on.change()       is called after every visible change: time, playing, loading or error
 * on.play()         is called after each start, on.pause() after each pause, and on.ended() after the end. All are optional
 * methods           play, pause, toggle, seek(seconds), tune (applies `tuning`), dispose
 * values            playing, seconds (position), loading, started, problem, plays (number of starts)
 * loop              null, or start and end in seconds of the part that repeats
 * heardSeconds      total of seconds that were played, for tests that require listening before a vote
 */
export function sound({ clips, solo, tuning, signal }, { id, audioSeconds, gain = 1, unplayable = UNPLAYABLE, on }) {
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
    // If the position moved further than the elapsed time, the user moved it. This part does not count as played.
    const most = ((ms - before) / 1000) * audio.playbackRate + SLACK_S;
    if (last != null && now > last && now - last < most) state.heardSeconds += now - last;
    last = audio.paused ? null : now;
  };
  const repeat = () => {
    if (state.loop && (audio.currentTime < state.loop[0] || audio.currentTime >= state.loop[1])) audio.currentTime = last = state.loop[0];
  };
  const tick = () => {
    count();
    if (!audio.paused) repeat();
    on.change();
    if (!audio.paused) frame = requestAnimationFrame(tick);
  };
  const fail = (error) => {
    if (error.name === "AbortError") return;
    // The browser's own message for an unknown format does not help listeners.
    const unknown = audio.error || error.name === "NotSupportedError";
    state.problem = unknown ? unplayable : error.message;
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
    problem: null, loading: false, started: false, heardSeconds: 0, plays: 0, loop: null,
    get playing() { return !audio.paused && !audio.ended; },
    get seconds() { return audio.currentTime; },
    pause: () => audio.pause(),
    tune() {
      audio.playbackRate = tuning.speed;
      audio.volume = tuning.volume * (tuning.isEqual ? gain : 1);
    },
    toggle: () => (audio.paused ? state.play() : audio.pause()),
    async play() {
      try {
        await load();
        solo.begins(audio);
        state.tune();
        repeat();
        // The start position is read here, because some audio has already played when the event "play" arrives.
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
  listen("pause", () => audio.ended || on.pause?.());
  listen("ended", () => {
    count();
    if (state.loop) {
      state.play();
      return;
    }
    state.started = false;
    on.change();
    on.ended?.();
  });
  listen("error", () => audio.src && fail(audio.error));
  return state;
}
