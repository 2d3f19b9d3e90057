"""The cap of a key, learned from what is refused: one small state machine, no clocks, no input or output.

A refusal by a hard cap tells the cap: it is what was in flight beside the call
that was refused. So the number grows by one with every answer until something
is refused, is held there, and is probed by one more call now and then. Backing
off by itself, without looking at what is in flight, was measured at 55 % of
calls refused and three times the ideal time; this at about 1 % and 1.05 times.

Calls on their way reach a service in any order. Of those that began side by
side, the cap is how many were let in, not what was beside the one refused first.
"""

from dataclasses import dataclass, field

SHORTEST_GAP, FIRST_GAP, LONGEST_GAP = 3, 20, 128
"""Answers between two probes: one refused probe in 128 calls is under 1 %."""

_LONGEST_DOUBT = 2 * FIRST_GAP
"""The gap below which a number that may be a mistake is probed, whatever was refused before."""

MOST_REFUSED = 0.02
"""Share of calls refused by looking for the cap above which nothing is probed."""

_REMEMBERED_CALLS = 512
_FALL = 0.7
_SECOND = 2
_FEW = 2
_ENOUGH_ACCEPTED = 2


@dataclass(slots=True)
class Ticket:
    """One call in flight, as the cap saw it start.

    Attributes
    ----------
    beside
        Calls that were in flight beside it.
    cut
        The number of cuts before it started.
    number
        Its number among all calls.
    volley
        How many answers had come before it started. Calls of one volley began side by side: they reach the
        service in any order, so what was beside one of them when it began says nothing.
    is_probe
        It stands above the number held.
    """

    beside: int
    cut: int
    number: int
    volley: int
    is_probe: bool = False


@dataclass
class Cap:
    """How many calls may be in flight: told, or learned between 1 and `most`.

    Parameters
    ----------
    start
        The first guess.
    most
        Never more than this; equal to `start` where the cap is known, which then only falls and comes back.

    Attributes
    ----------
    held
        The number in force, without a probe.
    grows
        Nothing was refused since it last began to grow: every answer allows one call more.

    Examples
    --------
    >>> cap = Cap(start=2, most=100)
    >>> first, second = cap.start_call(0), cap.start_call(1)
    >>> cap.passed(first, beside=1), cap.passed(second, beside=0), cap.held
    (False, False, 3)
    >>> cap.refused(cap.start_call(2), beside=2)
    False
    >>> cap.held, cap.grows
    (2, False)
    """

    start: int
    most: int
    held: int = field(init=False)
    grows: bool = field(init=False)
    sent: float = field(default=0.0, init=False)
    refusals: float = field(default=0.0, init=False)
    _cuts: int = field(default=0, init=False)
    _started: int = field(default=0, init=False)
    _cut_at: int = field(default=0, init=False)
    """Calls that had started at the last cut."""
    _is_ours: bool = field(default=False, init=False)
    """The last cut came of looking for more, not of a cap that had fallen."""
    _refused: Ticket | None = field(default=None, init=False)
    """The call whose refusal made it."""
    _answers: int = field(default=0, init=False)
    _volley: int = field(default=-1, init=False)
    """The newest volley that has answers."""
    _let_in: int = field(default=0, init=False)
    """How many of it passed."""
    _overdue: int = field(default=0, init=False)
    """Calls that had started before the last cut and have passed since."""
    _falls: int = field(default=0, init=False)
    _gap: int = field(default=FIRST_GAP, init=False)
    _since: int = field(default=0, init=False)
    _probing: bool = field(default=False, init=False)
    _has_room: bool = field(default=False, init=False)
    """The last probe passed: before the number grows, another one is to. Where answers take their time,
    a call that looks like one too many may arrive after another has left."""

    def __post_init__(self) -> None:
        if not 1 <= self.start <= self.most:
            raise ValueError(f"a cap starts between 1 and {self.most}, not at {self.start}")
        self.held = self.start
        self.grows = self.start < self.most

    @property
    def limit(self) -> int:
        """How many calls may be in flight now, a probe among them."""
        # Asked twice a call: what is nearly always so comes first.
        gap = SHORTEST_GAP if self._has_room else self._gap
        if self.grows or self._probing or self._since < gap or self.held >= self.most:
            return self.held
        # A cap of one, or one that has fallen, is dear if it is a mistake; to find out costs a call or two.
        is_in_doubt = (self.held == 1 or not self._is_ours) and self._gap < _LONGEST_DOUBT
        return self.held + 1 if is_in_doubt or self.refusals <= self._most_refused else self.held

    @property
    def _most_refused(self) -> float:
        return MOST_REFUSED * max(self.sent, _REMEMBERED_CALLS / 2)

    @property
    def doubts_one(self) -> bool:
        """Whether the next call that starts beside another finds out about a cap of one."""
        return self.held == 1 < self.limit

    @property
    def is_floor(self) -> bool:
        """Whether nothing was refused yet: the number held says how many are let in, not how many are not."""
        return self.grows and not self._cuts

    def start_call(self, beside: int) -> Ticket:
        """Note that a call starts beside so many others."""
        self.sent += 1
        if self.sent >= _REMEMBERED_CALLS:
            self.sent /= 2
            self.refusals /= 2
        is_probe = not self.grows and beside >= self.held
        self._probing |= is_probe
        self._started += 1
        return Ticket(beside, self._cuts, self._started, self._answers, is_probe)

    def passed(self, ticket: Ticket, *, beside: int) -> bool:
        """Note an answer that is no refusal, with so many calls still in flight beside it.

        Returns
        -------
        bool
            It passed beside one or two others, where one was refused that had no more beside it: a cap of one
            or two did not do that.
        """
        self._since += 1
        self._note_answer(ticket, is_let_in=True)
        if ticket.cut == self._cuts:
            self._falls = 0
        else:
            self._overdue += 1
        was_no_cap = False
        if self._refused is not None and (shown := self._shown_by(ticket, self._refused)) > self.held:
            was_no_cap = self._refused.beside <= _FEW
            self.held = min(shown, self.most)
        if ticket.is_probe:
            self.forget_probe(ticket)
            if ticket.cut == self._cuts:
                self.held = min(max(self.held, ticket.beside + 1), self.most)
                if self._has_room:
                    # There is room: look for the end of it.
                    self.grows = self.held < self.most
                self._has_room = not self._has_room
                self._since = 0
        elif self.grows and beside + 1 >= self.held and ticket.cut == self._cuts:
            self.held = min(self.held + 1, self.most)
            self.grows = self.held < self.most
            self._gap = FIRST_GAP
        return was_no_cap

    def _shown_by(self, ticket: Ticket, refused: Ticket) -> int:
        """Return how many calls are let in at once, as far as one that passed shows; 0 if it shows none."""
        if ticket.volley == refused.volley:
            return self._let_in
        if ticket.number < refused.number or ticket.beside < refused.beside:
            return 0
        # It started after the one that was refused, beside as many: that one was not about their number.
        return ticket.beside + 1 if ticket.cut == self._cuts else min(ticket.beside + 1, self._overdue)

    def _note_answer(self, ticket: Ticket, *, is_let_in: bool) -> None:
        self._answers += 1
        if ticket.volley > self._volley:
            self._volley, self._let_in = ticket.volley, 0
        self._let_in += is_let_in and ticket.volley == self._volley

    def _below(self, ticket: Ticket) -> int:
        """Return the number left below a refused call: never less than passed side by side with it."""
        let_in = self._let_in if ticket.volley == self._volley else 0
        return max(1, let_in, min(self.held, ticket.beside))

    def refused(self, ticket: Ticket, *, beside: int) -> bool:
        """Note a refusal by the cap, with so many calls still in flight beside it.

        Returns
        -------
        bool
            The number begins to fall: it was refused again before anything passed, which no cap that stands
            still does.
        """
        self._since = 0
        self._note_answer(ticket, is_let_in=False)
        had_room, self._has_room = self._has_room, False
        is_first = ticket.cut == self._cuts
        if is_first:
            if ticket.number - self._cut_at > _ENOUGH_ACCEPTED:
                # Refusals come at once: those that started since the last cut, before this one, were let in.
                self._falls = 0
            self._is_ours = (ticket.is_probe or had_room or self.grows) and not self._falls
        self.refusals += self._is_ours
        if (was_probe := ticket.is_probe) or had_room:
            self.forget_probe(ticket)
            self._gap = min(2 * self._gap, LONGEST_GAP)
        elif is_first and not self.grows:
            # Refused below the number that was held: the cap has fallen, or some calls are refused whatever
            # is in flight. A probe soon tells which.
            self._gap = SHORTEST_GAP
        if not is_first:
            # It started before the last cut, and tells no more than that one did.
            self.held = self._below(ticket)
            return False
        self._cuts += 1
        self._cut_at, self._refused, self._overdue = self._started, ticket, 0
        self._falls += 1
        if self._falls == 1:
            self.held = self._below(ticket)
            self.grows = False
            if self.held == 1 and not was_probe:
                # The least a cap can be, and what a limit of calls a second looks like from the first two on:
                # to find out costs little.
                self._gap = SHORTEST_GAP
            return False
        # Refused again before anything passed: the cap itself has fallen. Go below it and come back.
        self.held = max(1, min(self.held, ticket.beside, int(_FALL * beside)))
        self.grows = self.held < self.most
        return self._falls == _SECOND

    def forget_probe(self, ticket: Ticket) -> None:
        """Note that a call ended without telling anything about the cap."""
        if ticket.is_probe:
            self._probing = ticket.is_probe = False

    def ask_again(self) -> None:
        """Allow a probe soon, however many calls were refused: what that told was long ago."""
        self.refusals, self._gap = min(self.refusals, self._most_refused), min(self._gap, FIRST_GAP)

    def adopt(self, held: int, *, is_floor: bool = False) -> None:
        """Take over what another process with the same key has learned.

        Parameters
        ----------
        held
            The number it holds.
        is_floor
            Nothing was refused to it yet, so that a lower number than ours says nothing.
        """
        if is_floor and (self.grows or held <= self.held):
            self.held = max(self.held, min(held, self.most))
            self.grows = self.grows and self.held < self.most
            return
        if held == self.held == 1:
            # In doubt here as well, and found out about where it is due first.
            return
        # No more than we hold: a probe of theirs was refused, and ours would be as well. While ours grows it
        # is no number that a refusal told.
        known = 1 < held <= self.held and not self.grows
        self._gap = min(2 * self._gap, LONGEST_GAP) if known else SHORTEST_GAP if held == 1 else FIRST_GAP
        self.held = max(1, min(held, self.most))
        self.grows = self._has_room = False
        self._since = 0
