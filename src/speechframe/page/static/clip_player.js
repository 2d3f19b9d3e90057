// Clips one under the other; ratings by key or by click.

import { button, el, follow, frame, put } from "./core/dom.js";
import { counted } from "./core/words.js";
import { loader, soloist } from "./core/audio.js";
import { clipView } from "./core/clip.js";

const RATINGS = [1, 2, 3, 4, 5];

/** The five marks of a clip as radio buttons: the chosen one, or the first, is reached by Tab. */
function ratingGroup(clip, rate) {
  const marks = RATINGS.map((mark) => button(String(mark), () => rate(mark), {
    role: "radio", "aria-checked": "false", "aria-label": `${mark} of 5`,
  }));
  const node = el("div", { class: "spf-row spf-rates", role: "radiogroup", "aria-label": `Rating of ${clip.label}` }, ...marks);
  const step = (event) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = Math.min(RATINGS.length - 1, Math.max(0, marks.indexOf(event.target) + by));
    rate(RATINGS[next]);
    marks[next].focus();
  };
  node.addEventListener("keydown", step);
  const show = (rating) => marks.forEach((node, place) => {
    node.setAttribute("aria-checked", String(RATINGS[place] === rating));
    node.tabIndex = RATINGS[place] === (rating ?? RATINGS[0]) ? 0 : -1;
  });
  return { node, show };
}

export default {
  render({ model, el: host }) {
    const shell = frame(host, "Clips");
    const clips = loader(model);
    const solo = soloist();
    const list = el("div", {});
    shell.root.append(shell.status, list);
    let views = [];

    const one = (clip) => {
      const rate = (rating) => {
        put(model, { ratings: { ...model.get("ratings"), [clip.id]: rating } });
        shell.say(`${clip.label}: rated ${rating} of 5`);
      };
      const rating = ratingGroup(clip, rate);
      const keys = Object.fromEntries(RATINGS.map((mark) => [String(mark), () => rate(mark)]));
      const played = () => put(model, {
        plays: { ...model.get("plays"), [clip.id]: (model.get("plays")[clip.id] ?? 0) + 1 },
      });
      const view = clipView({
        clip, outline: model.get("outlines")[clip.id], clips, solo, shell, keys, on: { play: played },
      });
      view.node.setAttribute("aria-label", `${view.node.getAttribute("aria-label")}, 1 to 5 rate`);
      if (model.get("rates")) view.node.append(rating.node);
      return { ...view, show: () => rating.show(model.get("ratings")[clip.id]) };
    };
    const build = () => {
      views.forEach((view) => view.dispose());
      views = model.get("clips").map(one);
      list.replaceChildren(...views.map((view) => view.node));
      views.forEach((view) => view.show());
      const more = model.get("total") - views.length;
      shell.say(more > 0 ? `the first ${counted(views.length)} of ${counted(model.get("total"), "clip")}` : "");
    };
    follow(model, ["clips"], build, shell);
    follow(model, ["ratings"], () => views.forEach((view) => view.show()), shell);
    return () => {
      views.forEach((view) => view.dispose());
      clips.forget();
      shell.dispose();
    };
  },
};
