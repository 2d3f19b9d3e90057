"""The controls of a list of clips, and the text of a clip with its spoken words, in a browser."""

from dataclasses import replace

import numpy as np
import pytest
from bridge import KEEP_AUDIO, until_seen
from clips_lab import spoken
from hypothesis import given
from hypothesis import strategies as st
from run_lab import run_of

from speechframe.audio.clip import Clip
from speechframe.audio.codec import encode
from speechframe.page.word_times import place_words
from speechframe.spec.speech import Format
from speechframe.widgets.player import play


def timed(*words):
    return [(word, 100 * k, 100 * k + 90) for k, word in enumerate(words)]


@pytest.mark.parametrize(
    ("text", "words", "lit", "unsaid"),
    [
        ("Hi, Bo!\nBye.", ["hi", "Bo", "bye"], ["Hi", "Bo", "Bye"], []),
        ("Hello שלום world.", ["Hello", "world"], ["Hello", "world"], ["שלום"]),
        ("你好，世界。", list("你好世界"), list("你好世界"), []),
        ("你好，世界。", ["你好", "世界"], ["你好", "世界"], []),
        ("שָׁלוֹם עולם", ["שלום", "עולם"], ["שָׁלוֹם", "עולם"], []),
        ("Room 12 [pause 1s] is big.", ["room", "twelve", "is", "big"], ["Room", "12", "is", "big"], []),
        ("No words.", [], [], []),
        ("", ["one", "two"], ["one", "two"], []),
    ],
)
def test_words_are_found_in_the_text(text, words, lit, unsaid):
    pieces = place_words(text, timed(*words))
    assert "".join(piece for piece, *_ in pieces) == (text or " ".join(words))
    assert [piece for piece, *times in pieces if times and times[0] is not None] == lit
    assert [piece for piece, *times in pieces if times == [None, None]] == unsaid


PIECES = st.lists(
    st.sampled_from(["a", "b", "It's", "12", "שלום", "你", "ά", ",", "[pause 1s]", "\n"]), max_size=12
)


@given(PIECES, PIECES, st.sampled_from(["", " "]))
def test_pieces_are_the_text_and_their_times_are_in_order(text, words, between):
    written = between.join(text)
    pieces = place_words(written, timed(*words))
    assert "".join(piece for piece, *_ in pieces) == (
        written if written.strip() or not words else " ".join(words)
    )
    times = [both for _, *both in pieces if both and both[0] is not None]
    assert times == sorted(times)


def test_a_clip_shows_its_whole_text_what_was_not_spoken_where_it_is_clipped_and_its_status(show, tmp_path):
    text = "Hello שלום,\nworld!"
    clip = replace(spoken(["Hello", "world"]), text=text)
    loud = np.clip(2 * np.sin(np.arange(8000) / 9), -1, 1).astype(np.float32)
    record = {
        "status": "suspect", "error_message": "three words are missing", "voice_id": "nora", "locale": "en-US",
        "text": text, "audio_seconds": clip.audio_seconds, "format": "WAV", "sample_rate": 8000, "channels": 1,
        "word_durations": clip.words,
    }  # fmt: skip
    run = run_of(tmp_path / "run", {"line": [text]}, {0: (record, clip.audio)})
    bridge = show(lambda: play([run, Clip(encode(loud, 8000, format=Format.WAV), Format.WAV, 8000)]))
    first, second = (bridge.page.locator(f"[data-clip='{k}']") for k in (0, 1))
    assert first.locator(".spf-words").text_content() == text
    assert first.locator(".spf-unsaid").all_text_contents() == ["שלום"]
    facts = first.locator(".spf-facts").inner_text()
    for part in ("Not spoken, parts: 1", "suspect", "three words are missing", "nora", "en-US", "24 credits"):
        assert part in facts
    assert "Clipped" not in facts
    assert "Clipped audio, places: " in second.locator(".spf-facts").inner_text()


@pytest.mark.slow
def test_two_hundred_clips_are_reached_with_few_tabs(show):
    source = [spoken(["one"], word_s=0.05)] * 200
    bridge = show(lambda: play(source))
    keyboard, here = bridge.page.keyboard, "document.activeElement.closest('.spf-clip')?.dataset.clip"
    stops = 0
    keyboard.press("Tab")
    while bridge.page.evaluate("document.activeElement !== document.body"):
        stops += 1
        keyboard.press("Tab")
    assert stops < 15
    keyboard.press("Shift+Tab")
    assert bridge.page.evaluate(here) == "0"
    bridge.page.locator("[data-clip='0']").focus()
    for key, clip in [
        ("End", "199"),
        ("ArrowUp", "198"),
        ("Home", "0"),
        ("ArrowDown", "1"),
        ("click", "7"),
        ("ArrowDown", "8"),
    ]:
        if key == "click":
            bridge.page.locator(f"[data-clip='{clip}'] strong").click()
        else:
            keyboard.press(key)
        assert bridge.page.evaluate(here) == clip


def test_clips_play_one_after_the_other_faster_softer_and_in_a_loop(show):
    bridge = show(lambda: play([spoken(["one"], word_s=0.2), spoken(["two"], word_s=3.0)]))
    page = bridge.page
    page.evaluate(KEEP_AUDIO)
    page.get_by_label("Speed").select_option("2")
    page.get_by_role("slider", name="Volume").fill("0.5")
    page.get_by_role("button", name="Play all").click()
    until_seen(page, "[data-clip='1'][data-state='playing']")
    assert page.evaluate("window.__audio.map((one) => [one.playbackRate, one.volume])") == [
        [2, 0.5],
        [2, 0.5],
    ]
    page.get_by_role("button", name="Stop").click()
    until_seen(page, "[data-clip='1'][data-state='still']")
    # A part that is marked with the pointer is played again and again.
    wave = page.locator("[data-clip='1'] canvas")
    box = wave.bounding_box()
    for share, act in ((0.5, "down"), (0.6, None), (0.6, "up")):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 20)
        if act:
            getattr(page.mouse, act)()
    wave.press(" ")
    page.wait_for_function("""() => {
      const at = window.__audio[1].currentTime;
      window.__turns = (window.__turns ?? 0) + (at < (window.__last ?? 0));
      window.__last = at;
      return window.__turns > 1;
    }""")
    assert 1.5 < page.evaluate("window.__last") < 2.1
    page.keyboard.press("l")
    assert page.get_by_role("button", name="Loop (L)").count() == 1


def test_a_clip_is_downloaded_and_its_id_is_copied(show):
    bridge = show(lambda: play([spoken(["one"])]))
    with bridge.page.expect_download() as download:
        bridge.page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "clip 1.wav"
    assert download.value.path().read_bytes() == bridge.widget.shelf.read_clip("0").audio
    bridge.page.get_by_role("button", name="Copy id").click()
    bridge.page.get_by_role("status").get_by_text("clip 1").wait_for()


def test_one_sound_plays_on_a_page_with_several_widgets(show):
    bridge = show(lambda: play([spoken(["one"], word_s=10.0)]))
    bridge.page.evaluate("""async () => {
      const { default: widget } = await import('./widget.js?again');
      const el = document.body.appendChild(document.createElement('div'));
      window.__end2 = await widget.render({ model: window.__model, el });
    }""")
    for k in (0, 1, 0):
        bridge.page.locator(".spf-play").nth(k).click()
        bridge.wait(
            """(k) => [...document.querySelectorAll(".spf-clip")]
              .every((one, place) => (one.dataset.state === "playing") === (place === k))""",
            k,
        )
