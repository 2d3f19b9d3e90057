"""A stream that is heard while it arrives, in a browser, over the embedded service."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from bridge import LIGHT_AND_LONG_DARK, until_lit, until_seen
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

import speechframe as spf
from speechframe.errors import StoreError
from speechframe.page.word_times import estimate_word_times
from speechframe.widgets.player import play

FIRST, SECOND = (
    "Good morning to you all, and welcome. ",
    "The train leaves at seven from the second platform. ",
)

# Where each piece was put on the time of the audio, what was in it, and which words were lit in turn.
LISTEN = """
window.__lit = [];
setInterval(() => {
  const word = document.querySelector(".spf-lit")?.textContent;
  if (word && word !== window.__lit.at(-1)) window.__lit.push(word);
}, 10);
window.__pieces = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (when, offset) {
  window.__rate = this.buffer.sampleRate;
  window.__pieces.push([when, offset, Array.from(this.buffer.getChannelData(0))]);
  return start.call(this, when, offset);
};
"""


LONG = FIRST * 10
"""Some of it is still to be heard when a busy machine comes to look."""


class Writer:
    """Writes a sentence, or more, and another one when it is let."""

    def __init__(self):
        self.first = FIRST
        self.may = threading.Event()

    def __iter__(self):
        yield self.first
        self.may.wait(60)
        yield SECOND


@pytest.fixture
def writer():
    writer = Writer()
    yield writer
    writer.may.set()


def arriving(service, writer, **fields):
    return spf.stream(writer, voice="ivy", service=service, max_buffer_delay_in_ms=0, **fields)


def sent(bridge):
    return [message for message in bridge.to_page if message["method"] == "custom"]


@pytest.mark.parametrize("light", LIGHT_AND_LONG_DARK, ids=["light", "dark"])
def test_a_stream_is_heard_while_it_comes_and_what_came_stays_where_it_breaks_off(
    show, service, writer, accessible, picture, light
):
    writer.first = LONG
    bridge = show(lambda: play(arriving(service, writer)), light=light)
    until_lit(bridge.page)
    accessible(bridge.box)
    picture(bridge.box, f"stream-player-{'light' if light else 'dark'}")
    bridge.until(lambda: bridge.widget.arrived_seconds > 10)
    bridge.widget.stream.close()
    bridge.page.locator(".spf-error", has_text="closed before its end").first.wait_for()
    # Near the end of what is heard: after it, it is a clip.
    bridge.page.locator(".spf-word").last.click()
    bridge.page.get_by_role("button", name="Play stream").wait_for()
    bridge.page.get_by_role("button", name="Play stream").click()
    until_seen(bridge.page, "[data-state='playing']")
    assert "broken off" in bridge.widget.to_text()


# Most of its words are to be seen lit, and each is lit but for a moment.
@pytest.mark.quiet
def test_it_is_heard_while_the_rest_is_still_being_written(show, page, service, writer):
    page.add_init_script(LISTEN)
    bridge = show(lambda: play(arriving(service, writer)))
    # Between two words nothing is lit: the word is read when there is one.
    assert bridge.page.locator(".spf-lit").first.text_content() in FIRST.split()
    expect(bridge.page.locator("[data-state='playing']")).to_have_count(1)
    assert not bridge.widget.over
    assert "platform" not in bridge.box.inner_text()
    assert "estimated" in bridge.box.inner_text()
    known = len(sent(bridge))
    # Another view of it asks for all of it once more, and nobody hears anything twice.
    bridge.page.evaluate("""async () => {
      const { default: widget } = await import('./widget.js');
      window.__other = await widget.render({ model: window.__model, el: document.createElement('div') });
    }""")
    bridge.until(lambda: len(sent(bridge)) > known)
    bridge.page.evaluate("window.__other()")
    bridge.page.locator(".spf-time", has_text="loading…").wait_for()
    writer.may.set()
    bridge.page.locator("[data-state='still']").wait_for()
    assert bridge.widget.over
    assert bridge.widget.stream.text == FIRST + SECOND
    words = (FIRST + SECOND).replace(".", "").split()
    seen = bridge.page.evaluate("window.__lit")
    assert len(set(seen)) > len(words) / 2
    assert seen[-1] in words[-3:], "it was heard to its end"
    # What was heard is the stream, without a gap or a sample twice.
    rate, pieces = bridge.page.evaluate("[window.__rate, window.__pieces]")
    heard = np.concatenate([piece for _, _, piece in pieces])
    assert rate == bridge.widget.stream.summary.sample_rate_hz
    assert np.abs(heard - bridge.widget.stream.samples()).max() < 1e-4
    assert all(offset == 0 for _, offset, _ in pieces)
    for (when, _, samples), (then, _, _) in itertools.pairwise(pieces):
        late = (then - when) * rate - len(samples)
        assert late == pytest.approx(0, abs=0.01) or late > 0.01 * rate, "it meets, or was waited for"
    # Now it is a clip as others are.
    assert bridge.widget.loads == []
    bridge.page.get_by_role("button", name="Play stream").click()
    until_seen(bridge.page, "[data-state='playing']")
    assert bridge.widget.loads == ["0"]


@pytest.mark.slow
def test_the_keyboard_pauses_it_and_goes_back_while_it_arrives(show, service, writer):
    bridge = show(lambda: play(arriving(service, writer)))
    view = bridge.page.locator(".spf-clip")
    until_lit(bridge.page)
    view.focus()
    view.press(" ")
    bridge.page.locator("[data-state='still']").wait_for()
    for _ in range(20):
        view.press("ArrowLeft")
    until_lit(bridge.page, "Good")
    view.press("ArrowRight")
    until_lit(bridge.page, "morning")
    assert bridge.page.locator("[data-state='still']").count() == 1, "what is paused stays paused"
    view.press(" ")
    until_seen(bridge.page, "[data-state='playing']")
    writer.may.set()
    bridge.page.locator("[data-state='still']").wait_for()
    expect(bridge.box).to_contain_text("platform")
    assert view.evaluate("(node) => node === document.activeElement"), "the focus stays where it was"


@pytest.mark.slow
def test_what_has_come_already_begins_by_itself_once(show, service):
    bridge = show(lambda: play(spf.stream(LONG, voice="ivy", service=service)).wait())
    until_lit(bridge.page)
    bridge.until(lambda: not bridge.widget.fresh)
    bridge.page.evaluate("""() => {
      window.__end();
      return import('./widget.js').then(({ default: widget }) =>
        widget.render({ model: window.__model, el: document.getElementById('host') }));
    }""")
    bridge.page.locator("[data-state='still']").wait_for()
    bridge.page.wait_for_timeout(300)
    assert bridge.page.locator("[data-state='playing']").count() == 0
    assert bridge.widget.loads == []


@pytest.mark.slow
def test_a_stream_of_which_nothing_came_cannot_be_played(show, service, writer):
    stream = arriving(service, writer)
    stream.close()
    bridge = show(lambda: play(stream).wait())
    assert bridge.page.get_by_role("alert").inner_text()
    assert bridge.page.get_by_role("button").first.is_disabled()


def test_as_one_file_it_plays_without_any_network(page, service, tmp_path):
    page.context.set_offline(True)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    player = play(spf.stream(LONG, voice="ivy", service=service)).wait()
    page.goto(player.to_html(tmp_path / "stream.html").as_uri())
    page.get_by_role("button", name="Play stream").click()
    until_lit(page)
    assert errors == []


@pytest.mark.parametrize("fields", [{"format": f} for f in ("WAV", "PCM", "MP3")]
                         + [{"channel_type": "STEREO"}], ids=str)  # fmt: skip
def test_without_a_front_end_all_of_it_is_read(service, fields):
    player = play(spf.stream(FIRST + SECOND, voice="ivy", service=service, **fields)).wait()
    samples = player.stream.samples()
    clip = player.shelf.read_clip("0")
    assert player.stream.is_complete
    assert player.stream.text == FIRST + SECOND
    assert player.to_text() == f"<StreamPlayer: complete, {player.stream.summary.audio_seconds:.1f} s>"
    assert clip.samples.shape == samples.shape
    # Of a lossy format, what was sent as it came is as near as its frames are.
    assert np.abs(clip.samples - samples).max() < 2e-4
    assert "second platform" in player._repr_mimebundle_()[0]["text/html"]


def test_a_stream_of_an_asynchronous_program_is_played_as_well(service):
    async def heard():
        player = play(await spf.aio.stream(FIRST, voice="ivy", service=service))
        with pytest.raises(StoreError, match="still arriving"):
            player.to_html()
        return await asyncio.to_thread(player.wait)

    with ThreadPoolExecutor(1) as thread:  # in this one runs Playwright's loop
        player = thread.submit(lambda: asyncio.run(heard())).result()
    assert player.trouble == ""
    assert player.arrived_seconds > 1


def test_closing_the_player_stops_the_stream(service, writer):
    player = play(arriving(service, writer))
    player.close()
    assert player.wait() is player
    with pytest.raises(spf.StreamBroken):
        player.stream.read()


@given(
    st.lists(st.sampled_from(["a", "Wörter", "and,", "end.", "[pause 1.5s]", "[pause", "。"]), max_size=30),
    st.none() | st.floats(0, 100),
)
def test_guessed_times_are_in_order_and_within_the_audio(pieces, seconds):
    text = " ".join(pieces)
    words = estimate_word_times(text, seconds)
    assert [word for word, _, _ in words] == text.replace("[pause 1.5s]", " ").split()
    times = [time for _, *both in words for time in both]
    assert times == sorted(times)
    pauses_s = 1.5 * pieces.count("[pause 1.5s]")
    if words and seconds is not None:
        assert times[-1] <= max(seconds, pauses_s) * 1000 + 1
