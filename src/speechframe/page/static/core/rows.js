// Handle keys and choices in a list of rows for reviews.

/** Return the items of a list from one to another, in the order of the list. */
export function between(items, one, other) {
  const [from, to] = [one, other].map((item) => items.indexOf(item)).sort((a, b) => a - b);
  return items.slice(from, to + 1);
}

/** Return the handler of a key in `acts`, unless the key belongs to a field or a button. */
export function rowKey({ key, target, repeat, defaultPrevented }, acts) {
  if (defaultPrevented || target.closest?.("textarea, select, input:not([type=checkbox]), [role=radiogroup]")) return null;
  // The browser handles these keys on buttons.
  if ((key === " " || key === "Enter") && target.closest?.("button:not(.spf-item), input")) return null;
  const act = acts[key.length === 1 ? key.toLowerCase() : key];
  // A held key must not judge many rows.
  return act && repeat && !key.startsWith("Arrow") ? () => {} : act;
}

/** Scroll a list to a row. The page does not move. */
export function reveal(scroll, row) {
  const [box, shown] = [scroll, row].map((node) => node.getBoundingClientRect());
  if (shown.top < box.top || shown.bottom > box.bottom) scroll.scrollTop += shown.top - box.top - scroll.clientHeight / 2;
}
