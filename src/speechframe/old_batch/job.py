"""One call on its way through a run, and the ways a run has with calls."""

import time
from dataclasses import dataclass, field
from typing import Any

from speechframe.errors import SpeechframeError
from speechframe.old_batch.balance import START, Mark
from speechframe.old_batch.books import Before
from speechframe.old_batch.operation import Planned, Todo
from speechframe.old_client import Call


@dataclass(slots=True)
class Job:
    """A call on its way: what was tried so far and what is reserved for it.

    Attributes
    ----------
    row_ids
        The first row of the table with this call; of a pack, of each member.
    is_cached
        The cache had its answer when the run was planned.
    sends
        Attempts made, each with its row in the ledger.
    uncounted
        Those among them that were refused by a cap or never arrived: no attempt of the row is lost by them.
    reserved, spent
        Thousandths of a credit.
    from_balance
        Set aside of the key's balance, for a lost answer until its repeat ends.
    mark
        What the budget knew when the call was sent.
    is_paid
        The ledger has it as billed, or perhaps billed, and its repeat is free.
    is_due
        An attempt of this drive was billed, or perhaps, and the repeat is free.
    is_unknown
        An attempt may have been billed without an answer.
    is_put_off
        It was told to wait for longer than it may take: it is not sent again.
    """

    planned: Planned
    row_ids: tuple[str, ...] = ()
    is_cached: bool = False
    is_paid: bool = False
    is_due: bool = False
    is_unknown: bool = False
    is_put_off: bool = False
    sends: int = 0
    uncounted: int = 0
    reserved: int = 0
    from_balance: int = 0
    mark: Mark = START
    spent: int = 0
    lane: str = ""
    started: float = field(default_factory=time.monotonic)
    last_error: SpeechframeError | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the call was first on its way."""
        return time.monotonic() - self.started

    @property
    def attempts(self) -> int:
        """Attempts that count against ``max_attempts``."""
        return self.sends - self.uncounted

    @property
    def price(self) -> int:
        """What the next attempt may cost, in thousandths of a credit."""
        return 0 if self.is_paid else self.planned.millicredits

    def price_of(self, part: Planned) -> int:
        """Return what the next attempt may cost of one part, in thousandths of a credit."""
        return 0 if self.is_paid else part.millicredits

    def spent_on(self, part: Planned) -> int:
        """Return what of :attr:`spent` is one part's: every attempt is billed for all parts or for none."""
        if part is self.planned or not self.planned.millicredits:
            return self.spent
        return self.spent * part.millicredits // self.planned.millicredits


@dataclass(frozen=True)
class Ways:
    """How a run behaves when something goes wrong, and what the service offers for it.

    Parameters
    ----------
    max_attempts
        Attempts a call may take; refusals by a cap do not count.
    patience_s
        Seconds a call may take from its first attempt, refusals included.
    repeat_is_free
        The service honours ``Idempotency-Key``.
    retry_unknown
        ``on_unknown="retry"``.
    timeout_s
        Limit of one attempt; None for one that grows with the text.
    sends_takes
        The service honours the header of takes; it is sent to no other.
    """

    max_attempts: int
    patience_s: float
    repeat_is_free: bool
    retry_unknown: bool
    timeout_s: float | None = None
    sends_takes: bool = False


def job_of(todo: Todo, before: Before, ways: Ways) -> Job:
    """Return a call on its way, with what earlier drives of the run left of it."""
    if not before.paid and not before.unknown:
        return Job(todo.planned, todo.row_ids, todo.is_cached)
    keys = [part.request_key for part in todo.planned.parts]
    return Job(
        todo.planned,
        row_ids=todo.row_ids,
        is_cached=todo.is_cached,
        is_paid=ways.repeat_is_free and all(key in before.paid for key in keys),
        is_unknown=any(key in before.unknown for key in keys),
    )


def call_of(job: Job, ways: Ways, run_id: str) -> Call[Any]:
    """Return what is sent for a call, with what the service honours: a key, a take."""
    planned, call = job.planned, job.planned.call
    key = idempotency_key(run_id, planned.request_key) if ways.repeat_is_free else None
    return Call(call.operation, call.request, call.body, key, planned.take if ways.sends_takes else 0)


def idempotency_key(run_id: str, request_key: str) -> str:
    """Return a call's ``Idempotency-Key``: the same for every attempt of this run."""
    return f"{run_id}-{request_key}"
