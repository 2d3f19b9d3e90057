// Compare voices on the same texts, side by side. Switching to another voice keeps the playing position.

import { button, el, onKeys, write } from "./core/dom.js";
import { counted } from "./core/words.js";
import { clipView, factsOf, shelve } from "./core/clip.js";
import { makeDeck } from "./core/deck.js";
import { makeWidget } from "./core/widget.js";

const KEYS = "Space plays · ← → by word · ↑ ↓ other clip · L loops · S switches to the next voice at the same place · P prefers · U undoes";

/**
 * Make the group of one text, with one clip for each voice. The switch starts from the active clip. `prefer(place, voice)`
 * stores the preferred voice of a text, or no voice.
 */
function textGroup(shell, group, place, deck, prefer) {
  const { get } = shell;
  const sides = group.clips.map((clip) => {
    const choose = () => prefer(place, get("preferred")[place] === clip.voice ? null : clip.voice);
    const mark = button("Prefer", choose, { label: `Prefer ${clip.voice} for text ${place + 1}` });
    const view = clipView(shell, clip, get("outlines")[clip.id], {
      extra: [mark], facts: factsOf({ ...clip, voice: "" }), keys: { p: choose },
      on: deck.handlers(clip.id, () => activate(view)), hint: ", S switches to the next voice, P prefers",
    });
    return Object.assign(view, { mark });
  });
  const audible = sides.filter(({ clip }) => !clip.problem);
  let active = audible[0];
  const next = () => audible[(audible.indexOf(active) + 1) % audible.length];
  const switchOn = async () => {
    const from = active;
    const { seconds, playing } = from.sound;
    from.sound.pause();
    activate(next());
    // The space bar and the arrows control the clip with the focus.
    if (from.node.contains(document.activeElement)) active.node.focus({ preventScroll: true });
    const to = active;
    await to.sound.seek(seconds);
    if (playing) to.sound.play();
  };
  const change = button("", switchOn, { disabled: audible.length < 2 });
  const activate = (side) => {
    active = side;
    write(change, audible.length < 2 ? "Switch (S)" : `Switch to ${next().clip.label} (S)`);
  };
  activate(active);
  const node = el("section.group", { label: `Text ${place + 1}` },
    el("h2.cut", { title: group.text }, group.text), el("div.row", change),
    el("div.sides", ...sides.map((side) => side.node)));
  onKeys(node, ({ key }) => key.toLowerCase() === "s" && !change.disabled && switchOn, { signal: shell.signal });
  const show = () => sides.forEach(({ mark, clip }) => { mark.ariaPressed = get("preferred")[place] === clip.voice; });
  show();
  return { node, sides, show, dispose: () => sides.forEach((side) => side.dispose()) };
}

export default makeWidget("Comparison of voices", (shell) => {
  const { get, put, say } = shell;
  const cost = el("p");
  const start = button("Generate", () => {
    start.disabled = true;
    shell.send({ kind: "generate" });
  }, { class: "spf-main" });
  const bar = el("progress", { label: "Clips made" });
  const offer = el("div.row", start, bar);
  const list = el("div");
  const keys = el("p.dim.keys", KEYS);
  const deck = makeDeck(shell, list);
  const before = []; // preferred voices before each change
  const store = (preferred, text) => {
    put({ preferred });
    undo.disabled = !before.length;
    say(text);
  };
  const takeBack = () => before.length && store(before.pop(), "undone");
  const undo = button("Undo (U)", takeBack, { disabled: true });
  const prefer = (place, voice) => {
    const { [place]: old, ...others } = get("preferred");
    before.push(get("preferred"));
    store(voice ? { ...others, [place]: voice } : others, `Text ${place + 1}: ${voice ? `${voice} preferred` : `${old} not preferred any more`}`);
  };
  deck.node.lastChild.before(undo);
  onKeys(list, ({ key }) => key.toLowerCase() === "u" && takeBack, { signal: shell.signal });
  shell.root.append(cost, offer, deck.node, keys, shell.status, list);
  let groups = [];

  const offered = () => {
    const stage = get("stage");
    cost.textContent = get("cost");
    offer.hidden = stage === "ready";
    start.textContent = `Generate for ${get("price")}`;
    start.disabled = stage !== "planned";
    start.hidden = stage === "running";
    bar.hidden = stage !== "running";
    bar.max = Math.max(1, get("total"));
    bar.value = get("done");
    if (stage === "running") say(`${counted(get("done"))} of ${counted(get("total"), "clip")}`);
    else say(get("problem"), get("problem"));
  };
  shell.follow(["stage", "cost", "price", "done", "total", "problem"], offered);
  shell.follow(["groups"], () => {
    groups = shelve(list, groups, get("groups").map((group, place) => textGroup(shell, group, place, deck, prefer)));
    deck.show(groups.flatMap(({ sides }) => sides));
    keys.hidden = !groups.length;
  });
  shell.follow(["preferred"], () => groups.forEach((group) => group.show()));
  shell.onEnd(() => shelve(list, groups, []));
});
