"""A clip's text said anew by another voice: as long as the clip, with its pauses, in that voice's pitch."""

import itertools
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.audio import codec, measure
from speechframe.engines.base import Conversion, Recording, Speech, Utterance
from speechframe.errors import EngineError
from speechframe.local.engines import respeak as parts
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.respeak import respeak_clip

FIRST, SECOND = (
    "The small boat sailed across the quiet bay.",
    "Then we walked home together with our friends.",
)
TEXT = f"{FIRST} {SECOND}"
NORA = "en-US-nora"
RATE_HZ = 16000

speak = EspeakSpeaker().speak


@lru_cache
def clip(before_s=0.4, between_s=0.9, after_s=0.6):
    """Two sentences of a man at 16 kHz, with silence around and between."""

    def silence(seconds):
        return np.zeros(round(seconds * RATE_HZ), np.float32)

    first, second = (
        codec.resample(
            speak(Utterance(text, "en-US-miles", "en-US", variation=0)).samples.copy(), 22050, RATE_HZ
        )
        for text in (FIRST, SECOND)
    )
    return Recording(
        np.concatenate([silence(before_s), first, silence(between_s), second, silence(after_s)]), RATE_HZ
    )


def said_again(recording=None, text=TEXT, language="en", locale="en-US", **fields):
    conversion = Conversion(NORA, locale, **{"variation": 0} | fields)
    return respeak_clip(recording or clip(), conversion, speak=speak, text=text, language=language)


def gaps_s(audio):
    return measure.find_silences(audio.samples, audio.sample_rate_hz, shortest_ms=250, below_db=40)


def test_it_is_as_long_as_the_clip_and_in_the_other_voice():
    speech = said_again()
    assert len(speech.samples) == codec.convert_seconds_to_frames(clip().audio_seconds, speech.sample_rate_hz)
    nora = speak(Utterance(TEXT, NORA, "en-US", variation=0))
    heard_hz = measure.median_f0_hz(speech.samples, speech.sample_rate_hz)
    assert heard_hz == pytest.approx(measure.median_f0_hz(nora.samples, 22050), rel=0.05)
    assert measure.measure_peak(speech.samples) < 1
    assert speech.warnings == ()


def test_silence_and_the_pause_between_sentences_are_where_the_clip_has_them():
    for wanted, found in zip(gaps_s(clip()), gaps_s(said_again()), strict=True):
        assert found == pytest.approx(wanted, abs=0.06)


def test_without_prosody_only_the_ends_are_kept():
    before, *_, after = gaps_s(clip())
    found_before, *_, found_after = gaps_s(said_again(retain_prosody=False))
    assert found_before == pytest.approx(before, abs=0.06)
    assert found_after == pytest.approx(after, abs=0.06)
    (pause,) = gaps_s(clip())[1:-1]
    assert all(end_s - start_s < 0.6 for start_s, end_s in gaps_s(said_again(retain_prosody=False))[1:-1])
    assert pause[1] - pause[0] > 0.8


def test_a_pause_within_a_clause_is_not_kept():
    speech = said_again(text=TEXT.replace(".", ""))
    assert len(gaps_s(speech)) == 2
    far_from_any_clause = parts._divide_text(
        "Oh, we walked home together", [parts._Span(0, 2), parts._Span(3, 5)]
    )
    assert far_from_any_clause == (["Oh, we walked home together"], [parts._Span(0, 5)])
    assert len(speech.samples) == codec.convert_seconds_to_frames(clip().audio_seconds, speech.sample_rate_hz)


@pytest.mark.parametrize(
    ("fields", "factor"),
    [({"rate": -50}, 2.0), ({"audio_duration_s": 5.4321}, None)],
)
def test_rate_and_length_scale_speech_and_pauses(fields, factor):
    speech = said_again(**fields)
    factor = factor or 5.4321 / clip().audio_seconds
    frames = codec.convert_seconds_to_frames(clip().audio_seconds * factor, speech.sample_rate_hz)
    assert abs(len(speech.samples) - frames) <= (0 if "audio_duration_s" in fields else 1)
    wanted, found = gaps_s(clip())[1], next(gap for gap in gaps_s(speech) if gap[0] > 0.9)
    assert found[0] == pytest.approx(wanted[0] * factor, abs=0.15)


def test_equal_calls_give_equal_bytes():
    assert np.array_equal(said_again(variation=2).samples, said_again(variation=2).samples)
    assert not np.array_equal(said_again(variation=2).samples, said_again(variation=2, take=1).samples)


def test_what_hardly_fits_is_said():
    (warning,) = said_again(audio_duration_s=1.5).warnings
    assert "may not be understood so fast" in warning
    (warning,) = said_again(text="Yes.").warnings
    assert "at most 2 times as long, and the rest is silence" in warning
    assert len(said_again(text="Yes.").samples) == codec.convert_seconds_to_frames(
        clip().audio_seconds, 22050
    )


def test_text_in_another_language_is_read_and_said():
    speech = said_again(text="Buenos días a todos.", language="es")
    assert "the text is in Spanish and was read as English (United States)" in speech.warnings
    assert "read as" not in "".join(said_again(language=None).warnings)
    assert said_again(
        text="Buenos días, hoy hace buen tiempo y vamos al parque.", language="es", locale="es-ES"
    ).samples.any()


@pytest.mark.parametrize(
    ("recording", "text", "fields", "said"),
    [
        (None, " \n", {}, "there is no text to speak"),
        (Recording(np.zeros(16000, np.float32), 16000), TEXT, {}, "the clip is silent"),
        (Recording(np.zeros(0, np.float32), 16000), TEXT, {}, "the clip is silent"),
        (None, TEXT, {"audio_duration_s": 0.01}, "leaves no time to speak"),
    ],
    ids=["no text", "silence", "empty", "no time"],
)
def test_what_cannot_be_said_is_refused(recording, text, fields, said):
    with pytest.raises(EngineError, match=said):
        said_again(recording, text=text, **fields)


@given(
    st.lists(st.sampled_from(["one two", "three four five", "six"]), min_size=1, max_size=8).map(", ".join),
    st.lists(st.tuples(st.floats(0.05, 5), st.floats(0.3, 3)), min_size=1, max_size=6),
)
def test_all_of_the_text_is_shared_out_in_order(text, stretches):
    spans, now_s = [], 0.0
    for speech_s, pause_s in stretches:
        spans.append(parts._Span(now_s, now_s + speech_s))
        now_s += speech_s + pause_s
    texts, kept = parts._divide_text(text, spans)
    assert "".join(texts) == text
    assert len(texts) == len(kept) <= len(spans)
    assert (kept[0].start_s, kept[-1].end_s) == (spans[0].start_s, spans[-1].end_s)
    assert all(one.end_s < two.start_s for one, two in itertools.pairwise(kept))


def test_a_voice_of_its_own_timing_and_rate_fits_too():
    def hum(utterance):
        seconds = 0.05 * len(utterance.text)
        samples = 0.3 * np.sin(np.arange(round(seconds * 8000)) / 9)
        return Speech(samples.astype(np.float32), 8000, ())

    speech = respeak_clip(clip(), Conversion("x-y", "en-US"), speak=hum, text=TEXT, language=None)
    assert len(speech.samples) == codec.convert_seconds_to_frames(clip().audio_seconds, 8000)
    assert gaps_s(speech)[1] == pytest.approx(gaps_s(clip())[1], abs=0.15)
