// Run a listening test in an offline page. Votes stay in the browser until the listener saves them as a file.

import { button, el } from "./dom.js";
import { heldClip, heldState, madeModel, saveFile, stored } from "./page.js";

const FORMAT = "speechframe listening votes 1"; // must equal the value in listening/offline.py

/** Return the seal (keyed hash, HMAC-SHA-256) of a text. A file that was changed by hand does not fit its seal. */
async function sealed(text, keyHex) {
  const bytes = Uint8Array.from(keyHex.match(/../g), (pair) => parseInt(pair, 16));
  const key = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const seal = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text));
  return Array.from(new Uint8Array(seal), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Make the model of an offline page, and add a bar below the test for saving the votes. */
export function offlineModel() {
  const { plan, listener, seal_key: key } = heldState();
  const store = stored(`speechframe:${plan.test_id}:${listener}`);
  let mine = [];
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
  let saved = 0;

  const save = async () => {
    const record = JSON.stringify({ test_id: plan.test_id, listener, said: said() });
    const file = JSON.stringify({ format: FORMAT, record, seal: await sealed(record, key) });
    saveFile(`votes-${plan.test_id.slice(0, 8)}-${listener}.json`, file);
    saved = votes().length;
    show();
  };
  const line = el("p", { role: "status" });
  const keep = button("Save my votes as a file", save, { disabled: true });
  const bar = el("section", { class: "spf spf-save", label: "Your votes" }, keep, line);
  document.getElementById("spf-host").after(bar);
  const show = () => {
    const given = votes().length;
    const all = given === plan.trials.length;
    keep.disabled = !given || !crypto.subtle;
    keep.classList.toggle("spf-main", all);
    const words = [`${given} of ${plan.trials.length} trials done.`];
    if (!crypto.subtle) words.push("This browser cannot save votes. Please open this page in another browser.");
    else if (given && saved === given) words.push("Saved. Please send the file to the person who sent you this page.");
    else if (all) words.push("Please save your votes, and send the file to the person who sent you this page.");
    if (!store.lasting) words.push("This browser loses your votes when you close the page, so save them before.");
    else if (!all) words.push("Your votes are kept in this browser. You can close the page and continue later.");
    line.textContent = words.join(" ");
  };
  addEventListener("beforeunload", (event) => {
    if (!store.lasting && saved < votes().length) event.preventDefault();
  });
  const answer = (content) => {
    if (content.kind === "load") return heldClip(content.clip);
    if (content.kind === "begin") {
      add(content);
      return [{ kind: "begun" }];
    }
    const { trial } = content;
    if (votes().some((vote) => vote.trial === trial)) {
      // The listener may have voted in another tab.
      return [{ kind: "refused", trial, done: true, message: "This trial has a vote already." }];
    }
    add(content);
    show();
    return [{ kind: "stored", trial, reveal: null }];
  };
  show();
  const begun = plan.begun || said().some((content) => content.kind === "begin");
  return madeModel({ plan: { ...plan, begun, done: votes().map((vote) => vote.trial) }, listener }, async (content) => answer(content));
}
