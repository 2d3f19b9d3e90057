// What all widgets are: a frame in its host, the model behind it, and sounds of which one is heard at a time.

import { el } from "./dom.js";
import { loader, soloist } from "./audio.js";

/**
 * Make a widget as notebooks take it. `build(shell)` puts it together; the shell has
 *
 * root, status        where the widget puts its elements, and the line of `say`
 * say(text, isError)  tells screen readers something, and people who look
 * signal              ends all listeners that were added with it
 * onTheme(paint)      is called when light turns to dark: canvases do not repaint themselves; returns what ends it
 * onEnd(finish)       is called when the widget goes away
 * get(name)           a trait of the model
 * put(values)         sets traits, and sends them to Python
 * send(message)       sends a message to Python
 * hear(act)           gives messages of Python to `act`
 * follow(names, act)  calls `act` now and whenever one of the traits changes
 * clips, solo         of `loader` and `soloist`
 */
export function makeWidget(label, build) {
  return { render: ({ model, el: host }) => begin(model, host, label, build) };
}

function begin(model, host, label, build) {
  const status = el("p.status", { role: "status" });
  // Notebooks have shortcuts on single letters: none of them may act while somebody is in here.
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
    solo: soloist(),
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
