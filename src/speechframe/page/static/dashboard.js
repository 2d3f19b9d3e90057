// A run while it is made: figures, what is left, the newest clips, and buttons that stop and resume.

import { button, el, follow, frame } from "./core/dom.js";
import { counted } from "./core/words.js";
import { loader, soloist } from "./core/audio.js";
import { clipView } from "./core/clip.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDE = 640;
const HIGH = 140;
const TALLIES = [
  ["done", "done", ""], ["cached", "from the cache", ""], ["suspect", "suspect", "warn"], ["failed", "failed", "bad"],
  ["charged_unknown", "without an answer", "bad"], ["retries", "retries", ""],
];
const AFAR = "another process makes this run: it can be watched here, and stopped there";
const TONES = { running: "", finished: "good", stopped: "warn", planned: "" };

/** Seconds to go, as people say them. */
export function togo(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A number of what is left, with no more digits than it needs. */
const left = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 3 });

/** What the chart shows, in words. */
export function burnInWords({ unit, of, points, forecast }) {
  if (!points.length) return "Nothing was spent yet.";
  const [first, last] = [points[0], points.at(-1)];
  const what = { balance: "Balance of the key", budget: "Budget of the run", price: "Still to be spent" }[of];
  const now = `${what}: ${left(first[1])} ${unit} at the start, ${left(last[1])} after ${togo(last[0])}`;
  if (!forecast.length) return `${now}.`;
  const [seconds, then] = forecast[1];
  if (then >= 0) return `${now}; at this rate ${left(then)} at the end, in about ${togo(seconds - last[0])}.`;
  const empty = last[0] + ((seconds - last[0]) * last[1]) / (last[1] - then);
  return `${now}; at this rate nothing is left in about ${togo(empty - last[0])}, before the run ends.`;
}

/** Where points lie in the chart: y from the least to the most that was left. */
export function scaled(points, forecast, wide = WIDE, high = HIGH) {
  const all = [...points, ...forecast];
  const end = Math.max(...all.map(([x]) => x), 1e-9);
  const most = Math.max(...all.map(([, y]) => y));
  const least = Math.min(...all.map(([, y]) => y));
  const room = most - least || 1;
  const place = ([x, y]) => [(x / end) * wide, ((most - y) / room) * high];
  return { line: points.map(place), ahead: forecast.map(place), most, least };
}

function svg(tag, attrs, ...kids) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attrs)) node.setAttribute(name, value);
  node.append(...kids);
  return node;
}

function chart(burn) {
  const { line, ahead, most, least } = scaled(burn.points, burn.forecast);
  const path = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const plot = svg("svg", {
    viewBox: `-4 -4 ${WIDE + 8} ${HIGH + 8}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "spf-burn",
  },
  svg("line", { x1: 0, x2: WIDE, y1: HIGH, y2: HIGH, class: "spf-axis" }),
  svg("line", { x1: 0, x2: 0, y1: 0, y2: HIGH, class: "spf-axis" }),
  svg("polyline", { points: path(line), class: "spf-line" }),
  svg("polyline", { points: path(ahead), class: "spf-ahead", "stroke-dasharray": "7 5" }));
  // Beside the plot, not in it: it is stretched, and letters are not.
  const scale = el("div", { class: "spf-scale", "aria-hidden": "true" }, el("span", {}, left(most)), el("span", {}, left(least)));
  return el("div", { class: "spf-chart", role: "img", "aria-label": burnInWords(burn) }, scale, plot);
}

/** Codes and how often each came, as badges. */
function codes(title, by, tone) {
  const found = Object.entries(by).sort((a, b) => b[1] - a[1]);
  if (!found.length) return null;
  return el("p", { class: "spf-codes" }, `${title} `,
    ...found.flatMap(([code, count]) => [el("span", { class: "spf-badge", "data-tone": tone }, `${code} × ${counted(count)}`), " "]));
}

export default {
  render({ model, el: host }) {
    const shell = frame(host, "Run");
    const sounds = loader(model);
    const solo = soloist();
    const state = el("span", { class: "spf-badge", "data-role": "status" });
    const banner = el("p", { class: "spf-banner", role: "alert", hidden: true });
    const fill = el("div", { class: "spf-fill" });
    const bar = el("div", { class: "spf-bar", role: "progressbar", "aria-label": "Calls with an outcome", "aria-valuemin": "0" }, fill);
    const pace = el("p", { class: "spf-pace" });
    const tallies = el("p", { class: "spf-tallies" });
    const why = el("div", {});
    const plot = el("figure", { class: "spf-figure" });
    const list = el("div", {});
    const newest = el("details", { open: true, hidden: true }, el("summary", {}, "Newest clips"), list);
    const ask = (kind) => {
      model.send({ kind });
      shell.say(kind === "stop" ? "stopping: calls in flight finish first" : "resuming what is missing");
    };
    const stop = button("Stop", () => ask("stop"), { title: "Calls in flight finish, the rest stays pending" });
    const resume = button("Resume", () => ask("resume"), { class: "spf-main", title: "Makes only what is missing" });
    shell.root.append(
      el("div", { class: "spf-head" }, el("strong", {}, model.get("heading")), state, el("span", { class: "spf-dim" }, model.get("folder"))),
      banner, bar, pace, tallies, why, plot, el("div", { class: "spf-row" }, stop, resume, shell.status), newest,
    );

    let said = null;
    const show = () => {
      const f = model.get("figures");
      const asked = model.get("asked");
      const trouble = model.get("trouble");
      const ended = f.done + f.cached + f.suspect + f.failed + f.charged_unknown;
      state.textContent = asked === "stop" ? "stopping" : asked === "resume" ? "resuming" : f.status;
      state.dataset.tone = f.alarms ? "bad" : TONES[f.status] ?? "";
      const words = trouble || (f.alarms ? `The run stopped (${f.because}): ${f.words}` : "");
      banner.hidden = !words;
      if (banner.textContent !== words) banner.textContent = words;
      bar.setAttribute("aria-valuemax", String(f.total));
      bar.setAttribute("aria-valuenow", String(ended));
      bar.setAttribute("aria-valuetext", `${counted(ended)} of ${counted(f.total, f.unit)}`);
      fill.style.width = `${f.total ? (100 * ended) / f.total : 100}%`;
      pace.textContent = [
        `${counted(ended)} of ${counted(f.total, f.unit)}`,
        f.rate ? `${f.rate.toLocaleString("en-US")} a second` : "",
        f.eta_s != null && f.status === "running" ? `about ${togo(f.eta_s)} to go` : "",
        `${left(f.credits)} credits`,
        f.balance != null ? `${counted(f.balance, "character")} left` : "",
        f.audio_seconds ? `${togo(f.audio_seconds)} of audio` : "",
      ].filter(Boolean).join(" · ");
      tallies.replaceChildren(...TALLIES.filter(([name]) => name === "done" || f[name]).flatMap(([name, label, tone]) => [
        el("span", { class: "spf-badge", "data-tone": tone, "data-figure": name }, `${counted(f[name])} ${label}`), " ",
      ]));
      why.replaceChildren(...[codes("Failed:", f.failed_by, "bad"), codes("Tried again:", f.retried_by, "warn")].filter(Boolean));
      stop.disabled = !f.can_stop || asked !== "";
      resume.disabled = !f.can_resume || asked !== "";
      const now = f.status + f.because + asked;
      // The banner is an alert already: what it says is not said twice.
      const calm = f.alarms ? "" : f.words;
      if (said !== null && now !== said && !asked) shell.say(calm ? `${f.status}: ${calm}` : f.status);
      else if (said === null) shell.say(calm || (f.status === "running" && !f.can_stop ? AFAR : ""));
      said = now;
    };
    const draw = () => {
      const burn = model.get("burn");
      plot.hidden = burn.points.length < 2;
      if (!plot.hidden) plot.replaceChildren(chart(burn), el("figcaption", { class: "spf-dim" }, burnInWords(burn)));
    };

    const views = new Map();
    const listen = () => {
      const wanted = model.get("clips");
      newest.hidden = !wanted.length;
      const ids = new Set(wanted.map((clip) => clip.id));
      for (const [id, view] of views) {
        // A clip that is heard stays until it was heard.
        if (ids.has(id) || view.sound.playing || view.node.contains(document.activeElement)) continue;
        view.dispose();
        view.node.remove();
        views.delete(id);
      }
      const outlines = model.get("outlines");
      for (const clip of [...wanted].reverse()) {
        if (views.has(clip.id)) continue;
        const view = clipView({ clip, outline: outlines[clip.id], clips: sounds, solo, shell });
        views.set(clip.id, view);
        list.prepend(view.node);
      }
    };
    follow(model, ["figures", "asked", "trouble"], show, shell);
    follow(model, ["burn"], draw, shell);
    follow(model, ["clips"], listen, shell);
    return () => {
      views.forEach((view) => view.dispose());
      sounds.forget();
      shell.dispose();
    };
  },
};
