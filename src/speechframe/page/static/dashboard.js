// Show a run: its figures, the amount left, the newest clips, and the buttons Stop and Resume.

import { alertLine, button, el, onKeys, tell, write } from "./core/dom.js";
import { counted } from "./core/words.js";
import { clipView } from "./core/clip.js";
import { makeWidget } from "./core/widget.js";

const SVG = "http://www.w3.org/2000/svg";
const AFAR = "another process makes this run: it can be watched here, and stopped there";
const TONES = { finished: "good", stopped: "warn" };

function svg(tag, attrs, ...kids) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attrs)) node.setAttribute(name, value);
  node.append(...kids);
  return node;
}

/**
 * Draw the credits or characters left over time, with a forecast. The chart begins at zero, so that a small decrease
 * looks small. Amounts are negated, because y grows downwards.
 */
function chart({ points, forecast, words }) {
  const all = [...points, ...forecast];
  const lefts = all.map(([, y]) => y);
  const [most, least] = [Math.max(0, ...lefts), Math.min(0, ...lefts)];
  const path = (those) => those.map(([x, y]) => `${x},${-y}`).join(" ");
  const plot = svg("svg", {
    viewBox: `0 ${-most} ${all.at(-1)[0] || 1} ${most - least || 1}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "spf-burn",
  },
  svg("polyline", { points: path(points), class: "spf-line" }),
  svg("polyline", { points: path(forecast), class: "spf-ahead", "stroke-dasharray": "7 5" }));
  // The texts are outside the plot, because the plot is stretched.
  const scale = el("div.scale", { "aria-hidden": "true" }, el("span", counted(most)), el("span", counted(least)));
  return el("div.chart", { role: "img", label: words }, scale, plot);
}

const toned = (tone, text, name) => [el("span.badge", { "data-tone": tone, "data-figure": name }, text), " "];

function codes(title, by, tone) {
  const found = Object.entries(by).sort((a, b) => b[1] - a[1]);
  if (!found.length) return [];
  return [el("p.codes", `${title} `, ...found.flatMap(([code, count]) => toned(tone, `${code} × ${counted(count)}`)))];
}

export default makeWidget("Run", (shell) => {
  const { get, say } = shell;
  const state = el("span.badge", { "data-role": "status" });
  const banner = alertLine("banner");
  const fill = el("div.fill");
  const bar = el("div.bar", { role: "progressbar", label: "Calls with an outcome", "aria-valuemin": "0" }, fill);
  const pace = el("p.pace");
  const tallies = el("p.tallies");
  const why = el("div");
  const plot = el("figure.figure");
  const list = el("div");
  const newest = el("details", { open: true, hidden: true }, el("summary", "Newest clips"), list);
  const ask = (kind, more) => {
    shell.send({ kind, ...more });
    say(kind === "stop" ? "stopping: calls in flight finish first" : "resuming what is missing");
  };
  const stop = button("Stop", () => ask("stop"), { title: "Calls in flight finish, the rest stays pending" });
  const most = el("input", { type: "number", min: "0", step: "any" });
  const resume = button("Resume", () => ask("resume"), { class: "spf-main", title: "Makes only what is missing, and keeps max_credits" });
  const more = button("Resume with more", () => ask("resume", { max_credits: Number(most.value) }), { title: "Makes only what is missing, up to this max_credits" });
  const raise = el("div.row.raise", el("label", "max_credits", most), more, el("span.dim", { dir: "auto" }));
  onKeys(most, ({ key }) => key === "Enter" && (() => more.click()));
  shell.root.append(
    el("div.head", el("strong", get("heading")), state, el("span.dim", { dir: "auto" }, get("folder"))),
    banner, bar, pace, tallies, why, plot, el("div.row", stop, resume, shell.status), raise, newest,
  );

  let said = null;
  const show = () => {
    const f = get("figures");
    const asked = get("asked");
    state.textContent = { stop: "stopping", resume: "resuming" }[asked] ?? f.status;
    state.dataset.tone = f.alarms ? "bad" : TONES[f.status] ?? "";
    const trouble = get("trouble");
    tell(banner, trouble || (f.alarms && `The run stopped (${f.because}): ${f.words}`));
    bar.ariaValueMax = f.total;
    bar.ariaValueNow = f.ended;
    bar.ariaValueText = f.so_far;
    fill.style.width = `${f.total ? (100 * f.ended) / f.total : 100}%`;
    write(pace, f.pace);
    tallies.replaceChildren(...f.tallies.flatMap(([name, text, tone]) => toned(tone, text, name)));
    why.replaceChildren(...codes("Failed:", f.failed_by, "bad"), ...codes("Tried again:", f.retried_by, "warn"));
    raise.hidden = !f.can_resume || asked !== "" || !get("offer").words;
    stop.disabled = !f.can_stop || asked !== "";
    resume.disabled = !f.can_resume || asked !== "";
    const now = f.status + f.because + asked + trouble;
    // Screen readers read the banner, so the status line does not repeat its text.
    const calm = f.alarms ? "" : f.words;
    if (said !== null && now !== said && !asked) say(calm ? `${f.status}: ${calm}` : f.status);
    else if (said === null) say(calm || (f.status === "running" && !f.can_stop ? AFAR : ""));
    said = now;
  };
  const draw = () => {
    const burn = get("burn");
    plot.hidden = burn.points.length < 2;
    if (!plot.hidden) plot.replaceChildren(chart(burn), el("figcaption.dim", burn.words));
  };

  const views = new Map();
  const listen = () => {
    const wanted = get("clips");
    newest.hidden = !wanted.length;
    const ids = new Set(wanted.map((clip) => clip.id));
    for (const [id, view] of views) {
      // A clip stays while it plays or has the focus.
      if (ids.has(id) || view.sound.playing || view.node.contains(document.activeElement)) continue;
      view.dispose();
      view.node.remove();
      views.delete(id);
    }
    for (const clip of [...wanted].reverse()) {
      if (views.has(clip.id)) continue;
      const view = clipView(shell, clip, get("outlines")[clip.id]);
      views.set(clip.id, view);
      list.prepend(view.node);
    }
  };
  const offer = () => {
    const { max_credits: enough = "", spent_credits: spent = 0, words = "" } = get("offer");
    most.value = enough;
    most.min = spent;
    write(raise.lastChild, words);
    show();
  };
  shell.follow(["figures", "asked", "trouble"], show);
  shell.follow(["offer"], offer);
  shell.follow(["burn"], draw);
  shell.follow(["clips"], listen);
  shell.onEnd(() => views.forEach((view) => view.dispose()));
});
