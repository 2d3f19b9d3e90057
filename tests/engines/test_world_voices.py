"""The voice changer, measured: whose voice is heard, what is kept of the clip, whether it is understood."""

import itertools
from functools import lru_cache

import numpy as np
import pytest
from world_lab import SENTENCES, change, f0_hz, log_formants, lufs, spoken

from speechframe.audio import codec, measure
from speechframe.engines.base import Recording
from speechframe.local.engines.whisper.recogniser import WhisperRecogniser
from speechframe.testing.suites.common import measure_word_error

SOURCES = ("en-US-joe", "en-US-robin", "en-US-ivy")
TARGETS = ("en-US-nora", "en-US-hank", "en-US-ruby", "en-GB-oscar")
PAIRS = tuple(itertools.product(SOURCES, TARGETS))

# One pair at each commit, every pair in the long run.
by_pair = pytest.mark.parametrize(
    ("source", "target"),
    [PAIRS[0], *(pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS[1:])],
)


def sentence_of(source, target, turn=0):
    """Each sentence comes with each voice."""
    return SENTENCES[(SOURCES.index(source) + TARGETS.index(target) + turn) % 4]


@lru_cache
def changed(source, target, turn=0, *, retain_prosody=True):
    clip = spoken(source, sentence_of(source, target, turn))
    return change(clip, target, retain_prosody=retain_prosody)


def both(source, target):
    """A clip of one voice in another one, with its own prosody and without."""
    return [changed(source, target, retain_prosody=keep) for keep in (True, False)]


def contour(audio):
    """Log pitch every 10 ms, NaN where unvoiced and at the edges of voicing, where any tracker is unsure."""
    track, _ = measure.f0_track(audio.samples, audio.sample_rate_hz, hop_ms=10)
    sure = np.convolve(track > 0, np.ones(5), "same") == 5
    return np.where(sure, np.log(np.maximum(track, 1)), np.nan)


def correlation(one, other):
    frames = min(len(one), len(other))
    both = ~np.isnan(one[:frames] + other[:frames])
    assert both.sum() > 50
    return float(np.corrcoef(one[:frames][both], other[:frames][both])[0, 1])


def spread(track):
    low, high = np.nanpercentile(track, (25, 75))
    return float(high - low)


@by_pair
def test_the_pitch_becomes_the_targets(source, target):
    wanted_hz = f0_hz(spoken(target, sentence_of(source, target)))
    for speech in both(source, target):
        assert f0_hz(speech) == pytest.approx(wanted_hz, rel=0.15)


@pytest.mark.slow
@by_pair
def test_the_formants_move_towards_the_targets(source, target):
    # Of two sentences: a few vowels alone are measured too roughly.
    turns = [(turn, sentence_of(source, target, turn)) for turn in (0, 1)]
    before = np.mean([log_formants(spoken(source, sentence)) for _, sentence in turns], axis=0)
    wanted = np.mean([log_formants(spoken(target, sentence)) for _, sentence in turns], axis=0) - before
    moved = np.mean([log_formants(changed(source, target, turn)) for turn, _ in turns], axis=0) - before
    if np.linalg.norm(wanted) < 0.12:  # the two are hardly apart: then they must stay so
        assert np.abs(moved).max() < 0.1
    else:
        share = moved @ wanted / (wanted @ wanted)
        assert 0.15 < share < 1.3
        assert np.linalg.norm(wanted - moved) < np.linalg.norm(wanted)


@by_pair
def test_the_contour_is_kept_or_flattened(source, target):
    clip = spoken(source, sentence_of(source, target))
    before, kept, flat = map(contour, (clip, *both(source, target)))
    assert correlation(before, kept) >= 0.6
    assert spread(kept) == pytest.approx(spread(before), rel=0.25)
    assert spread(flat) < 0.6 * spread(kept)


@by_pair
def test_length_and_loudness_are_right_and_nothing_clips(source, target):
    clip = spoken(source, sentence_of(source, target))
    for speech in both(source, target):
        assert speech.audio_seconds == pytest.approx(clip.audio_seconds, rel=0.02)
        assert lufs(speech) == pytest.approx(lufs(clip), abs=1)
        assert measure.measure_peak(speech.samples) <= 0.9001
        assert speech.warnings == ()


# Understood by a recogniser


@lru_cache
def errors(target=None):
    """The share of words that are not understood of all sentences of joe, changed if a voice is named."""
    clips = [spoken("en-US-joe", sentence) for sentence in SENTENCES]
    if target is not None:
        clips = [change(clip, target) for clip in clips]
    # One after the other: a recogniser looks at half a minute whatever it holds.
    samples = [codec.resample(clip.samples, clip.sample_rate_hz, 16_000) for clip in clips]
    heard = WhisperRecogniser().recognise(Recording(np.concatenate(samples), 16_000), language="en")
    return measure_word_error(" ".join(SENTENCES), heard.text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [TARGETS[0], *(pytest.param(target, marks=pytest.mark.slow) for target in TARGETS[1:])]
)
def test_a_changed_clip_is_understood_as_the_clip_itself(target):
    assert errors() <= 0.1
    assert errors(target) <= errors() + 0.1
