"""Turns: when a call begins, where several processes pace theirs together.

Whoever begins a call locks a byte of the lane's file (``places``) that says when; the
others begin theirs no sooner than a gap after it. A process that dies loses its byte, and
one that was stopped is soon too long ago to count.
"""

import math
import time

from speechframe.batch.places import TURNS, PrivateFile, SharedFile

_STEP_NS = 100_000
_STEPS_A_SECOND = 1_000_000_000 // _STEP_NS
_EARLY = 0.9
"""Part of its share of the turns after which a process may begin again: what others leave is not lost."""
_AFTER_YOU = 1.02
"""Gaps after which who began last may begin again: one that has just come is first."""
_GAPS_SEEN = 4


class Turns:
    """The turns of one process."""

    def __init__(self) -> None:
        self._own: int | None = None

    def take(self, file: SharedFile | PrivateFile, gap_s: float) -> float:
        """Take the turn and return 0, or return seconds after which to ask again."""
        now = TURNS.start + time.monotonic_ns() // _STEP_NS % len(TURNS)
        gap = math.ceil(gap_s * _STEPS_A_SECOND)
        # Who has begun nothing for so long does not pace its calls, or has none.
        others = _begun(file, now, max(_STEPS_A_SECOND, _GAPS_SEEN * gap))
        due = max(others, default=TURNS.start) + gap
        if self._own is not None:
            due = max(due, self._own + math.ceil(max(_AFTER_YOU, _EARLY * (1 + len(others))) * gap))
        if now < due:
            return min(due - now, _GAPS_SEEN * gap) / _STEPS_A_SECOND
        if now == self._own or not file.lock(now):
            return 1 / _STEPS_A_SECOND
        if _begun(file, now, gap - 1):
            # Two at once: both step back.
            file.unlock(now)
            return gap / _STEPS_A_SECOND
        if self._own is not None:
            file.unlock(self._own)
        self._own = now
        return 0.0


def _begun(file: SharedFile | PrivateFile, now: int, steps: int) -> list[int]:
    """Return when each of the others began its last call, as far as that is so few steps from now."""
    found = file.of_others(max(TURNS.start, now - steps), min(now + steps, TURNS.stop))
    return [turn for stretch in found for turn in stretch]
