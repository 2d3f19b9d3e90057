// A listening test: hear, then vote. What is heard is called A, B, ... and nothing here knows what it is.

import { button, el, follow, frame } from "./core/dom.js";
import { loader, soloist, sound } from "./core/audio.js";

const PATIENCE_MS = 10000;
const FIFTHS = [10, 30, 50, 70, 90];

const listed = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);
const called = (slot) => (slot === "R" ? "the reference" : slot);

/** The sounds of a trial: one is heard at a time, and the next one goes on where it was. */
function trialSounds(trial, { model, changed }) {
  const ending = new AbortController();
  const clips = loader(model);
  const solo = soloist();
  const all = new Map();
  const lengths = new Map();
  const failed = new Set();
  let now = null;
  let firstPlayMs = null;
  for (const { slot, clip, seconds, needed_s: needed } of [trial.reference, ...trial.slots, trial.x].filter(Boolean)) {
    lengths.set(slot, { seconds, needed });
    all.set(slot, sound({
      id: clip, audioSeconds: seconds, clips, solo, signal: ending.signal,
      on: { change: () => changed(), play: () => { firstPlayMs ??= Date.now(); } },
    }));
    // All are fetched before the first is heard: how long one takes to come must not tell it from the others.
    clips.load(clip).catch(() => {
      failed.add(slot);
      changed();
    });
  }
  const slots = [...all.keys()];
  const each = (read) => Object.fromEntries(slots.map((slot) => [slot, read(all.get(slot))]));
  const isFailed = (slot) => failed.has(slot) || Boolean(all.get(slot).problem);
  return {
    slots,
    isFailed,
    get now() { return now; },
    isPlaying: (slot) => all.get(slot).playing,
    part: (slot) => Math.min(1, all.get(slot).seconds / (lengths.get(slot).seconds || 1)),
    isHeard(slot) {
      const one = all.get(slot);
      return one.plays > 0 && one.heardSeconds >= lengths.get(slot).needed;
    },
    async toggle(slot) {
      const next = all.get(slot);
      if (slot === now) {
        next.toggle();
        return;
      }
      const before = all.get(now);
      const at = before?.started && before.seconds < lengths.get(slot).seconds ? before.seconds : 0;
      before?.pause();
      now = slot;
      await next.seek(at);
      // Whoever asked for another one meanwhile wants to hear that.
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

/** A button that plays a sound, with how far it is and whether it was heard. */
function playButton(slot, heard) {
  const sign = el("span", { "aria-hidden": "true" });
  const bar = el("span", { class: "spf-lt-bar", "aria-hidden": "true" }, el("span", {}));
  const node = button(sign, () => heard.toggle(slot), { class: "spf-lt-play", "data-slot": slot });
  node.append(bar);
  return {
    node,
    show() {
      const playing = heard.isPlaying(slot);
      const done = heard.isHeard(slot);
      const text = `${playing ? "❚❚" : "▶"} ${slot === "R" ? "Reference" : slot}${done ? " ✓" : ""}`;
      if (sign.textContent !== text) sign.textContent = text;
      const label = `${playing ? "Pause" : "Play"} ${called(slot)}${done ? ", heard" : ""}`;
      if (node.getAttribute("aria-label") !== label) node.setAttribute("aria-label", label);
      node.setAttribute("aria-pressed", String(heard.now === slot));
      node.disabled = heard.isFailed(slot);
      bar.firstChild.style.transform = `scaleX(${heard.part(slot)})`;
    },
  };
}

/** One choice of several: [value, text] each. */
function choices(legend, options, changed) {
  // Other tests of the same document have groups of their own.
  const name = `spf-lt-${Math.random().toString(36).slice(2)}`;
  const inputs = options.map(([value]) =>
    el("input", { type: "radio", name, value, change: () => changed() }));
  const node = el("fieldset", { class: "spf-lt-choices" }, el("legend", { class: "spf-hidden" }, legend),
    ...options.map(([, text], place) => el("label", {}, inputs[place], text)));
  const place = () => inputs.findIndex((input) => input.checked);
  return {
    node,
    get value() { return options[place()]?.[0] ?? null; },
    choose(wanted) {
      const input = inputs[Math.max(0, Math.min(inputs.length - 1, wanted))];
      if (node.disabled) return;
      input.checked = true;
      input.focus();
      changed();
    },
    step(by) { this.choose(place() < 0 ? (by > 0 ? 0 : inputs.length - 1) : place() + by); },
    enable(can) { node.disabled = !can; },
  };
}

/** A scale for each sound of a page; what was not touched has no score. */
function sliders(trial, scale, plays, changed) {
  const scores = new Map();
  const word = (score) => scale.labels[Math.min(scale.labels.length - 1, Math.floor(((score - scale.low) / (scale.high - scale.low)) * scale.labels.length))];
  const inputs = new Map();
  const rows = trial.slots.map(({ slot }) => {
    const out = el("output", { class: "spf-lt-score" }, "–");
    const input = el("input", {
      type: "range", min: scale.low, max: scale.high, step: scale.step, value: (scale.low + scale.high) / 2,
      "aria-label": `Score of ${slot}`, "aria-valuetext": "not rated yet", class: "spf-lt-range",
    });
    const take = () => {
      const score = Number(input.value);
      scores.set(slot, score);
      input.classList.add("spf-lt-touched");
      input.setAttribute("aria-valuetext", `${score}, ${word(score)}`);
      out.textContent = String(score);
      changed();
    };
    // A click on the middle changes nothing, and is a score all the same.
    for (const name of ["input", "pointerup"]) input.addEventListener(name, take);
    inputs.set(slot, { input, take });
    return el("div", { class: "spf-lt-row" }, plays.get(slot).node, input, out);
  });
  const head = el("div", { class: "spf-lt-row spf-lt-scale", "aria-hidden": "true" }, el("span", {}),
    el("span", { class: "spf-lt-labels" }, ...scale.labels.map((text) => el("span", {}, text))), el("span", {}));
  return {
    node: el("div", { class: "spf-lt-page" }, head, ...rows),
    has: (slot) => scores.has(slot),
    get value() { return Object.fromEntries(trial.slots.map(({ slot }) => [slot, scores.get(slot) ?? null])); },
    focus: (slot) => inputs.get(slot)?.input.focus({ preventScroll: true }),
    set(slot, score) {
      const one = inputs.get(slot);
      if (!one) return;
      one.input.value = score;
      one.input.focus({ preventScroll: true });
      one.take();
    },
    slotOf: (input) => [...inputs].find(([, one]) => one.input === input)?.[0],
  };
}

/**
 * What is asked by each method: { node, isDone(), vote(), keys, show(canVote), missing() }.
 */
const ASKS = {
  ab(trial, plan, changed) {
    const one = choices(trial.prompt, [
      ["A", "A is better"], ...(plan.rules.ties ? [["tie", "No difference"]] : []), ["B", "B is better"],
    ], changed);
    return pairAsk(one, "choice", { ArrowDown: () => plan.rules.ties && one.choose(1) },
      `A and B play; arrow left A, right B${plan.rules.ties ? ", down no difference" : ""}; Enter goes on`, plan.rules.ties ? 2 : 1);
  },
  abx(trial, plan, changed) {
    return pairAsk(choices(trial.prompt, [["A", "X is A"], ["B", "X is B"]], changed), "answer", {},
      "A, B and X play; arrow left X is A, right X is B; Enter goes on", 1);
  },
  mos(trial, plan, changed) {
    const { low, labels } = plan.scale;
    const one = choices(trial.prompt, labels.map((text, place) => [low + place, `${low + place} ${text}`]), changed);
    const keys = { ArrowLeft: () => one.step(-1), ArrowRight: () => one.step(1) };
    keys.ArrowDown = keys.ArrowLeft;
    keys.ArrowUp = keys.ArrowRight;
    labels.forEach((_, place) => { keys[String(low + place)] = () => one.choose(place); });
    return {
      one, keys, node: one.node, help: `Space plays; ${low} to ${low + labels.length - 1} or arrows choose; Enter goes on`,
      isDone: () => one.value != null, missing: () => "choose one",
      vote: () => ({ scores: { [trial.slots[0].slot]: one.value } }), enable: (can) => one.enable(can),
    };
  },
};

function pairAsk(one, name, more, help, last) {
  const keys = { ArrowLeft: () => one.choose(0), ArrowRight: () => one.choose(last), ...more };
  return {
    one, keys, help, node: one.node, isDone: () => one.value != null, missing: () => "choose one",
    vote: () => ({ [name]: one.value }), enable: (can) => one.enable(can),
  };
}

function pageAsk(trial, plan, changed, plays, heard) {
  const scales = sliders(trial, plan.scale, plays, changed);
  const slots = trial.slots.map(({ slot }) => slot);
  const keys = {};
  FIFTHS.forEach((part, place) => {
    keys[String(place + 1)] = (event) => {
      const { low, high } = plan.scale;
      scales.set(scales.slotOf(event.target) ?? heard.now, low + ((high - low) * part) / 100);
    };
  });
  const open = () => slots.filter((slot) => !scales.has(slot) && !heard.isFailed(slot));
  return {
    keys, node: scales.node, played: (slot) => scales.focus(slot),
    help: `${slots[0]} to ${slots.at(-1)}${trial.reference ? " and R" : ""} play; arrows move the score, 1 to 5 set a step; Enter goes on`,
    isDone: () => !open().length, missing: () => `rate ${listed(open())}`,
    vote: () => ({ scores: scales.value }),
    enable() {},
  };
}

/** A trial on the page; `send` gets the vote. */
function trialView(trial, plan, { model, shell, place, total, send }) {
  let ask = null;
  const changed = () => ask && show();
  const heard = trialSounds(trial, { model, changed });
  const plays = new Map(heard.slots.map((slot) => [slot, playButton(slot, heard)]));
  const make = ASKS[plan.method] ?? pageAsk;
  ask = make(trial, plan, changed, plays, heard);
  const isPage = make === pageAsk;
  const next = button("Next", () => vote(), { class: "spf-main" });
  const hint = el("span", { class: "spf-dim", role: "status" });
  const trouble = el("p", { class: "spf-error", role: "alert", hidden: true });
  const isOnTop = (slot) => !isPage || slot === "R";
  const order = trial.x ? ["A", "X", "B"] : heard.slots;
  const node = el("div", { class: "spf-lt-trial", role: "group", tabindex: "-1", "aria-label": `Trial ${place} of ${total}` },
    el("div", { class: "spf-head" },
      el("strong", {}, `Trial ${place} of ${total}`),
      trial.training ? el("span", { class: "spf-badge", "data-tone": "warn" }, "Practice: does not count") : null,
      el("progress", { max: total, value: place - 1, "aria-label": "Trials done" })),
    el("p", { class: "spf-lt-prompt" }, trial.prompt),
    el("div", { class: "spf-row spf-lt-plays" }, ...order.filter(isOnTop).map((slot) => plays.get(slot).node)),
    ask.node,
    el("div", { class: "spf-row" }, next, hint),
    trouble,
    el("p", { class: "spf-dim spf-lt-keys" }, `Keys: ${ask.help}.`));
  let waiting = false;
  let patience = 0;

  const unheard = () => heard.slots.filter((slot) => !heard.isHeard(slot) && !heard.isFailed(slot));
  const broken = () => heard.slots.filter(heard.isFailed);
  const can = () => !waiting && !unheard().length && (ask.isDone() || broken().length > 0);
  const hints = () => {
    if (waiting) return "Saving…";
    if (unheard().length) return `Listen to ${listed(unheard().map(called))} first: ${plan.rules.listen_s} s, or all of it.`;
    return ask.isDone() ? "" : `Now ${ask.missing()}.`;
  };
  function show() {
    plays.forEach((one) => one.show());
    ask.enable(!unheard().length);
    next.disabled = !can();
    const text = hints();
    if (hint.textContent !== text) hint.textContent = text;
    const problem = broken().length ? `${listed(broken().map(called))} cannot be played; go on without.` : "";
    if (problem && trouble.hidden) say(problem);
  }
  function say(text) {
    trouble.hidden = !text;
    trouble.textContent = text;
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
      say("No answer yet. Your vote is still here: try again.");
      settle();
    }, PATIENCE_MS);
    send({ kind: "vote", trial: trial.trial, ...ask.vote(), ...heard.report(), voted_ms: Date.now() });
  }
  const play = (slot) => {
    if (!slot || heard.isFailed(slot)) return;
    heard.toggle(slot);
    ask.played?.(slot);
  };
  const keys = { Enter: vote, " ": () => play(heard.now ?? heard.slots[0]), ...ask.keys };
  heard.slots.forEach((slot) => { keys[slot.toLowerCase()] = () => play(slot); });
  node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = keys[event.key] ?? keys[event.key.toLowerCase()];
    const onSlider = event.target.matches("input[type=range]");
    // Buttons and sliders do by themselves what these keys ask of them.
    if (!act || (event.target.matches("button") && (event.key === "Enter" || event.key === " "))) return;
    if (onSlider && event.key.startsWith("Arrow")) return;
    event.preventDefault();
    act(event);
  });
  show();
  return {
    node,
    trial: trial.trial,
    refuse(text) {
      settle();
      say(text);
    },
    reveal(told, goOn) {
      clearTimeout(patience);
      const text = Object.entries(told).map(([slot, of]) => `${slot} was ${of}`).join(", ");
      const on = button("Go on", goOn, { class: "spf-main", "aria-description": text });
      heard.dispose();
      node.replaceChildren(node.firstChild, el("p", { class: "spf-lt-prompt" }, text), el("div", { class: "spf-row" }, on));
      on.focus();
    },
    get waiting() { return waiting; },
    dispose() {
      clearTimeout(patience);
      heard.dispose();
    },
  };
}

/** What stands before the first trial: what it is about, consent, questions. */
function startView(plan, send) {
  const fields = plan.questions.map(({ name, label, kind, choices: offered, required }) => {
    const input = kind === "choice"
      ? el("select", { required }, el("option", { value: "" }), ...offered.map((text) => el("option", {}, text)))
      : el("input", { required, ...(kind === "number" ? { type: "number", step: "any" } : { type: "text" }) });
    return { name, input, node: el("label", { class: "spf-lt-field" }, el("span", {}, label), input) };
  });
  const agreed = el("input", { type: "checkbox", required: true });
  const trouble = el("p", { class: "spf-error", role: "alert", hidden: true });
  const begin = el("button", { type: "submit", class: "spf-main" }, "Begin");
  const submit = (event) => {
    event.preventDefault();
    send({
      kind: "begin", consent: plan.consent == null || agreed.checked,
      answers: Object.fromEntries(fields.map(({ name, input }) => [name, input.value])),
    });
  };
  const node = el("form", { class: "spf-lt-start", submit }, el("p", {}, plan.intro),
    ...fields.map((field) => field.node),
    plan.consent == null ? null : el("label", { class: "spf-lt-consent" }, agreed, el("span", {}, plan.consent)),
    el("div", { class: "spf-row" }, begin), trouble);
  return {
    node,
    refuse(text) {
      trouble.hidden = false;
      trouble.textContent = text;
    },
    dispose() {},
  };
}

export default {
  render({ model, el: host }) {
    const hasTitle = Boolean(host.querySelector("h1"));
    const shell = frame(host, model.get("plan").title);
    const stage = el("div", {});
    if (!hasTitle) shell.root.append(el("h2", { class: "spf-lt-title" }, model.get("plan").title));
    shell.root.append(stage, shell.status);
    const done = new Set();
    let hasBegun = false;
    let view = null;
    let reveals = false;
    const send = (message) => model.send(message);

    const put = (next, act) => {
      view?.dispose();
      view = next;
      stage.replaceChildren(next.node);
      if (act) next.node.focus({ preventScroll: true });
    };
    const show = (act) => {
      const plan = model.get("plan");
      reveals = false;
      shell.say("");
      const place = plan.trials.findIndex(({ trial }) => !done.has(trial));
      if (!hasBegun) {
        put(startView(plan, send), false);
      } else if (place < 0) {
        const text = "Thank you. That was the last trial, and all your votes are kept.";
        put({ node: el("p", { class: "spf-lt-prompt", tabindex: "-1" }, text), dispose() {} }, act);
      } else {
        put(trialView(plan.trials[place], plan, { model, shell, place: place + 1, total: plan.trials.length, send }), act);
      }
    };
    const sync = () => {
      const plan = model.get("plan");
      const started = plan.begun && !hasBegun;
      hasBegun ||= plan.begun;
      plan.done.forEach((trial) => done.add(trial));
      // Another view of this test may have gone on.
      if (!view || started || (done.has(view.trial) && !view.waiting && !reveals)) show(view !== null || document.activeElement === document.body);
    };
    const heard = (message) => {
      if (message?.kind === "begun") {
        hasBegun = true;
        if (view?.trial === undefined) show(true);
      } else if (message?.kind === "stored") {
        done.add(message.trial);
        if (view?.trial !== message.trial) return;
        if (message.reveal) {
          reveals = true;
          view.reveal(message.reveal, () => show(true));
        } else show(true);
      } else if (message?.kind === "refused") {
        if (message.done) done.add(message.trial);
        if (message.done && view?.trial === message.trial) show(true);
        else if (message.trial == null || view?.trial === message.trial) view?.refuse?.(message.message);
      }
    };
    model.on("msg:custom", heard);
    follow(model, ["plan"], sync, shell);
    return () => {
      model.off("msg:custom", heard);
      view?.dispose();
      shell.dispose();
    };
  },
};
