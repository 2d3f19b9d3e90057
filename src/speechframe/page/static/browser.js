// Browse the rows of a run: a list, a player below the list, and keys for reviews.

import { alertLine, button, choice, el, onKeys, tell } from "./core/dom.js";
import { counted, inWords } from "./core/words.js";
import { clipView } from "./core/clip.js";
import { makeWidget } from "./core/widget.js";

const COLUMNS = [["row", "Row"], ["text", "Text"], ["voice", "Voice"], ["seconds", "Length"], ["status", "Status"], ["verdict", "Verdict"]];
const STATUSES = ["done", "cached", "suspect", "failed", "charged_unknown", "pending", "invalid"];
const TONES = { suspect: "warn", failed: "bad", invalid: "bad", charged_unknown: "bad", keep: "good", reject: "bad", "not saved": "bad" };
const KEYS = "Space plays · ↑ ↓ other row · PgUp PgDn other page";
const REVIEW_KEYS = "K keeps · R rejects · U removes the verdict · C comments · T corrects the text";
const WAIT_MS = 250; // time without a further key before a search or an opened row is sent
const PATIENCE_MS = 10000; // time to wait for the reply to a review

const spaced = (name) => name.replace("_", " ");
const badge = (text, title) => el("span.badge", { "data-tone": TONES[text] ?? "", title }, spaced(text));

export default makeWidget("Rows", (shell) => {
  const { get, send, say } = shell;
  let at = null; // place of the chosen row
  let view = null;
  let eager = false; // whether to play the row when its data arrives
  let timer = 0;
  let searching = 0;

  // A request starts from the filters of the last request, because Python's reply may not have arrived.
  let asked = get("wanted");
  const ask = (more) => {
    asked = { ...asked, ...more };
    send({ kind: "show", ...asked });
  };
  const answered = () => {
    const { page, ...filters } = get("wanted");
    if (Object.keys(filters).every((name) => filters[name] === asked[name])) asked = { ...filters, page };
  };
  const wait = (act) => {
    clearTimeout(timer);
    timer = setTimeout(act, WAIT_MS);
  };
  const search = el("input", {
    type: "search", placeholder: "Search in texts and ids", label: "Search in texts and ids",
    dir: "auto", value: asked.search, input: () => {
      // The search has its own timer, so that choosing a row does not cancel the search.
      clearTimeout(searching);
      searching = setTimeout(() => ask({ search: search.value, page: 0 }), WAIT_MS);
    },
  });
  const status = choice("Status", [["", "any status"], ...STATUSES.map((name) => [name, spaced(name)])],
    asked.status, (value) => ask({ status: value, page: 0 }));
  const verdict = choice("Verdict", [["", "any verdict"], ["keep", "kept"], ["reject", "rejected"], ["none", "no verdict"]],
    asked.verdict, (value) => ask({ verdict: value, page: 0 }));
  const pages = () => Math.max(1, Math.ceil(get("found") / get("page_rows")));
  const turn = (by) => {
    const page = asked.page + by;
    if (page < 0 || page >= pages()) return;
    at = null;
    ask({ page });
  };
  const back = button("‹ Previous", () => turn(-1));
  const on = button("Next ›", () => turn(1));
  const range = el("span.pace");
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
  const grid = el("table.table.rows", { role: "grid", label: "Rows of the run" },
    el("thead", el("tr", ...heads.map(({ cell }) => cell))), body);
  // The form for texts is outside the panel, so that a text is kept when the panel shows another row.
  const desk = el("div");
  const panel = el("div.panel", { role: "region", label: "The chosen row" });
  shell.root.append(
    el("div.row", search, status, verdict, again),
    banner,
    el("div.scroll", { tabindex: "0", role: "region", label: "List of rows" }, grid),
    el("div.row", back, range, on, shell.status),
    el("p.dim.keys", `${KEYS} · ${REVIEW_KEYS}`),
    panel, desk,
  );

  const rowAt = (place) => get("rows").find((row) => row.place === place);
  const nodeAt = (place) => body.querySelector(`[data-place="${place}"]`);
  const choose = (place, { focus = true } = {}) => {
    at = place;
    for (const node of body.children) {
      const mine = Number(node.dataset.place) === place;
      node.ariaSelected = mine;
      node.tabIndex = mine ? 0 : -1;
    }
    if (focus) nodeAt(place)?.focus();
    wait(() => get("opened").place !== at && send({ kind: "open", place: at }));
  };
  const step = (by) => {
    const rows = get("rows");
    const next = rows[rows.findIndex((row) => row.place === at) + by];
    if (next) choose(next.place);
  };
  const play = () => {
    if (get("opened").place === at) view?.sound.toggle();
    else {
      eager = true;
      clearTimeout(timer);
      send({ kind: "open", place: at });
    }
  };
  // Reviews that Python has not confirmed yet, by row. The user can send failed reviews again.
  const unsaved = new Map();
  let decisions = 0;
  const deliver = () => {
    for (const entry of unsaved.values()) {
      if (entry.isFailed === false) continue; // already sent
      entry.isFailed = false;
      send({ kind: "review", ...entry.said });
      setTimeout(() => fail(entry, "the notebook did not reply"), PATIENCE_MS);
    }
    again.hidden = true;
  };
  const mark = () => {
    const failed = [...unsaved.values()].filter(({ isFailed }) => isFailed);
    again.hidden = !failed.length;
    again.textContent = `Try again to save ${counted(failed.length, "row")}`;
    list();
  };
  const fail = (entry, why) => {
    if (entry.isFailed || unsaved.get(entry.said.row) !== entry) return;
    entry.isFailed = true;
    say(`row ${entry.said.row} is not saved: ${why}`, true);
    mark();
  };
  const review = (place, said, words) => {
    const row = rowAt(place);
    if (!row) return;
    const { row: name, sha256 } = row;
    // Parts of an earlier review of this row that are not confirmed yet are sent again with the new part.
    unsaved.set(name, { words, said: { ...unsaved.get(name)?.said, row: name, sha256, ...said, decision: decisions += 1 } });
    deliver();
  };
  shell.hear((message) => {
    if (message?.kind !== "reviewed") return;
    const entry = unsaved.get(message.row);
    if (entry?.said.decision !== message.decision) return; // reply to an earlier review of this row
    if (message.problem) {
      fail(entry, message.problem);
      return;
    }
    unsaved.delete(message.row);
    say(`row ${message.row}: ${entry.words}`);
    mark();
  });
  const judge = (value) => review(at, { verdict: value }, { keep: "kept", reject: "rejected" }[value] ?? "no verdict");
  const compose = (name) => {
    const row = rowAt(at);
    const begun = desk.querySelector("textarea");
    if (begun) begun.focus();
    if (!row || begun) return;
    const label = name === "comment" ? "Comment" : "Corrected text";
    const field = el("textarea", { rows: "2", label: `${label} for row ${row.row}` });
    field.value = row[name] ?? (name === "comment" ? "" : row.text);
    const form = el("div.write", el("p.dim", `${label} for row ${row.row} · Ctrl+Enter saves, Escape cancels`), field);
    const leave = () => {
      form.remove();
      nodeAt(row.place)?.focus();
    };
    const save = () => {
      if (!rowAt(row.place)) {
        say(`row ${row.row} is not on this page; return to its page to save`, true);
        return;
      }
      review(row.place, { [name]: field.value.trim() }, `${label.toLowerCase()} saved`);
      leave();
    };
    form.append(el("div.row", button("Save", save, { class: "spf-main" }), button("Cancel", leave)));
    form.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape") leave();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    });
    desk.append(form);
    field.focus();
  };
  const acts = {
    ArrowDown: () => step(1), ArrowUp: () => step(-1), PageDown: () => turn(1), PageUp: () => turn(-1),
    k: () => judge("keep"), r: () => judge("reject"), u: () => judge(""),
    c: () => compose("comment"), t: () => compose("corrected_text"),
  };
  body.addEventListener("focusin", ({ target }) => {
    const place = Number(target.closest("tr")?.dataset.place);
    if (place !== at) choose(place, { focus: false });
  });
  onKeys(body, ({ key }) => ({ ...acts, " ": play, Enter: play })[key]);

  // The style sheet cuts long texts in the list. The panel below shows the whole text.
  const cell = (tag, attrs, ...kids) => el(tag, attrs, el("div.cut", { dir: "auto" }, ...kids));
  const line = (row) => {
    const said = [unsaved.get(row.row)?.isFailed && badge("not saved"), row.verdict && badge(row.verdict, row.reviewer && `by ${row.reviewer}`),
      row.verdict && row.is_old && el("span.dim", " of an earlier take"),
      row.comment && el("div.dim", { dir: "auto" }, row.comment)].filter(Boolean);
    const text = [row.corrected_text ?? row.text, row.corrected_text ? el("span.dim", " (corrected)") : null];
    return el("tr", {
      "data-place": row.place, tabindex: row.place === at ? "0" : "-1", "aria-selected": String(row.place === at),
      click: () => choose(row.place),
    },
    cell("th", { scope: "row" }, row.row), cell("td", {}, ...text), cell("td", {}, row.voice ?? ""),
    el("td", row.seconds ? inWords(row.seconds) : ""), el("td", row.status === "done" ? "done" : badge(row.status, row.why)),
    cell("td", {}, ...said));
  };
  const list = () => {
    const rows = get("rows");
    const had = body.contains(document.activeElement);
    if (!rows.some((row) => row.place === at)) at = rows.length ? rows[0].place : null;
    body.replaceChildren(...rows.map(line));
    if (had) nodeAt(at)?.focus();
    const { page, by, descending } = get("wanted");
    const start = page * get("page_rows");
    grid.ariaRowCount = get("found") + 1;
    [...body.children].forEach((node, k) => { node.ariaRowIndex = start + k + 2; });
    for (const { name, label, sort, cell } of heads) {
      cell.ariaSort = name !== by ? "none" : descending ? "descending" : "ascending";
      sort.textContent = name === by ? `${label} ${descending ? "▼" : "▲"}` : label;
    }
    const found = get("found");
    const part = found === get("total") ? "" : ` (of ${counted(get("total"))})`;
    range.textContent = rows.length ? `${counted(start + 1)}–${counted(start + rows.length)} of ${counted(found, "row")}${part}` : "no rows match";
    back.disabled = page === 0;
    on.disabled = page + 1 >= pages();
    verdicts?.();
  };

  let verdicts = null; // function that marks the verdict of the chosen row on the buttons
  const open = () => {
    const clip = get("opened");
    const had = panel.contains(document.activeElement);
    view?.dispose();
    view = verdicts = null;
    panel.replaceChildren();
    if (clip.place == null) return;
    const isJudged = (value) => rowAt(clip.place)?.verdict === value;
    const judges = [["Keep (K)", "keep"], ["Reject (R)", "reject"]].map(([text, value]) =>
      [button(text, () => judge(isJudged(value) ? "" : value)), value]);
    const note = el("div");
    verdicts = () => {
      judges.forEach(([node, value]) => { node.ariaPressed = isJudged(value); });
      const { comment, corrected_text: corrected } = rowAt(clip.place) ?? {};
      const said = [["Comment", comment], ["Corrected text", corrected]].filter(([, text]) => text);
      note.replaceChildren(...said.flatMap(([name, text]) => [el("p.dim", name), el("p.words", { tabindex: "0" }, text)]));
    };
    const tools = el("div.row", ...judges.map(([node]) => node),
      button("Comment (C)", () => compose("comment")), button("Correct the text (T)", () => compose("corrected_text")));
    if (get("audible")) {
      view = clipView(shell, clip, get("outline"), { name: `row ${clip.label}`, keys: acts });
      panel.append(view.node);
    } else panel.append(el("p.words", { tabindex: "0" }, clip.text));
    const why = clip.problem ? null : rowAt(clip.place)?.why;
    if (why) panel.append(el("p.why", badge(clip.status), " ", el("bdi", why)));
    const fields = Object.entries(clip.fields);
    if (fields.length) {
      panel.append(el("dl.fields", ...fields.map(([name, value]) => el("div", el("dt", name), el("dd", value)))));
    }
    panel.append(note, tools);
    verdicts();
    if (had) view?.node.focus();
    if (eager && view) view.sound.play();
    eager = false;
  };
  shell.follow(["wanted"], answered);
  shell.follow(["rows", "wanted", "found", "total"], list);
  shell.follow(["opened"], open);
  shell.follow(["trouble"], () => tell(banner, get("trouble")));
  shell.onEnd(() => {
    clearTimeout(timer);
    clearTimeout(searching);
    view?.dispose();
  });
});
