"""What every voice changer must do: subclass :class:`ChangerSuite` in a test module of your own."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import numpy as np

from speechframe.audio import codec, measure
from speechframe.engines.base import Changer, Conversion, Recording, Speaker, Speech, Utterance
from speechframe.engines.espeak import EspeakSpeaker
from speechframe.engines.kinds import CHANGERS
from speechframe.errors import EngineError

__all__ = ["ChangerSuite"]

_FRESH = """
import sys
from importlib import import_module
from speechframe.engines.base import Conversion, Utterance
from speechframe.testing.suites.changers import digest_of

def made(named):
    module, _, name = named.partition(":")
    return getattr(import_module(module), name)()

changer, speaker, text, said_by, said_in, voice_id, locale = sys.argv[1:]
source = Utterance(text, said_by, said_in, variation=0)
print(digest_of(made(changer), made(speaker), source, Conversion(voice_id, locale)))
"""


class ChangerSuite:
    """The behaviour of a voice changer; pytest runs it in a subclass that names one.

    Say ``changer``, and where espeak's voices are not to be the clips and the targets, ``speaker``,
    ``source`` and ``targets`` too. Classes are importable by name and made without arguments.

    Examples
    --------
    >>> from speechframe.engines.world import WorldChanger
    >>> class TestWorld(ChangerSuite):
    ...     changer = WorldChanger
    >>> TestWorld().test_it_has_the_shape_of_a_changer()
    """

    changer: type[Changer]
    speaker: type[Speaker] = EspeakSpeaker
    source = Utterance(
        "The small boat sailed across the quiet bay, before the storm.",
        voice_id="en-US-miles",
        locale="en-US",
        variation=0,
    )
    """What the clips are made of."""
    targets: tuple[tuple[str, str], ...] = (("en-US-nora", "en-US"), ("en-US-hank", "en-US"))
    """Voices and locales: one higher, one lower than the clip's."""

    f0_tolerance = 0.15
    duration_tolerance = 0.02

    def test_it_has_the_shape_of_a_changer(self) -> None:
        made = self.changer()
        for part in CHANGERS.parts:
            assert inspect.getattr_static(made, part, None) is not None, f"{part} is missing"
        assert made.name
        assert made.version
        assert list(inspect.signature(made.change).parameters) == ["recording", "conversion", "speak"]

    def test_the_answer_is_mono_sound_without_words(self) -> None:
        changed = self._changed()
        assert changed.samples.dtype == np.float32
        assert changed.samples.ndim == 1
        assert np.isfinite(changed.samples).all()
        assert np.abs(changed.samples).max() < 1
        assert changed.words == ()
        assert changed.sample_rate_hz >= 16_000

    def test_the_clip_is_left_as_it_was(self) -> None:
        clip = _clip(self.speaker(), self.source)
        before = clip.samples.copy()
        self.changer().change(clip, self._conversion(), speak=self.speaker().speak)
        assert np.array_equal(clip.samples, before)

    def test_equal_calls_give_equal_bytes_in_any_order(self) -> None:
        used, speak = self.changer(), self.speaker().speak
        clip = _clip(self.speaker(), self.source)
        for target in self.targets:
            used.change(clip, self._conversion(target, take=3), speak=speak)
        again = used.change(clip, self._conversion(), speak=speak)
        assert np.array_equal(again.samples, self._changed().samples)

    def test_equal_calls_give_equal_bytes_in_a_fresh_process(self) -> None:
        voice_id, locale = self.targets[0]
        here = digest_of(self.changer(), self.speaker(), self.source, self._conversion())
        command = [sys.executable, "-c", _FRESH, _named(self.changer), _named(self.speaker)]
        fields = (self.source.text, self.source.voice_id, self.source.locale, voice_id, locale)
        told = subprocess.run([*command, *fields], capture_output=True, text=True, check=True)  # noqa: S603
        assert told.stdout.strip() == here

    def test_without_variation_every_take_is_the_same(self) -> None:
        first, second = (self._changed(variation=0, take=take) for take in range(2))
        assert np.array_equal(first.samples, second.samples)

    def test_an_asked_length_is_kept_to_the_sample(self) -> None:
        for seconds in (1.2345, 4.0):
            changed = self._changed(audio_duration_s=seconds)
            assert len(changed.samples) == codec.seconds_to_frames(seconds, changed.sample_rate_hz)

    def test_the_length_is_the_clips_unless_another_is_asked(self) -> None:
        clip_s = _clip(self.speaker(), self.source).audio_seconds
        for retain_prosody in (True, False):
            changed_s = self._changed(retain_prosody=retain_prosody).audio_seconds
            assert abs(changed_s / clip_s - 1) < self.duration_tolerance

    def test_the_pitch_becomes_that_of_the_other_voice(self) -> None:
        for voice_id, locale in self.targets:
            target = self.speaker().speak(replace(self.source, voice_id=voice_id, locale=locale))
            changed = self._changed((voice_id, locale))
            reached = _f0_hz(changed) / _f0_hz(target)
            assert abs(reached - 1) < self.f0_tolerance, f"{voice_id}: {reached:.2f} of its pitch"

    def test_clips_of_every_usual_rate_are_accepted(self) -> None:
        clip = _clip(self.speaker(), self.source)
        for rate_hz in (8000, 16_000, 22_050, 44_100, 48_000):
            samples = codec.resample(clip.samples, clip.sample_rate_hz, rate_hz)
            changed = self._of(Recording(samples, rate_hz))
            lasting = changed.audio_seconds / clip.audio_seconds
            assert abs(lasting - 1) < self.duration_tolerance, (
                f"a clip of {rate_hz} Hz: {lasting:.3f} as long"
            )

    def test_silence_is_refused(self) -> None:
        told = _refusal(lambda: self._of(Recording(np.zeros(24_000, np.float32), 24_000)))
        assert "silent" in told

    def _conversion(self, target: tuple[str, str] | None = None, **fields: object) -> Conversion:
        voice_id, locale = target or self.targets[0]
        return replace(Conversion(voice_id, locale), **fields)  # type: ignore[arg-type]

    def _changed(self, target: tuple[str, str] | None = None, **fields: object) -> Speech:
        return self._of(_clip(self.speaker(), self.source), self._conversion(target, **fields))

    def _of(self, clip: Recording, conversion: Conversion | None = None) -> Speech:
        return self.changer().change(clip, conversion or self._conversion(), speak=self.speaker().speak)


def digest_of(changer: Changer, speaker: Speaker, source: Utterance, conversion: Conversion) -> str:
    """Return a digest of a clip of `source` as changed."""
    changed = changer.change(_clip(speaker, source), conversion, speak=speaker.speak)
    return sha256(changed.samples.tobytes()).hexdigest()


def _clip(speaker: Speaker, source: Utterance) -> Recording:
    said = speaker.speak(source)
    return Recording(said.samples, said.sample_rate_hz)


def _f0_hz(speech: Speech) -> float:
    return measure.median_f0_hz(speech.samples, speech.sample_rate_hz)


def _named(engine: type) -> str:
    return f"{engine.__module__}:{engine.__qualname__}"


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except EngineError as error:
        return str(error)
    return "nothing was refused"
