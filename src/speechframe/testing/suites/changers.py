"""Tests of the behaviour that all voice changers share."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np

from speechframe.audio import codec
from speechframe.engines.base import Changer, Conversion, Recording, Speaker, Speech, Utterance
from speechframe.engines.kinds import CHANGERS
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.testing.suites.common import (
    call_in_new_process,
    catch_refusal,
    check_engine_parts,
    get_cached_engine,
    hash_speech,
    measure_f0_hz,
)

_USUAL_RATES_HZ = (8000, 16_000, 44_100, 48_000)
"""Sample rates of clips that every voice changer must accept."""


class ChangerSuite:
    """Tests of a voice changer. Derive a class and set `engine`, and pytest collects the tests.

    Attributes
    ----------
    engine
        Class of the voice changer. Another process must be able to import the class by name.
    speaker
        Class of the speech engine that speaks the clip (the recording to change) and the target voices. The
        default is eSpeak.
    source
        Utterance that the clip contains. The default is an English sentence by ``en-US-miles``.
    targets
        Target voices, as pairs of a voice id and a locale. One should be higher and one lower than the voice
        of the clip.
    f0_tolerance, duration_tolerance
        Largest allowed relative errors of pitch (default 0.15) and length (default 0.02).

    Examples
    --------
    >>> from speechframe.local.engines.world.changer import WorldChanger
    >>> class TestWorld(ChangerSuite):
    ...     engine = WorldChanger
    >>> TestWorld().test_it_has_the_attributes_of_a_changer()
    """

    engine: ClassVar[Callable[[], Any]]
    speaker: ClassVar[Callable[[], Any]] = EspeakSpeaker
    source: ClassVar[Utterance] = Utterance(
        "The small boat sailed across the quiet bay.", voice_id="en-US-miles", locale="en-US", variation=0
    )
    targets: ClassVar[tuple[tuple[str, str], ...]] = (("en-US-nora", "en-US"), ("en-US-hank", "en-US"))
    f0_tolerance: ClassVar[float] = 0.15
    duration_tolerance: ClassVar[float] = 0.02

    def make_conversion(self, target: tuple[str, str] | None = None, **fields: Any) -> Conversion:
        """Return the parameters of a conversion. The default target is the first of `targets`."""
        voice_id, locale = target or self.targets[0]
        return Conversion(voice_id, locale, **fields)

    def clip(self) -> Recording:
        """Return the recording to change. It is spoken once and then cached."""
        return _speak_clip(type(self).speaker, self.source)

    def convert_clip(self, target: tuple[str, str] | None = None, **fields: Any) -> Speech:
        """Return :meth:`clip` in the voice of `target`. Results are cached."""
        return _convert_clip(
            type(self).engine, type(self).speaker, self.source, self.make_conversion(target, **fields)
        )

    def convert_recording(self, clip: Recording, changer: Changer | None = None, **fields: Any) -> Speech:
        """Convert any recording, by default with `engine`. `fields` is as in :meth:`make_conversion`."""
        changer = changer or get_cached_engine(type(self).engine)
        return changer.change(
            clip, self.make_conversion(**fields), speak=get_cached_engine(type(self).speaker).speak
        )

    def test_it_has_the_attributes_of_a_changer(self) -> None:
        changer = get_cached_engine(type(self).engine)
        check_engine_parts(changer, CHANGERS)
        assert list(inspect.signature(changer.change).parameters) == ["recording", "conversion", "speak"]

    def test_the_result_is_mono_and_has_no_words(self) -> None:
        changed = self.convert_clip()
        assert changed.samples.dtype == np.float32
        assert changed.samples.ndim == 1
        assert np.isfinite(changed.samples).all()
        assert 0.01 < np.abs(changed.samples).max() < 1
        assert changed.words == ()
        assert changed.sample_rate_hz >= 16_000

    def test_the_given_clip_is_not_modified(self) -> None:
        kept = self.clip()
        clip = Recording(kept.samples.copy(), kept.sample_rate_hz)
        self.convert_recording(clip)
        assert np.array_equal(clip.samples, kept.samples)

    def test_equal_calls_give_equal_bytes_in_any_order_and_process(self) -> None:
        calls = [
            (self.clip(), self.make_conversion()),
            (self.clip(), self.make_conversion(self.targets[-1], variation=3, take=3)),
        ]
        pair = partial(_ChangerAndSpeaker, type(self).engine, type(self).speaker)
        here = [
            hash_speech(self.convert_clip()),
            hash_speech(self.convert_clip(self.targets[-1], variation=3, take=3)),
        ]
        assert (
            call_in_new_process(pair, _ChangerAndSpeaker.convert_clip.__name__, calls[::-1], hash_speech)
            == here[::-1]
        )
        assert hash_speech(self.convert_recording(self.clip())) == here[0], "as before, after other clips"

    def test_without_variation_every_take_is_the_same(self) -> None:
        first, second = (self.convert_clip(variation=0, take=take) for take in range(2))
        assert np.array_equal(first.samples, second.samples)

    def test_a_requested_length_is_exact_to_the_sample(self) -> None:
        for seconds in (1.2345, 4.0):
            changed = self.convert_clip(audio_duration_s=seconds)
            assert len(changed.samples) == codec.convert_seconds_to_frames(seconds, changed.sample_rate_hz)

    def test_without_a_requested_length_the_length_is_that_of_the_clip(self) -> None:
        for retain_prosody in (True, False):
            lasting = (
                self.convert_clip(retain_prosody=retain_prosody).audio_seconds / self.clip().audio_seconds
            )
            assert abs(lasting - 1) < self.duration_tolerance

    def test_the_result_has_the_pitch_of_the_target_voice(self) -> None:
        for voice_id, locale in self.targets:
            target = get_cached_engine(type(self).speaker).speak(
                replace(self.source, voice_id=voice_id, locale=locale)
            )
            reached = measure_f0_hz(self.convert_clip((voice_id, locale))) / measure_f0_hz(target)
            assert abs(reached - 1) < self.f0_tolerance, f"{voice_id}: {reached:.2f} of its pitch"

    def test_clips_of_all_usual_sample_rates_are_accepted(self) -> None:
        clip = self.clip()
        for rate_hz in _USUAL_RATES_HZ:
            changed = self.convert_recording(
                Recording(codec.resample(clip.samples, clip.sample_rate_hz, rate_hz), rate_hz), variation=0
            )
            lasting = changed.audio_seconds / clip.audio_seconds
            assert abs(lasting - 1) < self.duration_tolerance, f"at {rate_hz} Hz: {lasting:.3f} as long"
            pitch = measure_f0_hz(changed) / measure_f0_hz(self.convert_clip(variation=0))
            assert abs(pitch - 1) < self.f0_tolerance, f"at {rate_hz} Hz: {pitch:.2f} of the pitch"

    def test_silence_is_refused(self) -> None:
        assert "silent" in catch_refusal(
            lambda: self.convert_recording(Recording(np.zeros(24_000, np.float32), 24_000))
        )


class _ChangerAndSpeaker:
    """A voice changer and the speech engine of its target voices, so that another process can create both."""

    def __init__(self, engine: Callable[[], Changer], speaker: Callable[[], Speaker]) -> None:
        self._changer, self._speak = engine(), speaker().speak

    def convert_clip(self, clip: Recording, conversion: Conversion) -> Speech:
        return self._changer.change(clip, conversion, speak=self._speak)


@lru_cache(maxsize=8)
def _speak_clip(speaker: Callable[[], Speaker], source: Utterance) -> Recording:
    spoken = get_cached_engine(speaker).speak(source)
    return Recording(spoken.samples, spoken.sample_rate_hz)


@lru_cache(maxsize=64)
def _convert_clip(
    engine: Callable[[], Changer], speaker: Callable[[], Speaker], source: Utterance, conversion: Conversion
) -> Speech:
    changer: Changer = get_cached_engine(engine)
    return changer.change(_speak_clip(speaker, source), conversion, speak=get_cached_engine(speaker).speak)
