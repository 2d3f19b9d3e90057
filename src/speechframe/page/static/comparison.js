// The same texts by several voices, side by side: switching keeps the place, so that ears compare and not memory.

import { button, el, follow, frame, put } from "./core/dom.js";
import { counted } from "./core/words.js";
import { loader, soloist } from "./core/audio.js";
import { clipView } from "./core/clip.js";

/** One text: a clip a voice, of which one is the active one. */
function textGroup({ model, shell, clips, solo, group, place }) {
  let active = 0;
  const sides = group.clips.map((clip, k) => {
    const prefer = button("Prefer", () => choose(k), { "aria-label": `Prefer ${clip.voice} for text ${place + 1}`, "aria-pressed": "false" });
    const view = clipView({
      clip, outline: model.get("outlines")[clip.id], clips, solo, shell, name: clip.label,
      extra: [prefer], on: { play: () => activate(k) },
    });
    return { ...view, prefer, clip };
  });
  const activate = (k) => {
    active = k;
    switches.forEach((node, at) => node.setAttribute("aria-pressed", String(at === k)));
  };
  const switchTo = async (k) => {
    const from = sides[active].sound;
    const at = from.seconds;
    const was = from.playing;
    from.pause();
    activate(k);
    await sides[k].sound.seek(at);
    if (was) sides[k].sound.play();
  };
  const choose = (k) => {
    const voice = sides[k].clip.voice;
    put(model, { preferred: { ...model.get("preferred"), [place]: voice } });
    shell.say(`Text ${place + 1}: ${voice} preferred`);
  };
  const switches = sides.map(({ clip }, k) =>
    button(`${k + 1} ${clip.label}`, () => switchTo(k), { "aria-pressed": String(k === 0), "aria-label": `Switch to ${clip.label}`, disabled: Boolean(clip.problem) }));
  const node = el("section", { class: "spf-group", "aria-label": `Text ${place + 1}` },
    el("h2", {}, group.text),
    el("div", { class: "spf-row", role: "group", "aria-label": `Voices of text ${place + 1}; keys 1 to ${sides.length} switch` }, ...switches),
    ...sides.map((side) => side.node));
  node.addEventListener("keydown", (event) => {
    const k = Number(event.key) - 1;
    if (!(k in sides) || sides[k].clip.problem || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    switchTo(k);
  }, { signal: shell.signal });
  const show = () => sides.forEach(({ prefer, clip }) =>
    prefer.setAttribute("aria-pressed", String(model.get("preferred")[place] === clip.voice)));
  show();
  return { node, show, dispose: () => sides.forEach((side) => side.dispose()) };
}

export default {
  render({ model, el: host }) {
    const shell = frame(host, "Comparison of voices");
    const clips = loader(model);
    const solo = soloist();
    const cost = el("p", {});
    const start = button("Generate", () => {
      start.disabled = true;
      model.send({ kind: "generate" });
    }, { class: "spf-main" });
    const bar = el("progress", { "aria-label": "Clips made" });
    const offer = el("div", { class: "spf-row" }, start, bar);
    const list = el("div", {});
    shell.root.append(cost, offer, shell.status, list);
    let groups = [];

    const offered = () => {
      const stage = model.get("stage");
      cost.textContent = model.get("cost");
      offer.hidden = stage === "ready";
      start.textContent = `Generate for ${model.get("price")}`;
      start.disabled = stage !== "planned";
      start.hidden = stage === "running";
      bar.hidden = stage !== "running";
      bar.max = Math.max(1, model.get("total"));
      bar.value = model.get("done");
      if (stage === "running") shell.say(`${counted(model.get("done"))} of ${counted(model.get("total"), "clip")}`);
      else shell.say(model.get("problem"), Boolean(model.get("problem")));
    };
    const build = () => {
      groups.forEach((group) => group.dispose());
      groups = model.get("groups").map((group, place) => textGroup({ model, shell, clips, solo, group, place }));
      list.replaceChildren(...groups.map((group) => group.node));
    };
    follow(model, ["stage", "cost", "price", "done", "total", "problem"], offered, shell);
    follow(model, ["groups"], build, shell);
    follow(model, ["preferred"], () => groups.forEach((group) => group.show()), shell);
    return () => {
      groups.forEach((group) => group.dispose());
      clips.forget();
      shell.dispose();
    };
  },
};
