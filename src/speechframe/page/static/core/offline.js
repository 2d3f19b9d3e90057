// Run a listening test in an offline page. Votes stay in the browser until the listener saves them as a file.

import { button, el } from "./dom.js";
import { heldState, pageModel, saveFile, stored } from "./page.js";
import { textsBy } from "./words.js";

const FORMAT = "speechframe listening votes 2"; // must equal the value in listening/offline.py

/** Return the checksum (SHA-256) of a text. A file that was changed does not fit its checksum. */
async function checksumOf(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Make the model of an offline page, and add a bar below the test for saving the votes. */
export function offlineModel() {
  const { plan } = heldState();
  const { listener, test_id: id, trials } = plan;
  const t = textsBy(plan.texts);
  const store = stored(`speechframe:${id}:${listener}`);
  const exported = stored(`speechframe-exported:${id}:${listener}`);
  let mine = [];
  let saved = exported.read() ?? { votes: 0 }; // name of the last file, and the number of its votes
  // The stored messages are read again each time, because other tabs may add messages.
  const said = () => {
    mine = (store.lasting && store.read()) || mine;
    return mine;
  };
  const add = (content) => {
    mine = [...said(), content];
    store.keep(mine);
  };
  const votes = () => said().filter((content) => content.kind === "vote");

  const save = async () => {
    const record = JSON.stringify({ test_id: id, listener, said: said() });
    saved = { file: `votes-${id.slice(0, 8)}-${listener}.json`, votes: votes().length };
    saveFile(saved.file, JSON.stringify({ format: FORMAT, record, sha256: await checksumOf(record) }));
    exported.keep(saved);
    show();
  };
  const line = el("p", { role: "status" });
  const keep = button(t("save_votes"), save, { disabled: true });
  const bar = el("section", { class: "spf spf-save", label: t("your_votes") }, keep, line);
  document.getElementById("spf-host").after(bar);
  const isComplete = () => votes().length === trials.length;
  const isSaved = () => votes().length === saved.votes;
  const show = () => {
    const given = votes().length;
    keep.disabled = !given || !crypto.subtle;
    keep.classList.toggle("spf-main", isComplete() && !isSaved());
    const words = [t("votes_done", { done: given, total: trials.length })];
    if (!crypto.subtle) words.push(t("cannot_save"));
    else if (given && isSaved()) words.push(t("saved", saved));
    else if (isComplete()) words.push(t("save_now"));
    if (!isComplete()) words.push(t(store.lasting ? "keeps_votes" : "loses_votes"));
    else if (!store.lasting && !isSaved()) words.push(t("loses_votes"));
    line.textContent = words.join(" ");
  };
  addEventListener("beforeunload", (event) => {
    if (!isSaved() && (isComplete() || !store.lasting)) event.preventDefault();
  });
  const receive = (content) => {
    const { kind, trial } = content;
    // The listener may have voted in another tab.
    if (votes().some((vote) => vote.trial === trial)) return { kind: "refused", trial, done: true };
    add(content);
    show();
    return kind === "begin" ? { kind: "begun" } : { kind: "stored", trial };
  };
  show();
  const begun = plan.begun || said().some((content) => content.kind === "begin");
  return pageModel(receive, { plan: { ...plan, begun, done: votes().map((vote) => vote.trial) } });
}
