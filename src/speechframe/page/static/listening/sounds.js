// Make the sounds of a trial, and the buttons that play them.

import { button, el, write } from "../core/dom.js";
import { sound } from "../core/audio.js";

/** Slot (place of a sound on a page) of the reference that the listener can identify. */
export const OPEN = "R";

/** Make the sounds of a trial. Only one sound plays at a time. Switching to another sound keeps the position. */
export function trialSounds(trial, shell, changed) {
  const { clips } = shell;
  const ending = new AbortController();
  const all = new Map();
  let now = null;
  let firstPlayMs = null;
  for (const { slot, clip, seconds, needed_s: needed } of [trial.reference, ...trial.slots, trial.x].filter(Boolean)) {
    const one = sound({ ...shell, signal: ending.signal }, {
      id: clip, audioSeconds: seconds,
      on: { change: () => changed(), play: () => { firstPlayMs ??= Date.now(); } },
    });
    all.set(slot, Object.assign(one, { length: seconds, needed, failed: false }));
    // All sounds are loaded at the start, so that loading times do not reveal differences between them.
    clips.load(clip).catch(() => {
      one.failed = true;
      changed();
    });
  }
  const slots = [...all.keys()];
  const each = (read) => Object.fromEntries(slots.map((slot) => [slot, read(all.get(slot))]));
  const isFailed = (slot) => all.get(slot).failed || Boolean(all.get(slot).problem);
  return {
    slots,
    isFailed,
    get now() { return now; },
    isPlaying: (slot) => all.get(slot).playing,
    part: (slot) => Math.min(1, all.get(slot).seconds / (all.get(slot).length || 1)),
    isHeard: (slot) => all.get(slot).plays > 0 && all.get(slot).heardSeconds >= all.get(slot).needed,
    async toggle(slot) {
      const next = all.get(slot);
      if (slot === now) {
        next.toggle();
        return;
      }
      const before = all.get(now);
      const at = before?.started && before.seconds < next.length ? before.seconds : 0;
      before?.pause();
      now = slot;
      await next.seek(at);
      // The listener may have chosen another sound while this one was loading.
      if (now === slot && !isFailed(slot)) next.play();
    },
    report: () => ({
      plays: each((one) => one.plays),
      listened_s: each((one) => one.heardSeconds),
      unplayable: slots.filter(isFailed),
      first_play_ms: firstPlayMs,
    }),
    dispose() {
      all.forEach((one) => one.dispose());
      ending.abort();
      clips.forget();
    },
  };
}

export function playButton(slot, heard, t) {
  const sign = el("span", { "aria-hidden": "true" });
  const fill = el("span");
  const node = button(sign, () => heard.toggle(slot), { class: "spf-lt-play", "data-slot": slot });
  node.append(el("span.lt-bar", { "aria-hidden": "true" }, fill));
  return {
    node,
    show() {
      const playing = heard.isPlaying(slot);
      const done = heard.isHeard(slot);
      write(sign, `${playing ? "❚❚" : "▶"} ${slot === OPEN ? t("reference") : slot}${done ? " ✓" : ""}`);
      const act = t(playing ? "pause" : "play", { name: slot === OPEN ? t("the_reference") : slot });
      const label = done ? t("heard", { label: act }) : act;
      if (node.ariaLabel !== label) node.ariaLabel = label;
      node.ariaPressed = heard.now === slot;
      node.disabled = heard.isFailed(slot);
      fill.style.transform = `scaleX(${heard.part(slot)})`;
    },
  };
}
