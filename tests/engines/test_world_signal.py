"""What the voice changer does to a clip's pitch track, and how it cuts long clips."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from speechframe.audio import codec, measure
from speechframe.engines.base import Conversion, Recording, Utterance
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.world import signal as world_signal
from speechframe.local.engines.world import synthesis as world_synthesis
from speechframe.local.engines.world.change import Jitter, compute_change
from speechframe.local.engines.world.changer import WorldChanger
from speechframe.local.engines.world.profile import Profile
from speechframe.local.engines.world.time import compute_source_times_s, compute_timing

speak = EspeakSpeaker().speak
RISING_HZ = np.linspace(100, 140, 200)


@pytest.mark.parametrize("factor", [0.5, 4])
def test_octave_errors_are_put_right(factor):
    wrong = RISING_HZ.copy()
    wrong[60:69] *= factor
    wrong[150] *= factor
    assert world_signal._correct_octaves(wrong) == pytest.approx(RISING_HZ)


def test_a_lively_contour_is_left_alone():
    lively = 120 * 2 ** (0.5 * np.sin(np.arange(400) / 25))
    lively[100:120] = 0
    lively[200:208] *= 2**0.65  # a cry, no octave error
    assert world_signal._correct_octaves(lively) == pytest.approx(lively)


@pytest.mark.parametrize("rate_hz", [8000, 44100])
def test_a_clip_of_many_pieces_is_resampled_and_tracked_as_one(rate_hz, monkeypatch):
    said = speak(Utterance("We walked home together, before the storm.", "en-US-hank", "en-US", variation=0))
    clip = Recording(codec.resample(said.samples, said.sample_rate_hz, rate_hz), rate_hz)
    whole = world_signal.analyse_clip(clip)
    monkeypatch.setattr(world_signal, "_PIECE_S", 1)
    pieces = world_signal.analyse_clip(clip)
    assert len(pieces.samples) == len(whole.samples) == round(len(clip.samples) * 24000 / rate_hz)
    assert len(pieces.f0_hz) == len(whole.f0_hz) == len(whole.level_db)
    assert np.array_equal(pieces.samples, whole.samples)
    both = pieces.voiced & whole.voiced
    assert both.sum() > 0.9 * max(pieces.voiced.sum(), whole.voiced.sum())
    assert np.median(np.abs(pieces.f0_hz[both] / whole.f0_hz[both] - 1)) < 0.005


@pytest.mark.slow
def test_a_clip_in_blocks_sounds_like_one_in_one(monkeypatch):
    said = speak(
        Utterance(
            "We walked home together, before the storm. They met us.", "en-US-hank", "en-US", variation=0
        )
    )
    clip = Recording(said.samples, said.sample_rate_hz)
    to_nora = Conversion("en-US-nora", "en-US", variation=0)
    whole = WorldChanger().change(clip, to_nora, speak=speak)
    monkeypatch.setattr(world_synthesis, "_MAX_BLOCK_FRAMES", 200)
    monkeypatch.setattr(world_synthesis, "_MIN_BLOCK_FRAMES", 100)
    blocks = WorldChanger().change(clip, to_nora, speak=speak)
    assert len(blocks.samples) == len(whole.samples)
    levels = [
        np.maximum(measure.measure_frame_levels_db(speech.samples, 24000, 20), -55)
        for speech in (whole, blocks)
    ]
    assert np.abs(levels[0] - levels[1]).max() < 4
    assert np.median(np.abs(levels[0] - levels[1])) < 0.3


@given(st.floats(0.06, 900), st.integers(-50, 50), st.floats(0.05, 3000))
def test_lengths_are_exact_for_any_clip(clip_s, rate, asked_s):
    timing = compute_timing(clip_s, Conversion("v", "en-US", audio_duration_s=asked_s), Jitter())
    assert timing.frames == codec.convert_seconds_to_frames(asked_s, 24000)
    assert 0 < timing.sounding_frames <= timing.frames
    assert (timing.sounding_frames < timing.frames) <= (timing.warning is not None)
    scaled = compute_timing(clip_s, Conversion("v", "en-US", rate=rate), Jitter())
    assert scaled.frames / 24000 == pytest.approx(clip_s * 2 ** (-rate / 50), abs=1e-4)


@given(st.integers(0, 50), st.booleans())
def test_time_only_runs_forward_and_through_all_of_the_clip(seed, retain_prosody):
    level_db = np.random.default_rng(seed).uniform(-80, -10, 700).repeat(5)[:3000]
    clip = world_signal.AnalysedClip(np.zeros(720_000, np.float32), np.zeros(3000), level_db, 30.0)
    conversion = Conversion("v", "en-US", retain_prosody=retain_prosody)
    drawn = Jitter(pause_jitter=0.2, seed=seed)
    timing = compute_timing(30.0, conversion, drawn)
    times_s = compute_source_times_s(clip, timing, conversion, drawn)
    assert times_s[0] == 0
    assert times_s[-1] == pytest.approx(30.0)
    assert (np.diff(times_s) >= 0).all()
    assert len(times_s) == 6001


formants = st.lists(st.floats(0.5, 2), min_size=3, max_size=3).map(
    lambda by: np.array([500, 1500, 2500]) * by
)


@given(formants, formants, st.sets(st.integers(0, 2)))
@example(np.array([800.0, 901, 2500]), np.array([900.0, 900, 2500]), set())
def test_frequencies_keep_their_order_whatever_the_formants(source_hz, target_hz, missing):
    source_hz[list(missing)] = np.nan
    made = compute_change(
        Profile(100, 3, np.sort(source_hz), -8),
        Profile(200, 2, np.sort(target_hz), -5),
        Conversion("v", "en"),
        Jitter(),
    )
    assert np.isfinite(made.factors).all()
    from_hz = made.map_to_source_hz(np.linspace(0, 12000, 513))
    assert (np.diff(from_hz) > 0).all()
    assert (np.diff(made.formants_hz * made.factors) >= 80).all()
    assert made.factors.min() >= 0.8 - 1e-9
    assert made.factors.max() <= 1.25 + 1e-9


LONG = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from peak import peak_kb
from speechframe.engines.base import Conversion, Recording, Utterance
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.world.changer import WorldChanger

speak = EspeakSpeaker().speak
line = speak(Utterance("We walked home together, before the storm.", "en-US-hank", "en-US")).samples
clip = Recording(np.repeat(np.resize(line, 900 * 44100), 2), 44100)
changed = WorldChanger().change(clip, Conversion("en-US-nora", "en-US"), speak=speak)
print(changed.audio_seconds, peak_kb() / 1e6)
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_half_an_hour_needs_less_than_one_and_a_half_gigabytes():
    done = subprocess.run(
        [sys.executable, "-c", LONG, Path(__file__).parents[1]], capture_output=True, text=True, check=True
    )
    audio_seconds, gigabytes = map(float, done.stdout.split())
    assert audio_seconds == pytest.approx(1800, rel=0.02)
    assert gigabytes < 1.5
