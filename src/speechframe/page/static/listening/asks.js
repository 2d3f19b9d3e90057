// Make the question of a trial, by method of the test. Each question is an object:
//
// node           element with the controls
// keys, help     key handlers by key, and a text about the keys
// isDone()       returns whether the listener has answered
// missing()      returns the next step as text, such as "Now choose one."
// vote()         returns the answer as fields of the message
// enable(can)    allows or forbids answers
// played(slot)   is called after a sound was started (optional)

import { el } from "../core/dom.js";

const FIFTHS = [10, 30, 50, 70, 90];

/**
 * Make a question with one choice. `options` are pairs [value, text]. `keys(choose, step)` returns the key handlers.
 * `vote(value)` returns the answer as fields of the message.
 */
function choices({ prompt }, { method, t }, changed, { options, keys, vote }) {
  // The random name separates these radio buttons from those of other tests on the same page.
  const name = `spf-lt-${Math.random().toString(36).slice(2)}`;
  const inputs = options.map(([value]) => el("input", { type: "radio", name, value, change: () => changed() }));
  const node = el("fieldset.lt-choices", { dir: "ltr" }, el("legend.hidden", prompt),
    ...options.map(([, text], place) => el("label", inputs[place], text)));
  const place = () => inputs.findIndex((input) => input.checked);
  const choose = (wanted) => {
    if (node.disabled) return;
    const input = inputs[Math.max(0, Math.min(inputs.length - 1, wanted))];
    input.checked = true;
    input.focus();
    changed();
  };
  const step = (by) => choose(place() < 0 ? (by > 0 ? 0 : inputs.length - 1) : place() + by);
  return {
    node, help: t(`keys_${method}`), keys: keys(choose, step),
    isDone: () => place() >= 0,
    missing: () => t("choose_now"),
    vote: () => vote(options[place()]?.[0] ?? null),
    enable(can) { node.disabled = !can; },
  };
}

function ab(trial, plan, changed) {
  const { t } = plan;
  return choices(trial, plan, changed, {
    options: [["A", t("better", { slot: "A" })], ["tie", t("tie")], ["B", t("better", { slot: "B" })]],
    keys: (choose) => ({ ArrowLeft: () => choose(0), ArrowDown: () => choose(1), ArrowRight: () => choose(2) }),
    vote: (choice) => ({ choice }),
  });
}

function abx(trial, plan, changed) {
  return choices(trial, plan, changed, {
    options: ["A", "B"].map((slot) => [slot, plan.t("same", { slot })]),
    keys: (choose) => ({ ArrowLeft: () => choose(0), ArrowRight: () => choose(1) }),
    vote: (answer) => ({ answer }),
  });
}

function mos(trial, plan, changed) {
  const { low, labels } = plan.scale;
  return choices(trial, plan, changed, {
    options: labels.map((text, place) => [low + place, `${low + place} ${text}`]),
    keys: (choose, step) => ({
      ...Object.fromEntries(labels.map((_, place) => [low + place, () => choose(place)])),
      ArrowLeft: () => step(-1), ArrowDown: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => step(1),
    }),
    vote: (score) => ({ scores: { [trial.slots[0].slot]: score } }),
  });
}

/** Make a question with a scale for each sound. A scale that the listener has not touched does not have a score. */
function page(trial, { listed, scale, t }, changed, plays, heard) {
  const { low, high, labels } = scale;
  const scales = new Map();
  const slots = trial.slots.map(({ slot }) => slot);
  const word = (score) => labels[Math.min(labels.length - 1, Math.floor(((score - low) / (high - low)) * labels.length))];
  const rows = slots.map((slot) => {
    const out = el("output.lt-score", "–");
    const input = el("input.lt-range", {
      type: "range", min: low, max: high, step: scale.step, value: (low + high) / 2,
      label: t("score_of", { slot }), "aria-valuetext": t("not_rated"),
    });
    const one = {
      input,
      score: null,
      take() {
        one.score = Number(input.value);
        input.classList.add("spf-lt-touched");
        input.ariaValueText = `${one.score}, ${word(one.score)}`;
        out.textContent = one.score;
        changed();
      },
    };
    // A click on the middle does not change the value, so "pointerup" is needed to count it as a score.
    for (const name of ["input", "pointerup"]) input.addEventListener(name, one.take);
    scales.set(slot, one);
    return el("div.lt-row", plays.get(slot).node, input, out);
  });
  const head = el("div.lt-row.lt-scale", { "aria-hidden": "true" }, el("span"),
    el("span.lt-labels", ...labels.map((text) => el("span", { dir: "auto" }, text))), el("span"));
  const focus = (slot) => scales.get(slot)?.input.focus({ preventScroll: true });
  const set = (slot, score) => {
    const one = scales.get(slot);
    if (!one) return;
    one.input.value = score;
    focus(slot);
    one.take();
  };
  const open = () => slots.filter((slot) => scales.get(slot).score == null && !heard.isFailed(slot));
  return {
    node: el("div.lt-page", { dir: "ltr" }, head, ...rows),
    keys: Object.fromEntries(FIFTHS.map((part, place) => [place + 1, ({ target }) =>
      set(slots.find((slot) => scales.get(slot).input === target) ?? heard.now, low + ((high - low) * part) / 100)])),
    help: t(trial.reference ? "keys_reference" : "keys_multi", { first: slots[0], last: slots.at(-1) }),
    isDone: () => !open().length,
    missing: () => t("rate_now", { slots: listed(open()) }),
    vote: () => ({ scores: Object.fromEntries(slots.map((slot) => [slot, scales.get(slot).score])) }),
    enable() {},
    played: focus,
  };
}

export const ASKS = { ab, abx, mos, multi: page, mushra: page };
