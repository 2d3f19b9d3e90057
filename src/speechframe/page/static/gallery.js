// Show the voices of a catalogue, with filters, samples and a selection.

import { alertLine, button, choice, el, tell } from "./core/dom.js";
import { counted } from "./core/words.js";
import { sound } from "./core/audio.js";
import { makeWidget } from "./core/widget.js";

const localesOf = (voice) => Object.keys(voice.locales);

/** Return whether a locale equals the filter, or belongs to the language of the filter. */
function isIn(tag, wanted) {
  const [low, sought] = [tag.toLowerCase(), wanted.toLowerCase()];
  return low === sought || low.startsWith(`${sought}-`);
}

/** Return the styles of a voice in a locale. Without a locale, return its styles in all locales. */
export function stylesOf(voice, wanted) {
  return [...new Set(localesOf(voice).filter((tag) => !wanted || isIn(tag, wanted)).flatMap((tag) => voice.locales[tag]))];
}

const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
const SEARCHED = ["id", "name", "description", "gender", "language", "engine", "kind"];

/** Return the voices that match all filters. Neural voices come first, then voices of the locale itself. */
export function passing(voices, { query, gender, engine, locale, style }) {
  const sought = wordsOf(query);
  const found = voices.filter((voice) => {
    const words = wordsOf(SEARCHED.map((name) => voice[name]).join(" "));
    // A search for "male" must not find "female".
    return sought.every((start) => words.some((word) => word.startsWith(start))) &&
      (!gender || voice.gender === gender) && (!engine || voice.engine === engine) &&
      (!locale || localesOf(voice).some((tag) => isIn(tag, locale))) && (!style || stylesOf(voice, locale).includes(style));
  });
  const rank = (voice) => 2 * (voice.kind === "neural") + isIn(voice.locale, locale);
  return found.sort((a, b) => rank(b) - rank(a));
}

/** Return the locale in which a voice speaks its sample. */
export function heardIn(voice, locale) {
  return localesOf(voice).find((tag) => !locale || isIn(tag, locale)) ?? voice.locale;
}

/** Return the share of misheard words in a locale as text, or "" if it was not measured. The smallest of several is marked. */
export function clarity(voice, voices, locale) {
  const tag = heardIn(voice, locale);
  const errorOf = (each) => each.clarity?.[tag] ?? Infinity;
  if (errorOf(voice) === Infinity) return "";
  const measured = voices.map(errorOf).filter((error) => error < Infinity);
  const clearest = measured.length > 1 && errorOf(voice) <= Math.min(...measured);
  const unit = tag.startsWith("ja") ? "characters" : "words";
  return ` · ${Math.round(100 * errorOf(voice))} % of ${unit} misheard${clearest ? " (clearest)" : ""}`;
}

const sorted = (values) => [...new Set(values)].sort();

export default makeWidget("Voices", (shell) => {
  const { get, put, root } = shell;
  const voices = get("voices");
  const languages = sorted(voices.flatMap(localesOf).flatMap((tag) => [tag.split("-")[0], tag]));
  const [genders, engines] = ["gender", "engine"].map((name) => sorted(voices.map((voice) => voice[name]).filter(Boolean)));
  const filters = el("div.row", { role: "search", label: "Filters" });
  const cards = el("ul.cards", { label: "Voices" });
  const compare = button("Compare", () => compareChosen());
  const panel = el("div");
  root.append(filters, el("div.row", compare, el("span.dim", get("cost"))), shell.status, panel, cards);
  let sounds = [];
  let compared = [];
  const open = new Set(); // voices whose list of styles is open
  const silence = (players) => players.forEach((player) => player.dispose());

  const current = () => Object.fromEntries(["query", "gender", "engine", "locale", "style"].map((name) => [name, get(name)]));
  const set = (values) => {
    const next = { ...current(), ...values };
    const left = passing(voices, { ...next, style: "" });
    let warning = "";
    if (next.style && !left.some((voice) => stylesOf(voice, next.locale).includes(next.style))) {
      warning = `No voice here has the style ${next.style}, so the style filter was removed.`;
      next.style = "";
    }
    put({ ...next, shown: passing(voices, next).map((voice) => voice.id), warning });
  };
  const searchBox = el("input", { type: "search", dir: "auto", placeholder: "name, language, description", label: "Search", input: () => set({ query: searchBox.value }) });
  const choices = el("div.row");
  filters.append(searchBox, choices);
  const drawFilters = () => {
    const now = current();
    const styles = sorted(passing(voices, { ...now, style: "" }).flatMap((voice) => stylesOf(voice, now.locale)));
    const had = [...choices.children].indexOf(document.activeElement);
    const one = (name, values) =>
      choice(name, [["", `any ${name}`], ...values.map((value) => [value, value])], now[name], (value) => set({ [name]: value }));
    // The search box is kept, because a new box would lose the user's cursor.
    choices.replaceChildren(one("gender", genders), one("engine", engines), one("locale", languages), one("style", styles));
    if (had >= 0) choices.children[had].focus();
  };

  const sampler = (voice, list) => {
    const { locale, style } = current();
    const trouble = alertLine();
    const play = button("▶", () => { put({ value: voice.id }); player.toggle(); }, {
      class: "spf-play", label: `Play a sample of ${voice.name}`, title: "Play a sample",
    });
    const player = sound(shell, {
      id: JSON.stringify([voice.id, heardIn(voice, locale), style]), audioSeconds: Infinity,
      on: { change() {
        play.textContent = player.loading ? "…" : player.playing ? "❚❚" : "▶";
        tell(trouble, player.problem);
      } },
    });
    list.push(player);
    return { play, trouble };
  };
  const card = (voice) => {
    const { play, trouble } = sampler(voice, sounds);
    const chosen = el("input", { type: "checkbox", label: `compare ${voice.name}`, change: () => {
      const kept = get("selection").filter((id) => id !== voice.id);
      put({ selection: chosen.checked ? [...kept, voice.id] : kept });
    } });
    const facts = [[voice.locale, voice.language], [voice.gender], [voice.engine, "Engine"], [voice.kind, "Kind"]].filter(([text]) => text);
    const error = el("span", { title: `A recogniser got these wrong in ${heardIn(voice, get("locale"))}` },
      clarity(voice, voices, get("locale")));
    return el("li.card", { "data-voice": voice.id },
      el("div.head", play, el("strong", voice.name), el("label", chosen, "compare")),
      el("p", voice.language, error),
      el("p", ...facts.flatMap(([text, title]) => [el("span.badge", { title }, text), " "])),
      el("p", button(voice.id, copyId, { class: "spf-id", label: `Copy the id ${voice.id}`, title: "Copy the id" })),
      stylesLine(voice), trouble);
  };
  const copyId = async ({ currentTarget: node }) => {
    const { clipboard } = navigator; // missing on pages without HTTPS
    getSelection().selectAllChildren(node);
    const copied = clipboard && (await clipboard.writeText(node.textContent).then(() => true, () => false));
    shell.say(copied ? `Copied ${node.textContent}` : "Press Ctrl+C to copy the id");
  };
  const stylesLine = (voice) => {
    const styles = stylesOf(voice, get("locale"));
    const more = el("p", voice.description || voice.id);
    const said = el("summary", styles.length ? `${counted(styles.length, "style")}: ${styles.join(", ")}` : "no styles");
    return el("details.styles", {
      open: open.has(voice.id),
      toggle: ({ target }) => (target.open ? open.add(voice.id) : open.delete(voice.id)),
    }, said, more);
  };
  const drawCards = () => {
    silence(sounds);
    sounds = [];
    const byId = new Map(voices.map((voice) => [voice.id, voice]));
    const left = get("shown").map((id) => byId.get(id));
    cards.replaceChildren(...left.map(card));
    const warning = get("warning");
    shell.say(`${counted(left.length)} of ${counted(voices.length, "voice")}. ${warning}`, warning);
    mark();
  };
  const mark = () => {
    const chosen = get("selection");
    for (const node of cards.children) {
      const { voice } = node.dataset;
      node.toggleAttribute("aria-current", voice === get("value"));
      node.querySelector("input").checked = chosen.includes(voice);
    }
    const count = chosen.length;
    compare.disabled = count < 2;
    compare.textContent = count < 2 ? "Compare (choose two or more)" : `Compare ${counted(count, "voice")}`;
  };
  const compareChosen = () => {
    silence(compared);
    compared = [];
    const rows = voices.filter((voice) => get("selection").includes(voice.id)).map((voice) => {
      const { play, trouble } = sampler(voice, compared);
      return el("div.row", play, el("strong", voice.name), trouble);
    });
    panel.replaceChildren(el("h2", "Side by side"), ...rows);
  };

  shell.follow(["query"], () => { searchBox.value = get("query"); });
  shell.follow(["gender", "engine", "locale", "style"], drawFilters);
  shell.follow(["shown", "warning"], drawCards);
  shell.follow(["value", "selection"], mark);
  shell.onEnd(() => silence([...sounds, ...compared]));
});
