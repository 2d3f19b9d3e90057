// A page of the server of a listening test: clips come from there, and what is said goes there until it has it.

import { tell } from "./dom.js";
import { heldState, madeModel, stored } from "./page.js";

const WAITS_MS = [300, 1000, 2000, 4000, 8000];

/**
 * The model of a served page. What was left from before a reload is sent first; the page is then asked for
 * anew, because what it holds was written before.
 */
export async function servedModel() {
  const state = heldState();
  // It stands above the test and belongs to no trial.
  const net = (text) => tell(document.getElementById("spf-net"), text);
  // What was not yet taken by the server.
  const box = stored(`speechframe:${state.plan.test_id}:${state.plan.listener}`);
  const unsent = new Set();

  /** Ask until there is an answer that is not the network's or a failing server's; null is a 4xx. */
  const asked = async (address, how) => {
    for (let tries = 0; ; tries += 1) {
      let why = "No connection.";
      try {
        const answer = await fetch(address, how);
        if (answer.status < 500) {
          net("");
          return answer.ok ? { answer, tries } : null;
        }
        why = unsent.size ? "The server could not keep your answer." : "The server cannot answer right now.";
      } catch { /* no connection: asked again below */ }
      net(unsent.size
        ? `${why} It is kept here and sent again: please leave this page open.`
        : `${why} This page tries again by itself.`);
      await new Promise((done) => setTimeout(done, WAITS_MS[Math.min(tries, WAITS_MS.length - 1)]));
    }
  };
  const deliver = async (content) => {
    const trial = content.trial ?? null;
    // Somebody who clicks again while it is on its way says nothing new.
    if (unsent.has(trial)) return null;
    unsent.add(trial);
    box.keep(content);
    const taken = await asked("messages", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(content),
    });
    unsent.delete(trial);
    box.drop();
    if (!taken) return { kind: "refused", trial, message: "This link is not served any more. Please tell who sent it to you." };
    const said = await taken.answer.json();
    // It may have been taken the first time, and only the answer was lost: a new page knows.
    if (said.kind === "refused" && taken.tries) location.reload();
    return said;
  };
  const fetched = async (clip) => {
    const found = await asked(`clips/${encodeURIComponent(clip)}`);
    if (!found) return [{ kind: "error", clip, message: "this sound is not there" }, []];
    const { answer } = found;
    return [{ kind: "audio", clip, mime: answer.headers.get("content-type") }, [await answer.arrayBuffer()]];
  };

  addEventListener("beforeunload", (event) => {
    if (unsent.size) event.preventDefault();
  });
  const left = box.read();
  if (left) {
    await deliver(left);
    location.reload();
    await new Promise(() => {});
  }
  return madeModel(state, async (content) =>
    (content.kind === "load" ? fetched(content.clip) : [await deliver(content), []]));
}
