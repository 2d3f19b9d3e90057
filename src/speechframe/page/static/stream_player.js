// A stream: heard while it arrives, with words lit when they are guessed to be heard; then a clip like any other.

import { el, follow, frame, put } from "./core/dom.js";
import { loader, soloist } from "./core/audio.js";
import { clipView } from "./core/clip.js";
import { liveSound } from "./core/live.js";
import { view } from "./core/wave.js";

const GUESSED = "When words are heard is guessed from their lengths.";

export default {
  render({ model, el: host }) {
    const shell = frame(host, "A stream");
    const clips = loader(model);
    const solo = soloist();
    const place = el("div", {});
    shell.root.append(place, shell.status, el("p", { class: "spf-dim" }, GUESSED));
    let shown = null;
    let live = null;

    const show = (make) => {
      const had = shown?.node.contains(document.activeElement) && document.activeElement;
      shown?.dispose();
      shown = clipView({ clip: model.get("clip"), outline: model.get("outline"), clips, solo, shell, make });
      place.replaceChildren(shown.node);
      if (had) (had.matches("button") ? shown.node.querySelector("button") : shown.node).focus();
    };
    const ended = () => {
      live = null;
      show();
    };
    const heard = (message, buffers) => {
      if (message?.kind !== "piece" || !live) return;
      live.take(message, view(buffers[0]));
      // Whoever ran the cell wants to hear it, once: where the browser does not let us, the button waits.
      if (!model.get("fresh")) return;
      put(model, { fresh: false });
      live.play();
    };
    const say = () => {
      const trouble = model.get("trouble");
      const text = trouble || (model.get("over") ? "" : "Arriving…");
      if (shell.status.textContent !== text) shell.say(text, Boolean(trouble));
    };
    const changed = () => {
      if (live) shown.change(model.get("clip"), model.get("outline"));
      if (live && model.get("clip").problem) ended();
      else if (model.get("over")) live?.finish();
      say();
    };
    if (model.get("over") && !model.get("fresh")) show();
    else {
      show(({ on }) => {
        live = liveSound({ on: { change: on.change, ended } });
        return live;
      });
      model.on("msg:custom", heard);
      model.send({ kind: "follow" });
    }
    follow(model, ["clip", "over"], changed, shell);
    return () => {
      model.off("msg:custom", heard);
      shown.dispose();
      clips.forget();
      shell.dispose();
    };
  },
};
