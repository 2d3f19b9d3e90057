// Play dubs (media files in another language) with their cues (subtitles). Users switch between dub and original,
// and correct utterances.

import { alertLine, button, choice, el, onKeys, tell } from "./core/dom.js";
import { counted, inWords, wordAt, wordBeside } from "./core/words.js";
import { downloadClip, SPEEDS } from "./core/audio.js";
import { makeWidget } from "./core/widget.js";

const SOUND_ONLY = "This browser cannot show this video. Its sound and its cues are here.";
const SIDES = [["dub", "Dub"], ["original", "Original"]];
const DUB_KEYS = "Space plays · ← → by cue";
const FITS = {
  FITS: "fits the time of the original", SLOWER: "spoken slower to fill the time", FASTER: "spoken faster to fit the time",
  MOVED: "starts at another time", OVERRUN: "longer than its time, overlaps the next line",
};

/** Make the player of a dub. A file is loaded on first use. Switching between dub and original keeps the position. */
function mediumOf(shell, dub, { change, fail, soundOnly }) {
  const place = el("div");
  let medium = null;
  let isSound = !dub.video;
  let speed = 1;
  const start = () => medium.play().catch((error) => error.name !== "AbortError" && fail(error.message));
  const state = {
    place,
    side: "dub",
    setSpeed(value) {
      speed = value;
      if (medium) medium.playbackRate = medium.defaultPlaybackRate = speed;
    },
    toggle: () => (!medium ? state.show(state.side, { play: true }) : medium.paused ? start() : medium.pause()),
    get seconds() { return medium?.currentTime ?? 0; },
    async show(side, { at = state.seconds, play = Boolean(medium && !medium.paused) } = {}) {
      state.side = side;
      change();
      try {
        const url = await shell.clips.load([dub.id, side, isSound ? "sound" : "whole", dub.version].join("/"));
        if (state.side !== side) return;
        put(url, at, play);
        fail(null);
      } catch (error) {
        fail(error.message);
      }
    },
    seek: (seconds) => (medium ? (medium.currentTime = seconds) : state.show(state.side, { at: seconds })),
    playFrom: (seconds) => {
      if (!medium) return state.show(state.side, { at: seconds, play: true });
      medium.currentTime = seconds;
      return start();
    },
    dispose: () => medium?.pause(),
  };
  const withoutPicture = (at, play) => {
    if (isSound) return fail("this sound cannot be played: the browser does not know its format");
    isSound = true;
    soundOnly();
    medium = null;
    return state.show(state.side, { at, play });
  };
  const put = (src, at, play) => {
    if (!medium) {
      medium = el(isSound ? "audio" : "video.video", { controls: true, label: `${dub.label}, ${dub.locale}` });
      for (const name of ["timeupdate", "seeked", "pause"]) medium.addEventListener(name, change);
      medium.addEventListener("play", () => shell.solo.begins(medium));
      if (!isSound) {
        const track = medium.addTextTrack("subtitles", "Cues", dub.locale);
        dub.cues.forEach(([text, startMs, endMs]) => track.addCue(new VTTCue(startMs / 1000, endMs / 1000, text)));
        track.mode = "showing";
      }
      place.replaceChildren(medium);
    }
    // The handlers are set again for each file, because each file starts at its own position.
    medium.onerror = () => withoutPicture(at, play);
    medium.onloadedmetadata = () => {
      if (!isSound && !medium.videoWidth) return withoutPicture(at, play);
      medium.currentTime = at;
      if (play) start();
      return change();
    };
    medium.src = src;
    state.setSpeed(speed);
  };
  return state;
}

/** Make a list with one item an utterance. `play(seconds)` plays the dub. `correct(changes)` sends changed texts to Python. */
function script(dub, { play, correct }) {
  const fields = dub.utterances.map((one) => el("textarea", { rows: 2, label: `Text ${one.utterance_id}` }, one.text));
  const changes = () => dub.utterances
    .map((one, k) => ({ utterance_id: one.utterance_id, text: fields[k].value.trim(), before: one.text }))
    .filter(({ text, before }) => text && text !== before)
    .map(({ utterance_id, text }) => ({ utterance_id, text }));
  const send = button("Send corrections", () => correct(changes()), { class: "spf-main", disabled: true });
  fields.forEach((field) => field.addEventListener("input", () => {
    const count = changes().length;
    send.disabled = !count;
    send.textContent = count ? `Send ${counted(count, "correction")}` : "Send corrections";
  }));
  const rows = dub.utterances.map((one, k) => el("li",
    el("div.head", button(`▶ ${inWords(one.start_ms / 1000)}`, () => play(one.start_ms / 1000), { label: `Play utterance ${one.utterance_id}` }),
      el("bdi", one.speaker), el("bdi", one.voice_id),
      el("span.badge", { "data-tone": one.fit === "OVERRUN" ? "bad" : false }, `${FITS[one.fit] ?? one.fit} (speed ${one.speed.toFixed(2)})`)),
    el("div.sides", el("p", one.source_text), fields[k])));
  return el("details.script", el("summary", `Correct ${counted(dub.utterances.length, "utterance")}`),
    el("div.scroll", { tabindex: 0, role: "region", label: `Utterances of ${dub.label}` }, el("ol.list", ...rows)),
    el("div.row", send));
}

function dubView(shell, dub) {
  const trouble = alertLine();
  const notice = el("p.dim", { role: "note", hidden: true });
  const name = `${dub.label}, ${dub.locale}`;
  const start = button("▶ Show", () => medium.show("dub", { play: true }), { label: `Show ${name}` });
  const sides = SIDES.map(([side, text]) => button(text, () => medium.show(side), {
    "aria-pressed": "false", disabled: side === "original" && !dub.original,
    title: side === "original" && !dub.original ? "the original is not on this machine" : false,
  }));
  const cues = dub.cues.map(([text, startMs]) => el("span.word", { click: () => medium.seek(startMs / 1000) }, text));
  const line = el("p.words", { tabindex: 0, label: `Cues of ${name}` }, ...cues.flatMap((cue) => [cue, " "]));
  let lit = -1;
  const medium = mediumOf(shell, dub, {
    change() {
      const now = medium.place.firstChild ? wordAt(dub.cues, medium.seconds * 1000) : -1;
      if (now !== lit) {
        cues[lit]?.classList.remove("spf-lit");
        cues[now]?.classList.add("spf-lit");
        if (cues[now]) line.scrollTop = cues[now].offsetTop - line.clientHeight / 2;
        lit = now;
      }
      start.hidden = Boolean(medium.place.firstChild);
      sides.forEach((one, k) => { one.ariaPressed = String(SIDES[k][0] === medium.side && start.hidden); });
    },
    fail: (problem) => tell(trouble, problem),
    soundOnly: () => tell(notice, SOUND_ONLY),
  });
  const save = button("Download", () => downloadClip(shell, [dub.id, medium.side, "whole", dub.version].join("/"),
    `${dub.label.replace(/\.\w+$/, "")}${medium.side === "dub" ? `.${dub.locale}` : ""}`));
  const speed = choice("Speed", SPEEDS.map((value) => [String(value), `${value}×`]), "1", (value) => medium.setSpeed(Number(value)));
  const node = el("div.clip", { role: "group", tabindex: 0, label: `${name}. ${DUB_KEYS}`, "data-dub": dub.id },
    el("div.head", el("strong", dub.label), el("span.badge", dub.locale),
      el("span.badge", { "data-tone": dub.problem ? "bad" : "good" }, dub.status), start, ...sides, speed, save),
    notice, medium.place, line, trouble);
  const go = (step) => () => {
    const cue = dub.cues[wordBeside(dub.cues, medium.seconds * 1000, step)];
    if (cue) medium.seek(cue[1] / 1000);
  };
  const acts = { " ": medium.toggle, ArrowRight: go(1), ArrowLeft: go(-1) };
  // The browser handles keys of fields, buttons and its own controls.
  onKeys(node, ({ key, target }) => !dub.problem && !target.closest("button, select, textarea, summary, video, audio") && acts[key],
    { signal: shell.signal });
  if (dub.note) tell(notice, dub.note);
  if (dub.problem) {
    start.disabled = sides[0].disabled = save.disabled = line.hidden = true;
    tell(trouble, dub.problem);
  }
  if (dub.utterances?.length) {
    const correct = (changes) => {
      node.append(shell.status); // the button that was pressed is far below the place of the status line
      shell.send({ kind: "correct", dub: dub.id, changes });
    };
    node.append(script(dub, { play: medium.playFrom, correct }));
  }
  return { node, medium, dispose: medium.dispose };
}

/**
 * Keep the position of the video and of the list, texts that were typed while a correction was made, the status line and the
 * focus, when a view replaces an old one.
 */
function keepState(old, view, { status }) {
  const { side, seconds, place } = old.medium;
  if (place.firstChild) view.medium.show(side, { at: seconds });
  if (old.node.contains(status)) view.node.append(status);
  const script = view.node.querySelector("details");
  if (script) {
    script.open = old.node.querySelector("details")?.open;
    script.querySelector(".spf-scroll").scrollTop = old.scrolled;
  }
  for (const typed of old.node.querySelectorAll("textarea")) {
    const field = view.node.querySelector(`textarea[aria-label="${CSS.escape(typed.ariaLabel)}"]`);
    if (!field) continue;
    if (typed.value !== typed.defaultValue) {
      field.value = typed.value;
      field.dispatchEvent(new Event("input"));
    }
    if (old.focused === typed) {
      field.focus();
      field.setSelectionRange(typed.selectionStart, typed.selectionEnd);
    }
  }
}

export default makeWidget("Dubs", (shell) => {
  const list = el("div");
  shell.root.append(el("p.dim.keys", DUB_KEYS), shell.status, list);
  let views = new Map();
  // Dubs that did not change keep their elements, because the user may be playing them.
  const build = () => {
    const old = views;
    views = new Map(shell.get("dubs").map((dub) => {
      const known = JSON.stringify(dub);
      const view = old.get(dub.id)?.known === known ? old.get(dub.id) : { ...dubView(shell, dub), known };
      return [dub.id, view];
    }));
    const gone = [...old].filter(([id, view]) => views.get(id) !== view);
    for (const [, view] of gone) {
      view.focused = document.activeElement;
      view.scrolled = view.node.querySelector(".spf-scroll")?.scrollTop;
      view.dispose();
    }
    list.replaceChildren(...[...views.values()].map((view) => view.node));
    for (const [id, view] of gone) if (views.has(id)) keepState(view, views.get(id), shell);
  };
  shell.follow(["dubs"], build);
  shell.follow(["said"], () => shell.say(shell.get("said").text ?? "", shell.get("said").bad));
  shell.onEnd(() => views.forEach((view) => view.dispose()));
});
