// Show a trial with its sounds and its question. The listener can vote after playing all sounds.

import { alertLine, button, el, onKeys, tell, write } from "../core/dom.js";
import { ASKS, listed } from "./asks.js";
import { called, OPEN, playButton, trialSounds } from "./sounds.js";

const PATIENCE_MS = 10000; // time to wait for the reply to a vote

export function trialView(trial, plan, shell, { place, total }) {
  let ask = null;
  const changed = () => ask && show();
  const heard = trialSounds(trial, shell, changed);
  const plays = new Map(heard.slots.map((slot) => [slot, playButton(slot, heard)]));
  ask = ASKS[plan.method](trial, plan, changed, plays, heard);
  const next = button("Next", () => vote(), { class: "spf-main" });
  const hint = el("span.dim", { role: "status" });
  const trouble = alertLine();
  // On a page with several scales, each play button is beside its scale.
  const isOnTop = (slot) => !ask.played || slot === OPEN;
  const order = trial.x ? ["A", "X", "B"] : heard.slots;
  const name = `Trial ${place} of ${total}`;
  const node = el("div.lt-trial", { role: "group", tabindex: "-1", label: name },
    el("div.head",
      el("strong", name),
      trial.training ? el("span.badge", { "data-tone": "warn" }, "Practice: does not count") : null,
      el("progress", { max: total, value: place - 1, label: "Trials done" })),
    el("p.lt-prompt", trial.prompt),
    el("div.row.lt-plays", ...order.filter(isOnTop).map((slot) => plays.get(slot).node)),
    ask.node,
    el("div.row", next, hint),
    trouble,
    el("p.dim.lt-keys", `Keys: ${ask.help}.`));
  let waiting = false;
  let patience = 0;

  const unheard = () => heard.slots.filter((slot) => !heard.isHeard(slot) && !heard.isFailed(slot));
  const broken = () => heard.slots.filter(heard.isFailed);
  const can = () => !waiting && !unheard().length && (ask.isDone() || broken().length > 0);
  const hints = () => {
    if (waiting) return "Saving…";
    if (unheard().length) return `Listen to ${listed(unheard().map(called))} first, for ${plan.rules.listen_s} s or to the end.`;
    return ask.isDone() ? "" : `Now ${ask.missing()}.`;
  };
  function show() {
    plays.forEach((one) => one.show());
    ask.enable(!unheard().length);
    next.disabled = !can();
    write(hint, hints());
    if (broken().length && trouble.hidden) tell(trouble, `${listed(broken().map(called))} cannot be played. Please continue without.`);
  }
  function settle() {
    clearTimeout(patience);
    waiting = false;
    show();
  }
  function vote() {
    if (!can()) return;
    waiting = true;
    show();
    patience = setTimeout(() => {
      tell(trouble, "Your vote is not saved yet, because there was no reply. Please try again.");
      settle();
    }, PATIENCE_MS);
    shell.send({ kind: "vote", trial: trial.trial, ...ask.vote(), ...heard.report(), voted_ms: Date.now() });
  }
  const play = (slot) => {
    if (!slot || heard.isFailed(slot)) return;
    heard.toggle(slot);
    ask.played?.(slot);
  };
  const keys = { Enter: vote, " ": () => play(heard.now ?? heard.slots[0]), ...ask.keys };
  heard.slots.forEach((slot) => { keys[slot.toLowerCase()] = () => play(slot); });
  onKeys(node, ({ key, target }) => {
    // The browser handles these keys on buttons and sliders.
    if (target.matches("button") && (key === "Enter" || key === " ")) return null;
    if (target.matches("input[type=range]") && key.startsWith("Arrow")) return null;
    return keys[key] ?? keys[key.toLowerCase()];
  });
  show();
  return {
    node,
    trial: trial.trial,
    refuse(text) {
      settle();
      tell(trouble, text);
    },
    reveal(told, goOn) {
      clearTimeout(patience);
      const text = Object.entries(told).map(([slot, of]) => `${slot} was ${of}`).join(", ");
      const on = button("Continue", goOn, { class: "spf-main", "aria-description": text });
      heard.dispose();
      node.replaceChildren(node.firstChild, el("p.lt-prompt", text), el("div.row", on));
      on.focus();
    },
    get waiting() { return waiting; },
    dispose() {
      clearTimeout(patience);
      heard.dispose();
    },
  };
}
