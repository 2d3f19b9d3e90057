"""How many calls may be in flight at once: a number learned from what the service refuses.

A service with a fixed cap tells it by a refusal: the cap is the number of calls that were in flight beside
the refused one. So the number grows by one with each answer until a call is refused, stays there, and now
and then one call more is tried (a probe). Nothing here knows time, files or the network.
"""

from dataclasses import dataclass

MOST_CALLS = 256
"""Calls in flight where nobody sets an end and nothing is refused."""

SHORTEST_GAP, FIRST_GAP, LONGEST_GAP = 3, 20, 128
"""Answers between two probes. One refused probe in 128 answers is below 1 % of the calls."""
ENOUGH_PROBES = 5
"""As many probes must pass in a row before the number grows. A single one proves little: it may have reached
the service just after another call had ended."""
FALL = 0.7
"""What is left of the number when calls are refused again before any has passed: the cap has fallen, and one
refusal for each step down would be too many."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What was known when a call began.

    Attributes
    ----------
    began_s
        When, by the clock of its lane.
    place
        How many other calls were in flight.
    passed
        How many calls had passed until then.
    cut
        How often the number had been cut until then: what happens to a call from before the last cut says
        nothing about the number after it.
    is_probe
        The call is one more than the number held.
    """

    began_s: float
    place: int
    passed: int
    cut: int
    is_probe: bool


@dataclass
class Cap:
    """A number of calls that may be in flight, as far as it is known.

    Parameters
    ----------
    held
        The number to start with.
    most
        The number never grows beyond this.
    grows
        Each answer adds one, until a call is refused.

    Examples
    --------
    >>> cap = Cap(held=2, most=100)
    >>> cap.passed(cap.begin(0.0, place=1))
    >>> cap.held
    3
    >>> cap.refused(cap.begin(0.0, place=2), beside=2)
    False
    >>> cap.held, cap.grows
    (2, False)
    """

    held: int
    most: int
    grows: bool = True
    _passed: int = 0
    _since_probe: int = 0
    _gap: int = FIRST_GAP
    _probes_passed: int = 0
    _cuts: int = 0
    _begun: int = 0
    """Calls that began since the last cut."""
    _before: int = 0
    """The number before a refusal that the next probe is to check; 0 without one."""

    @property
    def limit(self) -> int:
        """How many calls may be in flight now, a probe included."""
        may_probe = not self.grows and self._since_probe >= self._gap
        return min(self.held + may_probe, self.most)

    def begin(self, now_s: float, place: int) -> Ticket:
        """Return what is known of a call that begins with `place` other calls in flight."""
        self._begun += 1
        return Ticket(now_s, place, self._passed, self._cuts, not self.grows and place >= self.held)

    def passed(self, ticket: Ticket) -> None:
        """Learn from a call that was not refused."""
        self._passed += 1
        self._since_probe += 1
        if ticket.cut != self._cuts:
            return
        if self.grows:
            # Where fewer calls run than may, their success says nothing about more.
            if ticket.place >= self.held // 2:
                self.held = min(self.held + 1, self.most)
        elif ticket.is_probe and self._before:
            self.held, self._before, self._since_probe = self._before, 0, 0
        elif ticket.is_probe:
            self._since_probe = self._gap - SHORTEST_GAP
            self._probes_passed += 1
            self.grows = self._probes_passed >= ENOUGH_PROBES

    def refused(self, ticket: Ticket, beside: int) -> bool:
        """Learn from a refusal that came while `beside` other calls were in flight.

        Returns
        -------
        bool
            As many calls in flight had been let in before.
        """
        # The service judged the call between its begin and now: calls that passed in between may have
        # been in flight then.
        passed_since = self._passed - ticket.passed
        reached = max(1, beside, min(beside + passed_since, ticket.place))
        if ticket.cut != self._cuts:
            self.held = min(self.held, reached)
            return False
        is_check = ticket.is_probe and self._before > 0
        stands = not is_check and reached >= self.held - ticket.is_probe
        # Refused again, and no other call has begun meanwhile: the cap has fallen further than one step.
        is_again = self._before > 0 or (self.grows and not self.is_least)
        has_fallen = not stands and is_again and self._begun == 1
        # One call of many was refused. Services refuse some whatever is in flight, and to lower the number
        # for it would cost much: it counts only if the next probe is refused too.
        is_in_doubt = not (stands or has_fallen or self.grows or ticket.is_probe)
        is_surprise = not self.grows if has_fallen else self.grows and not self.is_least
        self._before = max(self._before, self.held) if is_in_doubt else 0
        self.held = min(self.held, max(1, int(FALL * reached)) if has_fallen else reached)
        if stands and ticket.is_probe:
            self._gap = min(2 * self._gap, LONGEST_GAP)
        else:
            self._gap = min(FIRST_GAP, 4 * self.held)
        self._since_probe = self._gap if is_in_doubt else 0
        self.grows = has_fallen
        self._cuts += 1
        self._begun = self._probes_passed = 0
        return is_surprise

    @property
    def is_least(self) -> bool:
        """Nothing was refused yet: the number says how many calls are let in, and perhaps more are."""
        return self.grows and not self._cuts

    def adopt(self, held: int, *, is_least: bool) -> None:
        """Take over what another process has learned.

        Parameters
        ----------
        held
            Its number.
        is_least
            Its :attr:`is_least`.
        """
        if is_least:
            self.held = max(self.held, min(held, self.most)) if self.is_least else self.held
            return
        # What calls under way will tell is older than this.
        self._cuts += 1
        self.held = max(1, min(held, self.most))
        self.grows = False
        self._begun = self._since_probe = self._probes_passed = self._before = 0
