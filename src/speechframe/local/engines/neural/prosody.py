"""Convert pitch, rate, style and variation to parameters of a neural model.

A rate of 50 doubles the speed, and -50 halves it. A pitch of 50 is a third of an
octave higher. Without variation a model gets no noise. One step of variation gives
the noise that the authors of the voice chose, and further steps give more. Random
numbers depend only on text, voice, locale and take, so that equal requests are equal.
"""

import random
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from speechframe.engines.base import Utterance
from speechframe.local.engines.reading.speaker import PAUSE_JITTER_PER_STEP, compute_seed
from speechframe.spec.limits import compute_speed

STYLES = MappingProxyType({"Conversational": 1.0, "Narration": 0.9})
"""Style to the factor of the speed, the default first. Neural voices have few, as they read in one way."""

_PITCH_FOR_OCTAVE = 150.0
"""The value of ``pitch`` for an octave. The formants move with the pitch, so larger changes are unclear."""

# Share by which one step of variation increases the noise, or the largest change of the speed or a pause.
_NOISE_PER_STEP = 0.05
_RHYTHM_NOISE_PER_STEP = 0.12
_SPEED_PER_STEP = 0.02


@dataclass(frozen=True, slots=True)
class NeuralReading:
    """The parameters of one utterance.

    Parameters
    ----------
    speed, pitch
        Factors of the voice's own speed and pitch.
    noise, rhythm_noise
        Factors of the noise in the sound, and in the lengths of phonemes. 0 means no noise.
    pause_jitter
        Largest random change of a pause between sentences, as a share of its length.
    seed
        Seed of the random generators.
    """

    speed: float
    pitch: float
    noise: float
    rhythm_noise: float
    pause_jitter: float
    seed: int

    def create_generator(self, number: int) -> np.random.Generator:
        """Return the random generator of a sentence, by its number. The order of calls does not matter."""
        return np.random.default_rng((self.seed, number))


def compute_reading(utterance: Utterance, speed: float) -> NeuralReading:
    """Return the parameters of an utterance. `speed` is the factor of the style.

    Examples
    --------
    >>> compute_reading(Utterance("Hi", "en-US-joe", "en-US", rate=50, pitch=-150, variation=0), 1.0)
    NeuralReading(speed=2.0, pitch=0.5, noise=0.0, rhythm_noise=0.0, pause_jitter=0.0, seed=1)
    """
    steps = utterance.variation
    seed = compute_seed(utterance)
    stray = steps * _SPEED_PER_STEP * random.Random(seed).uniform(-1, 1)  # noqa: S311  (a reading, not a secret)
    return NeuralReading(
        speed=speed * compute_speed(utterance.rate) * (1 + stray),
        pitch=2 ** (utterance.pitch / _PITCH_FOR_OCTAVE),
        noise=1 + _NOISE_PER_STEP * (steps - 1) if steps else 0.0,
        rhythm_noise=1 + _RHYTHM_NOISE_PER_STEP * (steps - 1) if steps else 0.0,
        pause_jitter=PAUSE_JITTER_PER_STEP * steps,
        seed=seed,
    )
