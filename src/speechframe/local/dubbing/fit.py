"""Speech of one length brought into the time of another: how fast each line is, and where it starts.

A line that is too long first takes the room behind it, then it is spoken faster, then its start or the next
one's is moved a little. What still runs into the next line is left as it is and listed: nobody is cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from speechframe.spec.chosen import (
    DUB_EARLY_SECONDS,
    DUB_FULL_SLOT,
    DUB_LATE_SECONDS,
    DUB_SPEED,
    DUB_SPEED_STEP,
)
from speechframe.spec.dubbing import Fit

__all__ = ["Placed", "TimedLine", "fit"]

# Of what is divided and multiplied again, the last binary places differ.
_NOTHING_S = 1e-6


@dataclass(frozen=True, slots=True)
class TimedLine:
    """When somebody speaks, and how long the same takes in the other language at a speed of 1."""

    start_s: float
    end_s: float
    natural_s: float


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a line starts, how fast it is (its length is ``natural_s / speed``), and what that says of it."""

    start_s: float
    speed: float
    fit: Fit


def fit(lines: Sequence[TimedLine], media_s: float) -> list[Placed]:
    """Return where lines go, in their order.

    Parameters
    ----------
    lines
        In the order of their starts.
    media_s
        Length of the medium, which ends the room of the last one.
    """
    if not lines:
        return []
    rooms_end = [line.start_s for line in lines[1:]] + [media_s]
    speeds = _smooth([_least(line, end) for line, end in zip(lines, rooms_end, strict=True)])
    lengths = [line.natural_s / speed for line, speed in zip(lines, speeds, strict=True)]
    starts, over = _starts([line.start_s for line in lines], lengths, media_s)
    placed = zip(lines, starts, speeds, over, strict=True)
    return [
        Placed(start, speed, _called(line, start, speed, is_over)) for line, start, speed, is_over in placed
    ]


def _least(line: TimedLine, room_end_s: float) -> float:
    """Return the least speed at which a line fits, as far as speeds go."""
    room_s = room_end_s - line.start_s
    slot_s = min(line.end_s - line.start_s, room_s)
    if line.natural_s < DUB_FULL_SLOT * slot_s:
        return max(line.natural_s / slot_s, DUB_SPEED.low)
    if line.natural_s <= room_s:
        return 1.0
    return min(line.natural_s / room_s, DUB_SPEED.high) if room_s > 0 else DUB_SPEED.high


def _smooth(least: Sequence[float]) -> list[float]:
    """Return the lowest speeds that are nowhere below these and differ by one step from line to line.

    Each is the largest of all, less a step for each line in between; forwards and backwards that is two sums.
    """
    speeds = list(least)
    for i in range(1, len(speeds)):
        speeds[i] = max(speeds[i], speeds[i - 1] - DUB_SPEED_STEP)
    for i in range(len(speeds) - 2, -1, -1):
        speeds[i] = max(speeds[i], speeds[i + 1] - DUB_SPEED_STEP)
    return speeds


def _starts(own: Sequence[float], lengths: Sequence[float], media_s: float) -> tuple[list[float], list[bool]]:
    """Return where lines start, each as near to its own start as the others let it, and which run over.

    A line is late where the one before still speaks, and early where it would run into the next one though
    all that follow are as late as they may be.
    """
    last = len(own) - 1
    over = [False] * len(own)
    latest = [start + DUB_LATE_SECONDS for start in own]
    # The earliest that each can start. Where that is too late, the line before runs over, and nobody waits.
    free = before = 0.0
    for i, start in enumerate(own):
        earliest = max(start - DUB_EARLY_SECONDS, free)
        if i and earliest > latest[i] + _NOTHING_S:
            over[i - 1] = True
            earliest = max(start - DUB_EARLY_SECONDS, 0.0)
        before, free = free, earliest + lengths[i]
    if free > media_s + _NOTHING_S:
        # Behind its end a medium has no sound: rather than cut, the last line starts as early as it must.
        over[last] = True
        latest[last] = max(0.0, media_s - lengths[last])
        if last and before > latest[last] + _NOTHING_S:
            over[last - 1] = True
    # The latest that each may start, so that what follows is on time.
    for i in range(last, -1, -1):
        if not over[i]:
            latest[i] = min(latest[i], (latest[i + 1] if i < last else media_s) - lengths[i])
    starts: list[float] = []
    free = 0.0
    for i, start in enumerate(own):
        at = max(start, free) if free > start + _NOTHING_S else start
        starts.append(latest[i] if at > latest[i] + _NOTHING_S or (i == last and over[i]) else at)
        free = 0.0 if over[i] else starts[i] + lengths[i]
    return starts, over


def _called(line: TimedLine, start_s: float, speed: float, is_over: bool) -> Fit:  # noqa: FBT001  (one of a table)
    if is_over:
        return Fit.OVERRUN
    if start_s != line.start_s:
        return Fit.MOVED
    if isclose(speed, 1.0):
        return Fit.FITS
    return Fit.FASTER if speed > 1 else Fit.SLOWER
