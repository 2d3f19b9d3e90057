// A listening test as one file: votes stay in this browser until the listener saves them as a file.

import { button, el } from "./dom.js";
import { heldClip, heldState, madeModel, stored } from "./page.js";

const FORMAT = "speechframe listening votes 1";

/** The seal of a text: a file that somebody changed by hand has another one. */
async function sealed(text, keyHex) {
  const bytes = Uint8Array.from(keyHex.match(/../g), (pair) => parseInt(pair, 16));
  const key = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const seal = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text));
  return Array.from(new Uint8Array(seal), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The model of a page that is one file. Below the test it puts a bar to save the votes. */
export function offlineModel() {
  const { plan, listener, seal_key: key } = heldState();
  const store = stored(`speechframe:${plan.test_id}:${listener}`);
  let mine = [];
  // Read anew each time: other tabs say something, too.
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
    const url = URL.createObjectURL(new Blob([file], { type: "application/json" }));
    el("a", { href: url, download: `votes-${plan.test_id.slice(0, 8)}-${listener}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
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
    if (!crypto.subtle) words.push("This browser cannot save votes: please open the file in another one.");
    else if (given && saved === given) words.push("Saved: send the file to who sent you this page.");
    else if (all) words.push("Save your votes, and send the file to who sent you this page.");
    if (!store.lasting) words.push("This browser forgets them when the page is closed: save them before.");
    else if (!all) words.push("They are kept in this browser: you can close the page and go on later.");
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
      // In another tab, or before a reload that was not seen.
      return [{ kind: "refused", trial, done: true, message: "This trial has its vote already." }];
    }
    add(content);
    show();
    return [{ kind: "stored", trial, reveal: null }];
  };
  show();
  const begun = plan.begun || said().some((content) => content.kind === "begin");
  return madeModel({ plan: { ...plan, begun, done: votes().map((vote) => vote.trial) }, listener }, async (content) => answer(content));
}
