"""Convert pitch, rate, style and variation to settings of espeak.

A rate of 50 doubles the speed, and -50 halves it. A pitch of -50 is the lowest pitch
of the voice, and 50 the highest. Variation changes speed, pitch, liveliness and
pauses at random, and each step of variation allows a larger change. The changes
depend only on text, voice, locale and take, so that equal requests are equal.
"""

import random
from dataclasses import dataclass

from speechframe.engines.base import Utterance
from speechframe.local.engines.espeak.library import WORDS_PER_MINUTE, EspeakSetting
from speechframe.local.engines.espeak.voices import STYLES, Timbre
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.reading.speaker import PAUSE_JITTER_PER_STEP, compute_seed
from speechframe.spec.limits import compute_speed

NORMAL_WORDS_PER_MINUTE = 165.0
"""Speed at rate 0 in the default style."""

_MAX_PITCH_STEPS = 50.0
"""The value of ``pitch`` for the highest pitch."""
_PITCH_RANGE = range(100)
"""Pitches of the library."""
_MAX_SEED = 2**31 - 2
"""Largest seed of the library's noise."""

# Largest change for each step of variation, up or down. Pitch is in units of the library, all others are
# shares.
_SPEED_PER_STEP = 0.016
_PITCH_PER_STEP = 2.2
_LIVELINESS_PER_STEP = 0.06


@dataclass(frozen=True, slots=True)
class EspeakReading:
    """The settings of the engine for one utterance, before the speed is scaled to reach a requested length.

    The first attributes are those of :class:`~speechframe.local.engines.espeak.library.EspeakSetting`.
    ``seed`` is for the noise of breathy voices. ``pause_jitter`` is the largest random change of a pause, as
    a share of its length.
    """

    voice: str
    words_per_minute: float
    pitch: int
    pitch_range: int
    word_gap: int
    seed: int
    pause_jitter: float

    def build_setting(self, speed: float = 1.0) -> EspeakSetting:
        """Return the setting at `speed` times this speed, within the speeds of the library."""
        wanted = round(self.words_per_minute * speed)
        within = min(max(wanted, WORDS_PER_MINUTE.start), WORDS_PER_MINUTE.stop - 1)
        return EspeakSetting(self.voice, within, self.pitch, self.pitch_range, self.word_gap)

    def pause_factors(self) -> random.Random:
        """Return the random generator for pauses. Each call returns the same sequence."""
        return random.Random(f"pauses of {self.seed}")  # noqa: S311  (a reading, not a secret)


def compute_reading(utterance: Utterance, timbre: Timbre, style_name: str) -> EspeakReading:
    """Return the settings for an utterance, a timbre (a sound of a voice) and a style."""
    style = STYLES[style_name]
    seed = 1 + (compute_seed(utterance) - 1) % _MAX_SEED
    rng = random.Random(seed)  # noqa: S311  (a reading, not a secret)
    steps = utterance.variation
    speed, pitch, liveliness = (steps * rng.uniform(-1, 1) for _ in range(3))
    language = LOCALES[utterance.locale].language
    return EspeakReading(
        voice=f"{language}+{timbre.variant}" if timbre.variant else language,
        words_per_minute=NORMAL_WORDS_PER_MINUTE
        * style.speed
        * compute_speed(utterance.rate)
        * (1 + _SPEED_PER_STEP * speed),
        pitch=_compute_pitch(timbre.pitch + style.pitch + _PITCH_PER_STEP * pitch, utterance.pitch),
        pitch_range=_clamp_pitch(
            timbre.pitch_range * style.liveliness * (1 + _LIVELINESS_PER_STEP * liveliness)
        ),
        word_gap=style.word_gap,
        seed=seed,
        pause_jitter=PAUSE_JITTER_PER_STEP * steps,
    )


def _compute_pitch(middle: float, steps: int) -> int:
    """Return the pitch between `middle` and the end of the library's range, in proportion to `steps`."""
    end = _PITCH_RANGE.stop - 1 if steps > 0 else 0
    return _clamp_pitch(middle + (end - middle) * abs(steps) / _MAX_PITCH_STEPS)


def _clamp_pitch(pitch: float) -> int:
    return min(max(round(pitch), 0), _PITCH_RANGE.stop - 1)
