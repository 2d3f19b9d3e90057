"""Speech before all of it is made: where a text is cut, what lies between, and how loud it is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.audio import measure
from speechframe.audio.codec import convert_seconds_to_frames
from speechframe.engines import streaming
from speechframe.engines.base import Capabilities, Speech, Utterance, Word
from speechframe.errors import EngineError
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.spec.texts import has_speech

RATE_HZ = 22050
PAUSE = convert_seconds_to_frames(0.25, RATE_HZ)
SAID = Utterance("Hello there. [pause 1s] How are you? Well!", "en-US-nora", "en-US")


class Plain:
    """A speaker that cannot stream: a tenth of a second a text, and no word of what holds a q."""

    name = version = "plain"
    capabilities = Capabilities()

    def __init__(self):
        self.texts = []

    def voices(self):
        return []

    def speak(self, utterance):
        if "q" in utterance.text:
            raise EngineError(f"no {utterance.text}")
        self.texts.append(utterance.text)
        return Speech(np.full(2205, 0.5, np.float32), RATE_HZ, (Word("w", 0, 100),))


@given(st.text(alphabet="aZ1 .,!?\n[]pause 2s\u3002\u00e9", max_size=2000))
def test_sentences_joined_are_the_text_and_each_speaks_unless_nothing_does(text):
    found = streaming.split_sentences(text)
    assert "".join(found) == text
    assert all(len(part) > 0 for part in found)
    if has_speech(text):
        assert all(has_speech(part) for part in found)
    assert all(
        streaming.split_sentences(part) == [part]
        for part in found
        if len(part) <= streaming.MAX_SENTENCE_CHARACTERS
    )


@pytest.mark.parametrize(
    ("before", "after", "pause_s"),
    [
        ("One.", " Two.", 0.25),
        ("\u201cOne!\u201d ", "Two.", 0.25),
        ("One\n", "two", 0.25),
        ("One, ", "two", 0.1),
        ("One ", "two", 0.0),
        ("One. [pause 1s] ", "Two.", 0.0),
        ("One. ", "[pause 1s] Two.", 0.0),
        ("", "Two.", 0.0),
    ],
)
def test_the_pause_between_is_that_of_the_mark_and_never_beside_a_marker(before, after, pause_s):
    assert streaming.choose_pause_s(before, after) == pause_s
    assert streaming.choose_pause_s(before, after, rate=50) == pause_s / 2


def test_an_engine_that_does_not_stream_speaks_sentence_by_sentence_when_asked():
    speaker = Plain()
    pieces = streaming.stream(speaker, replace(SAID, text="One is. Two are. Three."))
    first = next(pieces)
    assert speaker.texts == ["One is. "]
    rest = list(pieces)
    assert (len(first.samples), first.words) == (2205, (Word("w", 0, 100),))
    assert [len(piece.samples) for piece in rest] == [2205 + PAUSE] * 2
    assert rest[0].words == (Word("w", 250, 350),)
    assert streaming.check(speaker, SAID) == ("pauses are not supported by this voice and were left out",)


def test_a_sentence_that_cannot_be_spoken_is_left_out_unless_all_are():
    said = replace(SAID, text="A q here. One is. A q again. Two are.")
    assert [len(piece.samples) for piece in streaming.stream(Plain(), said)] == [
        2205,
        2205 + PAUSE,
    ]
    with pytest.raises(EngineError, match="no A q here"):
        list(streaming.stream(Plain(), replace(SAID, text="A q here. A q again.")))


def test_a_length_is_of_the_whole():
    (piece,) = streaming.stream(EspeakSpeaker(), replace(SAID, audio_duration_s=5.0))
    assert piece.audio_seconds == pytest.approx(5.0, abs=0.001)


@pytest.mark.parametrize(
    ("voice_id", "text", "pitch"),
    [
        ("en-US-nora", "Hello there, my friend.", -40),
        ("pt-BR-davi", "O barco \u00e9 pequeno.", 0),
        ("zh-CN-jun", "\u4f60\u597d\uff0c\u4e16\u754c\u3002", 40),
    ],
)
def test_a_streamed_sentence_is_that_of_a_whole_text_and_never_clips(voice_id, text, pitch):
    said = Utterance(text, voice_id, voice_id[:5], pitch=pitch)
    (piece,) = EspeakSpeaker().stream(said)
    assert np.array_equal(piece.samples, EspeakSpeaker().speak(said).samples)
    assert measure.measure_peak(piece.samples) <= 0.9 + 1e-6
