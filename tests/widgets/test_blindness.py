"""Before a vote nothing tells what is heard: in a notebook, on a served page, in a page that is one file.

How long a sound is can be heard, so that is no secret; everything else that a curious listener can look at is
looked at here: the page with all its attributes, its addresses, and what is sent either way. The sounds
themselves are looked at in ``tests/listening/test_stimuli.py``.
"""

import base64
import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "listening"))

from listening_lab import CONDITIONS, ITEMS, begin, made, vote

from speechframe.listening.server import serve_test
from speechframe.widgets.listening import ListeningTest

LISTENER = "listener-02"
SECRETS = (
    *CONDITIONS, *ITEMS, "quartz", "basalt", "granite", "topaz", "utterance", "anchor 3.5", "anchor 7",
    "hidden reference", "voice_id", ".wav", "stimuli/", "pytest-of",
)  # fmt: skip
"""Names, rows, texts, files, folders: whatever stands for a condition or leads to one."""

_ENCODED = 8
"""Characters of an encoded secret that are no accident."""


def told(seen, secrets=SECRETS):
    """Return which secrets are in what a listener could see, also in Base64 or in hexadecimal."""
    seen = seen.lower()
    found = []
    for secret in secrets:
        encoded = [secret.encode().hex()]
        # A name may begin at any of three places of Base64; what stands beside it changes its ends.
        encoded += [base64.b64encode(b"\0" * shift + secret.encode()).decode()[4:-4] for shift in range(3)]
        ways = [secret, *(way for way in encoded if len(way) >= _ENCODED)]
        found += [secret] * any(way.lower() in seen for way in ways)
    return found


class Notebook:
    def __init__(self, page, show, tmp_path):
        self.page, self.show = page, show

    def open(self, test):
        self.bridge = self.show(lambda: ListeningTest(test, LISTENER))

    def seen(self):
        bridge = self.bridge
        state = {
            name: value for name, value in bridge.widget.get_state().items() if name not in {"_esm", "_css"}
        }
        return json.dumps(
            [bridge.to_page, bridge.to_python, state, bridge.requests, bridge.widget.to_table()]
        )

    def close(self):
        pass


class Served:
    def __init__(self, page, show, tmp_path):
        self.page, self.said = page, []
        page.on("request", lambda ask: self.said.append([ask.method, ask.url, ask.headers, ask.post_data]))
        page.on("response", self._got)

    def _got(self, answer):
        if not answer.url.startswith("blob:"):
            self.said.append([answer.url, answer.status, answer.headers])

    def open(self, test):
        self.served = serve_test(test, listeners=3)
        self.link = self.served.links[LISTENER]
        self.page.goto(self.link)
        with self.page.expect_response(self.link) as again:
            self.page.reload()
        self.said.append(again.value.text())

    def seen(self):
        return json.dumps(self.said)

    def close(self):
        self.served.close()


class OneFile:
    def __init__(self, page, show, tmp_path):
        self.page, self.folder, self.urls = page, tmp_path / "page", []
        page.on("request", lambda ask: self.urls.append(ask.url) if ask.url.startswith("http") else None)

    def open(self, test):
        self.folder.mkdir()
        path = self.folder / "test.html"
        self.source = test.to_html(listener=LISTENER)
        path.write_text(self.source, encoding="utf-8")
        self.page.goto(path.as_uri())

    def seen(self):
        assert self.urls == []
        return self.source + json.dumps(self.page.evaluate("({ ...localStorage })"))

    def close(self):
        pass


@pytest.fixture(params=[Notebook, Served, OneFile], ids=["notebook", "served", "one file"])
def host(request, page, show, tmp_path):
    host = request.param(page, show, tmp_path)
    host.console = []
    page.on("console", lambda said: host.console.append(said.text))
    yield host
    host.close()


AUDIO = re.compile(r'(<script type="text/plain" id="spf-clip-[^>]*>)[^<]*')


def everything(host):
    """Return all that a listener can look at now."""
    page = host.page
    held = page.evaluate("document.documentElement.outerHTML + document.title")
    # Sounds are looked at below; in a million characters every short word is found.
    return AUDIO.sub(r"\1", host.seen() + held + "".join(host.console))


@pytest.mark.parametrize("method", ["ab", pytest.param("mushra", marks=pytest.mark.slow)])
def test_nothing_on_the_page_or_on_its_way_tells_what_is_heard(host, tmp_path, method):
    test = made(tmp_path / "test", method)
    host.open(test)
    page = host.page
    page.get_by_role("button", name="Begin").click()
    page.get_by_text("Trial 1 of").first.wait_for()
    assert told(everything(host)) == []
    for slot in page.locator(".spf-lt-play").evaluate_all("nodes => nodes.map((node) => node.dataset.slot)"):
        button = page.locator(f".spf-lt-play[data-slot='{slot}']")
        button.click()
        page.locator(f".spf-lt-play[data-slot='{slot}'][aria-label^='Play'][aria-label$='heard']").wait_for()
    if method == "ab":
        page.get_by_role("radio").first.check()
    else:
        for slider in page.get_by_role("slider").all():
            slider.press("ArrowRight")
    seen = everything(host)
    assert told(seen) == []
    names = [slot["clip"] for slot in test.plan(LISTENER)["trials"][0]["slots"]]
    assert all(name in seen for name in names), "it was looked at what really was sent"
    page.get_by_role("button", name="Next").click()
    page.get_by_text("Trial 2 of").first.wait_for()
    assert told(everything(host)) == [], "nor after the vote, for the next trial asks about the same voices"


def test_the_search_itself_finds_what_is_hidden():
    for shift in range(3):
        hidden = base64.b64encode(b"x" * shift + b"voice-quartz and more").decode()
        assert "voice-quartz" in told(hidden)
    assert "voice-quartz" in told("VOICE-Quartz")
    assert "utterance" in told(b"an utterance".hex())
    assert told("nothing of that kind") == []


@pytest.mark.parametrize("method", ["abx", "mushra"])
def test_what_stands_where_differs_between_listeners_and_names_are_never_used_twice(tmp_path, method):
    test = made(tmp_path / "test", method, listeners=6)
    plans = [test.plan(listener) for listener in test.listeners]
    names = [
        slot["clip"]
        for plan in plans
        for trial in plan["trials"]
        for slot in filter(None, [*trial["slots"], trial["reference"], trial["x"]])
    ]
    assert len(set(names)) == len(names)
    columns = ["condition_a", "condition_b", "left"] if method in {"ab", "abx"} else ["condition"]
    columns += ["truth"] if method == "abx" else []
    orders = {
        tuple(mine[["item", *columns]].itertuples(index=False, name=None))
        for _, mine in test.design.groupby("listener")
    }
    assert len(orders) == len(plans), "no two listeners have the same order"


def test_names_stand_in_no_order_of_what_they_stand_for(tmp_path):
    test = made(tmp_path / "test", "mushra", listeners=20, trials_per_listener=4, training=0)
    first = []
    for listener in test.listeners:
        for trial in test.plan(listener)["trials"]:
            rows = test.design.query("listener == @listener and trial == @trial['trial']").sort_values("slot")
            by_name = sorted(zip((slot["clip"] for slot in trial["slots"]), rows["condition"], strict=True))
            first.append(by_name[0][1])
    shares = [first.count(condition) / len(first) for condition in test.stimuli.conditions]
    assert len(first) == 80
    # One in five each; six standard deviations are .27.
    assert max(shares) < 0.47
    assert min(shares) > 0


def test_an_answer_to_a_vote_reveals_only_where_it_was_asked_for(tmp_path):
    for reveal in (False, True):
        test = made(tmp_path / str(reveal), reveal=reveal)
        assert told(json.dumps([test.plan(1), test.reply(1, begin())])) == []
        answer = json.dumps(test.reply(1, vote(test.plan(1), 0)))
        assert bool(told(answer)) is reveal
        assert told(json.dumps(test.plan(1))) == [], "a reload reveals nothing"
