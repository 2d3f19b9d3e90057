// Show a listening test. Sounds have the names A, B and so on. The page does not contain their conditions.

import { alertLine, button, el, onKeys, tell, write } from "./core/dom.js";
import { makeWidget } from "./core/widget.js";
import { sound } from "./core/audio.js";
import { textsBy } from "./core/words.js";
import { trialView } from "./listening/trial.js";

/** Make a button that plays a sound of the test, so that the listener can set the volume before the first trial. */
function volumeCheck({ t, trials: [{ reference, slots }] }, shell) {
  const { clip, seconds } = reference ?? slots[0];
  const sign = el("span", { "aria-hidden": "true" });
  const name = el("span");
  const trouble = alertLine();
  const show = () => {
    write(sign, example.playing ? "❚❚ " : "▶ ");
    write(name, t(example.playing ? "pause" : "play", { name: t("example") }));
    tell(trouble, example.problem && t("unplayable"));
  };
  const example = sound(shell, { id: clip, audioSeconds: seconds, on: { change: show } });
  const play = button(sign, () => example.toggle());
  play.append(name);
  show();
  return {
    node: el("div", el("p", t("volume")), el("div.row", play), trouble),
    dispose() {
      example.dispose();
      shell.clips.forget();
    },
  };
}

/** Make the view before the first trial, with the introduction, the consent and the questions. */
function startView(plan, shell) {
  const { t } = plan;
  const fields = plan.questions.map(({ name, label, kind, choices: offered, required }) => {
    const input = kind === "choice"
      ? el("select", { required }, el("option", { value: "" }), ...offered.map((text) => el("option", text)))
      : el("input", { required, ...(kind === "number" ? { type: "number", step: "any" } : { type: "text", dir: "auto" }) });
    return { name, input, node: el("label.lt-field", el("span", label), input) };
  });
  const agreed = el("input", { type: "checkbox", required: true });
  const trouble = alertLine();
  const volume = volumeCheck(plan, shell);
  const submit = (event) => {
    event.preventDefault();
    shell.send({
      kind: "begin", consent: plan.consent == null || agreed.checked,
      answers: Object.fromEntries(fields.map(({ name, input }) => [name, input.value])),
    });
  };
  const node = el("form.lt-start", { submit }, el("p", plan.intro), volume.node, t("stop") ? el("p", t("stop")) : null,
    ...fields.map((field) => field.node),
    plan.consent == null ? null : el("label.lt-consent", agreed, el("span", plan.consent)),
    el("div.row", el("button", { type: "submit", class: "spf-main" }, t("begin"))), trouble);
  return { node, trial: null, refuse: (text) => tell(trouble, text), dispose: volume.dispose };
}

export default makeWidget("Listening test", (shell) => {
  const { get, root } = shell;
  const plan = { ...get("plan"), t: textsBy(get("plan").texts) };
  const { t, title, trials } = plan;
  const stage = el("div");
  const isPage = root.parentNode.querySelector("h1") !== null;
  if (!isPage) root.append(el("h2.lt-title", title));
  root.append(stage, shell.status);
  Object.assign(root, { ariaLabel: title, lang: plan.locale, dir: plan.direction });
  // A click beside the buttons must keep the focus here, because keys would otherwise be commands of the notebook.
  root.tabIndex = -1;
  const done = new Set(plan.done);
  let hasBegun = plan.begun;
  let view = null;

  const show = () => {
    const active = document.activeElement;
    const hasFocus = root.contains(active) || (isPage && active === document.body);
    const at = trials.findIndex(({ trial }) => !done.has(trial));
    shell.say("");
    view?.dispose();
    if (!hasBegun) view = startView(plan, shell);
    else if (at >= 0) view = trialView(trials[at], plan, shell, { at: at + 1, total: trials.length });
    else view = { node: el("p.lt-prompt", { tabindex: "-1" }, `${t("last")} ${t("all_saved")}`), trial: null, dispose() {} };
    stage.replaceChildren(view.node);
    if (hasFocus && hasBegun) view.node.focus({ preventScroll: true });
  };
  // All views of a test get all replies, so a vote in one view moves the other views on, too.
  shell.hear((message) => {
    const { kind, trial = null } = message ?? {};
    const isShown = view.trial === trial;
    if (kind === "begun") {
      hasBegun = true;
      if (isShown) show();
    } else if (kind === "stored" || (kind === "refused" && message.done)) {
      done.add(trial);
      if (isShown && message.reveal) view.reveal(message.reveal, show);
      else if (isShown) show();
    } else if (kind === "lost") view.refuse?.(message.message);
    else if (kind === "refused" && isShown) view.refuse?.(t(message.text ?? "not_accepted", { reason: message.message }));
  });
  // Keys that are pressed in the widget do not reach the document.
  for (const node of isPage ? [root, document] : [root]) onKeys(node, (event) => view.actOf?.(event), { signal: shell.signal });
  show();
  shell.onEnd(() => view.dispose());
});
