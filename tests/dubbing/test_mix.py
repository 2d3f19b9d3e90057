"""Lines over the original: where it is lowered, where it is not, and what happens at full scale."""

import numpy as np
import pytest
import soundfile

from speechframe.local.dubbing.media import Track
from speechframe.local.dubbing.mix import PlacedLine, mix

RATE_HZ = 48000


def track_of(folder, samples):
    track = Track(folder)
    soundfile.write(track.sound_path, samples, RATE_HZ, subtype="PCM_16")
    return track


def line_of(folder, samples, rate_hz=RATE_HZ):
    path = folder / "line.wav"
    soundfile.write(path, samples, rate_hz, subtype="FLOAT")
    return path


def mixed(folder, samples, lines, **options):
    mix(track_of(folder, samples), lines, folder / "mixed.wav", **options)
    result, rate_hz = soundfile.read(folder / "mixed.wav", dtype="int16", always_2d=True)
    assert (rate_hz, result.shape) == (RATE_HZ, samples.shape)
    return result


def noise(seconds, channels=2, level=3000, seed=0):
    values = np.random.default_rng(seed).standard_normal((round(seconds * RATE_HZ), channels)) * level
    return np.clip(values, -32768, 32767).astype(np.int16)


def rms_db(samples):
    return 20 * np.log10(np.sqrt(np.mean(np.square(samples.astype(np.float64)))) / 32768)


@pytest.mark.parametrize("channels", [1, 2])
def test_the_original_is_lowered_by_one_gain_and_untouched_elsewhere(tmp_path, channels):
    # At full scale too: it is nobody's business to turn a film down.
    original = noise(12, channels, level=30000)
    result = mixed(tmp_path, original, [], lowered=[(2, 3), (2.5, 4), (4.06, 5), (9, 10)], gain_db=-18)
    low, full = (
        slice(2 * RATE_HZ, 5 * RATE_HZ),
        [slice(0, round(1.95 * RATE_HZ)), slice(round(5.05 * RATE_HZ), 8 * RATE_HZ)],
    )
    assert np.abs(result[low] - original[low] * 10 ** (-18 / 20)).max() <= 1
    assert all(np.array_equal(result[span], original[span]) for span in full)
    gain = np.abs(result[:, 0] / np.where(original[:, 0] == 0, 1, original[:, 0]))
    ramp = gain[round(1.95 * RATE_HZ) : 2 * RATE_HZ][
        np.abs(original[round(1.95 * RATE_HZ) : 2 * RATE_HZ, 0]) > 3000
    ]
    assert (np.diff(ramp) < 1e-3).all(), "down without a step"


@pytest.mark.parametrize("rate_hz", [22050, 48000])
def test_lines_stand_to_the_sample_where_they_are_to_be(tmp_path, rate_hz):
    # A start in the middle of a block, a line over three of them, and one that goes on behind the end.
    line = np.convolve(np.random.default_rng(1).standard_normal(round(2.2 * rate_hz)), np.hanning(9), "same")
    line = (0.1 * line).astype(np.float32)
    sound = line_of(tmp_path, line, rate_hz)
    result = mixed(
        tmp_path,
        np.zeros((6 * RATE_HZ, 2), np.int16),
        [PlacedLine(5, sound), PlacedLine(1.7, sound)],
        lowered=[],
    )
    assert np.array_equal(result[:, 0], result[:, 1])
    start, one = round(1.7 * RATE_HZ), result[:, 0].astype(np.float64)
    lags = range(-3, 4)
    likeness = [one[start + lag : start + lag + RATE_HZ] @ one[5 * RATE_HZ :] for lag in lags]
    assert lags[int(np.argmax(likeness))] == 0
    step = RATE_HZ / rate_hz
    exact = np.interp(np.arange(RATE_HZ), np.arange(len(line)) * step, line) * 32768
    assert np.corrcoef(exact, one[start : start + RATE_HZ])[0, 1] > 0.97
    assert not one[: start - 20].any()


def test_what_is_said_is_heard_over_the_original(tmp_path):
    original, line = noise(8, level=6000), noise(2, 1, level=4000, seed=5)[:, 0] / np.float32(32768)
    result = mixed(tmp_path, original, [PlacedLine(3.0, line_of(tmp_path, line))], lowered=[(2.5, 5.2)])
    slot = result[3 * RATE_HZ : 5 * RATE_HZ].mean(axis=1)
    assert np.corrcoef(slot, line)[0, 1] >= 0.8
    assert rms_db(result[: 2 * RATE_HZ]) == pytest.approx(rms_db(original[: 2 * RATE_HZ]), abs=0.01)


def test_a_peak_is_limited_before_it_comes_and_slowly_let_go(tmp_path):
    # A steady tone, and a second one that together with it is far over full scale: over the end of a block, and
    # from the beginning of one on.
    tone = (0.7 * np.sin(2 * np.pi * 500 * np.arange(4 * RATE_HZ) / RATE_HZ)).astype(np.float32)
    original = np.repeat((tone * 32767).astype(np.int16)[:, None], 2, axis=1)
    short = tone[: round(0.2 * RATE_HZ)]
    line = line_of(tmp_path, short)
    result = mixed(tmp_path, original, [PlacedLine(1.9, line), PlacedLine(3, line)], lowered=[])
    sums = tone.astype(np.float64)
    for start in (round(1.9 * RATE_HZ), 3 * RATE_HZ):
        sums[start : start + len(short)] += short
    assert np.abs(sums).max() > 1.3
    loud = np.abs(sums) > 0.1
    gain_db = 20 * np.log10(np.abs(result[loud, 0].astype(np.float64)) / 32768 / np.abs(sums[loud]))
    # Nothing is clipped: the gain is smooth, so the shape of the wave is kept.
    assert np.abs(np.diff(gain_db)).max() < 0.5
    at = np.flatnonzero(loud)
    assert gain_db[(at < 1.88 * RATE_HZ) | ((at > 2.2 * RATE_HZ) & (at < 2.98 * RATE_HZ))] == pytest.approx(
        0, abs=0.01
    )
    assert gain_db[(at > 1.95 * RATE_HZ) & (at < 2.05 * RATE_HZ)].max() < -2


def test_a_mix_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(soundfile.LibsndfileError):
        mixed(tmp_path, noise(1), [PlacedLine(0, tmp_path / "missing.wav")], lowered=[])
    assert [path.name for path in tmp_path.iterdir()] == ["sound.wav"]
