"""Compare clips with the other clips of their voice, and grade them by one table of limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from speechframe.audio.clip_measures import BANDS_PER_OCTAVE

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

GOOD, CHECK, BAD = "good", "check", "bad"

COMPARISONS = (
    *("voice_clips", "loudness_vs_voice_lu", "silence_vs_voice_s", "silence_end_vs_voice"),
    *("pace_vs_voice", "end_vs_voice", "rate_vs_voice"),
)
"""Columns of :func:`compare_with_voices`."""

ENOUGH_CLIPS = 12
"""Fewest clips that describe a voice. Clips of a voice with fewer have only absolute limits."""

TRUSTED_LANGUAGES = frozenset({"en", "es", "it", "ja", "pt"})
"""Languages in which word errors count. In each of them, Whisper base gets at most a tenth of the clearest
voice's words wrong (``datasets/clarity.csv``). Elsewhere the recogniser may cause an error."""

LANGUAGES_BY_CHARACTER = frozenset({"ja"})
"""Languages without spaces between words. Their character error counts."""


MAX_WORD_ERROR = 0.2
"""A clip with more errors must be checked. A voice with more in ``clarity.csv`` is unclear by nature."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits of a measure. A value beyond `check` or `bad` gives the row this grade.

    The limits have the unit of the column's name. They are minima if `check` exceeds `bad`.
    """

    column: str
    check: float
    bad: float
    words: str  # the reason that the user reads, with the value
    why: str  # origin of the limits; "fitted" limits are those of ``benchmarks/quality.py``


_NEVER = float("inf")

_PACE = "its pace is {:+.1f} deviations from its voice's"
_LOUDNESS = "its loudness is {:+.1f} LU from its voice's"
_RATE = "it sounds {:.2f} times as high as its voice: its sample rate is wrong"

LIMITS: Sequence[Limit] = (
    Limit("audio_seconds", 0.2, 0.1, "it lasts only {:.2f} s", "the shortest words last 0.2 s"),
    Limit("loudness_lufs", -40, -50, "its loudness is {:.1f} LUFS", "17 and 27 LU below EBU R 128"),
    Limit("loudness_vs_voice_lu", -6, -12, _LOUDNESS, "fitted; clips of a voice stay within 4 LU"),
    Limit("loudness_vs_voice_lu", 6, 12, _LOUDNESS, "the same, above the voice"),
    Limit("true_peak_dbtp", 0, _NEVER, "its true peak is {:+.1f} dBTP", "players clip above 0 dBTP"),
    Limit("clipped_fraction", 0.0001, 0.0003, "{:.2%} of its samples are clipped", "as for answers of a run"),
    Limit("silence_start_s", 0.5, 1.5, "it begins with {:.2f} s of silence", "longer than a breath"),
    Limit("silence_end_s", 0.8, 2.0, "it ends with {:.2f} s of silence", "voices end more slowly"),
    Limit("silence_vs_voice_s", 0.15, 0.4, "its silence inside is {:.2f} s longer than usual", "fitted"),
    Limit("pace_vs_voice", -4.5, -7, _PACE, "as for answers of a run; fitted"),
    Limit("pace_vs_voice", 4.5, 7, _PACE, "the same, faster than the voice"),
    Limit("end_vs_voice", 4.5, 7, "it is cut off: its end is {:.0f} deviations too loud", "fitted"),
    Limit("silence_end_vs_voice", 4.5, _NEVER, "it may be cut off in a pause ({:.0f} deviations)", "fitted"),
    Limit("snr_db", 15, 8, "its noise is {:.0f} dB below its speech", "clean clips have 20 dB; fitted"),
    Limit("rate_vs_voice", 1.05, 1.08, _RATE, "fitted; 24 for 22.05 kHz gives 1.09"),
    Limit("rate_vs_voice", 0.95, 0.925, _RATE, "fitted; 22.05 for 24 kHz gives 0.92"),
    Limit(
        "word_error", MAX_WORD_ERROR, 0.5, "its word error is {:.0%}", "two and five times a trusted voice's"
    ),
)
"""All limits. ``_vs_voice`` compares with the median over the voice's clips. Deviations are robust standard
deviations (1.4826 times the median absolute deviation), but at least those of :data:`DEVIATIONS`."""

DEVIATIONS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "pace_vs_voice": ("log_pace", 0.07),
        "end_vs_voice": ("end_db", 5.0),
        "silence_end_vs_voice": ("silence_end_s", 0.02),
    }
)
"""Measure of each difference in deviations, and the smallest deviation. So small differences do not look
large in a voice that hardly varies. Pace is the logarithm of characters a second."""

_SHIFTS = np.arange(-32, 33)
"""Shifts of a spectrum that are tried, in bands. They reach beyond the double and the half sample rate."""
_MIN_BANDS, _NO_SPREAD_DB = 60, 1e6
"""Spectra with fewer common bands are not compared."""
_CLEAR_GAIN_DB = 0.6
_AT_ONCE = 2000
_REFERENCE_CLIPS = 500
_USUAL_SILENCE, _LONGEST_USUAL_SILENCE_S = 0.9, 0.6
"""Quantile of the longest silences of a voice's clips, and the same for an unknown voice in seconds."""
_MAD_TO_DEVIATION = 1.4826


def compare_with_voices(
    frame: "pd.DataFrame", spectra_db: NDArray[np.float16], clips: NDArray[np.intp]
) -> None:
    """Add the columns :data:`COMPARISONS` to a frame of measures.

    Rows with an equal ``voice`` compare. ``marker_s`` is the longest requested pause in seconds. `clips` has
    the place of each row's spectrum in `spectra_db`.
    """
    inside = (frame["silence_inside_s"] - frame["marker_s"]).to_numpy()
    added = {name: np.full(len(frame), np.nan) for name in COMPARISONS}
    added["silence_vs_voice_s"] = inside - _LONGEST_USUAL_SILENCE_S
    is_first = ~frame.duplicated(["voice", "sha256"]).to_numpy() & frame["loudness_lufs"].notna().to_numpy()
    loudness = frame["loudness_lufs"].to_numpy()
    for found in frame.groupby("voice").indices.values():
        places = np.asarray(found, np.intp)
        own = places[is_first[places]]
        added["voice_clips"][places] = len(own)
        if len(own) < ENOUGH_CLIPS:
            continue
        added["loudness_vs_voice_lu"][places] = loudness[places] - np.median(loudness[own])
        added["silence_vs_voice_s"][places] = inside[places] - np.quantile(inside[own], _USUAL_SILENCE)
        some = own[:: -(-len(own) // _REFERENCE_CLIPS)]
        added["rate_vs_voice"][places] = _compare_rates(spectra_db, clips[some], clips[places])
        for name, (source, least) in DEVIATIONS.items():
            values = frame[source].to_numpy()
            known = values[own][~np.isnan(values[own])]
            if len(known) >= ENOUGH_CLIPS:
                distance = values[places] - np.median(known)
                deviation = _MAD_TO_DEVIATION * np.median(np.abs(known - np.median(known)))
                added[name][places] = distance / max(deviation, least)
    for name, values in added.items():
        frame[name] = values


def _compare_rates(spectra_db: NDArray[np.float16], own: NDArray[np.intp], places: NDArray[np.intp]) -> Array:
    """Return the factor by which each clip's spectrum is shifted against the median spectrum of its voice.

    A wrong sample rate shifts the whole spectrum on a logarithmic axis. The best shift leaves the smallest
    spread of the differences in dB. The factor is 1 unless this spread is clearly smaller than without a
    shift.
    """
    some, size = spectra_db[own].astype(np.float32), spectra_db.shape[1]
    is_usual = np.isnan(some).mean(axis=0) <= 0.5  # noqa: PLR2004 - a rate that most clips have
    reference = np.full(size, np.nan)
    reference[is_usual] = np.nanmedian(some[:, is_usual], axis=0)
    sources = np.arange(size)[:, None] - _SHIFTS
    shifted = np.where((sources >= 0) & (sources < size), reference[sources.clip(0, size - 1)], np.nan)
    known, shifted = (~np.isnan(shifted)).astype(np.float64), np.nan_to_num(shifted)
    factors = []
    for first in range(0, len(places), _AT_ONCE):
        spectra = spectra_db[places[first : first + _AT_ONCE]].astype(np.float64)
        has, clip = (~np.isnan(spectra)).astype(np.float64), np.nan_to_num(spectra)
        count = has @ known
        mean = (clip @ known - has @ shifted) / np.maximum(count, 1)
        square = (clip**2 @ known - 2 * clip @ shifted + has @ shifted**2) / np.maximum(count, 1)
        spread_db = np.sqrt(np.where(count >= _MIN_BANDS, np.maximum(square - mean**2, 0), _NO_SPREAD_DB))
        gain_db = spread_db[:, _SHIFTS == 0][:, 0] - spread_db.min(axis=1)
        shift = np.where(gain_db >= _CLEAR_GAIN_DB, _SHIFTS[spread_db.argmin(axis=1)], 0)
        factors.append(2.0 ** (shift / BANDS_PER_OCTAVE))
    return np.concatenate(factors)


def grade_rows(frame: "pd.DataFrame") -> None:
    """Add the columns ``grade`` and ``reasons``. A row with a ``problem`` is bad."""
    reasons = [[problem] if problem else [] for problem in frame["problem"]]
    worst = np.array([2 if problem else 0 for problem in frame["problem"]])
    for limit in LIMITS:
        if limit.column not in frame:
            continue
        values = frame[limit.column].to_numpy(float)
        sign = 1 if limit.bad > limit.check else -1
        with np.errstate(invalid="ignore"):
            found = (sign * values > sign * limit.check).astype(int) + (sign * values > sign * limit.bad)
        worst = np.maximum(worst, found)
        for position in np.flatnonzero(found):
            reasons[position].append(limit.words.format(values[position]))
    frame["grade"], frame["reasons"] = np.array((GOOD, CHECK, BAD), object)[worst], reasons
