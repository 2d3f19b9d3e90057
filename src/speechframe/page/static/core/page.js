// A page without a notebook: the page itself holds what Python would send.

/**
 * A model, as widgets take it, over what stands in the page: its state, and the audio of its clips.
 * `receive(content)` may answer other messages of the widget; it returns a message or nothing.
 */
export function pageModel(receive = () => undefined) {
  const state = JSON.parse(document.getElementById("spf-state").textContent);
  const handlers = new Map();
  const emit = (name, ...values) => [...(handlers.get(name) ?? [])].forEach((act) => act(...values));
  const answer = (content) => {
    if (content.kind !== "load") return [receive(content), []];
    const held = document.getElementById(`spf-clip-${content.clip}`);
    if (!held) return [{ kind: "error", clip: content.clip, message: "this page does not hold the clip's audio" }, []];
    const bytes = Uint8Array.from(atob(held.textContent), (c) => c.charCodeAt(0));
    return [{ kind: "audio", clip: content.clip, mime: held.dataset.mime }, [bytes]];
  };
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
    send(content) {
      const [message, buffers] = answer(content);
      if (message) queueMicrotask(() => emit("msg:custom", message, buffers));
    },
  };
}
