// Play a stream while it arrives, and afterwards as a clip. Highlighted words have estimated times.

import { el } from "./core/dom.js";
import { clipView } from "./core/clip.js";
import { makeDeck } from "./core/deck.js";
import { liveSound } from "./core/live.js";
import { makeWidget } from "./core/widget.js";
import { view } from "./core/wave.js";

const ESTIMATED = "The times of the words are estimated from their lengths.";

export default makeWidget("A stream", (shell) => {
  const { get } = shell;
  const place = el("div");
  const deck = makeDeck(shell, place);
  shell.root.append(deck.node, place, shell.status, el("p.dim", ESTIMATED));
  let shown = null;
  let live = null;

  const show = (make) => {
    const had = shown?.node.contains(document.activeElement) && document.activeElement;
    shown?.dispose();
    shown = clipView(shell, get("clip"), get("outline"), { make, on: make ? {} : deck.handlers(get("clip").id) });
    deck.show(make ? [] : [shown]);
    place.replaceChildren(shown.node);
    if (had) (had.matches("button") ? shown.node.querySelector("button") : shown.node).focus();
  };
  const ended = () => {
    live = null;
    show();
  };
  const changed = () => {
    if (live) shown.change(get("clip"), get("outline"));
    if (live && get("clip").problem) ended();
    else if (get("over")) live?.finish();
    const trouble = get("trouble");
    const text = trouble || (get("over") ? "" : "Arriving…");
    if (shell.status.textContent !== text) shell.say(text, trouble);
  };
  if (get("over") && !get("fresh")) show();
  else {
    show((_, { on }) => {
      live = liveSound({ solo: shell.solo, on: { change: on.change, ended } });
      return live;
    });
    shell.hear((message, buffers) => {
      if (message?.kind !== "piece" || !live) return;
      live.take(message, view(buffers[0]));
      // Only the first page starts the stream by itself. If the browser forbids this, the user presses the button.
      if (!get("fresh")) return;
      shell.put({ fresh: false });
      live.play();
    });
    shell.send({ kind: "follow" });
  }
  shell.follow(["clip", "over"], changed);
  shell.onEnd(() => shown.dispose());
});
