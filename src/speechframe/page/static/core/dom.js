// Elements, and the frame every widget stands in.

/** Make an element: attributes that are false or null are left out, true ones stand without a value. */
export function el(tag, attrs = {}, ...kids) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) {
    if (value === false || value == null) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...kids.filter((kid) => kid != null));
  return node;
}

/** Make a button that does something; `attrs` as for `el`. */
export function button(label, onClick, attrs = {}) {
  return el("button", { type: "button", ...attrs, click: onClick }, label);
}

/**
 * Put the frame of a widget into its host.
 *
 * root     where the widget puts its elements
 * signal   ends all listeners that were added with it
 * say(t)   tells screen readers something, and people who look
 * onTheme  is called when light turns to dark: canvases do not repaint themselves
 * onEnd    is called when the widget goes away
 * dispose  takes everything down
 */
export function frame(host, label) {
  const ending = new AbortController();
  const status = el("p", { class: "spf-status", role: "status", "aria-live": "polite" });
  // Notebooks have shortcuts on single letters: none of them may act while somebody is in here.
  const root = el("section", { class: "spf", "aria-label": label, "data-lm-suppress-shortcuts": "true" });
  root.addEventListener("keydown", (event) => event.stopPropagation());
  host.append(root);
  const repaints = new Set();
  const repaint = () => requestAnimationFrame(() => repaints.forEach((paint) => paint()));
  const watcher = new MutationObserver(repaint);
  for (const node of [document.documentElement, document.body]) {
    watcher.observe(node, { attributes: true, attributeFilter: ["data-jp-theme-light", "class", "style"] });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint, { signal: ending.signal });
  const endings = new Set([() => watcher.disconnect(), () => root.remove()]);
  return {
    root,
    status,
    signal: ending.signal,
    say(text, isError = false) {
      status.textContent = text;
      status.classList.toggle("spf-error", isError);
    },
    onTheme: (paint) => repaints.add(paint),
    onEnd: (finish) => endings.add(finish),
    dispose() {
      ending.abort();
      endings.forEach((finish) => finish());
    },
  };
}

/** Call `act` now and whenever one of the model's traits changes; it ends with the frame. */
export function follow(model, names, act, shell) {
  for (const name of names) {
    model.on(`change:${name}`, act);
    shell.onEnd(() => model.off(`change:${name}`, act));
  }
  act();
}

/** Set traits and send them to Python. */
export function put(model, values) {
  for (const [name, value] of Object.entries(values)) model.set(name, value);
  model.save_changes();
}
