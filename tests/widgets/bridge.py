"""A real widget with its real script in a real browser, without a notebook: the comm is a recorder.

What the page sends is handed to the widget at once; what Python sends is fetched by the page, which asks
every few milliseconds, so that answers of other threads arrive as they do in a notebook.
"""

import base64
import json
import re
import sys
import threading
from functools import cache
from pathlib import Path
from typing import ClassVar

import comm
import pytest
from comm.base_comm import BaseComm
from ipywidgets.widgets.widget import _put_buffers, _remove_buffers

HARNESS = (Path(__file__).parent / "harness.html").read_text(encoding="utf-8")
THEMES = Path(sys.prefix) / "share/jupyter/lab/themes/@jupyterlab"
ADDRESS = "http://widget.test/"
LIGHT_AND_LONG_DARK = [True, pytest.param(False, marks=pytest.mark.slow)]
"""Themes: of what takes long the dark one is looked at in the long form; all widgets share its colours."""

KEEP_AUDIO = """() => {
  window.__audio = [];
  const act = HTMLMediaElement.prototype.play;
  HTMLMediaElement.prototype.play = function () {
    if (!window.__audio.includes(this)) window.__audio.push(this);
    return act.call(this);
  };
}"""
"""Keeps each sound that a page plays."""

PRESS_AT_ONCE = """([text, key]) => new Promise((done) => {
  const look = () => {
    if (document.querySelector(".spf-panel strong")?.textContent !== text) requestAnimationFrame(look);
    else done(document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })));
  };
  look();
})"""
"""Presses a key in the frame in which the panel shows a row. A busy machine would press it too late."""


@cache
def lab_css():
    """Return the rules of JupyterLab itself for what is in outputs, as its own script has them."""
    core = next((Path(sys.prefix) / "share/jupyter/lab/static").glob("jlab_core.*.js"))
    text = core.read_text(encoding="utf-8").replace("\\n", "\n")
    rule = r"^\.jp-(?:OutputArea-output|ThemedContainer)[ ,][^{}]*\{[^}]*\}"
    found = "".join(re.findall(rule, text, re.MULTILINE))
    assert "float: left" in found
    assert "button:focus-visible" in found
    return found


class Recorder(BaseComm):
    """A comm that keeps what is sent through it, by whichever thread, until it is taken."""

    sent: ClassVar[list] = []
    # Widgets answer in a thread of their own: what one thread adds while another takes must not be lost.
    lock: ClassVar[threading.Lock] = threading.Lock()

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        with Recorder.lock:
            Recorder.sent.append((self.comm_id, msg_type, data or {}, list(buffers or [])))

    @classmethod
    def taken(cls, comm_id):
        """Take what one comm sent; what others sent stays."""
        with cls.lock:
            mine = [one for one in cls.sent if one[0] == comm_id]
            cls.sent = [one for one in cls.sent if one[0] != comm_id]
        return mine


def record_comms(monkeypatch):
    Recorder.sent = []
    monkeypatch.setattr(comm, "create_comm", Recorder)


def wire(data, buffers):
    return {**json.loads(json.dumps(data)), "buffers": [base64.b64encode(bytes(b)).decode() for b in buffers]}


def until_seen(page, selector):
    """Wait until a page has such an element. Frame by frame: a locator looks twice a second at last."""
    page.wait_for_function("selector => document.querySelector(selector) !== null", arg=selector)


def until_lit(page, word=None):
    """Wait until a word is lit, or that word; as :func:`until_seen`, for words are short."""
    page.wait_for_function(
        """word => [...document.querySelectorAll(".spf-lit")]
          .some((lit) => word === null || lit.textContent.trim() === word)""",
        arg=word,
    )


def cut_off(page):
    """Return what of a widget a page does not show: what stands out at its side, and rows higher than it is."""
    return page.evaluate("""() => {
      const [right, most] = [document.documentElement.clientWidth, document.documentElement.clientHeight];
      return [...document.querySelectorAll(".spf *:not(.spf-hidden *, .spf-hidden)")].filter((node) => {
        const box = node.getBoundingClientRect();
        const out = box.width && (box.left < 0 || box.right > right + 1);
        return out || (node.matches(".spf-clip, .spf-card, .spf-rows tr") && box.height > most);
      }).map((node) => `${node.tagName}.${node.className}: ${node.textContent.slice(0, 40)}`);
    }""")


class Bridge:
    """A widget shown in a page.

    Attributes
    ----------
    page
        The page, of Playwright.
    errors
        What the page's console called an error, and exceptions of its scripts.
    to_python, to_page
        Messages in either direction: what they say, without buffers.
    requests
        Addresses the page asked for beyond its own.
    """

    def __init__(self, page, widget, *, light=True):
        self.page, self.widget, self.light = page, widget, light
        self.errors, self.to_python, self.to_page, self.requests = [], [], [], []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "console", lambda message: self.errors.append(message.text) if message.type == "error" else None
        )
        page.route("**/*", self._serve)
        page.expose_function("__py", self._heard)
        page.emulate_media(color_scheme="light" if light else "dark")
        page.goto(ADDRESS)
        page.wait_for_function("window.__ready === true")

    def _serve(self, route):
        url = route.request.url
        theme = "light" if self.light else "dark"
        if url == ADDRESS:
            page = HARNESS.replace("__LIGHT__", str(self.light).lower())
            route.fulfill(content_type="text/html", body=page)
        elif url.partition("?")[0] == f"{ADDRESS}widget.js":
            route.fulfill(content_type="text/javascript", body=str(self.widget._esm))
        elif url == f"{ADDRESS}widget.css":
            route.fulfill(content_type="text/css", body=str(self.widget._css))
        elif url == f"{ADDRESS}theme.css":
            # The variables of JupyterLab's own theme, as the notebook has them.
            route.fulfill(content_type="text/css", path=THEMES / f"theme-{theme}-extension/index.css")
        elif url == f"{ADDRESS}lab.css":
            route.fulfill(content_type="text/css", body=lab_css())
        elif url.startswith(("blob:", "data:")):
            route.continue_()
        else:
            self.requests.append(url)
            route.fulfill(status=404)

    def _heard(self, message):
        if message["method"] == "state":
            # As in a notebook: what was told before there was a page is in the state that the page begins with.
            self._pending()
            self.to_page.clear()
            state, paths, buffers = _remove_buffers(self.widget.get_state())
            return [wire({"method": "update", "state": state, "buffer_paths": paths}, buffers)]
        if message["method"] != "poll":
            buffers = [base64.b64decode(b) for b in message.pop("buffers", [])]
            if message["method"] == "update":
                _put_buffers(message["state"], message["buffer_paths"], buffers)
            self.to_python.append(message)
            self.widget._handle_msg({"content": {"data": message}, "buffers": buffers})
        return self._pending()

    def _pending(self):
        mine = []
        for _, kind, data, buffers in Recorder.taken(self.widget.comm.comm_id):
            if kind == "comm_msg" and data.get("method") in {"update", "custom"}:
                self.to_page.append(data)
                mine.append(wire(data, buffers))
        return mine

    @property
    def box(self):
        """The widget's own element."""
        return self.page.locator("#host > .spf")

    def wait(self, script, arg=None):
        """Wait until a script of the page is true."""
        self.page.wait_for_function(script, arg=arg)

    def until(self, true, seconds=60):
        """Wait until something of Python is true, with the page alive."""
        for _ in range(int(seconds / 0.05)):
            if true():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError("it did not come to that")
