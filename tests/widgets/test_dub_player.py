"""Dubs in a browser: seen, switched at the same second, corrected."""

import threading
from dataclasses import replace

import av
import numpy as np
import pytest
from bridge import LIGHT_AND_LONG_DARK, cut_off, until_lit
from playwright.sync_api import expect

from speechframe.errors import StoreError
from speechframe.spec.dubbing import DubbedUtterance
from speechframe.widgets.dub_player import DubPlayer, DubView

CUES = (("Bom dia.", 0, 2000), ("Como vai?", 2000, 6000))
SAID = [
    DubbedUtterance(
        utterance_id=k + 1, start_ms=start, end_ms=end, speaker="S1", source_text="Good.", text=text,
        voice_id="pt-BR-joaquim", dub_start_ms=start, dub_end_ms=end, speed=1.04, fit="FASTER",
    ).model_dump(mode="json")
    for k, (text, start, end) in enumerate(CUES)
]  # fmt: skip


def film(path, *, codec="libvpx-vp9", grey=120, seconds=6):
    """A film of one colour and a tone."""
    with av.open(str(path), "w") as out:
        video, sound = out.add_stream(codec, rate=10), out.add_stream("libopus", rate=48_000)
        video.width, video.height, video.pix_fmt = 160, 90, "yuv420p"
        for _ in range(10 * seconds):
            out.mux(video.encode(av.VideoFrame.from_ndarray(np.full((90, 160, 3), grey, np.uint8))))
        out.mux(video.encode(None))
        tone = (8000 * np.sin(np.arange(48_000 * seconds) / 20)).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(tone, "s16", "mono")
        frame.sample_rate = 48_000
        out.mux(sound.encode(frame))
        out.mux(sound.encode(None))
    return path


@pytest.fixture
def dub(tmp_path):
    return DubView(
        "a.pt-BR", "a", "pt-BR", "done",
        film(tmp_path / "dub.webm", grey=200), film(tmp_path / "original.webm", grey=40), CUES,
    )  # fmt: skip


def until_seen_at(page, second, low, high):
    """Wait until the picture of that second is as light as this: the original is dark, the dub is not."""
    page.wait_for_function(
        """([second, low, high]) => {
          const video = document.querySelector("video");
          if (!video || video.seeking || video.readyState < 2) return false;
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [1, 1];
          const context = canvas.getContext("2d");
          context.drawImage(video, 0, 0, 1, 1);
          const light = context.getImageData(0, 0, 1, 1).data[0];
          return Math.abs(video.currentTime - second) < .1 && light > low && light < high;
        }""",
        arg=[second, low, high],
    )


@pytest.mark.parametrize("light", LIGHT_AND_LONG_DARK)
def test_a_dub_is_seen_beside_its_original_and_corrected(show, accessible, picture, dub, light):
    asked = []

    def correct(old, changes):
        asked.append((old.dub_id, changes))
        if "fail" in changes[0]["text"]:
            raise StoreError("no such text here")
        return replace(old, utterances=[SAID[0], SAID[1] | changes[0]])

    failed = DubView("a.ja-JP", "a", "ja-JP", "failed", problem="LANGUAGE_NOT_SUPPORTED: no voice speaks it")
    bridge = show(lambda: DubPlayer([replace(dub, utterances=SAID), failed], correct), light=light)
    page, look = bridge.page, "light" if light else "dark"
    assert bridge.widget.loads == [], "nothing is sent before somebody wants to see it"
    # The one that failed says why.
    page.get_by_role("alert").get_by_text("no voice speaks it").wait_for()
    assert page.get_by_role("button", name="Show a, ja-JP").is_disabled()
    assert "no voice speaks it" in bridge.widget.to_table()
    # The other one is seen with its cues, and its original at the same second.
    page.get_by_role("button", name="Show a, pt-BR").click()
    until_lit(page, "Bom dia.")
    # Cues are subtitles, and are reached by keys.
    tracks = "[...document.querySelector('video').textTracks].map((one) => [one.mode, one.cues.length])"
    assert page.evaluate(tracks) == [["showing", 2]]
    page.get_by_role("group", name="a, pt-BR").press(" ")
    page.wait_for_function("document.querySelector('video').paused")
    page.keyboard.press("ArrowRight")
    until_lit(page, "Como vai?")
    assert page.evaluate("document.querySelector('video').currentTime") == 2
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").first.click()
    assert download.value.suggested_filename == "a.pt-BR.webm"
    page.evaluate("const one = document.querySelector('video'); one.pause(); one.currentTime = 3;")
    until_lit(page, "Como vai?")
    until_seen_at(page, 3, 150, 255)
    picture(page.locator(".spf"), f"dub-{look}")
    page.get_by_role("group", name="a, pt-BR").get_by_role("button", name="Original").click()
    until_seen_at(page, 3, 0, 100)
    assert bridge.widget.loads == ["a.pt-BR/dub/whole/1", "a.pt-BR/original/whole/1"]
    # Corrections go back, and what they made is shown.
    page.get_by_text("Correct 2 utterances").click()
    picture(page.locator(".spf"), f"dub-script-{look}")
    assert page.get_by_text("spoken faster to fit the time (speed 1.04)").count() == 2
    page.set_viewport_size({"width": 600, "height": 800})
    assert cut_off(page) == []
    text = page.get_by_role("textbox", name="Text 2")
    assert text.bounding_box()["width"] > 400
    for words in ("Tudo bem?", "fail"):
        text.fill(words)
        page.get_by_role("button", name="Send 1 correction").click()
        page.get_by_text("corrected" if words != "fail" else "no such text here").wait_for()
    accessible(page.locator(".spf"))
    # The player stays at its place, and the answer is written beside the lines.
    until_seen_at(page, 3, 0, 100)
    expect(page.get_by_role("group", name="a, pt-BR").get_by_role("status")).to_have_count(1)
    page.get_by_role("button", name="Play utterance 1").click()
    page.wait_for_function(
        "() => { const one = document.querySelector('video'); return !one.paused && one.currentTime < 2; }"
    )
    assert asked == [("a.pt-BR", [{"utterance_id": 2, "text": words}]) for words in ("Tudo bem?", "fail")]
    assert bridge.widget.dubs[0]["utterances"][1]["text"] == "Tudo bem?"


def test_what_is_typed_while_a_correction_is_made_stays(show, dub):
    typed = threading.Event()

    def correct(old, changes):
        assert typed.wait(60)
        return replace(old, utterances=[SAID[0], SAID[1] | changes[0]])

    page = show(lambda: DubPlayer([replace(dub, utterances=SAID)], correct)).page
    page.get_by_text("Correct 2 utterances").click()
    page.get_by_role("textbox", name="Text 2").fill("Tudo bem?")
    page.get_by_role("button", name="Send 1 correction").click()
    page.get_by_role("textbox", name="Text 1").fill("Bom")
    typed.set()
    page.get_by_text("pt-BR: corrected").wait_for()
    page.keyboard.type(" dia a todos.")
    expect(page.get_by_role("textbox", name="Text 1")).to_have_value("Bom dia a todos.")
    expect(page.get_by_role("textbox", name="Text 2")).to_have_value("Tudo bem?")
    expect(page.get_by_role("button", name="Send 1 correction")).to_be_enabled()


@pytest.mark.slow
def test_where_the_browser_knows_no_such_video_there_is_its_sound(show, tmp_path):
    path = film(tmp_path / "dub.mkv", codec="mpeg4")
    bridge = show(lambda: DubPlayer([DubView("a.pt-BR", "a", "pt-BR", "done", path, None, CUES)]))
    bridge.page.get_by_role("button", name="Show a, pt-BR").click()
    bridge.page.get_by_text("Its sound and its cues are here").wait_for()
    bridge.page.wait_for_function("() => document.querySelector('audio')?.currentTime > .2")
    assert bridge.page.get_by_role("button", name="Original").is_disabled()
