"""Measures of a clip, compared with other libraries and with signals whose values are known."""

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import soxr

from speechframe.audio.clip_measures import measure_clip, measure_true_peak_dbtp

CLIPS = sorted((Path(__file__).parents[2] / "datasets" / "clips").glob("*.flac"))


@pytest.mark.parametrize("path", CLIPS, ids=lambda path: path.stem)
def test_the_true_peak_is_that_of_a_resampler(path):
    samples, rate_hz = sf.read(path, dtype="float32")
    peak = np.abs(soxr.resample(samples, rate_hz, 4 * rate_hz, "VHQ")).max()
    assert measure_true_peak_dbtp(samples) == pytest.approx(20 * np.log10(peak), abs=0.1)


def test_the_true_peak_is_found_between_samples():
    tone = 0.5 * np.hanning(4801) * np.sin(np.pi / 4 + np.pi / 2 * np.arange(4801))
    assert 20 * np.log10(np.abs(tone).max()) == pytest.approx(-9.03, abs=0.01)
    assert measure_true_peak_dbtp(tone.astype(np.float32)) == pytest.approx(-6.02, abs=0.1)


def test_a_higher_sample_rate_adds_no_bandwidth():
    samples, rate_hz = sf.read(CLIPS[0], dtype="float32")
    native = measure_clip(samples, rate_hz).bandwidth_hz
    assert 9000 < native < 11025
    for other_hz in (44100, 48000):
        found = measure_clip(soxr.resample(samples, rate_hz, other_hz), other_hz).bandwidth_hz
        assert found == pytest.approx(native, rel=0.02)


def test_silence_and_tiny_clips_have_measures():
    assert measure_clip(np.zeros(24000, np.float32), 24000).silence_start_s == 1.0
    assert measure_clip(np.full((3, 2), 0.5, np.float32), 8000).true_peak_dbtp == pytest.approx(-6.02, abs=1)
