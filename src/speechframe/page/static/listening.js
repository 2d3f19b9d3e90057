// Show a listening test. Sounds have the names A, B and so on. The page does not contain their conditions.

import { alertLine, el, tell } from "./core/dom.js";
import { makeWidget } from "./core/widget.js";
import { trialView } from "./listening/trial.js";

/** Make the view before the first trial, with the introduction, the consent and the questions. */
function startView(plan, { send }) {
  const fields = plan.questions.map(({ name, label, kind, choices: offered, required }) => {
    const input = kind === "choice"
      ? el("select", { required }, el("option", { value: "" }), ...offered.map((text) => el("option", text)))
      : el("input", { required, ...(kind === "number" ? { type: "number", step: "any" } : { type: "text", dir: "auto" }) });
    return { name, input, node: el("label.lt-field", el("span", label), input) };
  });
  const agreed = el("input", { type: "checkbox", required: true });
  const trouble = alertLine();
  const begin = el("button", { type: "submit", class: "spf-main" }, "Begin");
  const submit = (event) => {
    event.preventDefault();
    send({
      kind: "begin", consent: plan.consent == null || agreed.checked,
      answers: Object.fromEntries(fields.map(({ name, input }) => [name, input.value])),
    });
  };
  const node = el("form.lt-start", { submit }, el("p", plan.intro),
    ...fields.map((field) => field.node),
    plan.consent == null ? null : el("label.lt-consent", agreed, el("span", plan.consent)),
    el("div.row", begin), trouble);
  return { node, refuse: (text) => tell(trouble, text), dispose() {} };
}

export default makeWidget("Listening test", (shell) => {
  const { get, root } = shell;
  const stage = el("div");
  const { title } = get("plan");
  if (!root.parentNode.querySelector("h1")) root.append(el("h2.lt-title", title));
  root.append(stage, shell.status);
  root.ariaLabel = title;
  const done = new Set();
  let hasBegun = false;
  let view = null;
  let reveals = false;

  const show = (act) => {
    const plan = get("plan");
    const place = plan.trials.findIndex(({ trial }) => !done.has(trial));
    reveals = false;
    shell.say("");
    view?.dispose();
    if (!hasBegun) {
      view = startView(plan, shell);
    } else if (place < 0) {
      const text = "Thank you. That was the last trial. All your votes are saved.";
      view = { node: el("p.lt-prompt", { tabindex: "-1" }, text), dispose() {} };
    } else {
      view = trialView(plan.trials[place], plan, shell, { place: place + 1, total: plan.trials.length });
    }
    stage.replaceChildren(view.node);
    if (act && hasBegun) view.node.focus({ preventScroll: true });
  };
  const sync = () => {
    const plan = get("plan");
    const started = plan.begun && !hasBegun;
    hasBegun ||= plan.begun;
    plan.done.forEach((trial) => done.add(trial));
    // The listener may have voted in another view of this test.
    if (!view || started || (done.has(view.trial) && !view.waiting && !reveals)) show(view !== null || document.activeElement === document.body);
  };
  shell.hear((message) => {
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
    } else if (["refused", "lost"].includes(message?.kind)) {
      if (message.done) done.add(message.trial);
      if (message.done && view?.trial === message.trial) show(true);
      else if (message.trial == null || view?.trial === message.trial) view?.refuse?.(message.message);
    }
  });
  shell.follow(["plan"], sync);
  shell.onEnd(() => view?.dispose());
});
