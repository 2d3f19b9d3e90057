"""Pitch, rate, variation, takes and exact lengths, measured on what is heard."""

import itertools

import numpy as np
import pytest

from speechframe.audio import codec, measure
from speechframe.errors import EngineError

RATE_HZ = 22050
TEXT = "The small boat sailed across the quiet harbour, before the storm."


def f0_hz(speech):
    return measure.median_f0_hz(speech.samples, RATE_HZ)


# Pitch and rate


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["oscar", "nora"])
def test_pitch_rises_with_every_ten_steps_to_both_ends(say, name):
    heard = [f0_hz(say(TEXT, name, pitch=pitch)) for pitch in range(-50, 51, 10)]
    assert all(low < high for low, high in itertools.pairwise(heard))
    assert heard[0] < 0.75 * heard[5]
    assert heard[-1] > 1.35 * heard[5]


def test_rate_halves_and_doubles_the_speed(say):
    seconds = [say(TEXT, rate=rate).audio_seconds for rate in range(-50, 51, 10)]
    assert all(slow > fast for slow, fast in itertools.pairwise(seconds))
    assert seconds[0] / seconds[5] == pytest.approx(2, rel=0.15)
    assert seconds[5] / seconds[-1] == pytest.approx(2, rel=0.2)


# Variation and takes


@pytest.mark.slow
def test_variation_spreads_pitch_and_length_further_with_every_level_of_the_same_voice(say):
    spreads = []
    for level in range(6):
        takes = [
            say("We will meet at the station and walk home.", variation=level, take=take)
            for take in range(24)
        ]
        pitch = np.std(np.log2([f0_hz(speech) for speech in takes]))
        spreads.append((pitch, np.std(np.log2([speech.audio_seconds for speech in takes]))))
    for (pitch, length), (more_pitch, more_length) in itertools.pairwise(spreads):
        assert more_pitch > pitch
        assert more_length > length
    pitch, length = spreads[-1]
    assert 0.05 < pitch < 0.2
    assert 0.03 < length < 0.2


def test_words_stay_with_the_sound_when_pauses_move(say):
    for take in range(3):
        speech = say(TEXT, variation=5, take=take)
        start_s, end_s = max(
            (span for span in measure.find_silences(speech.samples, RATE_HZ, below_db=40) if span[0] > 0.1),
            key=lambda span: span[1] - span[0],
        )
        last = next(word for word in speech.words if word.word == "harbour")
        first = next(word for word in speech.words if word.word == "before")
        assert last.end_ms == pytest.approx(1000 * start_s, abs=60)
        assert first.start_ms == pytest.approx(1000 * end_s, abs=60)


# Exact lengths


@pytest.mark.parametrize("seconds", [0.5, 2.34567, 4.0, 60.0])
def test_a_length_is_exact_to_the_sample(say, seconds):
    speech = say(TEXT, audio_duration_s=seconds)
    assert len(speech.samples) == codec.convert_seconds_to_frames(seconds, RATE_HZ)
    at_ms = 0
    for word in speech.words:
        assert at_ms <= word.start_ms < word.end_ms
        at_ms = word.end_ms
    assert at_ms <= 1000 * seconds


@pytest.mark.parametrize("seconds", [2.5, 6.5])
def test_a_fitted_text_is_all_there_at_the_same_pitch(say, seconds):
    plain, fitted = say(TEXT), say(TEXT, audio_duration_s=seconds)
    assert f0_hz(fitted) == pytest.approx(f0_hz(plain), rel=0.06)
    assert fitted.warnings == ()
    assert [word.word for word in fitted.words] == [word.word for word in plain.words]
    # Word times scale along: nearly as far into the text as without.
    for word, other in zip(fitted.words, plain.words, strict=True):
        assert word.start_ms / seconds == pytest.approx(other.start_ms / plain.audio_seconds, abs=60)
    assert fitted.words[-1].end_ms == pytest.approx(1000 * seconds, abs=80)


def test_pauses_keep_their_length_when_the_rest_is_fitted(say):
    text = "Wait here. [pause 1.5s] Now we can go on. [pause 0.7s] Good."
    for seconds in (3.5, 5.0, 8.0):
        speech = say(text, audio_duration_s=seconds)
        assert len(speech.samples) == codec.convert_seconds_to_frames(seconds, RATE_HZ)
        assert _runs_of_zeros(speech.samples, 0.5) == pytest.approx([1.5, 0.7], abs=0.06)


def test_a_rest_of_milliseconds_is_silence_not_stretched_speech(say):
    plain = say(TEXT)
    for milliseconds in (-8, 8):
        fitted = say(TEXT, audio_duration_s=plain.audio_seconds + milliseconds / 1000)
        shared = min(len(fitted.samples), len(plain.samples))
        assert np.array_equal(fitted.samples[:shared], plain.samples[:shared])
        assert fitted.words == plain.words


def test_a_length_nobody_can_fill_is_filled_with_silence_and_said(say):
    speech = say("Yes.", audio_duration_s=20.0)
    assert "times what the slowest speech takes" in speech.warnings[0]
    assert speech.words[-1].end_ms < 4000
    assert not speech.samples[int(5 * RATE_HZ) :].any()


def test_a_length_too_short_to_understand_is_kept_and_said(say):
    speech = say(TEXT, audio_duration_s=0.4)
    assert len(speech.samples) == codec.convert_seconds_to_frames(0.4, RATE_HZ)
    assert "may not be understood" in speech.warnings[0]


@pytest.mark.parametrize(
    ("text", "seconds", "words"),
    [
        (TEXT, 0.01, "at least 0.05 s"),
        ("Wait. [pause 2s] Now.", 1.9, "the pauses alone take 2 s"),
    ],
)
def test_a_length_without_room_for_speech_is_refused(say, text, seconds, words):
    with pytest.raises(EngineError, match=words):
        say(text, audio_duration_s=seconds)


def test_zero_asks_for_nothing(say):
    assert say(TEXT, audio_duration_s=0.0).samples.tobytes() == say(TEXT).samples.tobytes()


# Pause markers


def test_a_pause_is_silence_of_exactly_that_length(say):
    speech = say("Ready? [pause 1.25s]Go!")
    without = [say("Ready? "), say("Go!")]
    silence = codec.convert_seconds_to_frames(1.25, RATE_HZ)
    at = len(without[0].samples)
    assert len(speech.samples) == at + silence + len(without[1].samples)
    assert not speech.samples[at : at + silence].any()
    # Nothing of the sentence's own silence is added to it, but for a breath.
    assert _runs_of_zeros(speech.samples, 0.5) == pytest.approx([1.25], abs=0.06)


def test_pauses_may_begin_end_and_follow_each_other(say):
    speech = say("[pause 0.5s][pause 1s]Hello[pause 2s]")
    assert speech.words[0].start_ms == pytest.approx(1500, abs=20)
    assert speech.audio_seconds == pytest.approx(3.5 + say("Hello").audio_seconds, abs=0.001)


def test_a_pause_beyond_what_is_served_is_clamped_and_said(say):
    speech = say("Now[pause 60s]then[pause 0.01s]again")
    assert len(speech.warnings) == 2
    assert "60 s was set to 5 s" in speech.warnings[0]
    assert _runs_of_zeros(speech.samples, 1) == pytest.approx([5], abs=0.06)


def _runs_of_zeros(samples, shortest_s):
    silent = np.concatenate([[False], samples == 0, [False]])
    edges = np.flatnonzero(np.diff(silent.astype(np.int8))).reshape(-1, 2)
    lengths_s = (edges[:, 1] - edges[:, 0]) / RATE_HZ
    return lengths_s[lengths_s > shortest_s].tolist()
