// Make the frame that all widgets share. It connects the page to the model.

import { alertLine, el, tell } from "./dom.js";
import { loader, soloist } from "./audio.js";

const LOST = "The kernel was restarted, run the cell again. What you enter here is not stored.";
const SILENT = "The notebook does not reply. If no cell is running, run the cell of this widget again.";
export const REPLY_MS = 10_000; // time to wait for a reply

/**
 * Make a widget in the format of anywidget. `build(shell)` adds the elements. The shell has
 *
 * root, status        element of the widget, and its status line
 * say(text, isError)  writes the status line, which screen readers read
 * signal              AbortSignal that removes event listeners when the widget is removed
 * onTheme(paint)      calls `paint` after a change between light and dark. It returns a function that ends these calls
 * onEnd(finish)       calls `finish` when the widget is removed
 * get(name)           returns a trait of the model
 * put(values)         sets traits and sends them to Python
 * send(message)       sends a message to Python. If this fails, `hear` gets { kind: "lost", said, message }
 * hear(act)           calls `act` for each message of Python, and for failures
 * follow(names, act)  calls `act` now and after each change of one of the traits
 * clips, solo         objects from `loader` and `soloist`. All widgets of the page share one soloist
 * tuning              how sounds play: { speed, volume, isEqual (equal loudness), zoom (of waveforms) }
 */
export function makeWidget(label, build) {
  return { render: ({ model, el: host }) => begin(model, host, label, build) };
}

function begin(model, host, label, build) {
  const status = el("p.status", { role: "status" });
  const lost = alertLine("banner");
  const root = el("section", { class: "spf", tabindex: "-1", label }, lost);
  // Shortcuts of the notebook, such as single letters, must not act while the focus is in the widget. The notebook
  // looks for this attribute from the focused element on, and stops at the first element that has a shortcut.
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  root.addEventListener("keydown", (event) => event.stopPropagation());
  host.append(root);
  const ending = new AbortController();
  // If the focused element is removed, the next key would act on the notebook. Then the widget takes the focus back.
  let isWithin = false;
  const always = { capture: true, signal: ending.signal };
  for (const name of ["focusin", "pointerdown"]) addEventListener(name, ({ target }) => { isWithin = root.contains(target); }, always);
  addEventListener("keydown", (event) => {
    if (!isWithin || event.target !== document.body) return;
    event.stopImmediatePropagation();
    root.focus({ preventScroll: true });
  }, always);
  const endings = [];
  const repaints = new Set();
  const repaint = () => requestAnimationFrame(() => repaints.forEach((paint) => paint()));
  const watcher = new MutationObserver(repaint);
  for (const node of [document.documentElement, document.body]) {
    watcher.observe(node, { attributes: true, attributeFilter: ["data-jp-theme-light", "class", "style"] });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint, { signal: ending.signal });
  const on = (name, act) => {
    model.on(name, act);
    endings.push(() => model.off(name, act));
  };
  const hearers = new Set();
  const tellAll = (...heard) => hearers.forEach((act) => act(...heard));
  const waiting = new Map(); // timers by clip, of clips that were requested
  const answered = (clip) => {
    clearTimeout(waiting.get(clip));
    waiting.delete(clip);
  };
  let isLive = true;
  const fail = (said, message) => {
    if (message === LOST) {
      tell(lost, LOST);
      shell.say("");
    }
    if (said?.kind === "load") tellAll({ kind: "error", clip: said.clip, message });
    else if (said) tellAll({ kind: "lost", said, message });
  };
  const shell = {
    root,
    status,
    signal: ending.signal,
    say(text, isError = false) {
      status.textContent = text;
      status.classList.toggle("spf-error", Boolean(isError));
    },
    onTheme(paint) {
      repaints.add(paint);
      return () => repaints.delete(paint);
    },
    onEnd: (finish) => endings.push(finish),
    get: (name) => model.get(name),
    put(values) {
      for (const [name, value] of Object.entries(values)) model.set(name, value);
      model.save_changes();
      // The notebook is silent if it cannot send traits, but not if it cannot send a message.
      shell.send({ kind: "ping" });
    },
    async send(message) {
      const { kind, clip } = message;
      let sent;
      if (kind === "load") waiting.set(clip, 0);
      try {
        if (isLive) sent = model.send(message);
      } catch {
        isLive = false; // the notebook cannot send anything
      }
      await sent;
      if (!isLive) {
        answered(clip);
        fail(message, LOST);
      } else if (waiting.has(clip)) waiting.set(clip, setTimeout(() => fail(message, SILENT), REPLY_MS));
    },
    hear: (act) => hearers.add(act),
    follow(names, act) {
      names.forEach((name) => on(`change:${name}`, act));
      act();
    },
    solo: (window.speechframeSolo ??= soloist()),
    tuning: { speed: 1, volume: 1, isEqual: true, zoom: 1 },
  };
  on("msg:custom", (message, buffers) => {
    answered(message?.clip);
    tellAll(message, buffers);
  });
  // The notebook sends this event when it restarts the kernel.
  on("comm_live_update", () => {
    isLive = false;
    fail(null, LOST);
    waiting.forEach((_, clip) => fail({ kind: "load", clip }, LOST));
  });
  shell.clips = loader(shell);
  build(shell);
  return () => {
    ending.abort();
    waiting.forEach(clearTimeout);
    endings.forEach((finish) => finish());
    shell.clips.forget();
    watcher.disconnect();
    root.remove();
  };
}
