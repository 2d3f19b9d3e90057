"""Clips under one another, in a browser."""

import dataclasses
import io
import json

import numpy as np
import pandas as pd
import pytest
import soundfile
from bridge import LIGHT_AND_LONG_DARK, cut_off, until_lit, until_seen
from clips_lab import spoken
from run_lab import run_of

from speechframe.errors import StoreError
from speechframe.page.clips import ClipShelf
from speechframe.spec.speech import Format
from speechframe.widgets.player import play

WORDS = ["one", "two", "three", "four"]
LONG_S = 10.0
"""A word that is still heard when a busy machine comes to look."""


def clips(count=3, **fields):
    return [spoken(WORDS, **fields) for _ in range(count)]


def show_audio(show, make):
    """Show a widget, and keep its audio elements, which are in no document, in `window.__audio`."""
    bridge = show(make)
    bridge.page.evaluate("""() => {
      window.__audio = [];
      const act = HTMLMediaElement.prototype.play;
      HTMLMediaElement.prototype.play = function () {
        if (!window.__audio.includes(this)) window.__audio.push(this);
        return act.call(this);
      };
    }""")
    return bridge


def lit(bridge):
    return bridge.page.locator(".spf-lit").all_text_contents()


@pytest.mark.slow
def test_two_hundred_clips_are_there_at_once_and_none_of_their_audio(show):
    source = clips(200)
    bridge = show(lambda: play(source))
    assert bridge.page.locator(".spf-clip").count() == 200
    assert bridge.widget.loads == []
    assert sum(len(str(message)) for message in bridge.to_page) < 50_000


def test_a_translation_holds_no_audio_whatever_its_table_calls_a_column(tmp_path):
    columns = {"line": ["Hello"], "audio": ["hello.wav"]}
    run = run_of(tmp_path / "run", columns, {0: ({"text": "Hello"}, None)}, operation="translate")
    with pytest.raises(StoreError, match="a run of translate does not contain audio"):
        play(run)


def test_the_lit_word_is_the_one_that_is_heard(show):
    bridge = show_audio(show, lambda: play(clips(1)))
    view = bridge.page.locator(".spf-clip")
    words = bridge.widget.shelf.entries[0].words
    assert lit(bridge) == [], "before it is played nothing is lit"
    view.focus()
    view.press("ArrowRight")
    bridge.wait("() => document.querySelector('audio, .spf-lit')?.textContent === 'one'")
    assert bridge.page.locator(".spf-time").inner_text() == "0:00.1 / 0:01.7"
    # What is heard and what is lit, frame by frame, while it plays; again where a stall hid a word.
    seen = bridge.page.evaluate(
        """async (until_ms) => {
          const box = document.querySelector('.spf-clip');
          const seen = [];
          const end = performance.now() + 60_000;
          const frames = async (before) => {
            while (performance.now() < end && box.dataset.state !== before) {
              await new Promise(requestAnimationFrame);
              seen.push([window.__audio[0].currentTime * 1000, box.querySelector('.spf-lit')?.textContent ?? null]);
            }
          };
          const told = () => new Set(seen.filter(([ms]) => 0 < ms && ms < until_ms).map(([, word]) => word));
          while (performance.now() < end && told().size < 5) {
            box.querySelector('.spf-play').click();
            await frames('playing');
            await frames('still');
            await new Promise((done) => setTimeout(done, 200));
          }
          return seen;
        }""",
        words[-1][2],
    )
    told = [(ms, word) for ms, word in seen if 0 < ms < words[-1][2]]
    assert {word for _, word in told} >= {"one", "two", "three", "four", None}
    # A word may be as old as the frame before, which is long ago on a busy machine.
    for (earlier_ms, _), (ms, word) in zip([told[0], *told], told, strict=False):
        since_ms = min(earlier_ms, ms)
        near = {w for w, start, end in words if start - 60 <= ms and since_ms < end + 60}
        gap = not any(start + 60 <= since_ms and ms < end - 60 for _, start, end in words)
        assert word in near or (word is None and gap), (since_ms, ms, word)


@pytest.mark.slow
def test_long_texts_and_names_stay_within_a_narrow_page_and_each_text_has_its_own_direction(show):
    clips = [
        spoken(["word"] * 900 + ["end"], word_s=0.01, gap_s=0.001),
        spoken(["unbroken" * 60]),
        spoken(["בוקר", "Jerusalem"]),
    ]
    frame = pd.DataFrame({"audio": clips}, index=["id-" + "0123456789" * 20, "שם", "name"])
    bridge = show(lambda: play(frame))
    bridge.page.set_viewport_size({"width": 600, "height": 500})
    assert cut_off(bridge.page) == []
    directions = "(all) => all.map((node) => getComputedStyle(node).direction)"
    assert bridge.page.locator(".spf-words").evaluate_all(directions) == ["ltr", "ltr", "rtl"]
    assert bridge.page.locator(".spf-clip strong").evaluate_all(directions) == ["ltr", "rtl", "ltr"]
    # What does not fit is reached by Tab, and follows what is heard.
    text = bridge.page.locator(".spf-words").first
    assert text.evaluate_all("([node]) => [node.tabIndex, node.scrollTop]") == [0, 0]
    text.locator(".spf-word").last.evaluate("(word) => word.click()")
    until_lit(bridge.page, "end")
    assert text.evaluate("(node) => node.scrollTop") > 500


@pytest.mark.parametrize("light", LIGHT_AND_LONG_DARK, ids=["light", "dark"])
def test_clips_are_played_rated_and_moved_through_by_keys_and_by_mouse(show, accessible, picture, light):
    bridge = show(lambda: play(clips(word_s=(0.3, LONG_S, 0.3, 0.3))), light=light)
    page, widget = bridge.page, bridge.widget
    page.evaluate("window.__keys = []; addEventListener('keydown', (e) => window.__keys.push(e.key))")
    assert (lit(bridge), widget.loads) == ([], []), "before it is played nothing is lit, and no audio is sent"
    # By keyboard alone; the notebook hears nothing of it.
    view = page.locator("[data-clip='1']")
    for _ in range(50):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.clip") == "0":
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press(" ")
    until_seen(page, "[data-clip='1'][data-state='playing']")
    until_lit(page, "two")
    page.keyboard.press(" ")
    page.locator("[data-clip='1'][data-state='still']").wait_for()
    for key in ["4", "ArrowLeft", "ArrowLeft", "ArrowLeft"]:
        page.keyboard.press(key)
    bridge.until(lambda: widget.ratings == {"1": 4})
    assert view.get_by_role("radio", name="4 of 5").get_attribute("aria-checked") == "true"
    assert page.get_by_role("status").inner_text() == "clip 2: rated 4 of 5"
    until_lit(page, "one")
    assert page.evaluate("window.__keys").count("4") == 0
    row = widget.results.iloc[1]
    assert (row["rating"], row["plays"]) == (4, 1)
    accessible(bridge.box)
    picture(bridge.box, f"clip-player-{'light' if light else 'dark'}")
    # By mouse: a click on a word goes there.
    view.locator(".spf-word", has_text="four").click()
    until_lit(page, "four")
    assert (
        f"0:{widget.shelf.entries[1].words[3][1] // 100 / 10:04.1f} /"
        in view.locator(".spf-time").inner_text()
    )
    second = page.get_by_role("button", name="Play clip 2")
    second.click()
    bridge.until(lambda: widget.plays == {"1": 2})
    page.locator("[data-clip='1'][data-state='still']").wait_for()
    assert lit(bridge) == [], "after the end nothing is lit"
    second.click()
    until_lit(page, "two")
    assert widget.loads == ["1"], "what was loaded is played again from memory"
    page.get_by_role("button", name="Play clip 3").click()
    # Both in one look: the clip may end before another one.
    bridge.wait("""() => {
      const playing = [...document.querySelectorAll("[data-state='playing']")];
      return playing.map((node) => node.dataset.clip).join() === '2';
    }""")


def test_clips_that_cannot_be_heard_say_so_and_the_others_play(show):
    def gone():
        raise OSError("the disk is gone")

    file = io.BytesIO()
    soundfile.write(file, np.zeros(8000, np.float32), 8000, format="WAV", subtype="IMA_ADPCM")
    whole = spoken(WORDS, word_s=LONG_S).audio
    frame = pd.DataFrame({"audio": [whole, b"RIFF-nothing", b"", file.getvalue(), whole]})
    bridge = show(lambda: play(frame))
    *entries, last = bridge.widget.shelf.entries
    bridge.widget.shelf = ClipShelf([*entries, dataclasses.replace(last, load=gone)])
    for place in (1, 2):
        broken = bridge.page.locator(f"[data-clip='{place}']")
        assert f"row {place}" in broken.get_by_role("alert").inner_text()
        assert broken.get_by_role("button").first.is_disabled()
        assert broken.get_by_role("radio").count() == 0, "what cannot be heard cannot be rated"
    for place, said in ((3, "cannot be played"), (4, "the disk is gone")):
        bridge.page.get_by_role("button", name=f"Play {place}").click()
        bridge.page.locator(f"[data-clip='{place}']").get_by_role("alert").get_by_text(said).wait_for()
    bridge.page.get_by_role("button", name="Play 0").click()
    until_seen(bridge.page, "[data-clip='0'][data-state='playing']")


@pytest.mark.slow
def test_every_format_plays(show):
    bridge = show(lambda: play([spoken(WORDS, format=format, word_s=LONG_S) for format in Format]))
    for place, _ in enumerate(Format):
        bridge.page.get_by_role("button", name=f"Play clip {place + 1}").click()
        until_seen(bridge.page, f"[data-clip='{place}'][data-state='playing']")
        assert bridge.page.locator(f"[data-clip='{place}'] .spf-lit").count() <= 1


@pytest.mark.slow
def test_turning_dark_repaints_the_waveform(show):
    bridge = show(lambda: play(clips(1)))
    paint = "() => document.querySelector('canvas').getContext('2d').getImageData(120, 26, 1, 1).data.slice(0, 3).join()"
    bridge.wait(f"() => ({paint})() !== '0,0,0'")  # it is painted with the page's next frame
    light = bridge.page.evaluate(paint)
    bridge.page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    bridge.wait(f"(light) => ({paint})() !== light", light)


def test_without_a_front_end_it_is_a_table():
    widget = play([spoken(["<b>", "&"], voice_id="en-US-nora")])
    data = widget._repr_mimebundle_()[0]
    assert "&lt;b&gt; &amp;" in data["text/html"]
    assert "en-US-nora" in data["text/html"]
    assert data["text/plain"] == "<ClipPlayer: 1 of 1 clip, 0.9 s>"
    many = play(clips(200))
    assert len(str(many._repr_mimebundle_())) < 50_000


def test_no_clips_and_no_such_label_are_said():
    with pytest.raises(StoreError, match="the list is empty"):
        play([])
    frame = pd.DataFrame({"audio": [spoken(WORDS).audio], "text": ["x"]})
    with pytest.raises(StoreError, match="label='voise' is not a column; there are: text"):
        play(frame, label="voise")


@pytest.mark.parametrize(
    "source", ["runs/demo", 5, pd.DataFrame({"text": ["x"]})], ids=["path", "int", "no audio"]
)
def test_what_holds_no_clips_is_refused_with_what_does(source):
    with pytest.raises(
        StoreError, match=r"clips cannot be read from the type .*; allowed: a run|has no column 'audio'"
    ):
        play(source)


def test_what_a_frame_lacks_is_nothing_to_the_page():
    clip = spoken(WORDS, voice_id="nora")
    words = [{"word": word, "start_ms": start, "end_ms": end} for word, start, end in clip.words]
    ours = pd.DataFrame(
        {"text": [clip.text], "audio": [clip.audio], "word_durations": [words], "voice_id": ["nora"]}
    )
    human = pd.DataFrame({"audio": [clip.audio]})
    player = play(pd.concat([ours, human], ignore_index=True))
    first, second = json.loads(json.dumps(player.clips, allow_nan=False))
    assert ("".join(piece for piece, *_ in first["words"]), first["voice"]) == (clip.text, "nora")
    assert (second["text"], second["words"], second["voice"]) == ("", [], None)
    assert "NaN" not in player.to_html().partition('id="spf-state">')[2].partition("<")[0]


def test_word_times_of_a_frame_are_numbers_or_the_row_says_what_is_wrong():
    clip = spoken(WORDS)
    one = {"word": "one", "start_ms": np.int64(100), "end_ms": np.float64(400)}
    given = [[one], np.array([one, one]), [("one", 100, 400)], "one"]
    frame = pd.DataFrame({"audio": [clip.audio] * len(given), "word_durations": given})
    first, second, *others = json.loads(json.dumps(play(frame).clips))
    assert first["words"] == [["one", 100, 400]]
    assert [word for word in second["words"] if len(word) > 1] == first["words"] * 2
    for other in others:
        assert "word_durations" in other["problem"]
        assert "start_ms" in other["problem"]
