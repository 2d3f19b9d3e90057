// Browse and review the rows of a run: a list, the chosen row beside or below it, and keys for reviews.

import { alertLine, button, choice, el, onKeys, tell, write } from "./core/dom.js";
import { counted, inWords } from "./core/words.js";
import { clipView } from "./core/clip.js";
import { makeDeck } from "./core/deck.js";
import { between, reveal, rowKey } from "./core/rows.js";
import { makeWidget, REPLY_MS } from "./core/widget.js";
import { stored } from "./core/page.js";

const COLUMNS = [["row", "Row"], ["text", "Text"], ["voice", "Voice"], ["seconds", "Length"], ["status", "Status"], ["verdict", "Verdict"]];
const STATUSES = ["done", "cached", "suspect", "failed", "charged_unknown", "pending", "invalid"];
const TONES = { suspect: "warn", failed: "bad", invalid: "bad", charged_unknown: "bad", keep: "good", reject: "bad", "not saved": "bad" };
const KEYS = "Space plays · K keeps · R rejects · U undoes the last step · C comments · T corrects the text · ↑ ↓ other row · Shift ↑ ↓ several rows · PgUp PgDn other page · ← → by word · L loops";
const DONE = { keep: "kept", reject: "rejected", "": "no verdict" };
const WAIT_MS = 250; // time without a further key before a search or an opened row is sent

const spaced = (name) => name.replace("_", " ");
const badge = (text, title) => el("span.badge", { "data-tone": TONES[text] ?? "", title }, spaced(text));

export default makeWidget("Rows", (shell) => {
  const { get, send, say } = shell;
  let at = null; // place of the chosen row, which list, panel, buttons and keys refer to
  let picked = new Set(); // places of several chosen rows
  let view = null; // player of the chosen row, if its data has arrived
  let eager = null; // place of the row to play when its data has arrived
  let pending = null; // decision that must be stored before the next row is played
  let timer = 0;
  let searching = 0;

  // -- filters and pages -----------------------------------------------------------------

  // A request starts from the filters of the last request, because Python's reply may not have arrived.
  let asked = get("wanted");
  let token = null; // mark of the last request, until its reply arrives
  let goal = null; // { place, plays }: the row to choose in the reply. The first row has no place
  const ask = (more, turn = false) => {
    token = String(Math.random());
    asked = { ...asked, ...more };
    send({ kind: "show", ...asked, token, turn });
  };
  const wait = (act) => {
    clearTimeout(timer);
    timer = setTimeout(act, WAIT_MS);
  };
  const find = () => ask({ search: search.value, column: column.value, page: 0 });
  const search = el("input", {
    type: "search", placeholder: "Search", label: "Search", title: "A text, or a comparison such as >2",
    dir: "auto", value: asked.search, input: () => {
      // The search has its own timer, so that choosing a row does not cancel the search.
      clearTimeout(searching);
      searching = setTimeout(find, WAIT_MS);
    },
  });
  const column = choice("Search in", [["", "in texts and ids"], ...get("columns").map((name) => [name, `in ${name}`])],
    asked.column, () => search.value && find());
  const status = choice("Status", [["", "any status"], ...STATUSES.map((name) => [name, spaced(name)])],
    asked.status, (value) => ask({ status: value, page: 0 }));
  const verdict = choice("Verdict", [["", "any verdict"], ["keep", "kept"], ["reject", "rejected"], ["none", "no verdict"]],
    asked.verdict, (value) => ask({ verdict: value, page: 0 }));
  const pages = () => Math.max(1, Math.ceil(get("found") / get("page_rows")));
  const turnTo = (page, next = {}) => {
    if (!(page >= 0 && page < pages())) return false;
    select(null, next.plays);
    goal = next;
    ask({ page }, true);
    return true;
  };
  const turn = (by, next) => turnTo(asked.page + by, next);
  const back = button("‹ Previous", () => turn(-1));
  const on = button("Next ›", () => turn(1));
  const number = el("input.number", { type: "number", min: "1", label: "Page", change: () => {
    turnTo(Math.min(pages(), Math.max(1, Math.floor(number.value) || 1)) - 1);
  } });
  const most = el("span");
  const range = el("span.pace");
  const counter = el("strong");
  const banner = alertLine("banner");
  const again = button("Try again", () => deliver(), { hidden: true });
  const heads = COLUMNS.map(([name, label]) => {
    const sort = button(label, () => {
      const { by, descending } = asked;
      ask({ by: name, descending: by === name && !descending, page: 0 });
    }, { class: "spf-sort" });
    return { name, label, sort, cell: el("th", { scope: "col" }, sort) };
  });
  const body = el("tbody");
  const grid = el("table.table.rows", { role: "grid", label: "Rows of the run", "aria-multiselectable": "true" },
    el("thead", el("tr", ...heads.map(({ cell }) => cell))), body);

  // -- reviews ----------------------------------------------------------------------------

  // Reviews that Python has not confirmed yet, by decision. They outlive the page, so that another run of the cell
  // can send them again.
  const unsaved = new Map();
  const held = stored(`speechframe-unsaved:${get("folder")}`);
  const undoable = []; // reviews that would restore the values before each step of this session
  const own = Math.random(); // several views of a widget hear the same replies
  let decisions = 0;
  const failed = () => new Set([...unsaved.values()].flatMap(({ isFailed, reviews }) => (isFailed ? reviews.map(({ row }) => row) : [])));
  const mark = () => {
    const rows = failed();
    again.hidden = !rows.size;
    write(again, `Try again to save ${counted(rows.size, "row")}`);
    list();
  };
  const keepUnsaved = () => (unsaved.size ? held.keep([...unsaved.values()].map(({ reviews, words }) => ({ reviews, words }))) : held.drop());
  const deliver = () => {
    for (const entry of unsaved.values()) {
      if (entry.isFailed === false) continue; // already sent
      entry.isFailed = false;
      send({ kind: "review", decision: entry.decision, reviews: entry.reviews });
      setTimeout(() => fail(entry, "the notebook did not reply"), REPLY_MS);
    }
    if (document.activeElement === again) focus();
    again.hidden = true;
  };
  const nameOf = (reviews) => (reviews.length === 1 ? `row ${reviews[0].row}` : counted(reviews.length, "row"));
  const fail = (entry, why) => {
    if (entry.isFailed || unsaved.get(entry.decision) !== entry) return;
    entry.isFailed = true;
    eager = null;
    say(`${nameOf(entry.reviews)}: not saved, ${why}`, true);
    mark();
  };
  const enter = (reviews, words, done) => {
    // A later review of a row replaces earlier ones that are not confirmed, which must not be sent after it.
    for (const [decision, entry] of unsaved) {
      entry.reviews = entry.reviews.filter((old) => !reviews.some((one) => one.row === old.row && Object.keys(one).every((name) => name in old)));
      if (!entry.reviews.length) unsaved.delete(decision);
    }
    return hold({ reviews, words, done });
  };
  const hold = (entry) => {
    decisions += 1;
    entry.decision = `${own}:${decisions}`;
    unsaved.set(entry.decision, entry);
    keepUnsaved();
    return entry.decision;
  };
  const change = (rows, name, value, words, done) => {
    const valueOf = (row) => [...unsaved.values()].flatMap(({ reviews }) => reviews).findLast((one) => one.row === row.row && name in one)?.[name];
    undoable.push({
      page: asked.page, place: rows[0].place, reviews: rows.map((row) => {
        const old = valueOf(row) ?? row[name] ?? "";
        return { row: row.row, sha256: old && name === "verdict" && row.is_old ? row.judged_sha256 : row.sha256, [name]: old };
      }),
    });
    const decision = enter(rows.map(({ row, sha256 }) => ({ row, sha256, [name]: value })), words, done);
    deliver();
    return decision;
  };
  shell.hear((message) => {
    if (message?.kind === "lost") {
      token = null;
      if (message.said.kind === "show") list();
      const entry = unsaved.get(message.said.decision);
      if (entry) fail(entry, message.message);
    }
    if (message?.kind !== "reviewed") return;
    const entry = unsaved.get(message.decision);
    if (!entry) return;
    if (message.problem) {
      fail(entry, message.problem);
      return;
    }
    unsaved.delete(message.decision);
    keepUnsaved();
    say(`${nameOf(entry.reviews)}: ${entry.words}${isAtEnd ? ". This was the last row of the list." : ""}`);
    isAtEnd = false;
    entry.done?.();
    mark();
    begin();
  });
  // The panel may show a row whose audio was made again meanwhile. A verdict is about the audio of the panel.
  const chosen = () => {
    if (picked.size) return get("rows").filter(({ place }) => picked.has(place));
    const row = rowAt(at);
    return row ? [view && view.place === at ? { ...row, sha256: view.sha256 } : row] : [];
  };
  let isAtEnd = false;
  const auto = el("input", { type: "checkbox" });
  auto.checked = true;
  const judge = (value) => {
    const rows = chosen();
    if (!rows.length) return;
    if (deck.hasJustTurned()) {
      say("The next row has just begun. Press again for this row.");
      return;
    }
    const decision = change(rows, "verdict", value, DONE[value]);
    if (picked.size) pickOne();
    else if (auto.checked && value) {
      pending = decision;
      if (!step(1, true) && !turn(1, { plays: true })) isAtEnd = true;
    }
  };
  const undo = () => {
    const last = undoable.pop();
    if (!last) {
      say("Nothing to undo.");
      return;
    }
    enter(last.reviews, "undone");
    deliver();
    if (rowAt(last.place)?.row === last.reviews[0].row) choose(last.place);
    else turnTo(last.page, { place: last.place });
  };
  // The form for texts is outside the panel, so that a text is kept when the panel shows another row.
  const desk = el("div");
  const compose = (name) => {
    const begun = desk.querySelector("textarea");
    if (begun) begun.focus();
    const [row] = chosen();
    if (!row || begun) return;
    const label = name === "comment" ? "Comment" : "Corrected text";
    const field = el("textarea", { rows: "2", label: `${label} for row ${row.row}` });
    field.value = row[name] ?? (name === "comment" ? "" : row.text);
    const form = el("div.write", el("p.dim", `${label} for row ${row.row} · Ctrl+Enter saves, Escape cancels`), field);
    const leave = () => {
      const had = form.contains(document.activeElement);
      form.remove();
      if (had) focus();
    };
    // The form stays until the text is stored.
    const save = () => change([row], name, field.value.trim(), `${label.toLowerCase()} saved`, leave);
    form.append(el("div.row", button("Save", save, { class: "spf-main" }), button("Cancel", leave)));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    });
    desk.append(form);
    field.focus();
  };

  // -- the list -----------------------------------------------------------------------------

  const rowAt = (place) => get("rows").find((row) => row.place === place);
  const nodeAt = (place) => body.querySelector(`[data-place="${place}"]`);
  // Without a focus in the widget, keys would act on the notebook.
  const focus = () => (nodeAt(at) ?? scroll).focus();
  const highlight = () => {
    for (const node of body.children) {
      const place = Number(node.dataset.place);
      node.ariaSelected = String(picked.size ? picked.has(place) : place === at);
      node.tabIndex = place === at ? 0 : -1;
    }
    shown();
  };
  const pickOne = () => {
    picked = new Set();
    highlight();
  };
  /** Make a row the chosen one. Its data is requested at once to play it, and otherwise after a moment. */
  const select = (place, plays = false) => {
    at = place;
    eager = plays ? place : null;
    if (!plays) deck.stop();
    if (!picked.has(place)) picked = new Set();
    if (view?.place !== place) open();
    highlight();
    clearTimeout(timer);
    if (place == null || view) return;
    const load = () => {
      send({ kind: "open", place });
      timer = setTimeout(() => !view && say(`row ${rowAt(place)?.row}: the notebook does not reply`, true), REPLY_MS);
    };
    if (plays) load();
    else wait(load);
  };
  const choose = (place, plays = false) => {
    select(place, plays);
    focus();
  };
  let anchor = null; // other end of the chosen rows
  const extend = (place) => {
    if (!picked.size) anchor = at;
    picked = new Set(between(get("rows").map((row) => row.place), anchor, place));
    choose(place);
  };
  const step = (by, plays = false, extends_ = false) => {
    const rows = get("rows");
    const next = rows[rows.findIndex((row) => row.place === at) + by];
    if (next) (extends_ ? extend : choose)(next.place, plays);
    return Boolean(next);
  };
  const begin = () => {
    if (eager === null || eager !== at || !view || unsaved.has(pending)) return;
    eager = null;
    if (view.clip) deck.play();
  };
  const play = () => {
    if (view) view.sound?.toggle();
    else if (at !== null) select(at, true);
  };
  /** Play the chosen row, or the next one. The focus stays where it is, because somebody may be writing. */
  const playOn = (by) => {
    if (!by && view) deck.play();
    else if (!by) select(at, true);
    else {
      const hadFocus = scroll.contains(document.activeElement);
      const next = get("rows")[get("rows").findIndex((row) => row.place === at) + 1];
      if (!next) return turn(1, { plays: true });
      select(next.place, true);
      if (hadFocus) focus();
      else reveal(scroll, nodeAt(at));
    }
    return true;
  };
  body.addEventListener("focusin", ({ target }) => {
    const place = Number(target.closest("tr")?.dataset.place);
    if (place !== at) select(place);
  });

  // The style sheet cuts long texts in the list. The panel shows the whole text.
  const cell = (tag, attrs, ...kids) => el(tag, attrs, el("div.cut", { dir: "auto" }, ...kids));
  const line = (row) => {
    const said = [failed().has(row.row) && badge("not saved"), row.verdict && badge(row.verdict, row.reviewer && `by ${row.reviewer}`),
      row.verdict && row.is_old && el("span.dim", " of an earlier take"),
      row.comment && el("div.dim", { dir: "auto" }, row.comment)].filter(Boolean);
    const text = [row.corrected_text ?? row.text, row.corrected_text ? el("span.dim", " (corrected)") : null];
    return el("tr", {
      "data-place": row.place,
      mousedown: (event) => event.shiftKey && event.preventDefault(),
      click: ({ shiftKey }) => {
        if (!shiftKey) picked = new Set();
        (shiftKey ? extend : choose)(row.place);
      },
    },
    cell("th", { scope: "row" }, row.row), cell("td", {}, ...text), cell("td", {}, row.voice ?? ""),
    el("td", row.seconds ? inWords(row.seconds) : ""), el("td", row.status === "done" ? "done" : badge(row.status, row.why)),
    cell("td", {}, ...said));
  };
  const list = () => {
    const rows = get("rows");
    const had = scroll.contains(document.activeElement) && !document.activeElement.closest("thead");
    body.replaceChildren(...rows.map(line));
    const isAnswered = token === null;
    if (isAnswered && !rowAt(at)) {
      // Other rows are shown, so panel and keys must not refer to the old one.
      picked = new Set();
      select(rowAt(goal?.place)?.place ?? rows[0]?.place ?? null, goal?.plays);
      goal = null;
    }
    highlight();
    if (had) focus();
    const { page, by, descending } = get("wanted");
    const start = page * get("page_rows");
    grid.ariaRowCount = get("found") + 1;
    [...body.children].forEach((node, k) => { node.ariaRowIndex = start + k + 2; });
    for (const { name, label, sort, cell } of heads) {
      cell.ariaSort = name !== by ? "none" : descending ? "descending" : "ascending";
      write(sort, name === by ? `${label} ${descending ? "▼" : "▲"}` : label);
    }
    const found = get("found");
    const part = found === get("total") ? "" : ` (of ${counted(get("total"))})`;
    write(range, rows.length ? `${counted(start + 1)}–${counted(start + rows.length)} of ${counted(found, "row")}${part}` : "no rows match");
    write(counter, `${counted(get("judged"))} of ${counted(get("total"))} reviewed`);
    number.max = pages();
    number.value = page + 1;
    write(most, `of ${counted(pages())}`);
    back.disabled = page === 0;
    on.disabled = page + 1 >= pages();
  };

  // -- the chosen row ------------------------------------------------------------------------

  const top = el("div");
  const deck = makeDeck(shell, top, { turn: playOn });
  deck.node.hidden = !get("audible");
  const judges = ["keep", "reject"].map((name) => button("", () => judge(rowAt(at)?.verdict === name && !picked.size ? "" : name), { value: name }));
  const notes = ["comment", "corrected_text"].map((name) => [name, el("p.words", { tabindex: "0" })]);
  const notesBox = el("div", ...notes.flatMap(([name, node]) => [el("p.dim", name === "comment" ? "Comment" : "Corrected text"), node]));
  const panel = el("div.panel", { role: "region", label: "The chosen row" },
    el("div.row", ...judges, button("Undo (U)", undo), el("label", auto, "Go on and play the next row")), get("audible") ? deck.node : null, top, notesBox,
    el("div.row", button("Comment (C)", () => compose("comment")), button("Correct the text (T)", () => compose("corrected_text"))));
  /** Show the verdict and the notes of the chosen row, or the number of chosen rows. */
  const shown = () => {
    const [count, row] = [picked.size, rowAt(at)];
    // While the page turns, no row is chosen, and the panel is hidden. Keys must still reach the widget.
    if (!row && panel.contains(document.activeElement)) focus();
    panel.hidden = !row;
    judges.forEach((node) => {
      const many = count ? ` ${counted(count, "row")}` : "";
      write(node, node.value === "keep" ? `Keep${many} (K)` : `Reject${many} (R)`);
      node.ariaPressed = String(!count && row?.verdict === node.value);
    });
    for (const [name, node] of notes) {
      write(node, row?.[name] ?? "");
      node.hidden = node.previousSibling.hidden = !row?.[name];
    }
  };
  /** Show the data of the chosen row if it has arrived, and otherwise only its name. */
  const open = () => {
    const clip = get("opened");
    const had = top.contains(document.activeElement);
    view?.dispose();
    view = null;
    const row = rowAt(at);
    if (!row || clip.place !== at) {
      deck.show([]);
      top.replaceChildren(row ? el("p", el("strong", row.row)) : "");
    } else {
      const player = get("audible") ? clipView(shell, clip, get("outline"), { name: `row ${clip.label}`, on: deck.handlers(clip.id) }) : null;
      view = Object.assign(player ?? { dispose() {} }, { place: at, sha256: clip.sha256 });
      if (clip.problem) view.sound = null;
      const fields = Object.entries({ voice: clip.voice, locale: clip.locale, ...clip.fields }).filter(([, value]) => value);
      top.replaceChildren(player?.node ?? el("p.words", { tabindex: "0" }, clip.text),
        clip.problem || !row.why ? "" : el("p.why", badge(clip.status), " ", el("bdi", row.why)),
        fields.length ? el("dl.fields", ...fields.map(([name, value]) => el("div", el("dt", name), el("dd", value)))) : "");
      deck.show(player ? [player] : []);
      if (had) player?.node.focus();
      begin();
    }
    if (had && !view?.sound) focus();
  };

  // -- the page --------------------------------------------------------------------------------

  const scroll = el("div.scroll", { tabindex: "0", role: "region", label: "List of rows" }, grid);
  shell.root.append(
    el("div.row", search, column, status, verdict, again), banner,
    el("div.browse",
      el("div", scroll, el("div.row", back, el("label", "page", number, most), on, range, counter), shell.status,
        el("p.dim.keys", KEYS)),
      el("div", panel, desk)),
  );
  const acts = {
    ArrowDown: ({ shiftKey }) => step(1, false, shiftKey), ArrowUp: ({ shiftKey }) => step(-1, false, shiftKey),
    PageDown: () => turn(1), PageUp: () => turn(-1), Escape: pickOne, " ": play, Enter: play,
    k: () => judge("keep"), r: () => judge("reject"), u: undo, c: () => compose("comment"), t: () => compose("corrected_text"),
  };
  onKeys(shell.root, (event) => rowKey(event, { ...(view?.sound ? view.acts : {}), ...acts }));
  for (const { reviews, words } of held.read() ?? []) hold({ reviews, words, isFailed: true });
  shell.follow(["wanted"], () => {
    const { token: mark, ...filters } = get("wanted");
    if (token !== null && mark !== token) return; // the reply to a later request will follow
    token = null;
    asked = filters;
  });
  shell.follow(["rows", "wanted", "found", "total", "judged"], list);
  shell.follow(["opened"], () => get("opened").place === at && open());
  shell.follow(["trouble"], () => tell(banner, get("trouble")));
  mark();
  shell.onEnd(() => {
    clearTimeout(timer);
    clearTimeout(searching);
    view?.dispose();
  });
});
