"""Change the voice of a clip by analysis and resynthesis with WORLD.

Words and intonation are kept. Register (median pitch), formants and spectral tilt
become those of the other voice, measured on a reference sentence. The pitch is tracked by
:func:`speechframe.audio.measure.f0_track`, because WORLD's own trackers make octave
errors with many voices.
"""

from collections.abc import Callable

import numpy as np

from speechframe.audio import measure
from speechframe.audio.codec import Samples
from speechframe.engines.base import Conversion, Recording, Speech, Utterance
from speechframe.errors import EngineError, EngineFault
from speechframe.local.engines.world.change import compute_change, draw_jitter
from speechframe.local.engines.world.profile import Profile, measure_profile
from speechframe.local.engines.world.signal import RATE_HZ, analyse_clip
from speechframe.local.engines.world.synthesis import INSTALL_COMMAND, import_world, synthesise_clip
from speechframe.local.engines.world.texts import get_reference_text
from speechframe.local.engines.world.time import compute_source_times_s, compute_timing

REVISION = 3
"""Incremented whenever an equal request sounds different, because a run must not mix two revisions."""

_MAX_PEAK = 0.9
"""Largest absolute sample of a result, as for the voices of the speech engine."""

_UNVOICED_WARNING = (
    "no voiced speech was heard in the clip: it was given the other voice's formants, "
    "but has no pitch to change"
)


class WorldChanger:
    """The WORLD voice changer. See :class:`speechframe.engines.base.Changer`.

    The object caches the measurements of each voice.

    Examples
    --------
    >>> from speechframe.local.engines.espeak.speaker import EspeakSpeaker
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
        """Version of pyworld and :data:`REVISION`. Raises EngineFault if pyworld is not installed."""
        try:
            return f"{import_world().__version__}+{REVISION}"
        except ModuleNotFoundError as error:
            raise EngineFault(f"pyworld is not installed: {INSTALL_COMMAND}") from error

    def change(
        self, recording: Recording, conversion: Conversion, *, speak: Callable[[Utterance], Speech]
    ) -> Speech:
        """Return the clip in the other voice, equally loud, at 24000 Hz. Equal calls give equal bytes.

        A clip without voiced speech, such as a whisper, gets the other voice's formants and a warning.

        Parameters
        ----------
        recording
            The clip, with any sample rate. Half an hour needs about a gigabyte of memory.
        conversion
            The target voice and the settings.
        speak
            Function that speaks a reference text in the target voice. It is called once for each voice,
            locale and style.

        Raises
        ------
        EngineError
            The clip is silent, shorter than 50 ms, or contains values that are not finite. Or the requested
            length is too short, `speak` fails, or pyworld is not installed.
        """
        _ = self.version
        clip = analyse_clip(recording)
        jitter = draw_jitter(clip.samples, conversion)
        timing = compute_timing(clip.audio_seconds, conversion, jitter)
        source = measure_profile(clip)
        target = self._measure_profile(conversion, speak)
        warnings = [
            warning for warning in (timing.warning, None if source.f0_hz else _UNVOICED_WARNING) if warning
        ]
        loudness_lufs = measure.measure_loudness_lufs(clip.samples, RATE_HZ)
        made = synthesise_clip(
            clip,
            compute_change(source, target, conversion, jitter),
            compute_source_times_s(clip, timing, conversion, jitter),
        )
        del clip
        samples = np.zeros(timing.frames, np.float32)
        samples[: timing.sounding_frames] = made[: timing.sounding_frames]
        del made
        _level_samples(samples, loudness_lufs)
        return Speech(samples, RATE_HZ, (), tuple(warnings))

    def _measure_profile(self, conversion: Conversion, speak: Callable[[Utterance], Speech]) -> Profile:
        key = (conversion.voice_id, conversion.locale, conversion.style)
        if key not in self._profiles:
            text = get_reference_text(conversion.locale)
            voice_id, locale, style = key
            speech = speak(Utterance(text, voice_id, locale, style=style, variation=0))
            self._profiles[key] = measure_profile(
                analyse_clip(Recording(speech.samples, speech.sample_rate_hz))
            )
        return self._profiles[key]


def _level_samples(samples: Samples, loudness_lufs: float) -> None:
    """Scale samples in place to a loudness, or less if the peak would exceed 0.9. Refuse silence."""
    peak = measure.measure_peak(samples)
    if not peak:
        raise EngineError("nothing is left of the clip: it contains almost no sound")
    wanted = 10 ** ((loudness_lufs - measure.measure_loudness_lufs(samples, RATE_HZ)) / 20)
    samples *= np.float32(min(wanted, _MAX_PEAK / peak))
