"""Pacing for a service that limits calls a second, not calls in flight.

Such a limit refuses whatever is in flight: a call that has nothing beside it as
well, one beside as few as were let in a moment ago, and a learned cap falls again
and again before anything passes. Any of them tells it, and calls are spaced from
then on: first at the rate that was answered, doubled until one is refused, then
half the way to the rate that was refused, and at last a little more now and then.

A change of the rate is on trial until calls begun at it have passed: answers to
calls that began before tell nothing about it.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from speechframe.old_batch.learned import KnownRate

FALLS = 5
"""Falls of the learned cap within :data:`FALLS_WITHIN_S` that tell a rate limit from a changed cap."""
FALLS_WITHIN_S = 15.0
ALONE_WITHIN = 5
"""Passes between two refusals of calls that were alone, up to which both tell a rate even under a low cap."""
LOW_CAP = 2
"""A cap so low lets a call be alone again and again: one that is refused then may be odd."""
_LOWER = 0.8
"""A fall from below this share of where the one before began is the same fall."""

_SEEN_S = 3.0
"""Answers of the last seconds make the first guess."""
_SHORTEST_SEEN_S = 0.1
_FASTER = 0.02
"""How much faster is tried now and then, as a share, where the rate is known."""
_NEAR = 0.05
"""As a share: a rate that is nearer than this to one that was refused is known."""
_FEWEST = 3
"""Passes that end the trial of a rate far from one that was refused."""
_FIRST_HOLD_S, _LONGEST_HOLD_S = 1.0, 4.0
"""How long a rate that is known is kept before a faster one is tried."""
_HALF, _LESS = 0.5, 0.95
"""What is left of a rate that is refused: of a guess, and of one that had been let in."""
_WRONG = 0.4
"""Below this share of the best that was ever let in, spacing does not help: it was no rate."""
_SLOWEST = 0.2
"""Calls a second below which a wait is the better answer to a refusal."""


@dataclass
class Rate:
    """Calls a second, as far as refusals tell; times are seconds of one clock.

    Calls have numbers that rise in the order they begin.

    Attributes
    ----------
    per_second
        Calls a second that are begun; None while nothing says that there is such a limit.

    Examples
    --------
    >>> rate = Rate()
    >>> for tenth in range(30):
    ...     rate.passed(tenth / 10, tenth)
    >>> for _ in range(FALLS):
    ...     rate.fell(3.0, beside=4)
    >>> round(rate.per_second), round(rate.wait_s(3.0), 1)
    (10, 0.1)
    """

    per_second: float | None = None
    _passes: deque[float] = field(default_factory=deque)
    _falls: deque[float] = field(default_factory=deque)
    _fell_beside: int = 0
    _doubted_at: float = -math.inf
    _refused_few_at: float = -math.inf
    _since_alone: float = math.inf
    """Passes since a call was refused that was alone."""
    _next: float = 0.0
    _changed: float = 0.0
    _first: int | None = None
    """Number of the first call of this trial."""
    _passed: int = 0
    """Calls of this trial that passed."""
    _is_spared: bool = False
    """One call of this trial was refused, at a rate that had been let in before."""
    _stood: float | None = None
    """The rate whose trial was stood; None where no lower one is known to pass."""
    _is_among_others: bool = False
    """The first guess is on trial, and others are not told of it: theirs may be what had it refused."""
    _best: float = 0.0
    _refused: float = math.inf
    """The rate that was refused last."""
    _fall: float = _HALF
    _step: float = _FASTER
    _hold_s: float = _FIRST_HOLD_S

    def passed(self, now: float, number: int) -> None:
        """Note an answer that is no refusal."""
        self._passes.append(now)
        self._since_alone += 1
        self._forget(now)
        if self.per_second is None or not self._is_of_trial(number):
            return
        self._passed += 1
        room = self._refused / self.per_second - 1
        if room > _NEAR:
            # A rate that is too high by a tenth is refused no earlier than after ten calls.
            is_stood = self._passed >= max(_FEWEST, 2 / room)
        else:
            is_stood = self._passed >= _FEWEST and now - self._changed >= self._hold_s
        if is_stood:
            self._raise(self.per_second, room, now)

    def fell(self, now: float, beside: int, *, processes: int = 1) -> None:
        """Note that the learned cap fell again before anything passed, for a call beside so many."""
        if beside < _LOWER * self._fell_beside and self._falls:
            # Still on its way down, as a cap that has changed goes: this is the fall before, further.
            self._falls.pop()
        self._falls.append(now)
        self._fell_beside = beside
        while self._falls[0] < now - FALLS_WITHIN_S:
            self._falls.popleft()
        if len(self._falls) >= FALLS:
            self.proved(now, processes=processes)

    def doubted(self, now: float) -> None:
        """Note that a cap of one or two was disproved: either it has risen, or there is a rate."""
        self._doubted_at = now

    def refused_few(self, now: float, *, processes: int = 1) -> None:
        """Note a refusal beside so few that a cap would be as low again as one that was disproved."""
        if now - self._doubted_at >= FALLS_WITHIN_S:
            return
        # Once, another call that began later may have been there before it.
        if now - self._refused_few_at < FALLS_WITHIN_S:
            self.proved(now, processes=processes)
        self._doubted_at, self._refused_few_at = -math.inf, now

    def refused_alone(self, now: float, *, held: int, processes: int = 1) -> None:
        """Note a refusal of a call that was alone, which no cap explains; the cap was held at so many.

        A service may refuse some calls whatever is in flight. To pace calls by mistake costs many times what
        a second refusal does where processes share a low cap, so there it takes two that are close.
        """
        is_second, self._since_alone = self._since_alone <= ALONE_WITHIN, 0
        if is_second or held > LOW_CAP or processes == 1:
            self.proved(now, processes=processes)

    def proved(self, now: float, *, processes: int = 1) -> None:
        """Note that no cap explains a refusal: calls are paced, if any passed that tell how fast.

        Answers to `processes` alike came together; only ours are seen.
        """
        self._forget(now)
        if self.per_second is None and self._passes:
            self._stood, self._best, self._refused, self._fall = None, 0.0, math.inf, _HALF
            self._step, self._hold_s = _FASTER, _FIRST_HOLD_S
            self._is_among_others = processes > 1
            seen = processes * len(self._passes) / max(now - self._passes[0], _SHORTEST_SEEN_S)
            self._change(seen, now)
            self._next = now + 1 / seen

    def _forget(self, now: float) -> None:
        """Let go of answers of long ago, which tell nothing of how fast calls are let in now."""
        while self._passes and self._passes[0] < now - _SEEN_S:
            self._passes.popleft()

    def refused(self, now: float, number: int) -> None:
        """Note a refusal while calls are paced."""
        if self.per_second is None or not self._is_of_trial(number):
            return
        if self._stood is not None and self._stood < self.per_second:
            self._refused = self.per_second
            if self.per_second <= (1 + _NEAR) * self._stood:
                self._hold_s = min(2 * self._hold_s, _LONGEST_HOLD_S)
            self._step = _FASTER
            self._change(self._stood, now)
            return
        if self._stood is not None and not self._is_spared:
            # A call that came a little late makes the next one too early.
            self._is_spared, self._passed = True, 0
            return
        # What had been let in is refused as well: the limit has fallen, or a burst had hidden it.
        slower = self._fall * self.per_second
        if not self._is_among_others:
            self._refused = self.per_second
        self._stood, self._fall = None, max(self._fall**2, _HALF)
        self._change(slower, now)
        if slower < max(_WRONG * self._best, _SLOWEST):
            # Spacing does not help, so it was no rate limit.
            self.per_second = None
            self._falls.clear()

    @property
    def has_stood(self) -> bool:
        """Whether the trial of any rate was stood, so that there is more to it than a guess."""
        return self.per_second is not None and self._stood is not None

    @property
    def known(self) -> KnownRate | None:
        """What others with the same key may go by; None where calls are not paced."""
        if self.per_second is None:
            return None
        return (self.per_second, self._stood or 0.0, self._refused)

    def adopt(self, rate: KnownRate, now: float) -> None:
        """Take over what another process with the same key has learned, or that it was no rate."""
        per_second, stood, refused = rate
        if not per_second:
            self.per_second = None
            self._falls.clear()
            return
        if self.per_second is None:
            self._step, self._hold_s, self._best = _FASTER, _FIRST_HOLD_S, 0.0
            self._next = now + 1 / per_second
        self._stood, self._refused, self._is_among_others = stood or None, refused, False
        self._best = max(self._best, stood)
        self._fall = _LESS if stood and not math.isinf(refused) else _HALF
        if per_second != self.per_second:
            self._change(per_second, now)

    def _raise(self, stood: float, room: float, now: float) -> None:
        self._stood, self._fall, self._is_among_others = stood, _LESS, False
        if math.isinf(room):
            # What a burst lets in shows no rate yet.
            self._fall = _HALF
            self._change(2 * stood, now)
        elif room > _NEAR:
            self._best = max(self._best, stood)
            self._change((1 + room / 2) * stood, now)
        else:
            self._best = max(self._best, stood)
            if stood >= self._refused:
                # Let in where it was refused before: the limit has risen.
                self._step, self._hold_s = min(2 * self._step, 1.0), _FIRST_HOLD_S
            self._change((1 + self._step) * stood, now)

    def _change(self, per_second: float, now: float) -> None:
        self.per_second, self._changed = per_second, now
        self._first, self._passed, self._is_spared = None, 0, False

    def _is_of_trial(self, number: int) -> bool:
        return self._first is not None and number >= self._first

    @property
    def gap_s(self) -> float:
        """Mean seconds between the last answers."""
        passes = self._passes
        return (passes[-1] - passes[0]) / (len(passes) - 1) if len(passes) > 1 else 0.0

    def wait_s(self, now: float) -> float:
        """Return seconds until the next call may begin."""
        return 0.0 if self.per_second is None else max(0.0, self._next - now)

    def put_off(self, until: float) -> None:
        """Note that no call may begin before then: it is another's turn."""
        self._next = max(self._next, until)

    def begin(self, now: float, number: int) -> None:
        """Note that a call begins."""
        if self.per_second is not None:
            if self._first is None:
                self._first = number
            # Counted from now: a limit without a burst refuses the next of a call that came late.
            self._next = now + 1 / self.per_second
