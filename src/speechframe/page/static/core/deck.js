// Control a list of clips: keys that move between clips, and the controls of the chosen clip.

import { button, choice, el, onKeys, write } from "./dom.js";
import { downloadClip, SPEEDS } from "./audio.js";
import { fillIn } from "./words.js";

const ZOOMS = [1, 2, 4, 8, 16];
const REACTION_MS = 700; // a key this soon after a new row may be meant for the row before
const DECK_TEXTS = {
  deck: "Controls", play_all: "Play all", stop_all: "Stop", speed: "Speed", volume: "Volume", zoom: "Zoom",
  loop: "Loop (L)", loop_to: "Loop to here (L)", loop_end: "End loop (L)",
  loop_hint: "Press at the start and at the end of a part, or drag over the waveform",
  download: "Download", downloaded: "{file} is downloaded", copy: "Copy id", copied: "copied: {id}", id: "id: {id}",
};

/**
 * Make the controls for the clips in the element `list`. Only the chosen clip is reached by the Tab key.
 *
 * texts     texts of the controls, as in DECK_TEXTS
 * turn      for a page that shows one row at a time. `turn(0)` plays the chosen row. `turn(1)` goes to the next row and
 *           plays it, and returns false if there is none. The page then handles the arrow keys
 *
 * Returns
 *
 * node                 element with the controls
 * play()               plays the chosen clip. If it cannot be played, "Play all" goes on
 * stop()               ends "Play all", but not the clip
 * hasJustTurned()      whether "Play all" went to another row so recently that a key may be meant for the row before
 * show(views)          sets the views of `clipView`, and keeps the chosen clip
 * handlers(id, started)  returns handlers for `clipView`. `started` is called after each start of the clip
 */
export function makeDeck(shell, list, { texts, turn } = {}) {
  const { tuning, signal, say } = shell;
  let views = [];
  let chosen = null;
  let isPlayingAll = false;
  let isTurning = false; // whether "Play all" went to another row whose clip was not shown yet
  let turnedAt = -Infinity;
  const t = (name, values) => fillIn({ ...DECK_TEXTS, ...texts }[name], values);

  const tuned = (values) => {
    Object.assign(tuning, values);
    for (const view of views) {
      view.sound?.tune?.();
      view.redraw();
    }
  };
  const option = (name, values) => el("label", t(name), choice(t(name),
    values.map((value) => [String(value), `${value}×`]), String(tuning[name]), (value) => tuned({ [name]: Number(value) })));
  const all = button("", () => playAll());
  const name = el("bdi.dim");
  const volume = el("input", { type: "range", min: 0, max: 1, step: 0.05, value: tuning.volume, input: () => tuned({ volume: Number(volume.value) }) });
  const loop = button("", () => chosen.loop(), { title: t("loop_hint") });
  const save = button(t("download"), () => downloadClip(shell, chosen.clip.id, chosen.clip.label, t("downloaded")));
  const copy = button(t("copy"), async () => {
    const id = chosen.clip.row_id;
    // Some pages may not write to the clipboard. Then the id is shown for copying by hand.
    await navigator.clipboard?.writeText(id).then(() => say(t("copied", { id })), () => say(t("id", { id }))) ?? say(t("id", { id }));
  });
  const equal = el("input", { type: "checkbox", change: () => tuned({ isEqual: equal.checked }) });
  equal.checked = tuning.isEqual;
  const isEqual = el("label", { title: "Louder clips of a text are played as soft as the softest one" }, equal, "Equal loudness");
  const node = el("div.row.deck", { role: "group", label: t("deck") }, all, option("speed", SPEEDS), el("label", t("volume"), volume),
    option("zoom", ZOOMS), isEqual, loop, save, copy, name);

  const refresh = () => {
    const isSilent = !chosen || Boolean(chosen.clip.problem);
    const { range } = chosen ?? {};
    write(all, t(isPlayingAll ? "stop_all" : "play_all"));
    write(loop, t(!range ? "loop" : range[1] == null ? "loop_to" : "loop_end"));
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
  const play = async () => {
    const view = chosen;
    if (!view) return;
    if (!view.clip.problem) await view.sound.play();
    if (isPlayingAll && chosen === view && (view.clip.problem ?? view.sound.problem)) start(1);
  };
  const turnInList = (by) => {
    const view = views.slice(Math.max(0, views.indexOf(chosen) + by)).find(({ clip }) => !clip.problem);
    if (!view) return false;
    if (list.contains(document.activeElement)) go(view);
    else {
      choose(view);
      view.node.scrollIntoView({ block: "nearest" });
    }
    play();
    return true;
  };
  const start = (by) => {
    isPlayingAll = true; // `turn` shows the next row, and a row that is shown may end "Play all"
    isTurning = by > 0;
    isPlayingAll = (turn ?? turnInList)(by);
    isTurning &&= isPlayingAll;
    refresh();
  };
  const stop = () => {
    isPlayingAll = false;
    refresh();
  };
  const playAll = () => {
    if (!isPlayingAll) start(0);
    else {
      chosen?.sound?.pause();
      stop();
    }
  };
  const steps = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity };
  onKeys(list, ({ key, target }) => !turn && steps[key] && !target.closest("input, select, textarea, .spf-words") && (() => {
    go(views[Math.max(0, Math.min(views.indexOf(chosen) + steps[key], views.length - 1))]);
  }), { signal });
  list.addEventListener("focusin", ({ target }) => {
    const view = views.find((one) => one.node.contains(target));
    if (view) choose(view);
  }, { signal });
  return {
    node,
    play,
    stop,
    hasJustTurned: () => performance.now() - turnedAt < REACTION_MS,
    show(newViews) {
      views = newViews;
      const kept = views.find(({ clip }) => clip.id === chosen?.clip.id) ?? views[0];
      views.forEach((view) => view.reach(false));
      chosen = null;
      if (isTurning) turnedAt = performance.now();
      isTurning &&= !views.length;
      isPlayingAll &&= Boolean(turn);
      all.hidden = !turn && views.length < 2;
      isEqual.hidden = views.every(({ clip }) => clip.gain == null);
      node.hidden = !turn && !views.length;
      if (kept) choose(kept);
      else refresh();
    },
    handlers: (id, started) => ({
      play() {
        choose(views.find(({ clip }) => clip.id === id));
        started?.();
      },
      pause() {
        if (chosen?.clip.id === id) stop();
      },
      ended: () => isPlayingAll && start(1),
      change: () => chosen?.clip.id === id && refresh(),
    }),
  };
}
