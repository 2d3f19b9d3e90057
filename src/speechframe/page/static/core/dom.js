// Make elements, set their texts and handle keys.

// Elements that contain texts of users. The writing direction of each is found from its text. Spans are left out,
// because the text around a span should take its direction into account.
const TEXTS = ["p", "h2", "strong", "dd", "textarea", "option", "legend", "label"];

/**
 * Make an element: el("p.dim", { role: "note" }, "text", node). Attributes are optional. Attributes that are false
 * or null are not set, and true becomes an attribute without a value. A function becomes an event listener. `label`
 * is the text for screen readers.
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

/** Make a line for errors. Screen readers read a text that `tell` writes into this line. */
export const alertLine = (name = "error") => el(`p.${name}`, { role: "alert", hidden: true });

/** Set the text of an element if it differs. Screen readers would read an equal text again. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set the text of an element, and hide the element if the text is empty. */
export function tell(node, text) {
  node.hidden = !text;
  write(node, text || "");
}

/** Handle keys in an element. `actOf(event)` returns the handler of a key, or nothing. Ctrl, Alt and Meta are ignored. */
export function onKeys(node, actOf, options) {
  node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = actOf(event);
    if (!act) return;
    event.preventDefault();
    act(event);
  }, options);
}
