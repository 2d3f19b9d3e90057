"""Measure levels and pauses of a clip, one minute at a time, so that long clips need little memory."""

import numpy as np
from numpy.typing import NDArray

from speechframe.audio import measure
from speechframe.audio.codec import Samples

__all__ = ["find_pauses_s", "find_quiet_runs", "measure_levels_db"]

_PIECE_S = 60
"""Seconds of audio that are measured at a time."""
_FRAME_S = 0.01
"""Length in seconds of the frames in which pauses are searched."""


def measure_levels_db(samples: Samples, sample_rate_hz: int, frame_s: float) -> NDArray[np.float64]:
    """Return the level of each frame in dB, computed in one pass.

    The levels are those of :func:`speechframe.audio.measure.measure_frame_levels_db`.

    Parameters
    ----------
    samples
        Mono float32 in [-1, 1], ``(samples,)``, not empty.
    sample_rate_hz
        Sample rate in Hz.
    frame_s
        Length of a frame in seconds.

    Examples
    --------
    >>> measure_levels_db(np.array([0.1] * 100 + [0.0] * 100, np.float32), 10_000, 0.01).tolist()
    [-20.0, -120.0]
    """
    size = _count_frame_samples(sample_rate_hz, frame_s) * max(1, round(_PIECE_S / frame_s))
    pieces = [
        measure.measure_frame_levels_db(samples[first : first + size], sample_rate_hz, 1000 * frame_s)
        for first in range(0, len(samples), size)
    ]
    return np.concatenate(pieces)


def find_quiet_runs(level_db: NDArray[np.float64], *, below_db: float, shortest: int) -> NDArray[np.intp]:
    """Return first and end index of each run of quiet levels, ``(runs, 2)``.

    A level is quiet if it is more than `below_db` below the highest level. Runs with fewer than `shortest`
    levels are left out.

    Examples
    --------
    >>> find_quiet_runs(np.array([-20.0, -90, -90, -20, -90]), below_db=40, shortest=2).tolist()
    [[1, 3]]
    """
    quiet = level_db < level_db.max() - below_db
    edges = np.flatnonzero(np.diff(np.concatenate([[False], quiet, [False]]).astype(np.int8)))
    runs = edges.reshape(-1, 2)
    return runs[runs[:, 1] - runs[:, 0] >= shortest]


def find_pauses_s(
    samples: Samples, sample_rate_hz: int, *, below_db: float, shortest_s: float
) -> list[tuple[float, float]]:
    """Return start and end of each pause in seconds.

    A pause has levels more than `below_db` below the highest level, for about `shortest_s` or longer.

    Examples
    --------
    >>> find_pauses_s(np.array([0.5] * 1000 + [0.0] * 500, np.float32), 1000, below_db=40, shortest_s=0.1)
    [(1.0, 1.5)]
    """
    frame_s = _count_frame_samples(sample_rate_hz, _FRAME_S) / sample_rate_hz
    level_db = measure_levels_db(samples, sample_rate_hz, _FRAME_S)
    total_s = len(samples) / sample_rate_hz
    runs = find_quiet_runs(level_db, below_db=below_db, shortest=max(1, round(shortest_s / frame_s)))
    return [(float(first * frame_s), min(float(end * frame_s), total_s)) for first, end in runs]


def _count_frame_samples(sample_rate_hz: int, frame_s: float) -> int:
    return max(1, round(sample_rate_hz * frame_s))
