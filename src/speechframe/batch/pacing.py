"""Calls per second, for a service that limits them instead of calls in flight.

Such a service refuses a call although no other is in flight, which no cap explains. From then on calls begin
at even distances. The pace grows with each call that passes and is cut by a refusal; close to a pace that was
refused it grows slowly.
"""

import math
from collections import deque
from dataclasses import dataclass, field

FAST, SLOW = 1.05, 1.002
"""What a passed call multiplies the pace by: far below the pace that was refused last, and close to it."""
NEAR, NEAR_S = 0.9, 10.0
"""Closer than this share to the pace that was refused last, it grows slowly for so many seconds."""
CUT, GUESS_CUT, STOOD = 0.9, 0.5, 10
"""What a refusal multiplies the pace by: one at which so many calls have passed, and one that was a guess."""
USELESS, MOST_GUESSES = 0.3, 6
"""Below this share of the best pace, or after so many wrong guesses in a row, spacing calls does not help:
the service does not limit calls per second."""
PAUSE_S = 60.0
"""After such a mistake no pacing for so long."""
SEEN_S, SHORTEST_SEEN_S = 3.0, 0.1
"""The first pace is that of the calls passed in the last seconds."""
FALLS, FALLS_WITHIN = 4, 100
"""So often, within so many calls that passed, the number of calls in flight fell below what had been let in:
that means a limit per second. A cap that falls does so once."""
CLOSE = 2
"""Two refusals without another call in flight mean a limit per second, if no more calls passed between."""


@dataclass
class Pace:
    """When the next call may begin, for a service that limits calls per second.

    All times are seconds of one clock.

    Attributes
    ----------
    per_second
        The pace of all processes together; None while nothing says that the service has such a limit.
    processes
        How many share it; each begins its part of the calls.

    Examples
    --------
    >>> pace = Pace()
    >>> for tenth in range(30):
    ...     pace.passed(tenth / 10)
    >>> pace.refused(3.0, 3.0, is_alone=True)
    >>> pace.refused(3.0, 3.0, is_alone=True)
    >>> round(pace.per_second), round(pace.wait_s(3.0), 1)
    (10, 0.1)
    """

    per_second: float | None = None
    processes: int = 1
    _passes: deque[float] = field(default_factory=deque)
    _since_alone: float = math.inf
    """Calls passed since one was refused that had no other in flight beside it."""
    _count: int = 0
    """Calls passed so far."""
    _falls: deque[int] = field(default_factory=lambda: deque([-FALLS_WITHIN], FALLS))
    """What :attr:`_count` was at each fall."""
    _next_s: float = 0.0
    _is_used: bool = True
    """The last call began as soon as it might."""
    _changed_s: float = 0.0
    _passed: int = 0
    """Calls passed since the last cut."""
    _best: float = 0.0
    _guesses: int = 0
    """Cuts in a row of a pace that was a guess."""
    _refused: float = math.inf
    _not_before_s: float = -math.inf

    def wait_s(self, now_s: float) -> float:
        """Return seconds until the next call may begin."""
        return 0.0 if self.per_second is None else max(0.0, self._next_s - now_s)

    @property
    def gap_s(self) -> float:
        """Mean seconds between the last calls that passed."""
        return (self._passes[-1] - self._passes[0]) / max(1, len(self._passes) - 1) if self._passes else 0.0

    def begin(self, now_s: float) -> None:
        """Note that a call begins."""
        if self.per_second is not None:
            # From now, not from when it was due: some services refuse the call after one that came late.
            gap_s = self.processes / self.per_second
            self._is_used = now_s - self._next_s < gap_s / 4
            self._next_s = now_s + gap_s

    def passed(self, now_s: float) -> None:
        """Note a call that was not refused."""
        self._count += 1
        self._since_alone += 1
        self._passes.append(now_s)
        self._forget(now_s)
        if self.per_second is None:
            return
        self._passed += 1
        if self._passed >= STOOD:
            self._best = max(self._best, self.per_second)
        if not self._is_used:
            return  # calls begin more slowly than they may: that says nothing about a faster pace
        is_near = NEAR * self._refused <= self.per_second <= self._refused / NEAR
        self.per_second *= SLOW if is_near and now_s < self._changed_s + NEAR_S else FAST

    def refused(self, now_s: float, began_s: float, *, is_alone: bool, fell: bool = False) -> None:
        """Note a refusal.

        Parameters
        ----------
        now_s, began_s
            Now, and when the refused call began.
        is_alone
            No other call was in flight when it began, nor now.
        fell
            What :meth:`~speechframe.batch.cap.Cap.refused` returned.
        """
        if self.per_second is None:
            self._forget(now_s)
            if fell and self._count >= self._falls[-1] + STOOD:
                self._falls.append(self._count)
            is_limited = len(self._falls) == FALLS and self._falls[0] > self._count - FALLS_WITHIN
            if is_alone:
                is_limited |= self._since_alone <= CLOSE
                self._since_alone = 0
            if is_limited and len(self._passes) > 1 and now_s >= self._not_before_s:
                seen_s = max(now_s - self._passes[0], SHORTEST_SEEN_S)
                self._start(self.processes * len(self._passes) / seen_s, now_s)
        elif began_s >= self._changed_s:
            if self._passed >= STOOD:
                self._refused = self.per_second
                self._set(CUT * self.per_second, now_s)
                self._guesses = 0
            else:
                self._set(GUESS_CUT * self.per_second, now_s)
                self._guesses += 1
            if self.per_second < USELESS * self._best or self._guesses > MOST_GUESSES:
                self.per_second, self._not_before_s = None, now_s + PAUSE_S

    def adopt(self, per_second: float, now_s: float) -> None:
        """Take over the pace that another process has found."""
        if self.per_second is None:
            self._start(per_second, now_s)
        elif per_second < self.per_second:
            self._set(per_second, now_s)
        else:
            self.per_second = per_second

    def _start(self, per_second: float, now_s: float) -> None:
        self._best, self._refused, self._guesses = 0.0, math.inf, 0
        self._set(per_second, now_s)

    def _set(self, per_second: float, now_s: float) -> None:
        self.per_second, self._changed_s, self._passed = per_second, now_s, 0
        self._next_s = now_s + self.processes / per_second

    def _forget(self, now_s: float) -> None:
        while self._passes and self._passes[0] < now_s - SEEN_S:
            self._passes.popleft()
