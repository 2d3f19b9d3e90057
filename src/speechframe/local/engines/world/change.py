"""Compute the change of a clip from the profiles of two voices and the settings of a conversion."""

import hashlib
import random
from dataclasses import dataclass

import numpy as np

from speechframe.audio.codec import Samples
from speechframe.engines.base import Conversion
from speechframe.local.engines.world.profile import Profile
from speechframe.local.engines.world.signal import Array

_FORMANT_SHARES = np.array([0.6, 0.35, 0.9])
"""Share of the measured difference of F1, F2 and F3 that is applied. F1 and F2 depend more on the spoken
words, F3 on the speaker."""
_WARP_BOUNDS = (0.8, 1.25)
"""Bounds of the factor of a formant."""
_MIN_FORMANT_DISTANCE_HZ = 100.0
"""Least distance between two formants."""
_BEYOND_F3_FACTOR = 100.0
"""Frequencies from F3 up to this multiple of F3 are multiplied by the factor of F3."""
_USUAL_FORMANTS_HZ = np.array([500.0, 1500.0, 2650.0])
"""F1 to F3 between those of women and men. They replace formants that could not be measured in the clip."""

_TILT_BOUND_DB = 4.0
"""Largest change of the spectral tilt, in dB an octave."""
_F0_BOUNDS_HZ = (45.0, 700.0)
"""Bounds of the pitch of the result."""

_MIN_PITCH_FACTOR, _MAX_PITCH_FACTOR = 0.66, 1.70
"""Factors of the register at pitch -50 and 50, as for the voices of the speech engine."""

_FLAT_SPREAD_SHARE = 0.4
"""Share of the narrower of the two pitch spreads that remains without ``retain_prosody``."""
_MAX_FLAT_SPREAD, _MIN_FLAT_SPREAD = 0.5, 0.1
"""Bounds of the factor of the pitch spread without ``retain_prosody``."""

# Largest relative change for each step of variation, up or down. Lengths stay within 2 % of the clip's
# length.
_PITCH_PER_STEP = 0.01
_LIVELINESS_PER_STEP = 0.04
_SPEED_PER_STEP = 0.003
_PAUSE_PER_STEP = 0.04


@dataclass(frozen=True, slots=True)
class Jitter:
    """The random factors of one conversion. Without variation all are 1.

    `pause_jitter` is the largest relative change of a pause, and `seed` chooses the changes of the pauses.
    """

    pitch: float = 1.0
    liveliness: float = 1.0
    speed: float = 1.0
    pause_jitter: float = 0.0
    seed: int = 0

    def pause_factors(self, count: int) -> list[float]:
        """Return a factor for the length of each pause. Equal calls return equal factors."""
        rng = random.Random(f"pauses of {self.seed}")  # noqa: S311  (a reading, not a secret)
        return [1 + self.pause_jitter * rng.uniform(-1, 1) for _ in range(count)]


@dataclass(frozen=True, eq=False, slots=True)
class Change:
    """The change of a clip: its registers (median pitches), formants and spectral tilt.

    Parameters
    ----------
    source_f0_hz, result_f0_hz
        Register of the clip and of the result in Hz. The first is 0 if the clip has no voiced sound.
    spread
        Factor of deviations from the register, measured in semitones.
    formants_hz, factors
        F1 to F3 of the clip in Hz, and the factor of each.
    tilt_db
        Tilt in dB an octave that is added to the spectrum of voiced frames.
    """

    source_f0_hz: float
    result_f0_hz: float
    spread: float
    formants_hz: Array
    factors: Array
    tilt_db: float

    def convert_f0_hz(self, f0_hz: Array) -> Array:
        """Return the pitch of the result in Hz for a pitch of the clip. Unvoiced values, 0, stay 0."""
        if not self.source_f0_hz:
            return np.zeros_like(f0_hz)
        with np.errstate(divide="ignore"):
            deviation = np.log(f0_hz / self.source_f0_hz)
        moved = self.result_f0_hz * np.exp(self.spread * deviation)
        return np.where(f0_hz > 0, np.clip(moved, *_F0_BOUNDS_HZ), 0.0)

    def map_to_source_hz(self, bins_hz: Array) -> Array:
        """Return, for each frequency of the result, the frequency of the clip whose level it gets."""
        knots_hz = np.concatenate([[0.0], self.formants_hz, self.formants_hz[-1:] * _BEYOND_F3_FACTOR])
        moved_hz = knots_hz * np.concatenate([self.factors[:1], self.factors, self.factors[-1:]])
        return np.asarray(np.interp(bins_hz, moved_hz, knots_hz), np.float64)


def draw_jitter(samples: Samples, conversion: Conversion) -> Jitter:
    """Return the random factors of a conversion. They depend on the samples, voice, locale and take."""
    steps = conversion.variation
    if not steps:
        return Jitter()
    digest = hashlib.blake2b(np.ascontiguousarray(samples).data, digest_size=8)
    digest.update("\0".join((conversion.voice_id, conversion.locale, str(conversion.take))).encode())
    seed = int.from_bytes(digest.digest(), "big")
    rng = random.Random(seed)  # noqa: S311  (a reading, not a secret)
    pitch, liveliness, speed = (steps * rng.uniform(-1, 1) for _ in range(3))
    return Jitter(
        pitch=1 + _PITCH_PER_STEP * pitch,
        liveliness=1 + _LIVELINESS_PER_STEP * liveliness,
        speed=1 + _SPEED_PER_STEP * speed,
        pause_jitter=_PAUSE_PER_STEP * steps,
        seed=seed,
    )


def compute_change(source: Profile, target: Profile, conversion: Conversion, jitter: Jitter) -> Change:
    """Return the change from the voice `source` to the voice `target`."""
    register_hz = target.f0_hz or source.f0_hz
    formants_hz, factors = _compute_warp(source, target)
    return Change(
        source_f0_hz=source.f0_hz,
        result_f0_hz=register_hz * _compute_pitch_factor(conversion.pitch) * jitter.pitch,
        spread=_compute_spread(source, target, conversion.retain_prosody) * jitter.liveliness,
        formants_hz=formants_hz,
        factors=factors,
        tilt_db=float(np.clip(target.tilt_db - source.tilt_db, -_TILT_BOUND_DB, _TILT_BOUND_DB))
        if source.f0_hz and target.f0_hz
        else 0.0,
    )


def _compute_pitch_factor(steps: int) -> float:
    end = _MAX_PITCH_FACTOR if steps > 0 else _MIN_PITCH_FACTOR
    return float(end ** (abs(steps) / 50))


def _compute_spread(source: Profile, target: Profile, retain_prosody: bool) -> float:  # noqa: FBT001  (a field's value)
    if retain_prosody or not source.spread_semitones:
        return 1.0
    narrower = min(source.spread_semitones, target.spread_semitones or source.spread_semitones)
    return float(
        np.clip(_FLAT_SPREAD_SHARE * narrower / source.spread_semitones, _MIN_FLAT_SPREAD, _MAX_FLAT_SPREAD)
    )


def _compute_warp(source: Profile, target: Profile) -> tuple[Array, Array]:
    """Return the formants of the clip, and the factors that move them towards the formants of the target.

    A formant that was not measured gets the mean factor of the others. If formants would come too close, all
    get the same factor.
    """
    from_hz = np.where(np.isnan(source.formants_hz), _USUAL_FORMANTS_HZ, source.formants_hz)
    if (np.diff(from_hz) < _MIN_FORMANT_DISTANCE_HZ).any():
        from_hz = _USUAL_FORMANTS_HZ
    log_factors = _FORMANT_SHARES * np.log(target.formants_hz / from_hz)
    known = ~np.isnan(log_factors)
    others = float(log_factors[known].mean()) if known.any() else 0.0
    factors = np.exp(np.clip(np.where(known, log_factors, others), *np.log(_WARP_BOUNDS)))
    if (np.diff(from_hz * factors) < _MIN_FORMANT_DISTANCE_HZ).any():
        factors[:] = np.exp(np.log(factors).mean())
    return from_hz, factors
