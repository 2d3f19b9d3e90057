// Play a list of clips. Users rate clips with keys or clicks.

import { alertLine, el, tell } from "./core/dom.js";
import { counted } from "./core/words.js";
import { clipView, factsOf, shelve } from "./core/clip.js";
import { makeDeck } from "./core/deck.js";
import { ratingGroup, RATINGS } from "./core/rating.js";
import { makeWidget } from "./core/widget.js";

const CLIP_KEYS = "Space plays · ← → by word · ↑ ↓ Home End other clip · L loops";

export default makeWidget("Clips", (shell) => {
  const { get, put } = shell;
  const list = el("div");
  const banner = alertLine("banner");
  const deck = makeDeck(shell, list);
  shell.root.append(banner, deck.node, el("p.dim.keys", CLIP_KEYS + (get("rates") ? " · 1 to 5 rate" : "")), shell.status, list);
  let views = [];

  const one = (clip) => {
    const rate = (rating) => {
      put({ ratings: { ...get("ratings"), [clip.id]: rating } });
      shell.say(`${clip.label}: rated ${rating} of 5`);
    };
    const rating = ratingGroup(`Rating of ${clip.label}`, (mark) => `${mark} of 5`, rate);
    const rates = get("rates") && !clip.problem;
    const keys = rates ? Object.fromEntries(RATINGS.map((mark) => [mark, () => rate(mark)])) : {};
    const play = () => put({ plays: { ...get("plays"), [clip.id]: (get("plays")[clip.id] ?? 0) + 1 } });
    const view = clipView(shell, clip, get("outlines")[clip.id], { keys, facts: factsOf(clip), on: deck.handlers(clip.id, play) });
    if (rates) {
      view.node.ariaLabel += ", 1 to 5 rate";
      view.node.append(rating.node);
    }
    let isReachable = true;
    const show = () => rating.show(get("ratings")[clip.id], isReachable);
    const { reach } = view;
    return Object.assign(view, { show, reach(reachable) {
      isReachable = reachable;
      reach(reachable);
      show();
    } });
  };
  const build = () => {
    views = shelve(list, views, get("clips").map(one));
    deck.show(views);
    const more = get("total") - views.length;
    shell.say(more > 0 ? `the first ${counted(views.length)} of ${counted(get("total"), "clip")}` : "");
  };
  shell.follow(["clips"], build);
  shell.follow(["ratings"], () => views.forEach((view) => view.show()));
  shell.follow(["trouble"], () => tell(banner, get("trouble")));
  shell.onEnd(() => shelve(list, views, []));
});
