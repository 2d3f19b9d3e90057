// Review the rows of a saved page. Reviews stay in the browser until they are saved as a file.

import { alertLine, button, choice, el, onKeys, tell, write } from "./core/dom.js";
import { fillIn } from "./core/words.js";
import { clipView } from "./core/clip.js";
import { makeDeck } from "./core/deck.js";
import { between, reveal, rowKey } from "./core/rows.js";
import { ratingGroup, RATINGS } from "./core/rating.js";
import { makeWidget } from "./core/widget.js";
import { saveFile, stored } from "./core/page.js";

const FORMAT = 1; // must equal the value in store/returned_reviews.py
const WITHDRAWN = { verdict: "", comment: "", corrected_text: "", rating: 0 };
const BADGES = { keep: "good", reject: "bad", suspect: "warn", failed: "bad", invalid: "bad", charged_unknown: "bad" };

const keyOf = ({ row_id: row, sha256 }) => JSON.stringify([row, sha256 ?? null]);
const COMPARISON = /^(<=|>=|<|>)\s*(-?\d+(?:\.\d+)?)$/;
const nameOf = (review) => `${keyOf(review)}${review.reviewed_at}`;

export default makeWidget("Review", (shell) => {
  const { get, say, root, signal } = shell;
  const t = (name, values) => fillIn(get("texts")[name], values);
  const number = (value) => value.toLocaleString(get("locale"));
  const rows = get("rows");
  const [judges, rates] = [get("verdicts"), get("rates")];
  const editable = judges || rates;
  const rowOf = new Map(rows.map((row) => [keyOf(row), row]));
  const store = stored(`speechframe-review:${get("page_id")}:`);
  const named = stored("speechframe-reviewer");
  const exported = stored(`speechframe-exported:${get("page_id")}`);
  let log = []; // all reviews, the newest last
  let unsaved = new Set();
  let undoable = []; // values before each change of this session
  let shown = rows;
  let at = rows[0];
  let picked = new Set(); // several chosen rows
  let anchor = null; // other end of the chosen rows
  let view = null;
  let draft = null; // review that the current typing changes

  // -- reviews ------------------------------------------------------------------------

  const apply = (review) => {
    const row = rowOf.get(keyOf(review));
    for (const name of Object.keys(WITHDRAWN)) if (review[name] != null) row.now[name] = review[name] || null;
    mark(row);
  };
  const keep = (review) => {
    apply(review);
    unsaved.add(review);
    store.keep(review, nameOf(review));
    warn();
  };
  const add = (row, values) => {
    // A loaded review may be later than this clock, but a new review is the newest.
    const time = Math.max(Date.now(), Date.parse(log.at(-1)?.reviewed_at ?? 0) + 1);
    const said = { row_id: row.row_id, sha256: row.sha256, ...values };
    const review = { ...said, reviewer: person.value.trim() || null, reviewed_at: new Date(time).toISOString() };
    log.push(review);
    keep(review);
    return review;
  };
  const change = (changed, values) => {
    undoable.push(changed.map((row) => [row, Object.fromEntries(Object.keys(values).map((name) => [name, row.now[name] ?? WITHDRAWN[name]]))]));
    return changed.map((row) => add(row, values))[0];
  };
  const merge = (reviews) => {
    const known = new Set(log.map(nameOf));
    const found = reviews.filter((review) => rowOf.has(keyOf(review)));
    const fresh = found.filter((review) => !known.has(nameOf(review)));
    log = [...log, ...fresh].sort((a, b) => (a.reviewed_at > b.reviewed_at) - (a.reviewed_at < b.reviewed_at));
    rows.forEach((row) => { row.now = { ...row.before }; });
    rows.forEach(mark);
    log.forEach(apply);
    return { found, fresh };
  };
  const save = () => {
    const reviewer = person.value.trim();
    if (!reviewer) {
      say(t("name_first"), true);
      person.focus();
      return;
    }
    merge(store.all()); // another tab may have added reviews
    const [runId, time] = [get("run_id"), new Date().toISOString()];
    const name = ["reviews", runId?.slice(0, 8), reviewer.replace(/[^\p{L}\p{N}]+/gu, "-"), time.slice(0, 19).replaceAll(":", "-")];
    const reviews = log.map((review) => ({ ...review, reviewer: review.reviewer ?? reviewer }));
    const file = `${name.filter(Boolean).join("-")}.json`;
    saveFile(file, JSON.stringify({ speechframe_reviews: FORMAT, run_id: runId, title: get("title"), reviewer, saved_at: time, reviews }, null, 1));
    unsaved.clear();
    exported.keep(time);
    refresh();
    say(t("saved", { file }));
  };
  const load = async (file) => {
    const saved = await file.text().then(JSON.parse).catch(() => null);
    if (saved?.speechframe_reviews !== FORMAT || !Array.isArray(saved.reviews)) say(t("broken"), true);
    else if (saved.run_id !== get("run_id")) say(t("foreign"), true);
    else {
      const { found, fresh } = merge(saved.reviews.map((review) => ({ reviewer: saved.reviewer, ...review })));
      fresh.forEach((review) => store.keep(review, nameOf(review)));
      person.value ||= saved.reviewer ?? "";
      select(at);
      say(t("loaded", { count: number(found.length), other: number(saved.reviews.length - found.length) }));
    }
  };

  // -- filters and list ------------------------------------------------------------------

  const isDone = ({ now }) => (now[judges || !rates ? "verdict" : "rating"] ?? null) !== null;
  const FILTERS = {
    all: () => true, open: (row) => !isDone(row), kept: ({ now }) => now.verdict === "keep",
    rejected: ({ now }) => now.verdict === "reject", suspect: ({ status }) => status === "suspect",
  };
  const locales = [...new Set(rows.map((row) => row.locale).filter(Boolean))].sort();
  const matcher = () => {
    const [sought, place] = [search.value.trim().toLowerCase(), get("columns").indexOf(column.value)];
    const [, sign, bound] = COMPARISON.exec(sought) ?? [];
    const contains = (text) => text.toLowerCase().includes(sought);
    if (!sought) return () => true;
    if (place < 0) return ({ row_id: id, texts }) => contains([id, ...texts.map(([, text]) => text)].join("\n"));
    return ({ cells }) => {
      const cell = cells[place];
      if (cell == null) return false;
      if (!sign || typeof cell !== "number") return contains(String(cell));
      return sign.includes("<") && cell < bound || sign.includes(">") && cell > bound || sign.includes("=") && cell === Number(bound);
    };
  };
  const narrow = () => {
    const [fits, matches] = [FILTERS[filter.value], matcher()];
    shown = rows.filter((row) => fits(row) && (!locale.value || row.locale === locale.value) && matches(row));
    pick([]);
    list.replaceChildren(...shown.map(({ item }) => item));
    select(shown.includes(at) ? at : shown[0] ?? null);
    say(shown.length ? "" : t("none"));
  };
  const filter = choice(t("filter"), Object.keys(FILTERS).map((name) => [name, t(name)]), "all", narrow);
  const locale = choice(t("locale"), [["", t("all_locales")], ...locales.map((name) => [name, name])], "", narrow);
  const search = el("input", { type: "search", placeholder: t("search"), label: t("search"), title: t("search_hint"), dir: "auto", input: narrow });
  const column = choice(t("column"), [["", t("all_columns")], ...get("columns").map((name) => [name, t("in_column", { column: name })])],
    "", () => search.value && narrow());
  const list = el("ol.list", { label: t("list") });
  const scroll = el("div.scroll", list);
  const badge = (name) => el("span.badge", { "data-tone": BADGES[name] ?? "" }, get("texts")[name] ?? name);
  const mark = (row) => row.marks.replaceChildren(...[
    BADGES[row.status] && badge(row.status), row.now.verdict && badge(row.now.verdict),
    row.now.rating && el("span.badge", `${row.now.rating} / ${RATINGS.length}`),
    row.now.corrected_text && badge("corrected"),
  ].filter(Boolean));
  for (const row of rows) {
    row.marks = el("span.marks");
    const open = button(el("strong", row.label), ({ shiftKey }) => {
      if (shiftKey) extend(row);
      else {
        pick([]);
        select(row);
      }
    }, { class: "spf-item", tabindex: "-1", mousedown: (event) => event.shiftKey && event.preventDefault() });
    open.append(row.marks, el("span.cut", { dir: "auto" }, row.texts.at(-1)?.[1] ?? ""));
    row.item = el("li", open);
  }
  /** Choose several rows. Without rows, only the row of the panel is chosen. */
  const pick = (newRows) => {
    const old = picked;
    picked = new Set(newRows);
    for (const row of [...old, ...picked]) row.item.firstChild.ariaPressed = picked.has(row) ? "true" : null;
    refresh();
  };
  const extend = (row) => {
    if (!picked.size) anchor = at;
    pick(between(shown, anchor, row));
    select(row);
    row.item.firstChild.focus({ preventScroll: true });
  };

  // -- the chosen row ----------------------------------------------------------------------

  const top = el("div");
  const deck = makeDeck(shell, top, { texts: get("texts"), turn: (by) => {
    // A text that somebody is writing must not go on with another row.
    if (by && document.activeElement.matches("textarea")) return false;
    const next = shown.slice(shown.indexOf(at) + by).find(({ problem }) => !problem);
    if (next === at) deck.play();
    else if (next) select(next, true);
    return Boolean(next);
  } });
  const position = el("span.pace");
  const verdicts = ["keep", "reject"].map((name) => button(t(`${name}_key`), () => judge(name), { value: name }));
  const rating = ratingGroup(t("rating"), (mark) => t("rate", { mark }), (mark) => rate(mark));
  const auto = el("input", { type: "checkbox" });
  auto.checked = true;
  const textField = (name) => {
    const field = el("textarea", { rows: "2", id: `spf-${name}`, focus: () => { draft = null; } });
    field.addEventListener("input", () => {
      const text = field.value.trim();
      const value = name === "corrected_text" && text === at.text.trim() ? "" : text;
      // All letters until the next action are one review, which is stored after each letter.
      if (draft) keep(Object.assign(draft, { [name]: value }));
      else draft = change([at], { [name]: value });
      refresh();
    });
    return { name, field, node: el("div.write", el("label", { for: field.id }, t(name)), field) };
  };
  const fields = ["comment", "corrected_text"].map(textField);
  const step = (by, plays = false, extends_ = false) => {
    const next = shown[shown.indexOf(at) + by];
    if (next && extends_) extend(next);
    else if (next) {
      pick([]);
      select(next, plays);
    }
    return Boolean(next);
  };
  const chosen = () => (picked.size ? shown.filter((row) => picked.has(row)) : at ? [at] : []);
  const labelOf = (some) => (some.length > 1 ? t("rows", { total: number(some.length) }) : some[0].label);
  const goOn = () => {
    if (!auto.checked) refresh();
    else if (!step(1, true)) {
      refresh();
      say(t("end"));
    }
  };
  const decide = (judged, values, text) => {
    if (!judged.length) return;
    if (deck.hasJustTurned()) {
      say(t("too_soon"));
      return;
    }
    change(judged, values);
    say(t(text, { row: labelOf(judged), mark: values.rating }));
    if (picked.size) pick([]);
    else goOn();
  };
  const judge = (verdict) => decide(chosen(), { verdict }, `${verdict}_row`);
  const rate = (mark) => decide(chosen().filter(({ problem }) => !problem), { rating: mark }, "rated_row");
  const undo = () => {
    const last = undoable.pop();
    if (!last) {
      say(t("nothing"));
      return;
    }
    last.forEach(([row, values]) => add(row, values));
    const undone = last.map(([row]) => row);
    pick([]);
    select(undone[0]);
    say(t("undone", { row: labelOf(undone) }));
  };
  const slotOf = ({ slot_s: slot, over_s: over, characters_to_lose: lose }) => (slot == null ? null : [
    t(over > 0 ? "slot_over" : "slot_fits", { slot: number(slot), over: number(over ?? 0) }), lose > 0 && t("lose", { count: number(lose) }),
  ].filter(Boolean).join(" "));
  const select = (row, plays = false) => {
    const hadFocus = top.contains(document.activeElement);
    // Somebody may be typing elsewhere. Then the focus stays.
    const isInList = list.contains(document.activeElement) || document.activeElement === document.body;
    view?.dispose();
    view = draft = null;
    if (!plays) deck.stop();
    for (const one of [at, row]) if (one) one.item.firstChild.tabIndex = one === row ? 0 : -1;
    at?.item.firstChild.removeAttribute("aria-current");
    at = row;
    panel.hidden = !row;
    if (!row) return;
    const open = row.item.firstChild;
    open.ariaCurrent = "true";
    const facts = [row.voice, row.locale].filter(Boolean).map((text) => el("span.dim", text));
    const lines = [...row.texts, ["slot", slotOf(row)], ["earlier", row.earlier && t(row.earlier)]].filter(([, text]) => text);
    top.replaceChildren();
    if (get("audible")) {
      view = clipView(shell, { ...row, text: "" }, row.outline, { name: row.label, extra: facts, on: deck.handlers(row.id), texts: get("texts") });
      deck.show([view]);
      top.append(view.node);
    } else top.append(el("p", el("strong", row.label), " ", ...facts));
    if (row.why && !row.problem) top.append(el("p.why", badge(row.status), " ", el("bdi", row.why)));
    top.append(el("dl.texts", ...lines.map(([name, text]) => el("div", el("dt", t(name)),
      el("dd", { lang: name !== "source" && name !== "slot" && row.locale }, text)))));
    for (const { name, field } of fields) field.value = row.now[name] ?? (name === "corrected_text" ? row.text : "");
    refresh();
    if (hadFocus) view?.node.focus();
    else if (isInList) open.focus({ preventScroll: true });
    reveal(scroll, row.item);
    if (plays) deck.play();
  };

  // -- the page ------------------------------------------------------------------------------

  const counter = el("strong");
  const pending = el("span.dim");
  const banner = alertLine("banner");
  const person = el("input", { type: "text", autocomplete: "name", dir: "auto", change: () => named.keep(person.value.trim()) });
  person.value = named.read() ?? "";
  const chooser = el("input", { type: "file", accept: ".json,application/json", change: () => {
    if (chooser.files[0]) load(chooser.files[0]);
    chooser.value = "";
  } });
  const warn = () => tell(banner, editable && !store.lasting ? t("refused") : "");
  const refresh = () => {
    const done = rows.filter(isDone).length;
    write(counter, t(editable ? "counter" : "rows", { done: number(done), total: number(rows.length) }));
    write(pending, unsaved.size ? t("unsaved", { count: number(unsaved.size) }) : "");
    write(position, at ? t("position", { at: number(shown.indexOf(at) + 1), count: number(shown.length) }) : "");
    verdicts.forEach((node) => {
      write(node, t(`${node.value}_key`) + (picked.size ? ` · ${labelOf([...picked])}` : ""));
      node.ariaPressed = String(!picked.size && at?.now.verdict === node.value);
    });
    rating.show(picked.size ? null : at?.now.rating);
    rating.node.hidden = !picked.size && Boolean(at?.problem);
  };
  const panel = el("div.panel", { role: "region", label: t("panel") },
    el("div.row", button(t("previous"), () => step(-1)), position, button(t("next"), () => step(1)),
      ...(judges ? verdicts : []), rates ? rating.node : null, editable ? button(t("undo"), undo) : null),
    editable ? el("label", auto, t("auto")) : null, get("audible") ? deck.node : null, top, ...(judges ? fields.map(({ node }) => node) : []));
  root.append(
    get("total") > rows.length ? el("p", t("first", { count: number(rows.length), total: number(get("total")) })) : "",
    editable ? el("div.row", el("label", t("name"), person), button(t("save"), save, { class: "spf-main" }),
      button(t("load"), () => chooser.click()), pending) : "",
    banner, el("div.row", counter, filter, locales.length > 1 ? locale : null, search, column), shell.status,
    el("div.review", scroll, panel), el("p.dim.keys", t(judges ? "keys" : rates ? "rating_keys" : "play_keys")),
  );

  const writeIn = (place) => () => fields[place].field.focus();
  const acts = {
    " ": () => view?.sound.toggle(), ArrowDown: ({ shiftKey }) => step(1, false, shiftKey), ArrowUp: ({ shiftKey }) => step(-1, false, shiftKey),
    Escape: () => pick([]), n: () => step(1), p: () => step(-1),
    ...(editable ? { u: undo } : {}),
    ...(judges ? { k: () => judge("keep"), r: () => judge("reject"), c: writeIn(0), t: writeIn(1) } : {}),
    ...(rates ? Object.fromEntries(RATINGS.map((mark) => [mark, () => rate(mark)])) : {}),
  };
  const actOf = (event) => {
    if (!at) return null;
    if (event.key === "Escape" && event.target.closest?.("textarea")) return () => at.item.firstChild.focus();
    return rowKey(event, { ...view?.acts, ...acts });
  };
  // Events in the widget do not reach the document.
  for (const node of [root, document]) onKeys(node, actOf, { signal });
  addEventListener("beforeunload", (event) => {
    if (!store.lasting && unsaved.size) event.preventDefault();
  }, { signal });

  merge(store.all());
  unsaved = new Set(log.filter((review) => review.reviewed_at > (exported.read() ?? "")));
  warn();
  narrow();
  if (editable && !person.value) person.focus();
});
