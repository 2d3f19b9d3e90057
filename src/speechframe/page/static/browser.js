// A run's rows by pages: a list, a player below it, and keys that keep, reject, comment and correct.

import { button, el, follow, frame } from "./core/dom.js";
import { counted, inWords } from "./core/words.js";
import { loader, soloist } from "./core/audio.js";
import { clipView } from "./core/clip.js";

const COLUMNS = [["row", "Row"], ["text", "Text"], ["voice", "Voice"], ["seconds", "Length"], ["status", "Status"], ["verdict", "Verdict"]];
const STATUSES = ["done", "cached", "suspect", "failed", "charged_unknown", "pending", "invalid"];
const TONES = { suspect: "warn", failed: "bad", invalid: "bad", charged_unknown: "bad", keep: "good", reject: "bad" };
const KEYS = "Space plays · ↑ ↓ other row · PgUp PgDn other page";
const REVIEW_KEYS = "K keeps · R rejects · U takes it back · C comments · T corrects the text";
const WAIT_MS = 250;

/** The rows that a page without a notebook shows: what Python does there, over the rows that the page holds. */
export function arranged(all, { search = "", status = "", verdict = "", by = "row", descending = false }) {
  const sought = search.trim().toLowerCase();
  const found = all.filter((row) => (!status || row.status === status)
    && (!verdict || (verdict === "none" ? !row.verdict : row.verdict === verdict))
    && (!sought || `${row.row}\n${row.text}`.toLowerCase().includes(sought)));
  const value = (row) => (by === "row" ? row.place : row[by]);
  const none = (row) => value(row) == null;
  const order = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (descending ? -1 : 1);
  return found.sort((a, b) => none(a) - none(b) || (none(a) ? 0 : order(a, b)));
}

/** Answer the widget's messages in a page that holds its rows. */
export function heldRows(model, message) {
  if (message.kind === "show") {
    const found = arranged(model.get("all"), message);
    const size = model.get("page_rows");
    const page = Math.min(Math.max(0, message.page ?? 0), Math.max(0, Math.ceil(found.length / size) - 1));
    const { kind, ...wanted } = message;
    model.set("wanted", { ...wanted, page });
    model.set("found", found.length);
    model.set("rows", found.slice(page * size, (page + 1) * size));
  } else if (message.kind === "open") {
    model.set("outline", model.get("outlines")[message.place] ?? "");
    model.set("opened", model.get("clips")[message.place]);
  }
}

const badge = (text, title) => el("span", { class: "spf-badge", "data-tone": TONES[text] ?? "", title }, text.replace("_", " "));

function choice(label, values, onChange) {
  const select = el("select", { "aria-label": label, change: () => onChange(select.value) },
    ...values.map(([value, words]) => el("option", { value }, words)));
  return select;
}

export default {
  render({ model, el: host }) {
    const shell = frame(host, "Rows");
    const sounds = loader(model);
    const solo = soloist();
    const editable = model.get("editable");
    let at = null; // the place of the row that is chosen
    let view = null;
    let eager = false; // play it when it is there
    let timer = 0;

    // What was asked for counts at once: Python's answer to the last question may not be here yet.
    let asked = model.get("wanted");
    const ask = (more) => {
      asked = { ...asked, ...more };
      model.send({ kind: "show", ...asked });
    };
    const answered = () => {
      const { page, ...filters } = model.get("wanted");
      if (Object.keys(filters).every((name) => filters[name] === asked[name])) asked = { ...filters, page };
    };
    const wait = (act) => {
      clearTimeout(timer);
      timer = setTimeout(act, WAIT_MS);
    };
    const search = el("input", {
      type: "search", placeholder: "Search in texts and ids", "aria-label": "Search in texts and ids",
      input: () => wait(() => ask({ search: search.value, page: 0 })),
    });
    const status = choice("Status", [["", "any status"], ...STATUSES.map((name) => [name, name.replace("_", " ")])],
      (value) => ask({ status: value, page: 0 }));
    const verdict = choice("Verdict", [["", "any verdict"], ["keep", "kept"], ["reject", "rejected"], ["none", "no verdict"]],
      (value) => ask({ verdict: value, page: 0 }));
    const pages = () => Math.max(1, Math.ceil(model.get("found") / model.get("page_rows")));
    const turn = (by) => {
      const page = asked.page + by;
      if (page < 0 || page >= pages()) return;
      at = null;
      ask({ page });
    };
    const back = button("‹ Previous", () => turn(-1));
    const on = button("Next ›", () => turn(1));
    const range = el("span", { class: "spf-pace" });
    const banner = el("p", { class: "spf-banner", role: "alert", hidden: true });
    const heads = COLUMNS.map(([name, label]) => {
      const sort = button(label, () => {
        const { by, descending } = asked;
        ask({ by: name, descending: by === name && !descending, page: 0 });
      }, { class: "spf-sort" });
      return { name, label, sort, cell: el("th", { scope: "col" }, sort) };
    });
    const body = el("tbody", {});
    const grid = el("table", { class: "spf-table spf-rows", role: "grid", "aria-label": "Rows of the run" },
      el("thead", {}, el("tr", {}, ...heads.map(({ cell }) => cell))), body);
    // Apart from the panel: what somebody is writing stays when the panel shows another row.
    const desk = el("div", {});
    const panel = el("div", { class: "spf-panel", role: "region", "aria-label": "The chosen row" });
    shell.root.append(
      el("div", { class: "spf-row" }, search, status, verdict, shell.status),
      banner,
      el("div", { class: "spf-scroll", tabindex: "0", role: "region", "aria-label": "List of rows" }, grid),
      el("div", { class: "spf-row" }, back, range, on),
      el("p", { class: "spf-dim spf-keys" }, editable ? `${KEYS} · ${REVIEW_KEYS}` : KEYS),
      panel, desk,
    );

    const rowAt = (place) => model.get("rows").find((row) => row.place === place);
    const nodeAt = (place) => body.querySelector(`[data-place="${place}"]`);
    const choose = (place, { focus = true } = {}) => {
      at = place;
      for (const node of body.children) {
        const mine = Number(node.dataset.place) === place;
        node.setAttribute("aria-selected", String(mine));
        node.tabIndex = mine ? 0 : -1;
      }
      if (focus) nodeAt(place)?.focus();
      wait(() => model.get("opened").place !== at && model.send({ kind: "open", place: at }));
    };
    const step = (by) => {
      const rows = model.get("rows");
      const next = rows[rows.findIndex((row) => row.place === at) + by];
      if (next) choose(next.place);
    };
    const play = () => {
      if (model.get("opened").place === at) view?.sound.toggle();
      else {
        eager = true;
        clearTimeout(timer);
        model.send({ kind: "open", place: at });
      }
    };
    const review = (place, said, words) => {
      const row = rowAt(place);
      if (!row) return;
      model.send({ kind: "review", place, ...said });
      shell.say(`row ${row.row}: ${words}`);
    };
    const judge = (value) => review(at, { verdict: value }, { keep: "kept", reject: "rejected" }[value] ?? "no verdict");
    const write = (name) => {
      const row = rowAt(at);
      const begun = desk.querySelector("textarea");
      if (begun) begun.focus();
      if (!row || begun) return;
      const label = name === "comment" ? "Comment" : "Corrected text";
      const field = el("textarea", { rows: "2", "aria-label": `${label} for row ${row.row}` });
      field.value = row[name] ?? (name === "comment" ? "" : row.text);
      const form = el("div", { class: "spf-write" }, el("p", { class: "spf-dim" }, `${label} for row ${row.row} · Ctrl+Enter saves, Escape leaves it`), field);
      const leave = () => {
        form.remove();
        nodeAt(row.place)?.focus();
      };
      const save = () => {
        if (!rowAt(row.place)) {
          shell.say(`row ${row.row} is not on this page: go back to it to save`, true);
          return;
        }
        review(row.place, { [name]: field.value.trim() }, `${label.toLowerCase()} saved`);
        leave();
      };
      form.append(el("div", { class: "spf-row" }, button("Save", save, { class: "spf-main" }), button("Leave it", leave)));
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
      ...(editable ? {
        k: () => judge("keep"), r: () => judge("reject"), u: () => judge(""),
        c: () => write("comment"), t: () => write("corrected_text"),
      } : {}),
    };
    body.addEventListener("focusin", ({ target }) => {
      const place = Number(target.closest("tr")?.dataset.place);
      if (place !== at) choose(place, { focus: false });
    });
    body.addEventListener("keydown", (event) => {
      const act = { ...acts, " ": play, Enter: play }[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });

    const line = (row) => {
      const marks = [row.status === "done" ? "" : badge(row.status, row.why)];
      const said = [row.verdict && badge(row.verdict, row.reviewer && `by ${row.reviewer}`),
        row.verdict && row.is_old && el("span", { class: "spf-dim" }, " of an earlier take"),
        row.comment && el("span", { class: "spf-dim" }, ` ${row.comment}`)].filter(Boolean);
      const text = el("td", { class: "spf-text" }, row.corrected_text ?? row.text);
      if (row.corrected_text) text.append(" ", el("span", { class: "spf-dim" }, "(corrected)"));
      return el("tr", {
        "data-place": row.place, tabindex: row.place === at ? "0" : "-1", "aria-selected": String(row.place === at),
        click: () => choose(row.place),
      },
      el("th", { scope: "row" }, row.row), text, el("td", {}, row.voice ?? ""),
      el("td", {}, row.seconds ? inWords(row.seconds) : ""), el("td", {}, ...(marks[0] ? marks : ["done"])), el("td", {}, ...said));
    };
    const list = () => {
      const rows = model.get("rows");
      const had = body.contains(document.activeElement);
      if (!rows.some((row) => row.place === at)) at = rows.length ? rows[0].place : null;
      body.replaceChildren(...rows.map(line));
      const first = nodeAt(at);
      if (first) first.tabIndex = 0;
      if (had) first?.focus();
      const { page, by, descending } = model.get("wanted");
      const start = page * model.get("page_rows");
      grid.setAttribute("aria-rowcount", String(model.get("found") + 1));
      [...body.children].forEach((node, k) => node.setAttribute("aria-rowindex", String(start + k + 2)));
      for (const { name, label, sort, cell } of heads) {
        cell.setAttribute("aria-sort", name !== by ? "none" : descending ? "descending" : "ascending");
        sort.textContent = name === by ? `${label} ${descending ? "▼" : "▲"}` : label;
      }
      const found = model.get("found");
      const part = found === model.get("total") ? "" : ` (of ${counted(model.get("total"))})`;
      range.textContent = rows.length ? `${counted(start + 1)}–${counted(start + rows.length)} of ${counted(found, "row")}${part}` : "no row is like that";
      back.disabled = page === 0;
      on.disabled = page + 1 >= pages();
      verdicts?.();
    };

    let verdicts = null; // shows the chosen row's verdict on its buttons
    const open = () => {
      const clip = model.get("opened");
      const had = panel.contains(document.activeElement);
      view?.dispose();
      view = verdicts = null;
      panel.replaceChildren();
      if (clip.place == null) return;
      const judges = !editable ? [] : [["Keep (K)", "keep"], ["Reject (R)", "reject"]].map(([label, value]) => {
        const node = button(label, () => judge(rowAt(clip.place)?.verdict === value ? "" : value), { "aria-pressed": "false" });
        return { node, value };
      });
      const writing = !editable ? [] : [
        button("Comment (C)", () => write("comment")), button("Correct the text (T)", () => write("corrected_text")),
      ];
      verdicts = () => judges.forEach(({ node, value }) => node.setAttribute("aria-pressed", String(rowAt(clip.place)?.verdict === value)));
      const tools = el("div", { class: "spf-row" }, ...judges.map(({ node }) => node), ...writing);
      if (model.get("audible")) {
        view = clipView({ clip, outline: model.get("outline"), clips: sounds, solo, shell, name: `row ${clip.label}`, keys: acts });
        panel.append(view.node);
      } else panel.append(el("p", { class: "spf-words" }, clip.text));
      const why = clip.problem ? null : rowAt(clip.place)?.why;
      if (why) panel.append(el("p", { class: "spf-why" }, badge(clip.status), ` ${why}`));
      const fields = Object.entries(clip.fields);
      if (fields.length) {
        panel.append(el("dl", { class: "spf-fields" }, ...fields.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
      }
      panel.append(tools);
      verdicts();
      if (had) view?.node.focus();
      if (eager && view) view.sound.play();
      eager = false;
    };
    const warn = () => {
      banner.textContent = model.get("trouble");
      banner.hidden = !banner.textContent;
    };
    follow(model, ["wanted"], answered, shell);
    follow(model, ["rows", "wanted", "found", "total"], list, shell);
    follow(model, ["opened"], open, shell);
    follow(model, ["trouble"], warn, shell);
    const { search: words, status: state, verdict: judged } = model.get("wanted");
    [search.value, status.value, verdict.value] = [words, state, judged];
    return () => {
      clearTimeout(timer);
      view?.dispose();
      sounds.forget();
      shell.dispose();
    };
  },
};
