// Play a list of clips. Users rate clips with keys or clicks.

import { button, el, onKeys } from "./core/dom.js";
import { counted } from "./core/words.js";
import { clipView, shelve } from "./core/clip.js";
import { makeWidget } from "./core/widget.js";

const RATINGS = [1, 2, 3, 4, 5];
const STEPS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };

/** Make radio buttons for the rating of a clip. The Tab key moves to the chosen button, or to the first. */
function ratingGroup(clip, rate) {
  const marks = RATINGS.map((mark) => button(mark, () => rate(mark), {
    role: "radio", "aria-checked": "false", label: `${mark} of 5`,
  }));
  const node = el("div.row.rates", { role: "radiogroup", label: `Rating of ${clip.label}` }, ...marks);
  onKeys(node, ({ key, target }) => STEPS[key] && ((event) => {
    event.stopPropagation();
    const next = Math.min(RATINGS.length - 1, Math.max(0, marks.indexOf(target) + STEPS[key]));
    rate(RATINGS[next]);
    marks[next].focus();
  }));
  const show = (rating) => marks.forEach((mark, place) => {
    mark.ariaChecked = RATINGS[place] === rating;
    mark.tabIndex = RATINGS[place] === (rating ?? RATINGS[0]) ? 0 : -1;
  });
  return { node, show };
}

export default makeWidget("Clips", (shell) => {
  const { get, put } = shell;
  const list = el("div");
  shell.root.append(shell.status, list);
  let views = [];

  const one = (clip) => {
    const rate = (rating) => {
      put({ ratings: { ...get("ratings"), [clip.id]: rating } });
      shell.say(`${clip.label}: rated ${rating} of 5`);
    };
    const rating = ratingGroup(clip, rate);
    const rates = get("rates") && !clip.problem;
    const keys = rates ? Object.fromEntries(RATINGS.map((mark) => [mark, () => rate(mark)])) : {};
    const play = () => put({ plays: { ...get("plays"), [clip.id]: (get("plays")[clip.id] ?? 0) + 1 } });
    const view = clipView(shell, clip, get("outlines")[clip.id], { keys, on: { play } });
    if (rates) {
      view.node.ariaLabel += ", 1 to 5 rate";
      view.node.append(rating.node);
    }
    return { ...view, show: () => rating.show(get("ratings")[clip.id]) };
  };
  const build = () => {
    views = shelve(list, views, get("clips").map(one));
    views.forEach((view) => view.show());
    const more = get("total") - views.length;
    shell.say(more > 0 ? `the first ${counted(views.length)} of ${counted(get("total"), "clip")}` : "");
  };
  shell.follow(["clips"], build);
  shell.follow(["ratings"], () => views.forEach((view) => view.show()));
  shell.onEnd(() => shelve(list, views, []));
});
