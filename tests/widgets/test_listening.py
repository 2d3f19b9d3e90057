"""A blind listening test, in a browser: by mouse, by keyboard, to the end, and after a reload."""

import json
import math

import pandas as pd
import pytest
from bridge import cut_off
from clips_lab import spoken

import speechframe as spf
from speechframe.listening.test import open_test
from speechframe.widgets.listening import listening_test

# Names that occur nowhere else: where one of them is seen, the test is not blind.
NAMES = ("zephyrine", "quillon", "wolfram")
ITEMS = ("lantern", "meadow", "harbour")
SPIED = """
window.__audio = [];
const play = HTMLMediaElement.prototype.play;
HTMLMediaElement.prototype.play = function () {
  window.__audio.push([this, this.currentTime]);
  this.addEventListener("ended", () => { window.__ended = true; });
  return play.call(this);
};
"""


def material(names=NAMES[:2], items=ITEMS, words=1):
    return pd.DataFrame(
        {
            "id": item,
            "voice_id": name,
            # Loud and soft, high and low: what is to be levelled, and what is to be judged.
            "audio": spoken(
                [f"w{k}" for k in range(words)], word_s=0.25, pitch_hz=200 + 90 * place, rate_hz=24000
            ).audio,
        }
        for place, name in enumerate(names)
        for item in items
    )


def made(folder, method, *, names=NAMES[:2], words=1, items=ITEMS, **options):
    source = material(names, items, words)
    return listening_test(
        source, method, folder=folder, **{"trials_per_listener": 1, "training": 1, **options}
    )


def is_shown(bridge, *words):
    """Whether any word is anywhere a listener's page could hold it."""
    held = [bridge.page.content(), json.dumps(bridge.to_page), json.dumps(bridge.to_python)]
    held.append(json.dumps(bridge.widget.get_state(), default=str))
    held.extend(bridge.page.evaluate("() => window.__audio.map(([audio]) => audio.src)"))
    return [word for word in words if any(word in text for text in held)]


def begin(bridge):
    bridge.page.get_by_role("button", name="Begin").click()
    bridge.page.get_by_text("Trial 1 of").first.wait_for()


def hear(bridge, name, slots):
    for slot in slots:
        bridge.page.get_by_role("button", name=f"Play {slot}").click()
        bridge.page.get_by_role("button", name=f"Play {slot}, heard").wait_for()


def is_at(bridge, place, total=2):
    bridge.page.get_by_role("group", name=f"Trial {place} of {total}").wait_for()


def the_end(bridge):
    bridge.page.get_by_text("Thank you.").wait_for()


@pytest.fixture
def spied(page):
    page.add_init_script(SPIED)


@pytest.fixture
def looked_at(accessible, picture):
    """Look for what keeps somebody from using a page, and keep a picture of it."""

    def look(bridge, name):
        accessible(bridge.box)
        picture(bridge.box, f"listening-test-{name}-{'light' if bridge.light else 'dark'}")

    return look


@pytest.mark.slow
def test_whoever_makes_a_test_writes_it_in_any_direction_for_a_narrow_page(show, spied, tmp_path):
    said = "מבחן האזנה " * 12
    asked = {"title": said, "intro": said, "prompt": said, "consent": said, "questions": [said]}
    bridge = show(lambda: made(tmp_path / "t", "ab", **asked))
    bridge.page.set_viewport_size({"width": 600, "height": 700})

    def directions():
        found = bridge.page.get_by_text(said.strip(), exact=True)
        return found.evaluate_all("(all) => all.map((node) => getComputedStyle(node).direction)")

    assert directions() == ["rtl"] * 4
    assert cut_off(bridge.page) == []
    bridge.page.get_by_role("checkbox").check()
    bridge.page.get_by_role("textbox").fill("31")
    begin(bridge)
    assert directions() == ["rtl"] * 3, "title, prompt and legend"
    assert cut_off(bridge.page) == []


def test_ab_by_mouse_to_the_end_is_blind_until_the_vote(show, spied, looked_at, tmp_path):
    asked = {
        "consent": "I take part.",
        "questions": ["Age", {"label": "On", "choices": ["headphones", "other"]}],
    }
    bridge = show(lambda: made(tmp_path / "t", "ab", reveal=True, **asked))
    page, widget = bridge.page, bridge.widget
    looked_at(bridge, "start")
    page.get_by_role("button", name="Begin").click()
    assert page.get_by_role("group").count() == 0, "nothing begins without consent"
    page.get_by_label("I take part.").check()
    page.get_by_label("Age").fill("31")
    page.get_by_label("On").select_option("headphones")
    begin(bridge)
    assert widget.test.answers[["Age", "On"]].to_numpy().tolist() == [["31", "headphones"]]
    for place in (1, 2):
        is_at(bridge, place)
        assert page.get_by_text("Practice").count() == (place == 1)
        choice, next_one = page.get_by_label("A is better"), page.get_by_role("button", name="Next")
        assert choice.is_disabled()
        hear(bridge, "A", "A")
        assert choice.is_disabled(), "B was not heard"
        assert page.get_by_text("Listen to B first").count() == 1
        hear(bridge, "B", "B")
        assert next_one.is_disabled(), "nothing was chosen"
        if place == 1:
            assert not is_shown(bridge, *NAMES, *ITEMS)
            looked_at(bridge, "ab")
        choice.check()
        next_one.click()
        page.get_by_text(" was ").first.wait_for()
        assert is_shown(bridge, *NAMES[:2]), "a vote reveals"
        assert len(open_test(tmp_path / "t").votes) == place, "a vote is on the disk when the page knows it"
        if place == 1:
            looked_at(bridge, "reveal")
        page.get_by_role("button", name="Continue").click()
    the_end(bridge)
    looked_at(bridge, "end")
    votes = widget.votes
    assert votes["training"].tolist() == [True, False]
    assert (votes["choice"] == votes["left"]).all(), "A stands on the left"
    assert (votes["plays"] == 2).all()
    assert (votes["voted_utc"] > votes["first_play_utc"]).all()
    assert widget.results.everyone.votes == 1
    assert "1 trial after 1 practice trial" in widget.methods()


def test_keys_act_after_a_click_beside_the_buttons_and_never_reach_the_notebook(show, spied, tmp_path):
    bridge = show(lambda: made(tmp_path / "t", "abx", items=ITEMS[:1], trials_per_listener=1, training=0))
    page = bridge.page
    page.evaluate("window.__keys = []; addEventListener('keydown', ({ key }) => window.__keys.push(key));")
    page.get_by_role("button", name="Play an example").press("x")
    begin(bridge)
    page.get_by_role("heading", name="Listening test").click()
    for slot in "abx":
        page.keyboard.press(slot)
        page.get_by_role("button", name=f"Play {slot.upper()}, heard").wait_for()
    for key in ("ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    page.get_by_role("button", name="Next").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("x")  # before the reply
    the_end(bridge)
    page.keyboard.press("x")
    assert page.evaluate("window.__keys") == []
    page.get_by_role("heading", name="A widget").click()
    page.keyboard.press("x")
    assert page.evaluate("window.__keys") == ["x"], "keys beside the widget belong to the notebook"
    assert len(bridge.widget.votes) == 1


@pytest.mark.slow
def test_a_vote_that_cannot_be_kept_stays_in_the_page_for_another_try(show, spied, tmp_path):
    bridge = show(lambda: made(tmp_path / "t", "ab", training=0))
    begin(bridge)
    hear(bridge, "A", "A")
    hear(bridge, "B", "B")
    bridge.page.get_by_label("A is better").check()
    (tmp_path / "t").rename(tmp_path / "away")
    bridge.page.get_by_role("button", name="Next").click()
    bridge.page.get_by_role("alert").filter(
        has_text="Your vote could not be stored. Please try again"
    ).wait_for()
    assert list(tmp_path.iterdir()) == [tmp_path / "away"], "no folder was made for it"
    assert bridge.page.get_by_label("A is better").is_checked()
    assert bridge.widget.plan["begun"], "a page that is opened now does not begin anew"
    (tmp_path / "away").rename(tmp_path / "t")
    bridge.page.get_by_role("button", name="Next").click()
    the_end(bridge)
    assert len(bridge.widget.votes) == 1


def played(bridge):
    """Begin with a clip of seven seconds, and return when it is heard."""
    begin(bridge)
    bridge.page.get_by_role("button", name="Play A").click()
    bridge.page.wait_for_function("() => window.__audio.some(([audio]) => audio.currentTime > 0)")
    return bridge.page.get_by_role("button", name="Play A, heard")


@pytest.mark.slow
def test_what_plays_while_the_page_stands_still_was_heard(show, spied, tmp_path):
    bridge = show(lambda: made(tmp_path / "t", "mos", words=20))
    heard = played(bridge)
    for _ in range(2):
        bridge.page.evaluate(
            "() => { const end = performance.now() + 2500; while (performance.now() < end); }"
        )
    bridge.page.wait_for_function("() => window.__ended")
    heard.wait_for()


@pytest.mark.slow
def test_what_was_jumped_over_was_not_heard(show, spied, tmp_path):
    bridge = show(lambda: made(tmp_path / "t", "mos", words=20))
    # As soon as it plays and in no time, but less than a second at a step: so much could be a page that is slow.
    bridge.page.evaluate(
        """() => {
          const play = HTMLMediaElement.prototype.play;
          HTMLMediaElement.prototype.play = function () {
            this.addEventListener("play", () => {
              for (let step = 0; step < 8; step += 1) {
                this.currentTime += 0.8;
                this.dispatchEvent(new Event("timeupdate"));
              }
            }, { once: true });
            return play.call(this);
          };
        }"""
    )
    heard = played(bridge)
    bridge.page.wait_for_function("() => window.__ended")
    bridge.page.wait_for_timeout(300)
    assert heard.count() == 0


@pytest.mark.slow
def test_ab_by_keyboard_to_the_end_tells_nothing(show, spied, tmp_path):
    bridge = show(lambda: made(tmp_path / "t", "ab", trials_per_listener=2))
    keys = bridge.page.keyboard
    bridge.page.get_by_role("button", name="Begin").focus()
    keys.press("Enter")
    for place, (arrow, choice) in enumerate(
        [("ArrowLeft", "A is better"), ("ArrowRight", "B is better"), ("ArrowDown", "No difference")], 1
    ):
        is_at(bridge, place, total=3)
        keys.press("Enter")
        for slot in "ab":
            keys.press(slot)
            bridge.page.get_by_role("button", name=f"Play {slot.upper()}, heard").wait_for()
        keys.press(arrow)
        assert bridge.page.get_by_label(choice).is_checked()
        keys.press("Enter")
    the_end(bridge)
    votes = bridge.widget.votes
    other = {"a": "b", "b": "a"}
    assert votes["choice"].tolist() == [votes["left"][0], other[votes["left"][1]], "tie"]
    assert not is_shown(bridge, *NAMES, *ITEMS)


@pytest.mark.slow
def test_mos_by_mouse_to_the_end(show, spied, looked_at, tmp_path):
    bridge = show(lambda: made(tmp_path / "t", "mos"))
    begin(bridge)
    for place, mark in enumerate((1, 5), 1):
        is_at(bridge, place)
        assert bridge.page.get_by_role("radio", name=f"{mark} ").is_disabled()
        hear(bridge, "A", "A")
        bridge.page.get_by_role("radio", name=f"{mark} ").check()
        if place == 1:
            looked_at(bridge, "mos")
        bridge.page.get_by_role("button", name="Next").click()
    the_end(bridge)
    assert bridge.widget.votes["score"].tolist() == [1, 5]
    assert not is_shown(bridge, *NAMES, *ITEMS)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("by", "method"), [("mouse", "multi"), ("keyboard", "mushra")])
def test_a_page_waits_until_all_were_heard_and_touched(show, spied, looked_at, tmp_path, method, by):
    options = {"reference": NAMES[0]} if method == "mushra" else {}
    bridge = show(lambda: made(tmp_path / "t", method, trials_per_listener=1, training=0, **options))
    page = bridge.page
    begin(bridge)
    slots = "AB" if method == "multi" else "ABCD"
    next_one = page.get_by_role("button", name="Next")
    if method == "mushra":
        hear(bridge, "the reference", ["the reference"])
    for place, slot in enumerate(slots):
        if place == 1:
            looked_at(bridge, method)  # some of it rated, some not
        assert next_one.is_disabled()
        slider = page.get_by_role("slider", name=f"Score of {slot}")
        assert slider.get_attribute("aria-valuetext") == "not rated yet"
        if by == "mouse":
            hear(bridge, slot, slot)
            if place == len(slots) - 1:
                assert page.get_by_text(f"Now rate {slot}.").count() == 1
            # In the middle, where the slider stands already: a click is a vote all the same.
            slider.click()
        else:
            page.keyboard.press(slot.lower())
            page.get_by_role("button", name=f"Play {slot}, heard").wait_for()
            page.keyboard.press("4" if place else "ArrowRight")
        assert slider.get_attribute("aria-valuetext") != "not rated yet"
    next_one.click() if by == "mouse" else page.keyboard.press("Enter")
    the_end(bridge)
    votes = bridge.widget.votes
    assert not is_shown(bridge, *NAMES, *ITEMS, "anchor", "3500", "3.5 kHz")
    assert len(votes) == len(slots)
    if by == "keyboard":
        assert votes["score"].tolist() == [51.0, *[70.0] * (len(slots) - 1)]
    else:
        assert votes["score"].between(48, 52).all()
    if method == "mushra":
        assert set(votes["condition"]) == {*NAMES[:2], "anchor 3.5 kHz", "anchor 7 kHz"}


@pytest.mark.slow
def test_abx_by_keyboard_keeps_the_position_and_the_number_of_trials(show, spied, tmp_path):
    bridge = show(
        lambda: made(tmp_path / "t", "abx", items=ITEMS[:1], words=2, trials_per_listener=2, training=0)
    )
    page = bridge.page
    begin(bridge)
    page.keyboard.press("a")
    page.wait_for_function("() => window.__audio[0] && window.__audio[0][0].currentTime > 0.3")
    page.keyboard.press("x")
    page.wait_for_function("() => window.__audio.length === 2")
    before, after = page.evaluate("() => [window.__audio[0][0].currentTime, window.__audio[1][1]]")
    assert before > 0.3
    assert math.isclose(before, after, abs_tol=0.05), "X goes on where A was"
    for place in (1, 2):
        is_at(bridge, place)
        for slot in "abx":
            done = page.get_by_role("button", name=f"Play {slot.upper()}, heard")
            while not done.count():
                page.keyboard.press(slot)
                page.wait_for_function("() => window.__audio.every(([audio]) => audio.paused)")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
    the_end(bridge)
    votes = bridge.widget.votes
    assert (votes["answer"] == votes["left"]).all()
    assert votes["correct"].tolist() == (votes["answer"] == votes["truth"]).tolist()
    assert not is_shown(bridge, *NAMES, *ITEMS)


@pytest.mark.slow
def test_abx_by_mouse_to_the_end(show, spied, looked_at, tmp_path):
    bridge = show(
        lambda: made(tmp_path / "t", "abx", items=ITEMS[:1], trials_per_listener=1, training=0),
    )
    page = bridge.page
    begin(bridge)
    next_one = page.get_by_role("button", name="Next")
    choice = page.get_by_role("radio", name="X is B")
    for slot in "AXB":
        assert choice.is_disabled(), f"{slot} was not heard"
        hear(bridge, slot, slot)
    assert next_one.is_disabled(), "nothing was chosen"
    choice.check()
    looked_at(bridge, "abx")
    next_one.click()
    the_end(bridge)
    votes = bridge.widget.votes
    other = {"a": "b", "b": "a"}
    assert votes["answer"].tolist() == [other[votes["left"][0]]], "A stands on the left"
    assert votes["correct"].tolist() == (votes["answer"] == votes["truth"]).tolist()
    assert (votes["plays"] == 3).all()
    assert bridge.widget.results.discrimination.pairs["correct"].tolist() == [votes["correct"].sum()]
    assert not is_shown(bridge, *NAMES, *ITEMS)


@pytest.mark.slow
def test_a_run_is_judged_against_recordings_of_files(show, spied, service, tmp_path):
    lines = pd.DataFrame({"id": ITEMS[:2], "line": ["Yes.", "No."]})
    run = spf.generate(
        lines,
        text="line",
        id="id",
        voice="en-US-nora",
        service=service,
        run_dir=tmp_path / "run",
        progress=False,
    )
    path = tmp_path / "spoken.wav"
    path.write_bytes(spoken(["no"], rate_hz=16000).audio)
    human = pd.DataFrame({"id": ITEMS[:2], "audio": [spoken(["yes"], rate_hz=16000).audio, str(path)]})
    bridge = show(
        lambda: listening_test(
            {"ours": run, "human": human},
            "ab",
            folder=tmp_path / "t",
            trials_per_listener=2,
            training=0,
        )
    )
    page, widget = bridge.page, bridge.widget
    begin(bridge)
    of = widget.design.query("listener == 'listener-01'").reset_index(drop=True)
    for place in range(2):
        is_at(bridge, place + 1)
        hear(bridge, "A", "AB")
        left = of[f"condition_{of['left'][place]}"][place]
        page.get_by_label("A is better" if left == "human" else "B is better").check()
        # In quotes: the style sheet says "colours", and the scripts what is "ours".
        assert not is_shown(bridge, "human", '"ours"', "nora", *ITEMS, str(tmp_path))
        page.get_by_role("button", name="Next").click()
    the_end(bridge)
    results = widget.results
    (found,) = results.preference.to_dict("records")
    assert {found["condition_a"], found["condition_b"]} == {"human", "ours"}
    assert found["prefer_a" if found["condition_a"] == "human" else "prefer_b"] == 2
    assert "human, ours" in widget.methods()


def test_what_cannot_be_played_is_left_out_and_is_no_zero(show, spied, tmp_path):
    widget = made(tmp_path / "t", "multi", trials_per_listener=1, training=0)
    gone = widget.plan["trials"][0]["slots"][1]["clip"]
    send = widget.test.read_audio
    widget.test.read_audio = lambda listener, clip: send(listener, "nothing" if clip == gone else clip)
    bridge = show(lambda: widget)
    begin(bridge)
    bridge.page.get_by_text("B cannot be played").wait_for()
    hear(bridge, "A", "A")
    bridge.page.keyboard.press("5")
    bridge.page.keyboard.press("Enter")
    the_end(bridge)
    assert bridge.widget.votes["score"].tolist()[0] == 90
    assert math.isnan(bridge.widget.votes["score"][1])


@pytest.mark.slow
def test_a_vote_that_is_there_already_is_not_given_twice(show, spied, tmp_path):
    bridge = show(lambda: made(tmp_path / "t", "mos"))
    begin(bridge)
    hear(bridge, "A", "A")
    page = bridge.page
    page.keyboard.press("3")
    # The same listener voted elsewhere meanwhile.
    seconds = bridge.widget.plan["trials"][0]["slots"][0]["seconds"]
    vote = {
        "kind": "vote",
        "trial": 0,
        "scores": {"A": 1},
        "plays": {"A": 1},
        "listened_s": {"A": seconds},
        "voted_ms": 1.7e12,
    }
    assert open_test(tmp_path / "t").reply(1, vote)["kind"] == "stored"
    page.keyboard.press("Enter")
    is_at(bridge, 2)
    assert bridge.widget.votes["score"].tolist() == [1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ab", "mos", "mushra", "abx"])
def test_everybody_can_use_each_kind_of_trial_in_the_dark(show, looked_at, tmp_path, method):
    options = {"reference": NAMES[0], "names": NAMES} if method == "mushra" else {}
    bridge = show(lambda: made(tmp_path / "t", method, **options), light=False)
    begin(bridge)
    hear(bridge, "A", "A")
    bridge.page.keyboard.press("4")
    looked_at(bridge, method)
