import numpy as np
import pyloudnorm
import pytest

from speechframe.audio import measure
from speechframe.errors import AudioError

RATE_HZ = 22050
VOWELS = {  # means of adult speakers, F1 to F3
    "a": (730, 1090, 2440),
    "e": (530, 1840, 2480),
    "i": (310, 2200, 2960),
    "o": (570, 840, 2410),
    "u": (320, 900, 2240),
}


@pytest.mark.parametrize("f0_hz", [62, 180, 400])
def test_the_pitch_of_a_vowel_is_found(make_vowel, f0_hz):
    samples = make_vowel(f0_hz, VOWELS["a"])
    assert measure.median_f0_hz(samples, RATE_HZ) == pytest.approx(f0_hz, rel=0.01)


@pytest.mark.parametrize("rate_hz", [8000, 48000])
def test_the_rate_does_not_matter(make_vowel, rate_hz):
    samples = make_vowel(150, VOWELS["e"], rate_hz=rate_hz)
    assert measure.median_f0_hz(samples, rate_hz) == pytest.approx(150, rel=0.01)


@pytest.mark.parametrize("f0_hz", [435, 480])
def test_a_high_voice_at_a_low_rate_is_not_read_octaves_too_low(make_vowel, f0_hz):
    # Its period lies between two samples; twice or three times the period may lie on one.
    samples = make_vowel(f0_hz, VOWELS["i"], 0.4, rate_hz=8000, source=(0.97,))
    assert measure.median_f0_hz(samples, 8000) == pytest.approx(f0_hz, rel=0.01)


def test_no_octave_is_jumped_while_the_pitch_glides(make_vowel):
    glide_hz = np.geomspace(80, 320, 2 * RATE_HZ)
    f0_hz, times_s = measure.f0_track(make_vowel(glide_hz, VOWELS["a"], 2.0), RATE_HZ)
    inside = (times_s > 0.1) & (times_s < 1.9)
    expected = glide_hz[(times_s[inside] * RATE_HZ).astype(int)]
    assert (f0_hz[inside] > 0).mean() > 0.98
    voiced = f0_hz[inside] > 0
    assert np.abs(np.log2(f0_hz[inside][voiced] / expected[voiced])).max() < 0.08


def test_a_few_uneven_pulses_do_not_halve_the_pitch(make_vowel):
    # Every second pulse weaker, as in a creaky moment: strictly, the period is twice as long there.
    seconds = np.arange(RATE_HZ) / RATE_HZ
    uneven = 1 + 0.3 * np.cos(2 * np.pi * 100 * seconds) * ((seconds > 0.45) & (seconds < 0.52))
    f0_hz, times_s = measure.f0_track((make_vowel(200, VOWELS["a"]) * uneven).astype(np.float32), RATE_HZ)
    inside = f0_hz[(times_s > 0.1) & (times_s < 0.9)]
    assert inside == pytest.approx(200, rel=0.05)


def test_silence_and_hiss_have_no_pitch():
    hiss = np.random.default_rng(1).standard_normal(RATE_HZ).astype(np.float32) * 0.1
    assert (measure.f0_track(hiss, RATE_HZ)[0] > 0).mean() < 0.05
    assert measure.median_f0_hz(np.zeros(RATE_HZ, np.float32), RATE_HZ) == 0.0


def test_minutes_are_measured_in_blocks_with_the_same_result(make_vowel):
    # 9000 frames of pitch: more than two blocks.
    samples = np.tile(make_vowel(110, VOWELS["i"], rate_hz=8000), 45)
    f0_hz, times_s = measure.f0_track(samples, 8000)
    assert len(f0_hz) == len(times_s)
    assert np.median(f0_hz[times_s > 44]) == pytest.approx(110, rel=0.01)
    assert (f0_hz > 0).mean() > 0.98


@pytest.mark.parametrize(("vowel", "f0_hz"), list(zip(VOWELS, [90, 200, 120, 90, 120], strict=True)))
def test_the_formants_of_a_vowel_are_found(make_vowel, vowel, f0_hz):
    expected = VOWELS[vowel]
    found = measure.measure_formants_hz(make_vowel(f0_hz, (*expected, 3500, 4500)), RATE_HZ)
    # Between harmonics nothing is heard: half their distance is what a formant can be known to.
    for found_hz, expected_hz in zip(found, expected, strict=True):
        assert found_hz == pytest.approx(expected_hz, rel=0.05, abs=f0_hz / 2)


def test_what_is_not_there_is_nan_not_a_guess():
    assert np.isnan(measure.measure_formants_hz(np.zeros(RATE_HZ, np.float32), RATE_HZ)).all()
    assert np.isnan(measure.measure_formants_hz(np.full(20, 0.1, np.float32), RATE_HZ)).all()


def test_levels_of_known_signals():
    sine = np.sin(2 * np.pi * np.arange(RATE_HZ) * 100 / RATE_HZ).astype(np.float32)
    assert measure.measure_rms_db(sine) == pytest.approx(-3.01, abs=0.01)
    assert measure.measure_peak(0.5 * sine) == pytest.approx(0.5, abs=1e-3)
    assert measure.measure_rms_db(np.zeros(10, np.float32)) == -120
    with_pause = np.concatenate([0.1 * sine, np.full(3 * RATE_HZ, 1e-4, np.float32)])
    assert measure.measure_rms_db(with_pause) == pytest.approx(-29, abs=0.1)


@pytest.mark.parametrize(("rate_hz", "seconds"), [(8000, 70.0), (22050, 0.5), (48000, 2.0)])
def test_loudness_is_that_of_another_meter(rate_hz, seconds):
    chance = np.random.default_rng(1)
    frames = round(seconds * rate_hz)
    # Two seconds of sound, then one of near silence, in turn; and a level that drifts.
    sounds = np.where(np.arange(frames) // rate_hz % 3 < 2, 0.1, 1e-5) * np.linspace(0.5, 1, frames)
    samples = (sounds * chance.standard_normal(frames)).astype(np.float32)
    found = measure.measure_loudness_lufs(samples, rate_hz)
    other = pyloudnorm.Meter(rate_hz).integrated_loudness(samples.astype(np.float64))
    assert found == pytest.approx(other, abs=0.15)
    assert measure.measure_loudness_lufs(samples / 1000, rate_hz) == pytest.approx(found - 60, abs=0.01)


def test_energy_per_frame_with_a_rest_at_the_end():
    samples = np.repeat(np.array([0.1, 0.0, 0.01], np.float32), [100, 100, 30])
    assert measure.measure_frame_levels_db(samples, 10_000).tolist() == [-20, -120, -40]


def test_clipping_is_counted():
    assert measure.measure_clipped_fraction(np.array([0.999999, -1.0, 0.98, 0.0], np.float32)) == 0.5


def test_silences_are_found_where_they_are(make_vowel):
    half = make_vowel(130, VOWELS["o"], 0.5)
    samples = np.concatenate(
        [
            np.zeros(2205, np.float32),
            half,
            np.zeros(882, np.float32),
            half,
            np.zeros(6615, np.float32),
        ]
    )
    (first, last) = measure.find_silences(samples, RATE_HZ)
    assert first == pytest.approx((0, 0.1), abs=0.01)
    assert last == pytest.approx((1.14, 1.44), abs=0.02)
    assert len(measure.find_silences(samples, RATE_HZ, shortest_ms=20)) == 3


def test_channels_are_measured_together():
    left = np.full(1000, 0.2, np.float32)
    both = np.stack([left, np.zeros_like(left)], axis=1)
    assert measure.measure_peak(both) == pytest.approx(0.2)
    assert measure.measure_frame_levels_db(both, 1000, 1000.0)[0] == pytest.approx(-20)


def test_nothing_cannot_be_measured():
    for function in (measure.measure_peak, measure.measure_rms_db):
        with pytest.raises(AudioError):
            function(np.zeros(0, np.float32))
