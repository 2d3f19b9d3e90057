"""Answers of the real service are what they must be; the same answers, spoiled, are found out."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from tests.rooms.sending import sent

from speechframe.audio import codec
from speechframe.client import Spoken
from speechframe.spec.speech import Format, GenerateRequest
from speechframe.verbs.generate import GenerateBackend
from speechframe.verbs.judging import SpokenRecord, bounds_s, coverage, judge, load_of

RATE_HZ = 8000
TEXT = "The train to the harbour leaves at noon, and nobody will wait for us."
ODD = [
    "Hi.",
    "12",
    "1,234.56",
    "%s",
    "Dr. No",
    "HTTP 404",
    "👍 great",
    "Wait. [pause 3s]",
    "www.example.com/a?b=c",
]
FACTS = {"voice_id": "en-US-nora", "locale": "en-US"}


@pytest.fixture(scope="module")
def speak(service):
    def call(text, **options):
        row = {"voice": "nora", "format": "FLAC", "sample_rate": RATE_HZ, "text": text, **options}
        return sent(lambda: GenerateBackend(service.settings), row)

    return call


@pytest.fixture(scope="module")
def one(speak):
    record, findings = speak(TEXT)
    assert findings == []
    return record


def found(record, learned=None, **spoiled):
    """Return the codes of what is found in an answer that was spoiled."""
    answer = replace(record.answer, said_seconds=spoiled.pop("said_seconds", None), **spoiled)
    judged = SpokenRecord({}, answer=answer, asked=record.asked)
    return {finding.code for finding in judge(judged, FACTS, {} if learned is None else learned)}


def written(samples, format=Format.FLAC):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, RATE_HZ, format=format.value, subtype="PCM_16")
    return buffer.getvalue()


def sounding(samples, **fields):
    return {"audio": written(samples), "audio_seconds": len(samples) / RATE_HZ, **fields}


def samples_of(record):
    return codec.decode(record.audio).samples


@pytest.mark.parametrize("text", ODD)
def test_nothing_is_found_in_answers_to_odd_texts(speak, text):
    assert speak(text)[1] == []


@pytest.mark.parametrize("format", Format)
def test_nothing_is_found_in_any_format(speak, format):
    assert speak(TEXT, format=format.value, sample_rate=24000)[1] == []


def test_an_asked_length_is_what_counts(speak):
    record, findings = speak(TEXT, audio_duration=9.0)
    assert findings == []
    assert found(record, **sounding(samples_of(record)[: 5 * RATE_HZ], words=[])) == {"pace"}


def test_half_double_and_tenfold_audio_is_not_the_answer(one):
    samples = samples_of(one)
    half = sounding(samples[: len(samples) // 2], said_seconds=one.answer.audio_seconds)
    assert found(one, **half) == {"length", "words_outside"}
    assert found(one, audio=one.audio[: len(one.audio) // 2]) == {"undecodable"}
    assert "words_missing" in found(one, **sounding(np.tile(samples, 2)))
    assert "pace" in found(one, **sounding(np.tile(samples, 10)))


def test_silence_hiss_noise_and_clipped_audio_are_found(one):
    samples, random = samples_of(one), np.random.default_rng(5)
    frames = len(samples)
    assert found(one, audio=written(np.zeros(frames, np.int16))) == {"silent"}
    assert found(one, audio=written((random.standard_normal(frames) * 20).astype(np.int16))) == {"silent"}
    assert found(one, audio=random.bytes(2 * frames), format=Format.PCM) == {"noise"}
    normal = samples / np.abs(samples).max()
    assert found(one, audio=written(normal)) == set()
    assert found(one, audio=written(np.clip(normal * 4, -1, 1))) == {"clipped"}


def test_words_of_another_text_or_outside_the_audio_are_found(one, speak):
    words, half = one.answer.words, len(one.answer.words) // 2
    other, _ = speak("Somebody has eaten all of the cherries in my grandmother's garden.")
    assert "words_missing" in found(one, words=other.answer.words)
    assert "words_missing" in found(one, words=words[:half])
    assert "words_outside" in found(
        one, words=[(word, start + 3000, end + 3000) for word, start, end in words]
    )
    assert found(one, words=[]) == set()


@pytest.mark.parametrize("factor", [0.8, 1.2, 0.0, float("nan"), float("inf"), -1.0])
def test_a_wrong_length_is_found(one, factor):
    assert found(one, said_seconds=one.answer.audio_seconds * factor) == {"length"}


def test_a_voice_that_is_known_is_held_to_its_own_pace(one):
    words = [(word, 2 * start, 2 * end) for word, start, end in one.answer.words]
    slow = sounding(samples_of(one).repeat(2), words=words)
    assert found(one, **slow) == set()
    learned = {}
    for _ in range(20):
        assert found(one, learned) == set()
    for _ in range(60):  # suspect answers teach nothing
        assert found(one, learned, **slow) == {"pace"}
    assert found(one, learned) == set()


@given(
    readings=st.lists(st.floats(0.5, 60), min_size=20, max_size=100),
    wrong=st.lists(st.floats(0.01, 500), max_size=4),
)
def test_bounds_hold_the_middle_of_what_was_heard(readings, wrong):
    load, kept = load_of(TEXT), [*wrong, *readings]
    low_s, high_s = bounds_s(load, [math.log(seconds / load.usual) for seconds in kept], rate=0)
    assert 0 <= low_s <= max(kept) + 1e-6
    assert low_s < high_s
    assert high_s >= min(kept) - 1e-6
    assert high_s / max(low_s, 0.1) < 60


@given(text=st.text(max_size=200), more=st.text(max_size=50))
def test_more_text_never_takes_less_time(text, more):
    short, long = load_of(text), load_of(text + more)
    assert 0 < short.least <= short.usual <= short.most
    assert long.usual >= short.usual - 1e-9 or "[pause" in text + more


WORDS = st.lists(st.tuples(st.text(max_size=12), st.integers(-(2**31), 2**31), st.integers(-(2**31), 2**31)))


@given(text=st.text(max_size=100), words=WORDS)
def test_coverage_is_a_share_of_the_text_and_a_text_covers_itself(text, words):
    letters, covered = coverage(text, words)
    assert 0 <= covered <= letters <= 20 * len(text)
    letters, covered = coverage(text, [(word, 0, 1) for word in text.split()])
    assert covered == letters or "[pause" in text


@given(
    text=st.text(min_size=1, max_size=60),
    words=WORDS,
    audio=st.binary(max_size=200),
    format=st.sampled_from(Format),
    seconds=st.floats(0, 1e6),
    said=st.none() | st.floats(),
)
def test_no_answer_is_too_odd_to_be_judged(text, words, audio, format, seconds, said):
    asked = GenerateRequest(text=TEXT, voice_id="en-US-nora").model_copy(update={"text": text})
    answer = Spoken(
        audio, format, RATE_HZ, 1, seconds, words, 0, None, (), None, 0.0, "global", said_seconds=said
    )
    for finding in judge(SpokenRecord({}, answer=answer, asked=asked), FACTS, {}):
        assert finding.words
