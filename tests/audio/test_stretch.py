import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.audio import codec, measure, stretch
from speechframe.errors import AudioError

RATE_HZ = 22050


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30_000), st.integers(1, 60_000), st.sampled_from([8000, 22050, 48000]))
def test_the_length_is_exact_whatever_it_was(frames, wanted, rate_hz):
    samples = np.sin(np.arange(frames) / 9).astype(np.float32)
    fitted = stretch.fit_frames(samples, rate_hz, wanted)
    assert fitted.shape == (wanted,)
    assert fitted.dtype == np.float32
    assert np.isfinite(fitted).all()


@pytest.mark.parametrize("factor", [0.5, 1.05, 2.0])
def test_pitch_and_formants_stay_and_the_course_of_loudness_scales(speech_like, factor):
    fitted = stretch.fit_frames(speech_like, RATE_HZ, codec.convert_seconds_to_frames(1.6 * factor, RATE_HZ))
    assert measure.median_f0_hz(fitted, RATE_HZ) == pytest.approx(
        measure.median_f0_hz(speech_like, RATE_HZ), rel=0.03
    )
    formants = measure.measure_formants_hz(fitted, RATE_HZ) / measure.measure_formants_hz(
        speech_like, RATE_HZ
    )
    assert formants == pytest.approx([1, 1, 1], abs=0.08)
    before = np.maximum(measure.measure_frame_levels_db(speech_like, RATE_HZ, 20), -45)
    after = np.maximum(measure.measure_frame_levels_db(fitted, RATE_HZ, 20 * factor), -45)
    assert np.corrcoef(before[:80], after[:80])[0, 1] > 0.9


def test_the_same_length_is_the_same_audio(speech_like):
    assert stretch.fit_frames(speech_like, RATE_HZ, len(speech_like)) is speech_like


def test_equal_input_gives_equal_output(speech_like):
    # Beyond twice the length the stretcher draws phases.
    one, other = (stretch.fit_frames(speech_like, RATE_HZ, 121_275) for _ in range(2))
    assert one.tobytes() == other.tobytes()


def test_channels_stay_apart(speech_like):
    both = np.stack([speech_like, np.zeros_like(speech_like)], axis=1)
    fitted = stretch.fit_frames(both, RATE_HZ, 44_100)
    assert fitted.shape == (44100, 2)
    assert measure.measure_rms_db(fitted[:, 0]) > -30
    assert measure.measure_rms_db(fitted[:, 1]) < -60


def test_no_frame_at_all_is_refused(speech_like):
    with pytest.raises(AudioError, match="at least one"):
        stretch.fit_frames(speech_like, RATE_HZ, 0)
