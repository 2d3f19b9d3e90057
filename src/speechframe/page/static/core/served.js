// Run a listening test in a page of its server. Messages are sent again until the server has replied.

import { el, tell } from "./dom.js";
import { heldState, madeModel, stored } from "./page.js";
import { textsBy } from "./words.js";

const WAITS_MS = [300, 1000, 2000, 4000, 8000]; // waits before repeated requests. The last one repeats

/**
 * Make the model of a served page. If a message was not accepted before a reload, it is sent first. Then the page is
 * loaded again, because its plan does not include this message.
 */
export async function servedModel() {
  const state = heldState();
  const t = textsBy(state.plan.texts);
  // Texts about the connection are above the test, because they do not belong to a trial.
  const line = el("p", { id: "spf-net", class: "spf spf-net", role: "alert", hidden: true });
  document.body.prepend(line);
  const net = (text) => tell(line, text);
  // The store keeps a message that the server has not accepted yet.
  const box = stored(`speechframe:${state.plan.test_id}:${state.plan.listener}`);
  const unsent = new Set();

  /** Repeat a request after network errors and 5xx until there is a reply. Return null after a 4xx. */
  const asked = async (address, how) => {
    for (let tries = 0; ; tries += 1) {
      let why = "no_connection";
      try {
        const answer = await fetch(address, how);
        if (answer.status < 500) {
          net("");
          return answer.ok ? { answer, tries } : null;
        }
        why = unsent.size ? "server_failed" : "server_away";
      } catch { /* no connection, so the loop tries again */ }
      net(`${t(why)} ${t(unsent.size ? "sends_again" : "tries_again")}`);
      await new Promise((done) => setTimeout(done, WAITS_MS[Math.min(tries, WAITS_MS.length - 1)]));
    }
  };
  const deliver = async (content) => {
    const trial = content.trial ?? null;
    // A second click while the message is being sent is ignored.
    if (unsent.has(trial)) return null;
    unsent.add(trial);
    box.keep(content);
    const taken = await asked("messages", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(content),
    });
    unsent.delete(trial);
    box.drop();
    if (!taken) return { kind: "refused", trial, text: "link_ended" };
    const said = await taken.answer.json();
    // If the reply to the first attempt was lost, its vote may be stored. The reloaded page shows whether it is.
    if (said.kind === "refused" && taken.tries) location.reload();
    return said;
  };
  const fetched = async (clip) => {
    const found = await asked(`clips/${encodeURIComponent(clip)}`);
    if (!found) return [{ kind: "error", clip, message: "" }, []];
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
