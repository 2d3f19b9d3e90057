"""A listening test served, and as one file, in a real browser: done to the end, and blind all the way."""

import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

sys.path.insert(0, str(Path(__file__).parents[1] / "listening"))

from listening_lab import CONDITIONS, ITEMS, made

from speechframe.listening.offline import read_votes
from speechframe.listening.server import serve_test
from speechframe.listening.test import open_test
from speechframe.page.texts import LISTENING, resolve_texts

FORBIDDEN = (
    *CONDITIONS,
    *ITEMS,
    "quartz",
    "basalt",
    "granite",
    "topaz",
    "opal",
    "jade",
    "onyx",
    "anchor",
    "stimuli",
)


class Watched:
    """A page, and everything it asked for, got and complained of."""

    def __init__(self, page):
        self.page = page
        self.errors, self.requests, self.bodies = [], [], []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        page.on("request", self._asked)

    def _asked(self, request):
        if not request.url.startswith(("blob:", "data:")):
            self.requests.append((request.method, request.url, request.post_data or ""))


@pytest.fixture
def watched(page):
    watched = Watched(page)
    yield watched
    assert watched.errors == []


def start(page):
    page.get_by_role("button", name="Begin").click()
    page.get_by_text("Trial 1 of").wait_for()


def hear_all(page):
    """Play every sound of the trial that is shown to its end: the next one would go on where one was left."""
    for slot in page.locator(".spf-lt-play").evaluate_all("nodes => nodes.map((node) => node.dataset.slot)"):
        button = page.locator(f".spf-lt-play[data-slot='{slot}']")
        button.click()
        page.locator(f".spf-lt-play[data-slot='{slot}'][aria-label*='Play'][aria-label*='heard']").wait_for()


def choose_first(page):
    hear_all(page)
    page.get_by_role("radio").first.check()
    page.get_by_role("button", name="Next").click()


def opened(page, tmp_path, test, listener):
    """Open a listener's page as a file."""
    path = tmp_path / f"{listener}.html"
    path.write_text(test.to_html(listener=listener), encoding="utf-8")
    page.goto(path.as_uri())
    return path


def saved(page, folder):
    with page.expect_download() as download:
        page.get_by_role("button", name="Save my votes").click()
    folder.mkdir(exist_ok=True)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_a_listener_with_a_link_does_a_test_over_a_reload_and_a_server_that_goes_away(
    page, watched, tmp_path, picture, accessible
):
    test = made(tmp_path / "test", trials_per_listener=1, questions=["Your age?"], consent="I take part.")
    with serve_test(test, listeners=3) as served:
        port = int(served.url.rsplit(":", 1)[1])
        page.goto(served.links["listener-02"])
        picture(page, "listening-served-start")
        page.get_by_label("I take part.").check()
        page.get_by_label("Your age?").fill("31")
        start(page)
        choose_first(page)
        page.get_by_text("Trial 2 of 2").wait_for()
        assert list(open_test(test.folder).votes["trial"]) == [0], "the vote is on disk when the page goes on"
        page.reload()
        page.get_by_text("Trial 2 of 2").first.wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            accessible(page.locator("body"))
            picture(page, f"listening-served-{scheme}")
        hear_all(page)
        assert {url.split("/")[2] for _, url, _ in watched.requests} == {served.url.split("/")[2]}
        assert watched.errors == []
    page.get_by_role("radio").first.check()
    page.get_by_role("button", name="Next").click()
    page.get_by_role("alert").filter(has_text="No connection. This page keeps your answer").wait_for()
    accessible(page.locator("body"))
    picture(page, "listening-served-alone")
    with serve_test(open_test(test.folder), port=port, listeners=3) as served:
        page.get_by_text("Thank you.").wait_for()
        expect(page.locator("#spf-net")).to_be_hidden()
        picture(page, "listening-served-end")
        assert served.progress["listener-02"] == (2, 2)
    # The browser itself says that nobody was there.
    watched.errors = [said for said in watched.errors if "ERR_CONNECTION_REFUSED" not in said]
    votes = test.votes
    assert list(votes["listener"]) == ["listener-02"] * 2
    assert (votes["choice"] == votes["left"]).all()
    assert (votes["listened_s"] > 0.4).all()
    assert list(test.answers["Your age?"]) == ["31"]


@pytest.mark.slow
def test_a_vote_that_could_not_be_kept_stays_in_the_page_until_it_is(page, tmp_path):
    test = made(tmp_path / "test", trials_per_listener=1, training=0)
    with serve_test(test, listeners=1) as served:
        page.goto(served.links["listener-01"])
        start(page)
        (tmp_path / "test").rename(tmp_path / "away")
        choose_first(page)
        page.get_by_role("alert").filter(
            has_text="The server could not save your answer. This page keeps your answer"
        ).wait_for()
        assert list(tmp_path.iterdir()) == [tmp_path / "away"]
        (tmp_path / "away").rename(tmp_path / "test")
        page.get_by_text("Thank you.").wait_for()
    assert len(test.votes) == 1


@pytest.mark.slow
def test_a_vote_that_waits_outlives_a_reload(page, tmp_path):
    test = made(tmp_path / "test")
    with serve_test(test, listeners=1) as served:
        port, link = int(served.url.rsplit(":", 1)[1]), served.links["listener-01"]
        page.goto(link)
        start(page)
        hear_all(page)
    # Nobody is there to take it: a browser that is told to be offline lets a try through when its page goes.
    page.get_by_role("radio").first.check()
    page.get_by_role("button", name="Next").click()
    page.get_by_role("alert").filter(has_text="No connection").wait_for()
    # As if the browser had been closed: what waited is sent by the next page.
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto("about:blank")
    assert test.votes.empty
    with serve_test(open_test(test.folder), port=port, listeners=1):
        page.goto(link)
        page.get_by_text("Trial 2 of 4").first.wait_for()
        assert list(test.votes["trial"]) == [0]


@pytest.mark.slow
def test_a_vote_is_sent_again_and_one_whose_answer_was_lost_is_no_second_vote(page, tmp_path):
    test = made(tmp_path / "test")
    lost = []

    def trouble(route):
        if '"vote"' not in (route.request.post_data or "") or len(lost) == 2:
            route.continue_()
        elif not lost:
            lost.append({"kind": "nobody at home"})
            route.fulfill(status=503)
        else:
            lost.append(route.fetch().json())
            route.abort()

    with serve_test(test, listeners=1) as served:
        page.goto(served.links["listener-01"])
        start(page)
        page.route("**/messages", trouble)
        choose_first(page)
        page.get_by_text("Trial 2 of 4").first.wait_for()
        assert lost[1]["kind"] == "stored"
        assert list(test.votes["trial"]) == [0]


def test_a_listener_with_a_file_does_a_test_offline_and_hands_in_the_votes(
    page, watched, tmp_path, picture, accessible
):
    test = made(tmp_path / "test", trials_per_listener=1)
    path = opened(page, tmp_path, test, "listener-03")
    page.context.set_offline(True)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        accessible(page.locator("body"))
        picture(page, f"listening-file-start-{scheme}")
    page.get_by_role("button", name="Play an example").click()
    page.get_by_role("button", name="Pause an example").wait_for()
    start(page)
    choose_first(page)
    page.get_by_text("Trial 2 of 2").first.wait_for()
    assert saved(page, tmp_path / "half")
    page.reload()
    page.get_by_text("Trial 2 of 2").first.wait_for()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        accessible(page.locator("body"))
        picture(page, f"listening-file-{scheme}")
    # A click beside the test takes the focus from it, and its keys act all the same.
    page.locator("html").click(position={"x": 3, "y": 700})
    assert page.evaluate("document.activeElement === document.body")
    for slot in "ab":
        page.keyboard.press(slot)
        page.locator(
            f".spf-lt-play[data-slot='{slot.upper()}'][aria-label$='heard'][aria-label^='Play']"
        ).wait_for()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.get_by_text("Thank you.").wait_for()
    page.get_by_text("2 of 2 trials done. Your votes are not in a file yet.").wait_for()
    assert page.get_by_text("saved").count() == 0, "nothing is promised before there is a file"
    handed_in = saved(page, tmp_path / "came-back")
    page.reload()
    page.get_by_text(f"2 of 2 trials done. Saved as {handed_in.name}. Please send this file").wait_for()
    picture(page, "listening-file-end")
    votes = read_votes(tmp_path / "came-back", test)
    assert list(votes["trial"]) == [0, 1]
    assert (votes["choice"] == votes["left"]).all()
    assert (votes["listened_s"] > 0.4).all()
    assert len(read_votes(tmp_path / "half", test)) == 1
    assert not any(name in handed_in.read_text() for name in FORBIDDEN), "the file that travels is blind, too"
    assert {url for _, url, _ in watched.requests} == {path.as_uri()}


SHOWN = """() => {
  const all = [...document.querySelectorAll(".spf *:not(script)")].filter((node) => node.checkVisibility());
  const texts = all.flatMap((node) => [...node.childNodes].filter((kid) => kid.nodeType === 3).map((kid) => kid.data));
  return [...texts, ...all.flatMap((node) => [node.ariaLabel, node.ariaValueText])].filter(Boolean);
}"""
"""All texts that a listener or a screen reader gets now."""


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", ["ab", "mos", "mushra", "abx"])
def test_every_word_comes_from_the_table_of_texts_and_a_is_on_the_left(page, watched, tmp_path, method):
    words = {name: f"<{text}>" for name, text in resolve_texts("en", page=LISTENING).items()}
    test = made(tmp_path / "test", method, trials_per_listener=1, locale="he", texts=words)
    opened(page, tmp_path, open_test(test.folder), "listener-01")
    assert page.locator("html").get_attribute("lang") == "he"
    assert page.locator("section.spf").first.evaluate("node => getComputedStyle(node).direction") == "rtl"
    shown = set(page.evaluate(SHOWN))
    start(page)
    if method in {"ab", "abx"}:
        edges = [page.locator(f"[data-slot={slot}]").bounding_box()["x"] for slot in "AB"]
        assert edges[0] < edges[1]
    for number in (1, 2):
        page.get_by_text(f"Trial {number} of 2").wait_for()
        shown.update(page.evaluate(SHOWN))
        hear_all(page)
        for scale in page.get_by_role("slider").all():
            shown.update(page.evaluate(SHOWN))
            scale.press("ArrowRight")
        for radio in page.get_by_role("radio").all()[:1]:
            shown.update(page.evaluate(SHOWN))
            radio.check()
        shown.update(page.evaluate(SHOWN))
        page.get_by_role("button", name="Next").click()
    page.get_by_text("Thank you.").wait_for()
    shown.update(page.evaluate(SHOWN))
    assert len(shown) > 10
    assert [text for text in shown if "<" not in text and text.strip(" ▶❚✓–ABCDEFRX0123456789")] == []
