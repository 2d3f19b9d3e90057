// The same texts by several voices, side by side: switching keeps the place.
// Each text is a grid of its own, so that what the voices say of it stands on one line.

import { button, el, onKeys } from "./core/dom.js";
import { counted } from "./core/words.js";
import { clipView, shelve } from "./core/clip.js";
import { makeWidget } from "./core/widget.js";

const SWITCH_KEY = "S";
const KEYS = `Space plays · ← → by word · ${SWITCH_KEY} switches to the next voice at the same place · 1, 2 … to that voice`;

/** One text: a clip a voice, of which one is the active one. */
function textGroup(shell, group, place) {
  const { get, put } = shell;
  let active = 0;
  const sides = group.clips.map((clip, k) => {
    const prefer = button("Prefer", () => choose(k), { label: `Prefer ${clip.voice} for text ${place + 1}`, "aria-pressed": "false" });
    const view = clipView(shell, clip, get("outlines")[clip.id], {
      extra: [prefer], on: { play: () => activate(k) }, hint: `, ${SWITCH_KEY} switches to the next voice`,
    });
    return { ...view, prefer, clip };
  });
  const activate = (k) => {
    active = k;
    switches.forEach((node, at) => { node.ariaPressed = at === k; });
  };
  const switchTo = async (k) => {
    const from = active;
    if (k === from || k === undefined) return;
    const { seconds: at, playing: was } = sides[from].sound;
    sides[from].sound.pause();
    activate(k);
    // The space bar and the arrows are for what is heard now.
    if (sides[from].node.contains(document.activeElement)) sides[k].node.focus({ preventScroll: true });
    await sides[k].sound.seek(at);
    if (was) sides[k].sound.play();
  };
  const switchOn = () => {
    const order = sides.map((_, k) => (active + 1 + k) % sides.length);
    switchTo(order.find((k) => !sides[k].clip.problem));
  };
  const choose = (k) => {
    const voice = sides[k].clip.voice;
    put({ preferred: { ...get("preferred"), [place]: voice } });
    shell.say(`Text ${place + 1}: ${voice} preferred`);
  };
  const switches = sides.map(({ clip }, k) =>
    button(`${k + 1} ${clip.label}`, () => switchTo(k), { "aria-pressed": String(k === 0), label: `Switch to ${clip.label}`, disabled: Boolean(clip.problem) }));
  const node = el("section.group", { label: `Text ${place + 1}` },
    el("h2.cut", { dir: "auto", title: group.text }, group.text),
    el("div.row", { role: "group", label: `Voices of text ${place + 1}` }, ...switches),
    el("div.sides", ...sides.map((side) => side.node)));
  onKeys(node, ({ key }) => {
    if (key.toLowerCase() === SWITCH_KEY.toLowerCase()) return switchOn;
    const k = Number(key) - 1;
    return k in sides && !sides[k].clip.problem && (() => switchTo(k));
  }, { signal: shell.signal });
  const show = () => sides.forEach(({ prefer, clip }) => { prefer.ariaPressed = get("preferred")[place] === clip.voice; });
  show();
  return { node, show, dispose: () => sides.forEach((side) => side.dispose()) };
}

export default makeWidget("Comparison of voices", (shell) => {
  const { get, say } = shell;
  const cost = el("p");
  const start = button("Generate", () => {
    start.disabled = true;
    shell.send({ kind: "generate" });
  }, { class: "spf-main" });
  const bar = el("progress", { label: "Clips made" });
  const offer = el("div.row", start, bar);
  const list = el("div");
  const keys = el("p.dim.keys", KEYS);
  shell.root.append(cost, offer, keys, shell.status, list);
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
    groups = shelve(list, groups, get("groups").map((group, place) => textGroup(shell, group, place)));
    keys.hidden = !groups.length;
  });
  shell.follow(["preferred"], () => groups.forEach((group) => group.show()));
  shell.onEnd(() => shelve(list, groups, []));
});
