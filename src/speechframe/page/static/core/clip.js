// Show one clip with its button, waveform, highlighted words and keys. All players use this view.

import { alertLine, button, el, onKeys, tell } from "./dom.js";
import { fillIn, inWords, wordAt, wordBeside } from "./words.js";
import { paint, view } from "./wave.js";
import { sound } from "./audio.js";

const STEP_S = 0.5; // seconds by which arrow keys move in a clip without words
const CLIP_TEXTS = {
  clip: "{name}. Space plays, left and right arrows move by word", waveform: "Waveform of {name}, {length}",
  play: "Play {name}", pause: "Pause {name}", loading: "loading…",
};

/**
 * Make the view of a clip.
 *
 * shell     the shell from `makeWidget`
 * clip      data of the clip: { id, label, words, seconds, problem }
 * outline   outline of the waveform, in a format that `view` of wave.js accepts
 * name      name of the clip on the page (by default its label)
 * hint      further text about keys, for screen readers
 * keys      handlers of further keys, by key
 * extra     elements at the end of the head, such as buttons and badges
 * on        handlers { play(), ended() }, both optional
 * texts     texts of the view, as in CLIP_TEXTS
 * make      `sound`, or a function that returns an object with the same methods
 *
 * Returns { node, sound, change(clip, outline), dispose }.
 */
export function clipView(shell, clip, outline, { name = clip.label, hint = "", keys = {}, extra = [], on = {}, texts = CLIP_TEXTS, make = sound } = {}) {
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
    label: fillIn(texts.clip, { name }) + hint,
  }, el("div.head", start, el("strong", name), ...extra, time), canvas, line, trouble);

  const fill = (newOutline) => {
    words = clip.words ?? [];
    data = view(newOutline);
    canvas.ariaLabel = fillIn(texts.waveform, { name, length: inWords(clip.seconds) });
    // If only the times changed, the elements of the words are kept, so that the text does not move.
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
      // Only the text scrolls to the current word, because the page must not move.
      if (spans[now]) line.scrollTop = spans[now].offsetTop - line.clientHeight / 2;
    }
    sign.textContent = player.playing ? "❚❚" : "▶";
    start.ariaLabel = fillIn(player.playing ? texts.pause : texts.play, { name });
    time.textContent = player.loading ? texts.loading : `${player.seconds.toFixed(2)} / ${inWords(clip.seconds)}`;
    const problem = player.problem ?? clip.problem;
    tell(trouble, problem);
    node.dataset.state = problem ? "error" : player.playing ? "playing" : "still";
    paint(canvas, data, clip.seconds ? player.seconds / clip.seconds : 0);
  };
  const player = make(shell, {
    id: clip.id, audioSeconds: clip.seconds, unplayable: texts.unplayable,
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
  // The browser handles the space bar on buttons and fields.
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

/** Replace the old views of clips in the element `list` by new views, and return the new views. */
export function shelve(list, old, views) {
  old.forEach((view) => view.dispose());
  list.replaceChildren(...views.map((view) => view.node));
  return views;
}
