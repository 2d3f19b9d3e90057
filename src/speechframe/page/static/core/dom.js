// Elements, their texts and their keys.

// What holds texts of the user: each runs in its own direction. Not spans: what is in them would not count for the
// text around them.
const TEXTS = ["p", "h2", "strong", "dd", "textarea", "option", "legend", "label"];

/**
 * Make an element: el("p.dim", { role: "note" }, "text", node). Attributes may be left out; of them, false and
 * null ones are not set, true ones stand without a value, functions listen, and `label` is what screen readers read.
 */
export function el(what, ...kids) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (TEXTS.includes(tag)) node.dir = "auto";
  if (classes.length) node.className = classes.map((name) => `spf-${name}`).join(" ");
  const attrs = kids[0]?.constructor === Object ? kids.shift() : {};
  for (const [name, value] of Object.entries(attrs)) {
    if (value === false || value == null) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name === "label" ? "aria-label" : name, value === true ? "" : value);
  }
  node.append(...kids.filter((kid) => kid != null));
  return node;
}

export function button(text, click, attrs = {}) {
  return el("button", { type: "button", ...attrs, click }, text);
}

export function choice(label, options, current, onChange) {
  const select = el("select", { label, change: () => onChange(select.value) },
    ...options.map(([value, text]) => el("option", { value }, text)));
  select.value = options.some(([value]) => value === current) ? current : "";
  return select;
}

/** Make a line that screen readers read out when `tell` puts something there. */
export const alertLine = (name = "error") => el(`p.${name}`, { role: "alert", hidden: true });

/** Set a text if it is another one: what is set again is read out again. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set a text, and hide its element where there is none. */
export function tell(node, text) {
  node.hidden = !text;
  write(node, text || "");
}

/** Let keys act in an element: `actOf(event)` finds what they do. With Ctrl, Alt or Meta they are the browser's. */
export function onKeys(node, actOf, options) {
  node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = actOf(event);
    if (!act) return;
    event.preventDefault();
    act(event);
  }, options);
}
