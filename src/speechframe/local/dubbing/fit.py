"""Compute the start and speed of each dubbed line, so that the lines fit the times of the original lines.

A line that is too long may last into the pause after its original. If that is not enough, the line becomes
faster. Then its start, or the start of the next line, moves a little. A line that still overlaps the next
line is marked as an overrun and never cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from speechframe.spec.chosen import (
    DUB_FULL_SLOT_SHARE,
    DUB_SPEED_RANGE,
    MAX_DUB_EARLY_SECONDS,
    MAX_DUB_LATE_SECONDS,
    MAX_DUB_SPEED_STEP,
)
from speechframe.spec.dubbing import Fit

_TIME_TOLERANCE_S = 1e-6
"""Seconds below which two times count as equal, because rounding of floats changes the last digits."""


@dataclass(frozen=True, slots=True)
class TimedLine:
    """Start and end of an original line, and the length of its dubbed line at a speed of 1."""

    start_s: float
    end_s: float
    natural_s: float


@dataclass(frozen=True, slots=True)
class FittedLine:
    """Start and speed of a dubbed line, and their label. The line lasts ``natural_s / speed`` seconds."""

    start_s: float
    speed: float
    fit: Fit


def fit_lines(lines: Sequence[TimedLine], media_s: float) -> list[FittedLine]:
    """Return start, speed and label of each line, in order.

    Parameters
    ----------
    lines
        The lines, in order of their starts.
    media_s
        Length of the media file in seconds. The last line should end by then.
    """
    if not lines:
        return []
    rooms_end = [line.start_s for line in lines[1:]] + [media_s]
    speeds = _smooth_speeds(
        [_find_least_speed(line, end) for line, end in zip(lines, rooms_end, strict=True)]
    )
    lengths = [line.natural_s / speed for line, speed in zip(lines, speeds, strict=True)]
    starts, over = _compute_starts([line.start_s for line in lines], lengths, media_s)
    placed = zip(lines, starts, speeds, over, strict=True)
    return [
        FittedLine(start, speed, _classify_fit(line, start, speed, is_over))
        for line, start, speed, is_over in placed
    ]


def _find_least_speed(line: TimedLine, room_end_s: float) -> float:
    """Return the lowest allowed speed at which a line ends by `room_end_s`, or the highest allowed speed.

    A line much shorter than its original is slowed down, within the allowed speeds.
    """
    room_s = room_end_s - line.start_s
    slot_s = min(line.end_s - line.start_s, room_s)
    if line.natural_s < DUB_FULL_SLOT_SHARE * slot_s:
        return max(line.natural_s / slot_s, DUB_SPEED_RANGE.low)
    if line.natural_s <= room_s:
        return 1.0
    return min(line.natural_s / room_s, DUB_SPEED_RANGE.high) if room_s > 0 else DUB_SPEED_RANGE.high


def _smooth_speeds(least: Sequence[float]) -> list[float]:
    """Return the lowest speeds that are at least `least` and change by at most one step between neighbours.

    The speed of a line is the largest of all values, each less one step for every line of distance.
    """
    speeds = list(least)
    for i in range(1, len(speeds)):
        speeds[i] = max(speeds[i], speeds[i - 1] - MAX_DUB_SPEED_STEP)
    for i in range(len(speeds) - 2, -1, -1):
        speeds[i] = max(speeds[i], speeds[i + 1] - MAX_DUB_SPEED_STEP)
    return speeds


def _compute_starts(
    original_starts_s: Sequence[float], lengths: Sequence[float], media_s: float
) -> tuple[list[float], list[bool]]:
    """Return the start of each line in seconds, and whether the line overlaps the next line or the end.

    A start stays as close to the original start as the other lines allow. A line starts late if the
    line before it has not ended. A line starts early if it would otherwise overlap the next line, although
    all later lines start as late as allowed.
    """
    last = len(original_starts_s) - 1
    overruns = [False] * len(original_starts_s)
    latest = [start + MAX_DUB_LATE_SECONDS for start in original_starts_s]
    # First pass: the earliest start of each line. If it is too late, the line before may overlap this line.
    free = before = 0.0
    for i, start in enumerate(original_starts_s):
        earliest = max(start - MAX_DUB_EARLY_SECONDS, free)
        if i and earliest > latest[i] + _TIME_TOLERANCE_S:
            overruns[i - 1] = True
            earliest = max(start - MAX_DUB_EARLY_SECONDS, 0.0)
        before, free = free, earliest + lengths[i]
    if free > media_s + _TIME_TOLERANCE_S:
        # Sound after the end of the media file would be lost, so the last line starts as early as necessary.
        overruns[last] = True
        latest[last] = max(0.0, media_s - lengths[last])
        if last and before > latest[last] + _TIME_TOLERANCE_S:
            overruns[last - 1] = True
    # Second pass: the latest start of each line at which later lines still start in time.
    for i in range(last, -1, -1):
        if not overruns[i]:
            latest[i] = min(latest[i], (latest[i + 1] if i < last else media_s) - lengths[i])
    starts: list[float] = []
    free = 0.0
    for i, start in enumerate(original_starts_s):
        at = max(start, free) if free > start + _TIME_TOLERANCE_S else start
        starts.append(latest[i] if at > latest[i] + _TIME_TOLERANCE_S or (i == last and overruns[i]) else at)
        free = 0.0 if overruns[i] else starts[i] + lengths[i]
    return starts, overruns


def _classify_fit(line: TimedLine, start_s: float, speed: float, is_over: bool) -> Fit:  # noqa: FBT001  (one of a table)
    if is_over:
        return Fit.OVERRUN
    if start_s != line.start_s:
        return Fit.MOVED
    if isclose(speed, 1.0):
        return Fit.FITS
    return Fit.FASTER if speed > 1 else Fit.SLOWER
