// A page without a notebook: the page itself holds what Python would send.

export function heldState() {
  return JSON.parse(document.getElementById("spf-state").textContent);
}

export function heldClip(clip) {
  const held = document.getElementById(`spf-clip-${clip}`);
  if (!held) return [{ kind: "error", clip, message: "this page does not hold the clip's audio" }, []];
  const bytes = Uint8Array.from(atob(held.textContent), (c) => c.charCodeAt(0));
  return [{ kind: "audio", clip, mime: held.dataset.mime }, [bytes]];
}

/** What is kept under a name over a reload; `lasting` tells whether the browser lets us, as private windows may not. */
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
    read: () => safely(() => JSON.parse(localStorage.getItem(name))),
    keep: (value) => safely(() => localStorage.setItem(name, JSON.stringify(value))),
    drop: () => safely(() => localStorage.removeItem(name)),
  };
  return store;
}

/**
 * A model, as widgets take it, over a state. `answer(content)` gets what the widget sends, and returns a
 * message and its buffers (or a promise of them); no message is no answer.
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
 * A model over what stands in the page: its state, and the audio of its clips.
 * `receive(content)` may answer other messages of the widget; it returns a message or nothing.
 */
export function pageModel(receive) {
  return madeModel(heldState(), async (content) =>
    (content.kind === "load" ? heldClip(content.clip) : [await receive?.(content), []]));
}
