// Show a trial with its sounds and its question. The listener can vote after playing all sounds.

import { alertLine, button, el, tell, write } from "../core/dom.js";
import { ASKS } from "./asks.js";
import { OPEN, playButton, trialSounds } from "./sounds.js";

const VOTE_REPLY_MS = 10000; // time to wait for the reply to a vote

/**
 * Make the view of a trial: { node, trial, actOf(event), refuse(text), reveal(conditions, goOn), dispose }. `actOf` returns
 * the handler of a key.
 */
export function trialView(trial, plan, shell, { at, total }) {
  const { t } = plan;
  const listed = (slots) => new Intl.ListFormat(plan.locale).format(slots.map((slot) => (slot === OPEN ? t("the_reference") : slot)));
  let ask = null;
  const changed = () => ask && show();
  const heard = trialSounds(trial, shell, changed);
  const plays = new Map(heard.slots.map((slot) => [slot, playButton(slot, heard, t)]));
  ask = ASKS[plan.method](trial, { ...plan, listed }, changed, plays, heard);
  const next = button(t("next_trial"), () => vote(), { class: "spf-main" });
  const hint = el("span.dim", { role: "status" });
  const trouble = alertLine();
  // On a page with several scales, each play button is beside its scale.
  const isOnTop = (slot) => !ask.played || slot === OPEN;
  const order = trial.x ? ["A", "X", "B"] : heard.slots;
  const name = t("trial", { at, total });
  const node = el("div.lt-trial", { role: "group", tabindex: "-1", label: name },
    el("div.head",
      el("strong", name),
      trial.training ? el("span.badge", { "data-tone": "warn" }, t("practice")) : null,
      el("progress", { max: total, value: at - 1, label: t("trials_done") })),
    el("p.lt-prompt", trial.prompt),
    // A is on the left in every language, because votes and arrow keys refer to the left and the right.
    el("div.row.lt-plays", { dir: "ltr" }, ...order.filter(isOnTop).map((slot) => plays.get(slot).node)),
    ask.node,
    el("div.row", next, hint),
    trouble,
    el("p.dim.lt-keys", ask.help));
  let waiting = false;
  let patience = 0;

  const unheard = () => heard.slots.filter((slot) => !heard.isHeard(slot) && !heard.isFailed(slot));
  const broken = () => heard.slots.filter(heard.isFailed);
  const can = () => !waiting && !unheard().length && (ask.isDone() || broken().length > 0);
  const hints = () => {
    if (waiting) return t("saving");
    if (unheard().length) return t("listen_first", { slots: listed(unheard()), seconds: plan.listen_s });
    return ask.isDone() ? "" : ask.missing();
  };
  function show() {
    plays.forEach((one) => one.show());
    ask.enable(!unheard().length);
    next.disabled = !can();
    write(hint, hints());
    if (broken().length && trouble.hidden) tell(trouble, t("no_sound", { slots: listed(broken()) }));
  }
  function settle() {
    clearTimeout(patience);
    waiting = false;
    show();
  }
  function vote() {
    if (!can()) return;
    waiting = true;
    // The button loses the focus when it is disabled, and keys must not reach the notebook.
    node.focus({ preventScroll: true });
    show();
    patience = setTimeout(() => {
      tell(trouble, t("no_reply"));
      settle();
    }, VOTE_REPLY_MS);
    shell.send({ kind: "vote", trial: trial.trial, ...ask.vote(), ...heard.report(), voted_ms: Date.now() });
  }
  const play = (slot) => {
    if (!slot || heard.isFailed(slot)) return;
    heard.toggle(slot);
    ask.played?.(slot);
  };
  const keys = { Enter: vote, " ": () => play(heard.now ?? heard.slots[0]), ...ask.keys };
  heard.slots.forEach((slot) => { keys[slot.toLowerCase()] = () => play(slot); });
  show();
  return {
    node,
    trial: trial.trial,
    actOf({ key, target }) {
      // The browser handles these keys on buttons and sliders.
      if (target.matches("button") && (key === "Enter" || key === " ")) return null;
      if (target.matches("input[type=range]") && key.startsWith("Arrow")) return null;
      return keys[key] ?? keys[key.toLowerCase()];
    },
    refuse(text) {
      settle();
      tell(trouble, text);
    },
    reveal(conditions, goOn) {
      clearTimeout(patience);
      const text = Object.entries(conditions).map(([slot, condition]) => t("was", { slot, condition })).join(", ");
      const on = button(t("go_on"), goOn, { class: "spf-main", "aria-description": text });
      const hasFocus = node.contains(document.activeElement);
      heard.dispose();
      node.replaceChildren(node.firstChild, el("p.lt-prompt", text), el("div.row", on));
      if (hasFocus) on.focus();
    },
    dispose() {
      clearTimeout(patience);
      heard.dispose();
    },
  };
}
