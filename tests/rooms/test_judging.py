"""Answers of the real service are what they must be; the same answers, spoiled, are found out."""

import base64
import io
import json
import math

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

import speechframe as spf
from speechframe.backends.judging import (
    SpokenRecord,
    estimate_bounds_s,
    estimate_spoken_length,
    judge,
    measure_coverage,
)
from speechframe.client import Spoken
from speechframe.spec.speech import Format, GenerateRequest
from speechframe.testing import FaultyService

RATE_HZ = 8000
TEXT = "The train to the harbour leaves at noon, and nobody will wait for us"
OTHER = "Somebody has eaten all of the cherries in my grandmother's garden."
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


def codes_of(run):
    return [code and set(code.split(", ")) for code in run.to_arrow(["error_code"])["error_code"].to_pylist()]


@pytest.fixture(scope="module")
def real(service, tmp_path_factory):
    """Return a run of the real service: odd texts, all formats, an asked length."""
    formats = [format.value for format in Format]
    texts = [*ODD, *[TEXT] * len(formats), f"{TEXT}...", f"{TEXT}.", OTHER]
    return spf.generate(
        texts, voice="nora", format=["FLAC"] * len(ODD) + formats + ["FLAC"] * 3, service=service.settings,
        sample_rate=RATE_HZ, audio_duration=[0.0] * (len(texts) - 3) + [9.0, 0.0, 0.0], progress=False,
        run_dir=tmp_path_factory.mktemp("real") / "run",
    )  # fmt: skip


def test_nothing_is_found_in_answers_to_odd_texts_in_any_format_or_of_an_asked_length(real):
    assert set(real.to_pandas()["status"]) == {"done"}
    assert real.clip(len(real.to_pandas()) - 3).audio_seconds == pytest.approx(9.0, abs=0.5)


def written(samples):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, RATE_HZ, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def faulty():
    with FaultyService() as running:
        yield running


@pytest.fixture
def judged(real, faulty, tmp_path):
    """Make a run of answers as they are given, one after the other; return what was found in each."""
    good = real.clip(len(ODD) + len(Format) + 1)

    def run(*answers):
        texts = [f"{TEXT}{'!' * (number + 1)}" for number in range(len(answers))]
        odd = {}
        for text, changes in zip(texts, answers, strict=True):
            audio = changes.get("audio", good.audio)
            if "samples" in changes:
                audio = written(changes["samples"])
            seconds = changes.get("seconds", len(changes.get("samples", good.samples)) / RATE_HZ)
            words = [
                {"word": word, "startMs": start, "endMs": end}
                for word, start, end in changes.get("words", good.words)
            ]
            odd[text] = {"encodedAudio": json.dumps(base64.b64encode(audio).decode()),
                         "audioLengthInSeconds": json.dumps(seconds), "wordDurations": json.dumps(words)}  # fmt: skip
        faulty.set(odd=odd)
        made = spf.generate(texts, voice="nora", format="FLAC", sample_rate=RATE_HZ, max_concurrency=1,
                            service=faulty.settings, run_dir=tmp_path / "run", max_attempts=1, progress=False)  # fmt: skip
        return codes_of(made)

    run.good = good
    return run


def test_what_is_spoiled_is_found(judged, real):
    good, random = judged.good, np.random.default_rng(5)
    samples, words = good.samples, list(good.words)
    frames, half, seconds = len(samples), len(words) // 2, good.audio_seconds
    hiss = (random.standard_normal(frames) * 20).astype(np.int16)
    normal = samples / np.abs(samples).max()
    spoiled = [
        ({}, None),
        ({"samples": samples[: frames // 2], "seconds": seconds}, {"length"}),
        ({"audio": good.audio[: len(good.audio) // 2]}, {"BadAnswer"}),
        ({"samples": np.tile(samples, 2)}, {"words_missing"}),
        ({"samples": np.tile(samples, 10), "words": []}, {"pace"}),
        ({"samples": np.zeros(frames, np.int16)}, {"silent"}),
        ({"samples": hiss}, {"silent"}),
        ({"samples": random.uniform(-0.9, 0.9, frames)}, {"noise"}),
        ({"samples": normal}, None),
        ({"samples": normal * 0.005}, None),  # quiet, and no silence
        ({"samples": np.clip(normal * 4, -1, 1)}, {"clipped"}),
        ({"words": list(real.clip(len(real.to_pandas()) - 1).words)}, {"words_missing"}),
        ({"words": words[:half]}, {"words_missing"}),
        ({"words": [(word, start + 3000, end + 3000) for word, start, end in words]}, {"words_outside"}),
        ({"words": []}, None),
        *(({"seconds": factor * seconds}, {"length"}) for factor in (0.8, 1.2, 0.0)),
    ]
    found = judged(*(changes for changes, _ in spoiled))
    for (changes, wanted), codes in zip(spoiled, found, strict=True):
        assert (codes is None) if wanted is None else (codes and wanted <= codes), (
            wanted,
            codes,
            changes.keys(),
        )


def test_a_voice_that_is_known_is_held_to_its_own_pace(real):
    good = real.clip(len(ODD) + len(Format) + 1)
    samples, words = good.samples.repeat(2), [(word, 2 * start, 2 * end) for word, start, end in good.words]
    as_it_is, slow = (
        Spoken(audio, Format.FLAC, RATE_HZ, 1, seconds, said, 0, None, (), None, 0.0, "global")
        for audio, seconds, said in (
            (good.audio, good.audio_seconds, list(good.words)),
            (written(samples), len(samples) / RATE_HZ, words),
        )
    )
    asked, learned = GenerateRequest(text=f"{TEXT}.", voice_id="en-US-nora"), {}

    def found(answer):
        return [
            finding.code for finding in judge(SpokenRecord({}, answer=answer, request=asked), FACTS, learned)
        ]

    assert found(slow) == []
    assert [found(as_it_is) for _ in range(20)] == [[]] * 20
    # Suspect answers teach nothing.
    assert [found(slow) for _ in range(60)] == [["pace"]] * 60
    assert found(as_it_is) == []


@settings(max_examples=40)
@given(
    readings=st.lists(st.floats(0.5, 60), min_size=20, max_size=100),
    wrong=st.lists(st.floats(0.01, 500), max_size=4),
)
def test_bounds_hold_the_middle_of_what_was_heard(readings, wrong):
    load, kept = estimate_spoken_length(TEXT), [*wrong, *readings]
    low_s, high_s = estimate_bounds_s(load, [math.log(seconds / load.usual) for seconds in kept], rate=0)
    assert 0 <= low_s <= max(kept) + 1e-6
    assert low_s < high_s
    assert high_s >= min(kept) - 1e-6
    assert high_s / max(low_s, 0.1) < 60


@settings(max_examples=40)
@given(text=st.text(max_size=200), more=st.text(max_size=50))
def test_more_text_never_takes_less_time(text, more):
    short, long = estimate_spoken_length(text), estimate_spoken_length(text + more)
    assert 0 < short.least <= short.usual <= short.most
    assert long.usual >= short.usual - 1e-9 or "[pause" in text + more


WORDS = st.lists(st.tuples(st.text(max_size=12), st.integers(-(2**31), 2**31), st.integers(-(2**31), 2**31)))


@settings(max_examples=40)
@given(text=st.text(max_size=100), words=WORDS)
def test_coverage_is_a_share_of_the_text_and_a_text_covers_itself(text, words):
    letters, covered = measure_coverage(text, words)
    assert 0 <= covered <= letters <= 20 * len(text)
    letters, covered = measure_coverage(text, [(word, 0, 1) for word in text.split()])
    assert covered == letters or "[pause" in text


@settings(max_examples=40)
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
    for finding in judge(SpokenRecord({}, answer=answer, request=asked), FACTS, {}):
        assert finding.words
