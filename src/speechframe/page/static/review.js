// Review the rows of a saved page. Reviews stay in the browser until they are saved as a file.

import { alertLine, button, choice, el, onKeys, tell, write } from "./core/dom.js";
import { fillIn } from "./core/words.js";
import { clipView } from "./core/clip.js";
import { ratingGroup, RATINGS } from "./core/rating.js";
import { makeWidget } from "./core/widget.js";
import { saveFile, stored } from "./core/page.js";

const FORMAT = 1; // must equal the value in store/returned_reviews.py
const WITHDRAWN = { verdict: "", comment: "", corrected_text: "", rating: 0 };
const BADGES = { keep: "good", reject: "bad", suspect: "warn", failed: "bad", invalid: "bad", charged_unknown: "bad" };

const keyOf = ({ row_id: row, sha256 }) => JSON.stringify([row, sha256 ?? null]);
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
  const change = (row, values) => {
    undoable.push({ row, values: Object.fromEntries(Object.keys(values).map((name) => [name, row.now[name] ?? WITHDRAWN[name]])) });
    return add(row, values);
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
  const narrow = () => {
    const [fits, sought] = [FILTERS[filter.value], search.value.trim().toLowerCase()];
    shown = rows.filter((row) => fits(row) && (!locale.value || row.locale === locale.value)
      && (!sought || [row.row_id, ...row.texts.map(([, text]) => text)].join("\n").toLowerCase().includes(sought)));
    list.replaceChildren(...shown.map(({ item }) => item));
    select(shown.includes(at) ? at : shown[0] ?? null);
    say(shown.length ? "" : t("none"));
  };
  const filter = choice(t("filter"), Object.keys(FILTERS).map((name) => [name, t(name)]), "all", narrow);
  const locale = choice(t("locale"), [["", t("all_locales")], ...locales.map((name) => [name, name])], "", narrow);
  const search = el("input", { type: "search", placeholder: t("search"), label: t("search"), dir: "auto", input: narrow });
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
    const open = button(el("strong", row.label), () => select(row), { class: "spf-item", tabindex: "-1" });
    open.append(row.marks, el("span.cut", { dir: "auto" }, row.texts.at(-1)?.[1] ?? ""));
    row.item = el("li", open);
  }

  // -- the chosen row ----------------------------------------------------------------------

  const top = el("div");
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
      else draft = change(at, { [name]: value });
      refresh();
    });
    return { name, field, node: el("div.write", el("label", { for: field.id }, t(name)), field) };
  };
  const fields = ["comment", "corrected_text"].map(textField);
  const step = (by, plays) => {
    const next = shown[shown.indexOf(at) + by];
    if (next) select(next, plays);
    return Boolean(next);
  };
  const goOn = () => {
    if (!auto.checked) refresh();
    else if (!step(1, true)) {
      refresh();
      say(t("end"));
    }
  };
  const judge = (verdict) => {
    if (!at) return;
    change(at, { verdict });
    say(t(`${verdict}_row`, { row: at.label }));
    goOn();
  };
  const rate = (mark) => {
    if (!at || at.problem) return;
    change(at, { rating: mark });
    say(t("rated_row", { row: at.label, mark }));
    goOn();
  };
  const undo = () => {
    const last = undoable.pop();
    if (!last) {
      say(t("nothing"));
      return;
    }
    add(last.row, last.values);
    select(last.row);
    say(t("undone", { row: last.row.label }));
  };
  const slotOf = ({ slot_s: slot, over_s: over, characters_to_lose: lose }) => (slot == null ? null : [
    t(over > 0 ? "slot_over" : "slot_fits", { slot: number(slot), over: number(over ?? 0) }), lose > 0 && t("lose", { count: number(lose) }),
  ].filter(Boolean).join(" "));
  const select = (row, plays = false) => {
    const hadFocus = top.contains(document.activeElement);
    const isInPanel = panel.contains(document.activeElement) || document.activeElement === person;
    view?.dispose();
    view = draft = null;
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
      view = clipView(shell, { ...row, text: "" }, row.outline, { name: row.label, extra: facts, texts: get("texts") });
      top.append(view.node);
    } else top.append(el("p", el("strong", row.label), " ", ...facts));
    if (row.why && !row.problem) top.append(el("p.why", badge(row.status), " ", el("bdi", row.why)));
    top.append(el("dl.texts", ...lines.map(([name, text]) => el("div", el("dt", t(name)),
      el("dd", { lang: name !== "source" && name !== "slot" && row.locale }, text)))));
    for (const { name, field } of fields) field.value = row.now[name] ?? (name === "corrected_text" ? row.text : "");
    refresh();
    if (hadFocus) view?.node.focus();
    else if (!isInPanel) open.focus({ preventScroll: true });
    // Only the list scrolls to the row, because the page must not move.
    const hidden = row.item.offsetTop < scroll.scrollTop || row.item.offsetTop + row.item.offsetHeight > scroll.scrollTop + scroll.clientHeight;
    if (hidden) scroll.scrollTop = row.item.offsetTop - scroll.clientHeight / 2;
    if (plays && !row.problem) view?.sound.play();
  };

  // -- the page ------------------------------------------------------------------------------

  const counter = el("strong");
  const pending = el("span.dim");
  const banner = alertLine("banner");
  const person = el("input", { type: "text", autocomplete: "name", dir: "auto", change: () => named.keep(person.value.trim()) });
  person.value = named.read() ?? "";
  const pick = el("input", { type: "file", accept: ".json,application/json", change: () => {
    if (pick.files[0]) load(pick.files[0]);
    pick.value = "";
  } });
  const warn = () => tell(banner, editable && !store.lasting ? t("refused") : "");
  const refresh = () => {
    const done = rows.filter(isDone).length;
    write(counter, t(editable ? "counter" : "rows", { done: number(done), total: number(rows.length) }));
    write(pending, unsaved.size ? t("unsaved", { count: number(unsaved.size) }) : "");
    write(position, at ? t("position", { at: number(shown.indexOf(at) + 1), count: number(shown.length) }) : "");
    verdicts.forEach((node) => { node.ariaPressed = String(at?.now.verdict === node.value); });
    rating.show(at?.now.rating);
    rating.node.hidden = Boolean(at?.problem);
  };
  const panel = el("div.panel", { role: "region", label: t("panel") },
    el("div.row", button(t("previous"), () => step(-1)), position, button(t("next"), () => step(1)),
      ...(judges ? verdicts : []), rates ? rating.node : null, editable ? button(t("undo"), undo) : null),
    editable ? el("label", auto, t("auto")) : null, top, ...(judges ? fields.map(({ node }) => node) : []));
  root.append(
    get("total") > rows.length ? el("p", t("first", { count: number(rows.length), total: number(get("total")) })) : "",
    editable ? el("div.row", el("label", t("name"), person), button(t("save"), save, { class: "spf-main" }),
      button(t("load"), () => pick.click()), pending) : "",
    banner, el("div.row", counter, filter, locales.length > 1 ? locale : null, search), shell.status,
    el("div.review", scroll, panel), el("p.dim.keys", t(judges ? "keys" : rates ? "rating_keys" : "play_keys")),
  );

  const writeIn = (place) => () => fields[place].field.focus();
  const acts = {
    " ": () => view?.sound.toggle(), ArrowDown: () => step(1), ArrowUp: () => step(-1), n: () => step(1), p: () => step(-1),
    ...(editable ? { u: undo } : {}),
    ...(judges ? { k: () => judge("keep"), r: () => judge("reject"), c: writeIn(0), t: writeIn(1) } : {}),
    ...(rates ? Object.fromEntries(RATINGS.map((mark) => [mark, () => rate(mark)])) : {}),
  };
  const actOf = ({ key, target, repeat, defaultPrevented }) => {
    // A held key must not judge many rows.
    if (defaultPrevented || !at || (repeat && !key.startsWith("Arrow"))) return null;
    if (target.closest?.("textarea")) return key === "Escape" ? () => at.item.firstChild.focus() : null;
    if (target.closest?.("select, input:not([type=checkbox]), [role=radiogroup]")) return null;
    if (key === " " && target.closest?.("button:not(.spf-item), input")) return null; // the browser handles it
    return acts[key.length === 1 ? key.toLowerCase() : key];
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
