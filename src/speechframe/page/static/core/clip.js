// One clip, in every widget that plays: button, waveform, words that light up, and the keys.

import { alertLine, button, el, onKeys, tell } from "./dom.js";
import { inWords, wordAt, wordBeside } from "./words.js";
import { paint, view } from "./wave.js";
import { sound } from "./audio.js";

const STEP_S = 0.5;

/**
 * Make the view of a clip.
 *
 * shell     of `makeWidget`
 * clip      { id, label, words, seconds, problem }: what the page knows of it
 * outline   the waveform's outline, as `view` takes it
 * name      what it is called here (by default its label)
 * hint      what else screen readers say of its keys
 * keys      further keys: key -> what it does
 * extra     elements at the end of the head (buttons, badges)
 * on        { play(), ended() }, both optional
 * make      `sound`, or what makes another one of its kind
 *
 * Returns { node, sound, change(clip, outline), dispose }.
 */
export function clipView(shell, clip, outline, { name = clip.label, hint = "", keys = {}, extra = [], on = {}, make = sound } = {}) {
  const { signal } = shell;
  let words = [];
  let spans = [];
  let data = null;
  let lit = -1;
  const sign = el("span", { "aria-hidden": "true" });
  const start = button(sign, () => player.toggle(), { class: "spf-play" });
  const time = el("span.time");
  const canvas = el("canvas.wave", { role: "img" });
  const trouble = alertLine();
  const line = el("p.words");
  const node = el("div.clip", {
    role: "group", tabindex: "0", "data-clip": clip.id,
    label: `${name}. Space plays, left and right arrows move by word${hint}`,
  }, el("div.head", start, el("strong", name), ...extra, time), canvas, line, trouble);

  const fill = (newOutline) => {
    words = clip.words ?? [];
    data = view(newOutline);
    canvas.ariaLabel = `Waveform of ${name}, ${inWords(clip.seconds)}`;
    // Words that only have other times stay: somebody may be reading them.
    if (spans.length && spans.length === words.length && spans.every((span, k) => span.textContent === words[k][0])) return;
    lit = -1;
    spans = words.map(([word], place) =>
      el("span.word", { "data-word": place, click: () => player.seek(words[place][1] / 1000) }, word));
    line.replaceChildren(...spans.flatMap((span) => [span, " "]), words.length ? "" : clip.text ?? "");
  };
  const redraw = () => {
    const ms = player.seconds * 1000;
    const now = player.started ? wordAt(words, ms) : -1;
    if (now !== lit) {
      for (const span of [spans[lit], spans[now]].filter(Boolean)) {
        span.ariaCurrent = span.classList.toggle("spf-lit") || null;
      }
      lit = now;
      // A long text scrolls by itself; the page stays where it is.
      if (spans[now]) line.scrollTop = spans[now].offsetTop - line.clientHeight / 2;
    }
    sign.textContent = player.playing ? "❚❚" : "▶";
    start.ariaLabel = `${player.playing ? "Pause" : "Play"} ${name}`;
    time.textContent = player.loading ? "loading…" : `${player.seconds.toFixed(2)} / ${inWords(clip.seconds)}`;
    const problem = player.problem ?? clip.problem;
    tell(trouble, problem);
    node.dataset.state = problem ? "error" : player.playing ? "playing" : "still";
    paint(canvas, data, clip.seconds ? player.seconds / clip.seconds : 0);
  };
  const player = make(shell, {
    id: clip.id, audioSeconds: clip.seconds,
    on: { change: redraw, play: () => on.play?.(), ended: () => on.ended?.() },
  });
  if (clip.problem) start.disabled = canvas.hidden = time.hidden = true;

  const move = (step) => {
    const place = wordBeside(words, player.seconds * 1000, step);
    player.seek(place < 0 ? player.seconds + step * STEP_S : words[place][1] / 1000);
  };
  const acts = { " ": () => player.toggle(), ArrowRight: () => move(1), ArrowLeft: () => move(-1), ...keys };
  canvas.addEventListener("click", (event) =>
    player.seek((event.offsetX / canvas.clientWidth) * clip.seconds), { signal });
  // A button does by itself what the space bar asks of it.
  onKeys(node, ({ key, target }) => (key !== " " || !target.closest("button, input, select, textarea")) && acts[key], { signal });

  const resized = new ResizeObserver(() => {
    redraw();
    line.tabIndex = line.scrollHeight > line.clientHeight ? 0 : -1;
  });
  resized.observe(canvas);
  const endTheme = shell.onTheme(redraw);
  fill(outline);
  redraw();
  return {
    node,
    sound: player,
    change(newClip, newOutline) {
      clip = newClip;
      fill(newOutline);
      redraw();
    },
    dispose() {
      endTheme();
      resized.disconnect();
      player.dispose();
    },
  };
}

/** Put views of clips into `list` instead of the old ones, and return them. */
export function shelve(list, old, views) {
  old.forEach((view) => view.dispose());
  list.replaceChildren(...views.map((view) => view.node));
  return views;
}
