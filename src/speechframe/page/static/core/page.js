// Make models for pages without a notebook. The page contains the data that Python would send.

export function heldState() {
  return JSON.parse(document.getElementById("spf-state").textContent);
}

export function heldClip(clip) {
  const held = document.getElementById(`spf-clip-${clip}`);
  if (!held) return [{ kind: "error", clip, message: "this page does not contain the audio of this clip" }, []];
  const bytes = Uint8Array.from(atob(held.textContent), (c) => c.charCodeAt(0));
  return [{ kind: "audio", clip, mime: held.dataset.mime }, [bytes]];
}

/** Make a store that keeps a value across reloads. `lasting` is false if the browser forbids this (private windows). */
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
export function pageModel(receive) {
  return madeModel(heldState(), async (content) =>
    (content.kind === "load" ? heldClip(content.clip) : [await receive?.(content), []]));
}
