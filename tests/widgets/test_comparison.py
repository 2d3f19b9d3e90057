"""Voices side by side, in a browser, over the embedded service."""

import pytest
from bridge import LIGHT_AND_LONG_DARK, cut_off, until_seen
from playwright.sync_api import expect

import speechframe as spf
from speechframe.widgets.comparison import compare_voices

TEXTS = ["Good morning to you all, and welcome.", "The train leaves at seven from the second platform."]
VOICES = ["en-US-nora", "en-US-miles"]
LONG = " ".join(TEXTS * 4)
"""Still heard when a busy machine comes to look."""


@pytest.fixture
def planned(service, tmp_path):
    return lambda voices=VOICES, texts=TEXTS, **more: compare_voices(
        voices, texts, service=service, run_dir=tmp_path / "run", **more
    )


@pytest.mark.parametrize("light", LIGHT_AND_LONG_DARK, ids=["light", "dark"])
def test_the_price_is_said_before_anything_is_spent_and_what_is_preferred_is_in_the_frame(
    show, planned, accessible, picture, light
):
    bridge = show(planned, light=light)
    accessible(bridge.box)
    picture(bridge.box, f"voice-comparison-planned-{'light' if light else 'dark'}")
    credits = 2 * sum(map(len, TEXTS))
    assert f"{credits} credits" in bridge.box.inner_text()
    assert bridge.widget.frame["credits"].sum() == 0
    assert bridge.widget.run.ledger.empty
    bridge.page.get_by_role("button", name=f"Generate for {credits} credits").click()
    bridge.page.get_by_role("heading", name=TEXTS[0]).wait_for()
    bridge.until(lambda: bridge.widget.stage == "ready")
    frame = bridge.widget.frame
    assert list(zip(frame["text"], frame["voice_id"], strict=True)) == [(t, v) for t in TEXTS for v in VOICES]
    assert frame["credits"].sum() == credits
    assert frame["audio"].map(len).min() > 1000
    assert frame["word_durations"].map(len).min() > 5
    bridge.page.get_by_role("button", name="Prefer en-US-miles for text 2").click()
    bridge.until(lambda: bridge.widget.preferred == {"1": "en-US-miles"})
    frame = bridge.widget.frame
    assert frame[frame["preferred"]][["text", "voice_id"]].to_numpy().tolist() == [[TEXTS[1], "en-US-miles"]]
    accessible(bridge.box)
    picture(bridge.box, f"voice-comparison-{'light' if light else 'dark'}")
    # A preference can be undone. It is withdrawn by a second click, which can be undone as well.
    prefer = bridge.page.get_by_role("button", name="Prefer en-US-miles for text 2")
    prefer.press("u")
    bridge.until(lambda: bridge.widget.preferred == {})
    assert bridge.page.get_by_role("button", name="Undo (U)").is_disabled()
    prefer.click()
    prefer.click()
    bridge.until(lambda: bridge.widget.preferred == {})
    bridge.page.get_by_role("button", name="Undo (U)").click()
    bridge.until(lambda: bridge.widget.preferred == {"1": "en-US-miles"})
    again = planned()
    assert again.stage == "ready", "what was made before is not offered again"
    assert len(again.frame) == 4


@pytest.mark.slow
def test_two_voices_stand_side_by_side_each_line_beside_the_same_line(show, planned):
    # The one that cannot speak has no waveform, and an error: its text is beside the other's all the same.
    voices = [VOICES[0], "en-US-nobody"]
    bridge = show(lambda: planned(voices=voices, texts=[LONG, TEXTS[0]]).generate())
    group = bridge.page.locator(".spf-group").first
    group.wait_for()

    def boxes(selector, width):
        """Where two elements are when the widget has a width, whatever the window has."""
        bridge.page.evaluate(f"document.querySelector('#host').style.width = '{width}px'")
        found = group.locator(selector).evaluate_all(
            "(all) => all.map((node) => node.getBoundingClientRect()).map((at) => [at.x, at.y, at.right, at.bottom])"
        )
        assert len(found) == 2
        return found

    for selector in (".spf-clip", ".spf-clip .spf-head", ".spf-clip .spf-words"):
        (_, top, right, _), (left, beside, end, _) = boxes(selector, 700)
        assert top == pytest.approx(beside, abs=0.5), selector
        assert right < left
        assert end < 710
    (_, _, right, bottom), (left, below, _, _) = boxes(".spf-clip", 699)
    assert bottom <= below
    assert left < right
    bridge.page.set_viewport_size({"width": 600, "height": 800})
    boxes(".spf-clip", 580)
    assert cut_off(bridge.page) == []


@pytest.mark.slow
def test_switching_keeps_the_place(show, planned):
    bridge = show(lambda: planned(texts=[LONG]).generate())
    group = bridge.page.locator(".spf-group").first
    group.get_by_role("button", name="Play en-US-nora").click()
    bridge.wait("() => parseFloat(document.querySelector('.spf-group .spf-time').textContent.slice(2)) > 0.3")
    # Where the one stops and where the other begins: what the page shows is of its last frame.
    expect(bridge.box).to_contain_text("S switches to the next voice")
    bridge.page.evaluate(
        """() => {
      window.__stops = [], window.__begins = [];
      for (const [name, places] of [['pause', window.__stops], ['play', window.__begins]]) {
        const act = HTMLMediaElement.prototype[name];
        HTMLMediaElement.prototype[name] = function () {
          places.push(this.currentTime);
          window.__played = this;
          return act.call(this);
        };
      }
      document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "s", bubbles: true }));
    }"""
    )
    until_seen(bridge.page, "[data-state='playing'] [aria-label='Pause en-US-miles']")
    stops, begins = bridge.page.evaluate("[window.__stops, window.__begins]")
    assert stops[0] > 0.3
    assert begins == [pytest.approx(stops[0], abs=0.05)]
    assert bridge.page.locator("[data-state='playing']").count() == 1
    shown_s = float(group.locator(".spf-time").nth(1).text_content().split()[0].removeprefix("0:"))
    assert shown_s >= begins[0] - 0.1, "there it is heard, too"
    expect(group.get_by_role("button", name="Switch to en-US-nora (S)")).to_be_visible()
    # The keys are now for what is heard now.
    bridge.page.keyboard.press("Space")
    until_seen(bridge.page, "[data-state='still'] [aria-label='Play en-US-miles']")
    assert bridge.page.locator("[data-state='playing']").count() == 0
    # The louder voice is played as soft as the other one, which can be switched off.
    gains = [clip["gain"] for clip in bridge.widget.groups[0]["clips"]]
    assert gains[0] < gains[1] == 1
    bridge.page.get_by_role("button", name="Play en-US-nora").click()
    until_seen(bridge.page, "[data-state='playing'] [aria-label='Pause en-US-nora']")
    assert bridge.page.evaluate("window.__played.volume") == pytest.approx(gains[0])
    bridge.page.get_by_label("Equal loudness").uncheck()
    assert bridge.page.evaluate("window.__played.volume") == 1


@pytest.mark.slow
def test_switching_while_it_stands_still_is_exact(show, planned):
    bridge = show(lambda: planned().generate())
    group = bridge.page.locator(".spf-group").first
    group.locator(".spf-word", has_text="welcome").first.click()
    bridge.wait("() => parseFloat(document.querySelectorAll('.spf-time')[0].textContent.slice(2)) > 0.2")
    group.press("s")
    bridge.wait("""() => {
      const [a, b] = [...document.querySelectorAll('.spf-time')].map((node) => parseFloat(node.textContent.slice(2)));
      return a > 0 && Math.abs(a - b) < 0.11;
    }""")


@pytest.mark.slow
def test_a_voice_that_cannot_speak_says_why_and_the_other_plays(show, planned):
    bridge = show(lambda: planned(voices=["en-US-nora", "en-US-nobody"], texts=[LONG]).generate())
    bridge.page.get_by_role("alert").filter(has_text="invalid").first.wait_for()
    bridge.page.get_by_role("button", name="Play en-US-nora").first.click()
    until_seen(bridge.page, "[data-state='playing']")
    frame = bridge.widget.frame
    assert frame[frame["voice_id"] == "en-US-nobody"]["error"].notna().all()


def test_runs_made_before_are_compared_without_a_service_and_as_one_file(page, planned, tmp_path):
    run = planned(texts=[LONG, TEXTS[0]]).generate().run
    page.context.set_offline(True)
    page.goto(compare_voices(run).to_html(tmp_path / "comparison.html").as_uri())
    page.get_by_role("button", name="Play en-US-miles").first.click()
    until_seen(page, "[data-state='playing']")
    assert page.locator(".spf-group").count() == 2
    assert not page.get_by_role("button", name="Generate").is_visible()


@pytest.mark.parametrize(
    ("voices", "texts", "words"),
    [
        (["nora"], ["Hi."], "two voices or more"),
        (["nora", "nora"], ["Hi."], "two voices or more"),
        (VOICES, [], "one text or more"),
    ],
)
def test_what_cannot_be_compared_is_refused(voices, texts, words):
    with pytest.raises(ValueError, match=words):
        compare_voices(voices, texts)


@pytest.mark.parametrize("option", ["wait", "dry_run", "table", "voice"])
def test_what_a_comparison_sets_itself_is_refused(planned, option):
    with pytest.raises(ValueError, match=f"sets {option} itself"):
        planned(**{option: True})


def test_what_runs_would_not_heed_is_refused(planned):
    run = planned().run
    for texts, options in ((TEXTS, {}), (None, {"locale": "en-US"})):
        with pytest.raises(ValueError, match="neither texts nor options"):
            compare_voices(run, texts, **options)


def test_a_text_that_is_given_twice_is_compared_once(planned):
    assert len(planned(texts=[TEXTS[0], TEXTS[1], TEXTS[0]]).frame) == len(VOICES) * len(TEXTS)


def test_without_a_front_end_it_is_a_table(planned):
    bundle = planned()._repr_mimebundle_()[0]
    assert "not made yet" in bundle["text/html"]
    assert "credits" in bundle["text/html"]


def test_whatever_happens_the_page_does_not_wait_for_ever(planned, monkeypatch):
    async def full(**_):
        raise OSError("no space left on the disk")

    comparison = planned()
    monkeypatch.setattr(spf.aio, "generate", full)
    comparison.on_generate({})
    with pytest.raises(spf.SpeechframeError, match="no space left"):
        comparison.generate()
    assert comparison.stage == "ready"
