"""The voice changer that comes with the local service: WORLD's analysis and resynthesis.

What is said and how it is said stays; register, formants and spectral tilt
become those of the other voice, as measured from what that voice says. The
pitch is tracked by :func:`speechframe.audio.measure.f0_track`: WORLD's own
trackers read octave errors off many voices.
"""

from collections.abc import Callable

import numpy as np

from speechframe.audio import measure
from speechframe.audio.codec import Samples
from speechframe.engines.base import Conversion, Recording, Speech, Utterance
from speechframe.engines.world_change import chance, change_of
from speechframe.engines.world_profile import Profile, profile_of
from speechframe.engines.world_signal import RATE_HZ, clip_of
from speechframe.engines.world_synthesis import INSTALL, spoken, world
from speechframe.engines.world_texts import reference_text
from speechframe.engines.world_time import source_times_s, timing_of
from speechframe.errors import EngineError, EngineFault

__all__ = ["WorldChanger"]

REVISION = 2
"""Goes up whenever an equal request sounds different: a run never mixes two ways of changing."""

_PEAK = 0.9
"""What the speech engine's voices have too."""

_UNVOICED = (
    "no voiced speech was heard in the clip: it was given the other voice's formants, "
    "but has no pitch to change"
)


class WorldChanger:
    """The WORLD voice changer; see :class:`speechframe.engines.base.Changer`.

    It remembers what each voice measures, for as long as it lives.

    Examples
    --------
    >>> from speechframe.engines.espeak import EspeakSpeaker
    >>> speak = EspeakSpeaker().speak
    >>> said = speak(Utterance("Good morning", voice_id="en-US-hank", locale="en-US"))
    >>> clip = Recording(said.samples, said.sample_rate_hz)
    >>> changed = WorldChanger().change(clip, Conversion("en-US-nora", "en-US", variation=0), speak=speak)
    >>> abs(changed.audio_seconds - clip.audio_seconds) < 0.001
    True
    """

    name = "world"

    def __init__(self) -> None:
        self._profiles: dict[tuple[str, str, str | None], Profile] = {}

    @property
    def version(self) -> str:
        """The version of pyworld and our :data:`REVISION`; raises EngineFault when it is not installed."""
        try:
            return f"{world().__version__}+{REVISION}"
        except ModuleNotFoundError as error:
            raise EngineFault(f"pyworld is not installed: {INSTALL}") from error

    def change(
        self, recording: Recording, conversion: Conversion, *, speak: Callable[[Utterance], Speech]
    ) -> Speech:
        """Return the clip in the other voice, as loud as it was, at 24000 Hz; equal calls give equal bytes.

        A clip without voiced speech, whispered for instance, gets the other voice's formants, and a
        warning says so.

        Parameters
        ----------
        recording
            The clip, of any rate. Half an hour of it needs about a gigabyte.
        conversion
            Whose voice, and how.
        speak
            Lets the other voice say something, to be measured: once for each voice, locale and style.

        Raises
        ------
        EngineError
            A clip that is silent, shorter than 50 ms or holds values that are no numbers; a length that
            leaves no time to speak; whatever `speak` raises; no pyworld.
        """
        _ = self.version
        clip = clip_of(recording)
        drawn = chance(clip.samples, conversion)
        timing = timing_of(clip.audio_seconds, conversion, drawn)
        source = profile_of(clip)
        target = self._profile(conversion, speak)
        warnings = [warning for warning in (timing.warning, None if source.f0_hz else _UNVOICED) if warning]
        loudness_lufs = measure.loudness_lufs(clip.samples, RATE_HZ)
        made = spoken(
            clip,
            change_of(source, target, conversion, drawn),
            source_times_s(clip, timing, conversion, drawn),
        )
        del clip
        samples = np.zeros(timing.frames, np.float32)
        samples[: timing.sounding_frames] = made[: timing.sounding_frames]
        del made
        _level(samples, loudness_lufs)
        return Speech(samples, RATE_HZ, (), tuple(warnings))

    def _profile(self, conversion: Conversion, speak: Callable[[Utterance], Speech]) -> Profile:
        key = (conversion.voice_id, conversion.locale, conversion.style)
        if key not in self._profiles:
            text = reference_text(conversion.locale)
            voice_id, locale, style = key
            said = speak(Utterance(text, voice_id, locale, style=style, variation=0))
            self._profiles[key] = profile_of(clip_of(Recording(said.samples, said.sample_rate_hz)))
        return self._profiles[key]


def _level(samples: Samples, loudness_lufs: float) -> None:
    """Bring samples to a loudness in place, or as near as the peak allows, and refuse what is no sound."""
    peak = measure.peak(samples)
    if not peak:
        raise EngineError("nothing is left of the clip: it holds next to no sound")
    wanted = 10 ** ((loudness_lufs - measure.loudness_lufs(samples, RATE_HZ)) / 20)
    samples *= np.float32(min(wanted, _PEAK / peak))
