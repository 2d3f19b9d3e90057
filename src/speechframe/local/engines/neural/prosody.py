"""From pitch, rate, style and variation to what a neural model is given.

A rate of 50 doubles the speed and -50 halves it; a pitch of 50 is a
third of an octave up. Without variation a model gets no noise at all; one step of it is
what the voice's makers chose, and more steps give more. Random numbers depend only
on the text, the voice and the take, so that equal requests are equal.
"""

import hashlib
import random
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from speechframe.engines.base import Utterance

__all__ = ["STYLES", "NeuralReading", "reading"]

STYLES = MappingProxyType({"Conversational": 1.0, "Narration": 0.9})
"""Every style and its speed, the default first; a neural voice reads one way, so they are plain ones."""


_RATE_FOR_DOUBLE = 50.0
_PITCH_FOR_OCTAVE = 150.0
"""The voice box is moved along with the pitch: further, a voice would not be understood any more."""

# What one step of variation adds, as a share of what the voice's makers chose.
_NOISE_PER_STEP = 0.05
_RHYTHM_NOISE_PER_STEP = 0.12
_SPEED_PER_STEP = 0.02
_PAUSE_PER_STEP = 0.09


@dataclass(frozen=True, slots=True)
class NeuralReading:
    """How one utterance is read.

    Parameters
    ----------
    speed, pitch
        Factors; 1 is the voice as it is.
    noise, rhythm_noise
        Factors of the noise of the voice. With 0 nothing is random.
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

    def generator_of(self, number: int) -> np.random.Generator:
        """Return the random generator of a sentence, by its number. The order of calls does not matter."""
        return np.random.default_rng((self.seed, number))


def reading(utterance: Utterance, speed: float) -> NeuralReading:
    """Return how an utterance is to be read in a style of some speed.

    Examples
    --------
    >>> reading(Utterance("Hi", "en-US-joe", "en-US", rate=50, pitch=-150, variation=0), 1.0)
    NeuralReading(speed=2.0, pitch=0.5, noise=0.0, rhythm_noise=0.0, pause_jitter=0.0, seed=1)
    """
    steps = utterance.variation
    seed = _seed(utterance)
    stray = steps * _SPEED_PER_STEP * random.Random(seed).uniform(-1, 1)  # noqa: S311  (a reading, not a secret)
    return NeuralReading(
        speed=speed * 2 ** (utterance.rate / _RATE_FOR_DOUBLE) * (1 + stray),
        pitch=2 ** (utterance.pitch / _PITCH_FOR_OCTAVE),
        noise=1 + _NOISE_PER_STEP * (steps - 1) if steps else 0.0,
        rhythm_noise=1 + _RHYTHM_NOISE_PER_STEP * (steps - 1) if steps else 0.0,
        pause_jitter=_PAUSE_PER_STEP * steps,
        seed=seed,
    )


def _seed(utterance: Utterance) -> int:
    """Return the seed of the variation. It depends on text, voice and take, and is 1 without variation."""
    if not utterance.variation:
        return 1
    parts = (utterance.text, utterance.voice_id, utterance.locale, str(utterance.take))
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return 1 + int.from_bytes(digest, "big")
