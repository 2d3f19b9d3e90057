// Make models for pages without a notebook. The page contains the data that Python would send.

import { el } from "./dom.js";

export function heldState() {
  return JSON.parse(document.getElementById("spf-state").textContent);
}

export function heldClip(clip) {
  const held = document.getElementById(`spf-clip-${clip}`);
  if (!held) return [{ kind: "error", clip, message: "this page does not contain the audio of this clip" }, []];
  const bytes = Uint8Array.from(atob(held.textContent), (c) => c.charCodeAt(0));
  return [{ kind: "audio", clip, mime: held.dataset.mime }, [bytes]];
}

/** Let the browser save a text as a JSON file. */
export function saveFile(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * Make a store that keeps values across reloads. `lasting` is false if the browser forbids this (private windows). The
 * optional `key` distinguishes several values, and `all()` returns the values of all keys.
 */
export function stored(name) {
  const safely = (act) => {
    try {
      return act();
    } catch {
      store.lasting = false;
      return null;
    }
  };
  const store = {
    lasting: true,
    read: (key = "") => safely(() => JSON.parse(localStorage.getItem(name + key))),
    keep: (value, key = "") => safely(() => localStorage.setItem(name + key, JSON.stringify(value))),
    drop: (key = "") => safely(() => localStorage.removeItem(name + key)),
    all: () => safely(() => Object.keys(localStorage).filter((key) => key.startsWith(name)).map((key) => JSON.parse(localStorage[key]))) ?? [],
  };
  store.keep(0, "test"); // so that `lasting` is right from the start
  store.drop("test");
  return store;
}

/**
 * Make a widget's model from a state (its traits by name). `answer(content)` handles a message of the widget. It
 * returns a list of a reply and its buffers, or a promise of this list. Without a reply, nothing is sent back.
 */
export function madeModel(state, answer) {
  const handlers = new Map();
  const emit = (name, ...values) => [...(handlers.get(name) ?? [])].forEach((act) => act(...values));
  return {
    get: (name) => state[name],
    set(name, value) {
      state[name] = value;
      emit(`change:${name}`, value);
    },
    save_changes() {},
    on(name, act) {
      if (!handlers.has(name)) handlers.set(name, new Set());
      handlers.get(name).add(act);
    },
    off: (name, act) => handlers.get(name)?.delete(act),
    async send(content) {
      const [message, buffers] = await answer(content);
      if (message) emit("msg:custom", message, buffers ?? []);
    },
  };
}

/**
 * Make the model of a saved page, from the state and the audio in the page. The optional `receive(content)` handles
 * messages other than requests for audio. It returns a reply or nothing.
 */
export function pageModel(receive, state = heldState()) {
  return madeModel(state, async (content) =>
    (content.kind === "load" ? heldClip(content.clip) : [await receive?.(content), []]));
}
