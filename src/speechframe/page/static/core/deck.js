// Control a list of clips: keys that move between clips, and the controls of the chosen clip.

import { button, choice, el, onKeys, write } from "./dom.js";
import { downloadClip, SPEEDS } from "./audio.js";

const ZOOMS = [1, 2, 4, 8, 16];
const LOOPS = ["Loop (L)", "Loop to here (L)", "End loop (L)"];

/**
 * Make the controls for the clips in the element `list`. Only the chosen clip is reached by the Tab key.
 *
 * node                 element with the controls
 * show(views)          sets the views of `clipView`, and keeps the chosen clip
 * handlers(id, play)   returns handlers for `clipView`. `play` is called after each start of the clip
 */
export function makeDeck(shell, list) {
  const { tuning, signal, say } = shell;
  let views = [];
  let chosen = null;
  let isPlayingAll = false;

  const tuned = (values) => {
    Object.assign(tuning, values);
    for (const view of views) {
      view.sound.tune?.();
      view.redraw();
    }
  };
  const option = (name, label, values, sign) => el("label", label, choice(label,
    values.map((value) => [String(value), `${value}${sign}`]), String(tuning[name]), (value) => tuned({ [name]: Number(value) })));
  const all = button("Play all", () => playAll());
  const name = el("bdi.dim");
  const volume = el("input", { type: "range", min: 0, max: 1, step: 0.05, value: tuning.volume, input: () => tuned({ volume: Number(volume.value) }) });
  const loop = button(LOOPS[0], () => chosen.loop(), { title: "Press at the start and at the end of a part, or drag over the waveform" });
  const save = button("Download", () => downloadClip(shell, chosen.clip.id, chosen.clip.label));
  const copy = button("Copy id", async () => {
    const id = chosen.clip.row_id;
    // Some pages may not write to the clipboard. Then the id is shown for copying by hand.
    await navigator.clipboard?.writeText(id).then(() => say(`copied: ${id}`), () => say(`id: ${id}`)) ?? say(`id: ${id}`);
  });
  const equal = el("input", { type: "checkbox", change: () => tuned({ isEqual: equal.checked }) });
  equal.checked = tuning.isEqual;
  const isEqual = el("label", { title: "Louder clips of a text are played as soft as the softest one" }, equal, "Equal loudness");
  const node = el("div.row.deck", { role: "group", label: "Controls" }, all, option("speed", "Speed", SPEEDS, "×"), el("label", "Volume", volume),
    option("zoom", "Zoom", ZOOMS, "×"), isEqual, loop, save, copy, name);

  const refresh = () => {
    const isSilent = !chosen || Boolean(chosen.clip.problem);
    const { range } = chosen ?? {};
    write(all, isPlayingAll ? "Stop" : "Play all");
    write(loop, LOOPS[!range ? 0 : range[1] == null ? 1 : 2]);
    write(name, views.length > 1 ? chosen?.clip.label ?? "" : "");
    loop.disabled = save.disabled = isSilent;
    copy.disabled = !chosen;
  };
  const choose = (view) => {
    if (view !== chosen) {
      chosen?.reach(false);
      chosen = view;
      chosen.reach(true);
    }
    refresh();
  };
  const go = (view) => {
    choose(view);
    view.node.focus({ preventScroll: true });
    view.node.scrollIntoView({ block: "nearest" });
  };
  const start = async (place) => {
    const view = views.slice(Math.max(0, place)).find(({ clip }) => !clip.problem);
    isPlayingAll = Boolean(view);
    refresh();
    if (!view) return;
    if (list.contains(document.activeElement)) go(view);
    else {
      choose(view);
      view.node.scrollIntoView({ block: "nearest" });
    }
    await view.sound.play();
    if (isPlayingAll && chosen === view && view.sound.problem) start(views.indexOf(view) + 1);
  };
  const playAll = () => {
    const isStopping = isPlayingAll;
    isPlayingAll = false;
    if (isStopping) chosen.sound.pause();
    else start(views.indexOf(chosen));
    refresh();
  };
  const steps = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity };
  onKeys(list, ({ key, target }) => steps[key] && !target.closest("input, select, textarea, .spf-words") && (() => {
    go(views[Math.max(0, Math.min(views.indexOf(chosen) + steps[key], views.length - 1))]);
  }), { signal });
  list.addEventListener("focusin", ({ target }) => {
    const view = views.find((one) => one.node.contains(target));
    if (view) choose(view);
  }, { signal });
  return {
    node,
    show(newViews) {
      views = newViews;
      const kept = views.find(({ clip }) => clip.id === chosen?.clip.id) ?? views[0];
      views.forEach((view) => view.reach(false));
      [chosen, isPlayingAll] = [null, false];
      all.hidden = views.length < 2;
      isEqual.hidden = views.every(({ clip }) => clip.gain == null);
      node.hidden = !views.length;
      if (kept) choose(kept);
    },
    handlers: (id, play) => ({
      play() {
        choose(views.find(({ clip }) => clip.id === id));
        play?.();
      },
      pause() {
        if (chosen?.clip.id === id) isPlayingAll = false;
        refresh();
      },
      ended: () => isPlayingAll && start(views.indexOf(chosen) + 1),
      change: () => chosen?.clip.id === id && refresh(),
    }),
  };
}
