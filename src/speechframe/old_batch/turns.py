"""Turns: when a call begins, where several processes pace theirs together.

Whoever begins a call locks a byte of the lane's file (``places``) that says when; the
others begin theirs no sooner than a gap after it. Who has to wait locks another one that
says when it asks again: as long as anybody does, who began one before leaves them the next
turns. What nobody waits for is not kept for those who make a call now and then. A process
that dies loses its bytes, and one that was stopped is soon too long ago to count.
"""

import math
import time

from speechframe.old_batch.places import ASKERS, TURNS, PrivateFile, SharedFile

_STEP_NS = 100_000
_STEPS_A_SECOND = 1_000_000_000 // _STEP_NS
_EARLY = 0.9
"""Part of its share of the turns after which a process may begin again: what others leave is not lost."""
_AFTER_YOU = 1.02
"""Gaps after which who began last may begin again: one that has just come is first."""
_GAPS_SEEN = 4
_LATE = _STEPS_A_SECOND // 10
"""Steps by which who waits may ask later than it said, or a gap where that is longer."""


class Turns:
    """The turns of one process."""

    def __init__(self) -> None:
        self._own: int | None = None
        self._asks: int | None = None
        """The byte that says when it asks again."""

    def take(self, file: SharedFile | PrivateFile, gap_s: float) -> float:
        """Take the turn and return 0, or return seconds after which to ask again."""
        now = time.monotonic_ns() // _STEP_NS % len(TURNS)
        gap = math.ceil(gap_s * _STEPS_A_SECOND)
        wait = self._wait(file, now, gap) or self._begin(file, now, gap)
        self._say(file, now + wait if wait else None)
        return wait / _STEPS_A_SECOND

    def _wait(self, file: SharedFile | PrivateFile, now: int, gap: int) -> int:
        """Return steps until it may be this one's turn, a gap at most: who waits now may not do so then."""
        # Who has begun nothing for so long does not pace its calls, or has none.
        others = _within(file, TURNS, now, max(_STEPS_A_SECOND, _GAPS_SEEN * gap))
        due = max(others, default=-gap) + gap
        # It lies ahead when the count has begun anew, which it does after 596 days of the machine.
        if self._own is not None and self._own <= now:
            is_awaited = _within(file, ASKERS, now, max(_LATE, gap))
            share = max(_AFTER_YOU, _EARLY * (1 + len(others))) if is_awaited else 1
            due = max(due, self._own + math.ceil(share * gap))
        return min(max(due - now, 0), gap)

    def _begin(self, file: SharedFile | PrivateFile, now: int, gap: int) -> int:
        """Take the turn and return 0, or return steps after which to ask again."""
        if now == self._own or not file.lock(TURNS.start + now):
            return 1
        if _within(file, TURNS, now, gap - 1):
            # Two at once: both step back.
            file.unlock(TURNS.start + now)
            return gap
        if self._own is not None:
            file.unlock(TURNS.start + self._own)
        self._own = now
        return 0

    def _say(self, file: SharedFile | PrivateFile, asks: int | None) -> None:
        """Let the others see when this one asks again."""
        if self._asks is not None:
            file.unlock(ASKERS.start + self._asks)
        # Others may ask at the same time.
        while asks is not None and not file.lock(ASKERS.start + asks):
            asks += 1
        self._asks = asks


def _within(file: SharedFile | PrivateFile, of: range, now: int, steps: int) -> list[int]:
    """Return the steps that others have locked, as far as they are so few from now."""
    found = file.of_others(max(of.start, of.start + now - steps), min(of.start + now + steps, of.stop))
    return [at - of.start for stretch in found for at in stretch]
