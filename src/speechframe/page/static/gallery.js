// All voices of a catalogue: looked through by filters, heard by a sample, chosen.

import { button, el, follow, frame, put } from "./core/dom.js";
import { counted } from "./core/words.js";
import { loader, soloist, sound } from "./core/audio.js";

/** The locales a voice speaks, its own first. */
const localesOf = (voice) => Object.keys(voice.locales);

/** Whether a voice speaks a locale ("fr-FR") or a language ("fr"). */
export function speaks(voice, wanted) {
  const low = wanted.toLowerCase();
  return localesOf(voice).some((tag) => tag.toLowerCase() === low || tag.toLowerCase().startsWith(`${low}-`));
}

/** The styles of a voice in what is asked for; in its own locale when nothing is. */
export function stylesOf(voice, wanted) {
  const tags = localesOf(voice).filter((tag) => !wanted || speaks({ locales: { [tag]: [] } }, wanted));
  return [...new Set(tags.flatMap((tag) => voice.locales[tag]))];
}

/** The voices that pass all filters; those whose own locale is asked for come first. */
export function passing(voices, { query, gender, locale, style }) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const isOwn = (voice) => speaks({ locales: { [voice.locale]: [] } }, locale);
  const first = (list) => (locale ? [...list.filter(isOwn), ...list.filter((voice) => !isOwn(voice))] : list);
  return first(voices.filter((voice) => {
    const said = [voice.id, voice.name, voice.description, voice.gender].join(" ").toLowerCase();
    return words.every((word) => said.includes(word)) && (!gender || voice.gender === gender) &&
      (!locale || speaks(voice, locale)) && (!style || stylesOf(voice, locale).includes(style));
  }));
}

/** The locale a voice is heard in, for a filter that may name a language. */
export function heardIn(voice, locale) {
  return localesOf(voice).find((tag) => !locale || speaks({ locales: { [tag]: [] } }, locale)) ?? voice.locale;
}

function choice(label, values, current, onChange) {
  const select = el("select", { "aria-label": label, change: () => onChange(select.value) },
    el("option", { value: "" }, `any ${label}`), ...values.map((value) => el("option", { value }, value)));
  select.value = values.includes(current) ? current : "";
  return select;
}

export default {
  render({ model, el: host }) {
    const shell = frame(host, "Voices");
    const clips = loader(model);
    const solo = soloist();
    const voices = model.get("voices");
    const languages = [...new Set(voices.flatMap(localesOf).flatMap((tag) => [tag.split("-")[0], tag]))].sort();
    const genders = [...new Set(voices.map((voice) => voice.gender).filter(Boolean))].sort();
    const filters = el("div", { class: "spf-row", role: "search", "aria-label": "Filters" });
    const cards = el("ul", { class: "spf-cards", "aria-label": "Voices" });
    const compare = button("Compare", () => compareChosen());
    const panel = el("div", {});
    shell.root.append(filters, el("p", { class: "spf-dim" }, model.get("cost")), shell.status, el("div", { class: "spf-row" }, compare), panel, cards);
    let sounds = [];

    const current = () => ({ query: model.get("query"), gender: model.get("gender"), locale: model.get("locale"), style: model.get("style") });
    const set = (values) => {
      const next = { ...current(), ...values };
      const left = passing(voices, { ...next, style: "" });
      let warning = "";
      if (next.style && !left.some((voice) => stylesOf(voice, next.locale).includes(next.style))) {
        warning = `No voice here has the style ${next.style}: it is not filtered by any more.`;
        next.style = "";
      }
      put(model, { ...next, shown: passing(voices, next).map((voice) => voice.id), warning });
    };
    const searchBox = el("input", { type: "search", placeholder: "name, locale, description", "aria-label": "Search", value: model.get("query"), input: () => set({ query: searchBox.value }) });
    const choices = el("div", { class: "spf-row" });
    filters.append(searchBox, choices);
    const drawFilters = () => {
      const now = current();
      const styles = [...new Set(passing(voices, { ...now, style: "" }).flatMap((voice) => stylesOf(voice, now.locale)))].sort();
      const had = [...choices.children].indexOf(document.activeElement);
      // The box stays where it is: taken out and put back it would lose the cursor of who types.
      choices.replaceChildren(
        choice("gender", genders, now.gender, (gender) => set({ gender })),
        choice("locale", languages, now.locale, (locale) => set({ locale })),
        choice("style", styles, now.style, (style) => set({ style })));
      if (had >= 0) choices.children[had].focus();
    };

    /** A button that plays the sample of a voice as the filters ask for it. */
    const sampler = (voice, list) => {
      const { locale, style } = current();
      const spoken = heardIn(voice, locale);
      const trouble = el("p", { class: "spf-error", role: "alert", hidden: true });
      const play = button("▶ Sample", () => { put(model, { value: voice.id }); player.toggle(); }, { "aria-label": `Play a sample of ${voice.name}` });
      const player = sound({
        id: JSON.stringify([voice.id, spoken, style]), audioSeconds: Infinity, clips, solo, signal: shell.signal,
        on: { change() {
          play.textContent = player.loading ? "…" : player.playing ? "❚❚ Sample" : "▶ Sample";
          trouble.hidden = !player.problem;
          trouble.textContent = player.problem ?? "";
        } },
      });
      list.push(player);
      return { play, trouble };
    };
    const card = (voice) => {
      const { play, trouble } = sampler(voice, sounds);
      const chosen = el("input", { type: "checkbox", change: () => {
        const kept = model.get("selection").filter((id) => id !== voice.id);
        put(model, { selection: chosen.checked ? [...kept, voice.id] : kept });
      } });
      chosen.checked = model.get("selection").includes(voice.id);
      const styles = stylesOf(voice, current().locale);
      return el("li", { class: "spf-card", "data-voice": voice.id },
        el("div", { class: "spf-head" }, el("strong", {}, voice.name), el("span", { class: "spf-badge" }, voice.locale), voice.gender && el("span", { class: "spf-badge" }, voice.gender)),
        el("p", { class: "spf-dim" }, voice.description || voice.id),
        el("p", {}, styles.length ? `Styles: ${styles.join(", ")}` : "No styles"),
        el("div", { class: "spf-row" }, play, el("label", {}, chosen, `compare ${voice.name}`)), trouble);
    };
    const drawCards = () => {
      sounds.forEach((player) => player.dispose());
      sounds = [];
      const byId = new Map(voices.map((voice) => [voice.id, voice]));
      const left = model.get("shown").map((id) => byId.get(id));
      cards.replaceChildren(...left.map(card));
      const warning = model.get("warning");
      shell.say([`${counted(left.length)} of ${counted(voices.length, "voice")}.`, warning].filter(Boolean).join(" "), Boolean(warning));
      mark();
    };
    const mark = () => {
      for (const node of cards.children) node.toggleAttribute("aria-current", node.dataset.voice === model.get("value"));
      const count = model.get("selection").length;
      compare.disabled = count < 2;
      compare.textContent = count < 2 ? "Compare (choose two or more)" : `Compare ${counted(count, "voice")}`;
    };
    let compared = [];
    const compareChosen = () => {
      compared.forEach((player) => player.dispose());
      compared = [];
      const rows = voices.filter((voice) => model.get("selection").includes(voice.id)).map((voice) => {
        const { play, trouble } = sampler(voice, compared);
        return el("div", { class: "spf-row" }, play, el("strong", {}, voice.name), trouble);
      });
      panel.replaceChildren(el("h2", {}, "Side by side"), ...rows);
      model.send({ kind: "compare" });
    };

    follow(model, ["gender", "locale", "style"], drawFilters, shell);
    follow(model, ["shown", "warning"], drawCards, shell);
    follow(model, ["value", "selection"], mark, shell);
    return () => {
      [...sounds, ...compared].forEach((player) => player.dispose());
      clips.forget();
      shell.dispose();
    };
  },
};
