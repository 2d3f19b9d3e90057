"""Prepare a clip for the voice changer: resample it, and measure its pitch and level over time.

A clip may be half an hour long. So steps that need much memory process it in
pieces.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.audio import measure
from speechframe.audio.codec import Samples
from speechframe.engines.base import Recording
from speechframe.errors import EngineError

Array = NDArray[np.float64]

RATE_HZ = 24_000
"""Sample rate of the analysis and of the result, as of the best voices of the service."""

HOP_S = 0.01
"""Time between two values of pitch or level in seconds."""

_PIECE_S = 60
"""Seconds of a piece."""
_MARGIN_S = 1
"""Seconds on both sides of a piece that the pitch tracker also gets."""
_SHORTEST_S = 0.05
"""Shortest clip in seconds."""
_SILENT_DB = -80.0
"""A clip with a lower peak, in dBFS, is silent."""
_INAUDIBLE_BELOW_DB = 40.0
"""Steps at least this far below the loudest step count as unvoiced."""

_MIN_VOICED_SHARE = 0.03
"""A clip with a smaller share of voiced steps among the audible steps is a whisper."""
_WHISPER_RUN_S = 0.12
_WHISPER_HZ = 280.0
"""Usual length of voiced runs, and median pitch. A clip with shorter runs and a higher pitch is a whisper,
because the tracker sometimes takes the first formant of a whisper for a pitch."""

_OCTAVE_TOLERANCE = 0.25
"""A pitch this close to a whole number of octaves from its neighbours, in octaves, is an octave error."""
_NEIGHBOUR_STEPS = 31
"""Number of neighbouring voiced steps whose median is compared."""
_MAX_DEVIATION_OCTAVES = 1.5
"""A pitch further than this from the median of the clip is an error of the tracker."""


@dataclass(frozen=True, eq=False, slots=True)
class AnalysedClip:
    """A clip at :data:`RATE_HZ`, with a pitch and a level for each step of :data:`HOP_S`.

    Parameters
    ----------
    samples
        Mono float32, ``(frames,)``.
    f0_hz
        Fundamental frequency of each step in Hz. 0 means unvoiced.
    level_db
        Level of each step in dBFS.
    audio_seconds
        Length of the original recording.
    """

    samples: Samples
    f0_hz: Array
    level_db: Array
    audio_seconds: float

    @property
    def voiced(self) -> NDArray[np.bool_]:
        """Mask of the voiced steps."""
        return self.f0_hz > 0


def analyse_clip(recording: Recording) -> AnalysedClip:
    """Resample a recording and measure its pitch and level. A whisper counts as unvoiced.

    Raises
    ------
    EngineError
        The recording is too short, silent, or contains values that are not finite.
    """
    samples = recording.samples
    if recording.audio_seconds < _SHORTEST_S:
        raise EngineError(
            f"the clip is {1000 * recording.audio_seconds:.0f} ms long: too short to change; "
            f"at least {1000 * _SHORTEST_S:.0f} ms are needed"
        )
    pieces = range(0, len(samples), _PIECE_S * recording.sample_rate_hz)
    spans = [np.ptp(samples[first : first + pieces.step]) / 2 for first in pieces]
    if not np.isfinite(spans).all():
        raise EngineError("the clip contains values that are not numbers (NaN or infinite)")
    if max(spans) < 10 ** (_SILENT_DB / 20):
        raise EngineError("the clip is silent: there is nothing in it that could be said in another voice")
    at_rate = _resample(samples, recording.sample_rate_hz)
    # Remove a constant offset, because it is inaudible but would raise the level of pauses.
    at_rate = at_rate - at_rate.mean(dtype=np.float64).astype(np.float32)
    level_db = measure.measure_frame_levels_db(at_rate, RATE_HZ, 1000 * HOP_S)
    # The tracker sees one piece at a time, so it would find voice in the hum of a silent piece. Remove that.
    is_audible = level_db > level_db.max() - _INAUDIBLE_BELOW_DB
    f0_hz = _track_f0_hz(at_rate) * is_audible
    if _is_whispered(f0_hz, is_audible):
        f0_hz[:] = 0.0
    return AnalysedClip(at_rate, f0_hz, level_db, recording.audio_seconds)


def _split_pieces(frames: int) -> Iterator[slice]:
    size = _PIECE_S * RATE_HZ
    for first in range(0, frames, size):
        yield slice(first, min(first + size, frames))


def _resample(samples: Samples, rate_hz: int) -> Samples:
    """Resample the clip to :data:`RATE_HZ` piece by piece. Its length in seconds stays the same."""
    frames = max(1, round(len(samples) * RATE_HZ / rate_hz))
    if rate_hz == RATE_HZ:
        return samples
    import soxr

    stream = soxr.ResampleStream(rate_hz, RATE_HZ, 1, dtype="float32")
    out = np.zeros(frames, np.float32)
    filled, size = 0, _PIECE_S * rate_hz
    for first in range(0, len(samples), size):
        last = first + size >= len(samples)
        made = stream.resample_chunk(np.ascontiguousarray(samples[first : first + size]), last=last)
        made = made[: frames - filled]
        out[filled : filled + len(made)] = made
        filled += len(made)
    return out


def _track_f0_hz(samples: Samples) -> Array:
    per_second = round(1 / HOP_S)
    found = []
    for piece in _split_pieces(len(samples)):
        before = min(piece.start, _MARGIN_S * RATE_HZ)
        around = samples[piece.start - before : piece.stop + _MARGIN_S * RATE_HZ]
        f0_hz, _ = measure.f0_track(around, RATE_HZ, hop_ms=1000 * HOP_S)
        skipped = before * per_second // RATE_HZ
        wanted = -(-(piece.stop - piece.start) * per_second // RATE_HZ)
        found.append(f0_hz[skipped : skipped + wanted])
    return _correct_octaves(np.concatenate(found))


def _correct_octaves(f0_hz: Array) -> Array:
    """Correct octave errors of a pitch track in Hz. Values that no voice has become 0."""
    voiced = np.flatnonzero(f0_hz)
    if len(voiced) < _NEIGHBOUR_STEPS:
        return f0_hz
    octaves = np.log2(f0_hz[voiced])
    half = _NEIGHBOUR_STEPS // 2
    padded = np.pad(octaves, half, mode="reflect")
    around = np.median(np.lib.stride_tricks.sliding_window_view(padded, _NEIGHBOUR_STEPS), axis=1)
    off = octaves - around
    octaves -= np.where(np.abs(off - np.rint(off)) < _OCTAVE_TOLERANCE, np.rint(off), 0.0)
    spoken = np.abs(octaves - np.median(octaves)) < _MAX_DEVIATION_OCTAVES
    mended = np.zeros_like(f0_hz)
    mended[voiced[spoken]] = 2 ** octaves[spoken]
    return mended


def _is_whispered(f0_hz: Array, is_audible: NDArray[np.bool_]) -> bool:
    """Return True if the voiced steps are too few, or too short and too high, to be a voice."""
    voiced = f0_hz > 0
    if np.count_nonzero(voiced) < _MIN_VOICED_SHARE * np.count_nonzero(is_audible):
        return True
    edges = np.flatnonzero(np.diff(np.concatenate([[False], voiced, [False]]).astype(np.int8)))
    runs = np.diff(edges.reshape(-1, 2), axis=1)
    usual_run_s = HOP_S * float((runs**2).sum() / runs.sum())
    return usual_run_s < _WHISPER_RUN_S and float(np.median(f0_hz[voiced])) > _WHISPER_HZ
