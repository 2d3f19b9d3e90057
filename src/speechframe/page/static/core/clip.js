// Show one clip with its button, waveform, text and keys. All players use this view.

import { alertLine, button, el, onKeys, tell, write } from "./dom.js";
import { counted, fillIn, inWords, wordAt, wordBeside } from "./words.js";
import { clippedPlaces, paint, scaleOf, view } from "./wave.js";
import { sound } from "./audio.js";

const STEP_S = 0.5; // seconds by which arrow keys move in a clip without words
const DRAG_PX = 5; // a shorter movement of the pointer is a click
const CLIP_TEXTS = {
  clip: "{name}. Space plays, left and right arrows move by word", waveform: "Waveform of {name}, {length}",
  play: "Play {name}", pause: "Pause {name}", loading: "loading…",
  clipped: "Clipped audio, places: {count}", unsaid: "Not spoken, parts: {count}",
};
const STATUS_TONES = { suspect: "warn", failed: "bad", invalid: "bad", charged_unknown: "bad" };

/** Return elements with status, reason, voice, locale and credits of a clip, for `facts` of `clipView`. */
export function factsOf({ status, reason, voice, locale, credits }) {
  return [
    status && el("span.badge", { "data-tone": STATUS_TONES[status] ?? "" }, status.replace("_", " ")), reason && el("bdi", reason),
    ...[voice, locale, credits != null && counted(credits, "credit")].map((text) => text && el("span", text)),
  ].filter(Boolean);
}

/**
 * Make the view of a clip.
 *
 * shell     the shell from `makeWidget`
 * clip      data of the clip: { id, label, words, seconds, problem, locale, gain }. The words are the pieces of the text
 *           from `place_words` in page/word_times.py
 * outline   outline of the waveform, in a format that `view` of wave.js accepts
 * name      name of the clip on the page (by default its label)
 * hint      further text about keys, for screen readers
 * keys      handlers of further keys, by key
 * extra     elements at the end of the head, such as buttons and badges
 * facts     elements of the line below the head
 * on        handlers { play(), pause(), ended(), change() }, all optional
 * texts     texts of the view, as in CLIP_TEXTS
 * make      `sound`, or a function that returns an object with the same methods
 *
 * Returns { node, clip, sound, range, acts (handlers of keys), redraw, loop, reach(isReachable), change(clip, outline), dispose }. `range` has the
 * start and the end in seconds of the part that repeats. `loop()` sets its start, then its end, and then removes it.
 */
export function clipView(shell, clip, outline, { name = clip.label, hint = "", keys = {}, extra = [], facts = [], on = {}, texts, make = sound } = {}) {
  const { signal, tuning } = shell;
  texts = { ...CLIP_TEXTS, ...texts };
  let pieces = [];
  let words = []; // pieces that are spoken
  let spans = [];
  let data = null;
  let scale = 1;
  let lit = -1;
  let from = 0; // position of the left end of the waveform, 0 to 1
  let drag = null; // position at which the pointer was pressed
  let isReachable = true;
  const sign = el("span", { "aria-hidden": "true" });
  const start = button(sign, () => player.toggle(), { class: "spf-play" });
  const time = el("span.time");
  const canvas = el("canvas.wave", { role: "img" });
  const trouble = alertLine();
  const line = el("p.words", { lang: clip.locale });
  const [clipped, unsaid] = ["bad", "warn"].map((tone) => el("span.badge", { "data-tone": tone, hidden: true }));
  const below = el("div.facts", clipped, unsaid, ...facts);
  const node = el("div.clip", {
    role: "group", tabindex: "0", "data-clip": clip.id,
    label: fillIn(texts.clip, { name }) + hint,
  }, el("div.head", start, el("strong", name), ...extra, time), below, canvas, line, trouble);

  const count = (badge, text, places) => tell(badge, places ? fillIn(text, { count: places }) : "");
  const fill = (newOutline) => {
    const before = pieces;
    pieces = clip.words ?? [];
    if (!pieces.length && clip.text) pieces = [[clip.text]];
    words = pieces.filter(([, startMs]) => startMs != null);
    data = view(newOutline);
    scale = scaleOf(data);
    count(clipped, texts.clipped, clippedPlaces(data));
    canvas.ariaLabel = fillIn(texts.waveform, { name, length: inWords(clip.seconds) });
    // If only the times changed, the elements of the words are kept, so that the text does not move.
    if (before.length === pieces.length && pieces.every(([text, ms], k) => text === before[k][0] && (ms == null) === (before[k][1] == null))) return;
    lit = -1;
    spans = [];
    line.replaceChildren(...pieces.map(([text, ms]) => {
      if (ms === undefined) return text;
      if (ms === null) return el("span.unsaid", text);
      const place = spans.length;
      spans.push(el("span.word", { "data-word": place, click: () => player.seek(words[place][1] / 1000) }, text));
      return spans[place];
    }));
    count(unsaid, texts.unsaid, pieces.length && pieces.filter(([, ms]) => ms === null).length);
    below.hidden = ![...below.children].some((one) => !one.hidden);
  };
  const redraw = () => {
    const { seconds } = player;
    const now = player.started ? wordAt(words, seconds * 1000) : -1;
    if (now !== lit) {
      for (const span of [spans[lit], spans[now]].filter(Boolean)) {
        span.ariaCurrent = span.classList.toggle("spf-lit") || null;
      }
      lit = now;
      // Only the text scrolls to the current word, because the page must not move.
      if (spans[now]) line.scrollTop = spans[now].offsetTop - line.clientHeight / 2;
    }
    write(sign, player.playing ? "❚❚" : "▶");
    start.ariaLabel = fillIn(player.playing ? texts.pause : texts.play, { name });
    write(time, player.loading ? texts.loading : `${inWords(seconds, clip.seconds)} / ${inWords(clip.seconds)}`);
    const problem = player.problem ?? clip.problem;
    tell(trouble, problem);
    node.dataset.state = problem ? "error" : player.playing ? "playing" : "still";
    const position = (at) => (clip.seconds ? Math.min(at, clip.seconds) / clip.seconds : 0);
    const [played, span] = [position(seconds), 1 / tuning.zoom];
    // Like a page of a book, the shown part stays until the position leaves it.
    if (drag == null && (played < from || played > from + span)) from = played - span / 10;
    from = Math.max(0, Math.min(from, 1 - span));
    const range = state.range?.map((at) => position(at ?? Math.max(seconds, state.range[0])));
    paint(canvas, data, { from, to: from + span, played, scale, range });
    on.change?.();
  };
  const player = make(shell, {
    id: clip.id, audioSeconds: clip.seconds, unplayable: texts.unplayable, gain: clip.gain,
    on: { change: redraw, play: () => on.play?.(), pause: () => on.pause?.(), ended: () => on.ended?.() },
  });
  if (clip.problem) start.disabled = canvas.hidden = time.hidden = true;

  const state = {
    node,
    clip,
    sound: player,
    range: null,
    redraw,
    loop() {
      const [begin, end] = state.range ?? [];
      const at = player.seconds;
      setRange(begin == null ? [at, null] : end == null && at > begin ? [begin, at] : null);
    },
    reach(reachable) {
      isReachable = reachable;
      for (const one of [node, start, ...extra.filter((each) => each.matches("button"))]) one.tabIndex = reachable ? 0 : -1;
      fitText();
    },
    change(newClip, newOutline) {
      clip = newClip;
      fill(newOutline);
      redraw();
    },
    dispose() {
      on = {}; // the audio reports its end after this call
      endTheme();
      resized.disconnect();
      player.dispose();
    },
  };
  const setRange = (range) => {
    if (!("loop" in player)) return; // a stream has no part that repeats
    state.range = range;
    player.loop = range?.[1] != null ? range : null;
    redraw();
  };
  const fitText = () => { line.tabIndex = isReachable && line.scrollHeight > line.clientHeight ? 0 : -1; };
  const move = (step) => {
    const place = wordBeside(words, player.seconds * 1000, step);
    player.seek(place < 0 ? player.seconds + step * STEP_S : words[place][1] / 1000);
  };
  const acts = {
    " ": () => player.toggle(), ArrowRight: () => move(1), ArrowLeft: () => move(-1), l: () => state.loop(), ...keys,
  };
  state.acts = acts;
  const listen = (name, act) => canvas.addEventListener(name, act, { signal });
  const secondsAt = (x) => (from + Math.max(0, Math.min(x / canvas.clientWidth, 1)) / tuning.zoom) * clip.seconds;
  // A click moves to a position. Dragging marks the part that repeats.
  listen("pointerdown", (event) => {
    if (event.button) return;
    drag = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  listen("pointermove", ({ offsetX }) => {
    if (drag != null && Math.abs(offsetX - drag) > DRAG_PX) setRange([drag, offsetX].map(secondsAt).sort((a, b) => a - b));
  });
  listen("pointerup", ({ offsetX }) => {
    if (drag == null) return;
    const isDragged = Math.abs(offsetX - drag) > DRAG_PX;
    drag = null;
    player.seek(isDragged ? state.range[0] : secondsAt(offsetX));
  });
  listen("pointercancel", () => { drag = null; });
  // The browser handles the space bar on buttons and fields.
  onKeys(node, ({ key, target }) => (key !== " " || !target.closest("button, input, select, textarea")) && acts[key.length > 1 ? key : key.toLowerCase()], { signal });

  const resized = new ResizeObserver(() => {
    redraw();
    fitText();
  });
  resized.observe(canvas);
  const endTheme = shell.onTheme(redraw);
  fill(outline);
  redraw();
  return state;
}

/** Replace the old views of clips in the element `list` by new views, and return the new views. */
export function shelve(list, old, views) {
  old.forEach((view) => view.dispose());
  list.replaceChildren(...views.map((view) => view.node));
  return views;
}
