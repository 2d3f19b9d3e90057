// Make the frame that all widgets share. It connects the page to the model.

import { el } from "./dom.js";
import { loader, soloist } from "./audio.js";

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
 * send(message)       sends a message to Python
 * hear(act)           calls `act` for each message of Python
 * follow(names, act)  calls `act` now and after each change of one of the traits
 * clips, solo         objects from `loader` and `soloist`. All widgets of the page share one soloist
 * tuning              how sounds play: { speed, volume, isEqual (equal loudness), zoom (of waveforms) }
 */
export function makeWidget(label, build) {
  return { render: ({ model, el: host }) => begin(model, host, label, build) };
}

function begin(model, host, label, build) {
  const status = el("p.status", { role: "status" });
  // Shortcuts of the notebook, such as single letters, must not act while the focus is in the widget.
  const root = el("section", { class: "spf", label, "data-lm-suppress-shortcuts": "true" });
  root.addEventListener("keydown", (event) => event.stopPropagation());
  host.append(root);
  const ending = new AbortController();
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
    },
    send: (message) => model.send(message),
    hear: (act) => on("msg:custom", act),
    follow(names, act) {
      names.forEach((name) => on(`change:${name}`, act));
      act();
    },
    solo: (window.speechframeSolo ??= soloist()),
    tuning: { speed: 1, volume: 1, isEqual: true, zoom: 1 },
  };
  shell.clips = loader(shell);
  build(shell);
  return () => {
    ending.abort();
    endings.forEach((finish) => finish());
    shell.clips.forget();
    watcher.disconnect();
    root.remove();
  };
}
