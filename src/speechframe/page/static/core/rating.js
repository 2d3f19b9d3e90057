// Rate a clip from 1 to 5.

import { button, el, onKeys } from "./dom.js";

export const RATINGS = [1, 2, 3, 4, 5];
const STEPS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };

/**
 * Make radio buttons for a rating. `labelOf(mark)` names a mark, and `rate(mark)` is called for a chosen mark. The Tab
 * key moves to the chosen button, or to the first. It leaves out a group that is not reachable. Returns
 * { node, show(rating, isReachable) }.
 */
export function ratingGroup(label, labelOf, rate) {
  const marks = RATINGS.map((mark) => button(mark, () => rate(mark), {
    role: "radio", "aria-checked": "false", label: labelOf(mark),
  }));
  const node = el("div.row.rates", { role: "radiogroup", label }, ...marks);
  onKeys(node, ({ key, target }) => STEPS[key] && ((event) => {
    event.stopPropagation();
    const next = Math.min(RATINGS.length - 1, Math.max(0, marks.indexOf(target) + STEPS[key]));
    rate(RATINGS[next]);
    marks[next].focus();
  }));
  const show = (rating, isReachable = true) => marks.forEach((mark, place) => {
    mark.ariaChecked = RATINGS[place] === rating;
    mark.tabIndex = isReachable && RATINGS[place] === (rating ?? RATINGS[0]) ? 0 : -1;
  });
  return { node, show };
}
