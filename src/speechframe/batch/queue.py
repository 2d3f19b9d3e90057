"""The calls of a run: which is next, what all may cost, and what becomes of one whose attempt failed."""

import asyncio
import heapq
import itertools
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from speechframe import errors
from speechframe.batch.backend import Backend, Request
from speechframe.batch.lanes import LONGEST_RETRY_AFTER_S
from speechframe.batch.prepare import Prepared
from speechframe.errors import BudgetExceeded, ConnectionFailed, ServiceError, SpeechframeError
from speechframe.settings.spending import ALERTS, BudgetRule
from speechframe.spec.billing import CREDIT, to_credits
from speechframe.store.budgets import Allotments
from speechframe.store.folder import storing
from speechframe.store.journal import loads
from speechframe.store.schema import (
    BASE_KEY,
    NOTED,
    PACK,
    PRICE,
    REQUEST,
    ROW_ID,
    TAGS,
    TAKE,
    Row,
    StopReason,
)

Mask = npt.NDArray[np.bool_]

_ROWS_AT_ONCE = 256
_MOST_HELD = 2048
"""Calls that are held at most while their kind of work has no room."""


@dataclass(slots=True)
class Call:
    """A call on its way."""

    request: Request
    is_unknown: bool = False  # an attempt may have been billed, and no answer has said whether it was
    is_paid: bool = False  # ... further attempts cost nothing: the ledger has the price already
    noted: bytes | None = None  # what an earlier attempt wrote down with `Attempt.note`
    reserved: int = 0  # thousandths of a credit set aside for it
    sends: int = 0  # attempts made; each stands in the ledger
    failures: int = 0  # those among them that count against max_attempts
    began: float = 0.0  # monotonic time of the first attempt
    retakes: int = 0  # how many takes before this one were suspect
    costs: Counter[str] = field(default_factory=Counter)
    """Thousandths of a credit that its attempts have cost so far, by the key of each row."""
    rows: tuple[Request, ...] = ()  # the requests that get a record each; known once it is handed out
    booked: dict[str, int] = field(default_factory=dict)  # by key, what a row was booked at if not its price

    def charged(self, row: Request) -> int:
        """Return the thousandths of a credit that an earlier attempt was booked at for a row."""
        return self.booked.get(row.key, row.price)


class Verdict(Enum):
    """What becomes of a call."""

    NOW = "refused by a cap: to the front of the queue"
    LATER = "failed for now, and surely not billed: again after a delay"
    FAIL = "refused for good: its row fails, the others go on"
    LOST = "sent without an answer: it may have been billed"
    UNUSABLE = "billed, and its answer is of no use"
    STOP = "would fail every row: the run stops and keeps what it has"


VERDICTS: tuple[tuple[type[SpeechframeError], Verdict], ...] = (
    (errors.RateLimited, Verdict.NOW),
    (errors.RequestTimeout, Verdict.LATER),
    (errors.ServerError, Verdict.LATER),
    (errors.Unavailable, Verdict.LATER),
    (errors.PaymentRequired, Verdict.STOP),
    (errors.PermissionDenied, Verdict.STOP),
    (errors.ServiceError, Verdict.FAIL),
    (errors.BadAnswer, Verdict.UNUSABLE),
    (errors.SpeechframeError, Verdict.FAIL),
)

GATEWAYS = frozenset({502, 504, 520, 522, 524})
"""Whoever answers with one of these does not know what the service behind it did."""


def verdict_of(error: SpeechframeError) -> Verdict:
    """Return what becomes of a call whose attempt ended with `error`."""
    if isinstance(error, ConnectionFailed):
        return Verdict.LOST if error.sent else Verdict.LATER
    if isinstance(error, ServiceError) and error.status in GATEWAYS:
        return Verdict.LOST
    return next(verdict for kind, verdict in VERDICTS if isinstance(error, kind))


@dataclass(frozen=True, slots=True)
class Alert:
    """A budget of which a share is spent or set aside: ``max_credits``, or the name of one over many runs."""

    budget: str
    share: float
    limit_credits: float
    spent_credits: float

    def __str__(self) -> str:
        """Return the alert in words."""
        return (
            f"{100 * self.share:.0f} % of {self.budget}={self.limit_credits:.15g} are spent or set aside: "
            f"{self.spent_credits:,.15g}"
        )


class Allowance:
    """A budget over many runs as one run sees it: what it was allotted, and what of that is free."""

    def __init__(self, rule: BudgetRule, allotments: Allotments, clock: Callable[[], float]) -> None:
        self.rule, self.allotments, self._clock = rule, allotments, clock
        self.id, self.period = rule.id, rule.start(clock())
        self.reserved = self.free = self._total = 0
        self._reserved_before = 0  # what is reserved in the periods before

    @property
    def used(self) -> int:
        """What all runs have spent or set aside in this period, as far as is known here."""
        return self._total - self.free

    def allot(self, price: int) -> bool:
        """Have more allotted to this run where that is needed, and return whether `price` is free."""
        if (period := self.rule.start(self._clock())) != self.period:
            # Calls under way count with their price in the period they were reserved in.
            self.close()
            self.period, self._reserved_before, self._total = period, self.reserved, 0
        if price > self.free:
            limit, hard = self.rule.millicredits, self.rule.hard
            amount, self._total = self.allotments.allot(
                self.id, period, price - self.free, limit=limit, hard=hard
            )
            self.free += amount
        return price <= self.free

    def reserve(self, price: int) -> None:
        """Set aside what fits."""
        self.free -= price
        self.reserved += price

    def settle(self, reserved: int, cost: int) -> None:
        """Replace what was set aside for a call by what it has cost."""
        self.reserved -= reserved
        before = min(reserved, self._reserved_before)
        self._reserved_before -= before
        self.free += reserved - before - max(0, cost - before)

    def close(self) -> None:
        """Give back what was allotted and not spent; what is still reserved stays counted."""
        if self.free:
            self.allotments.give_back(self.id, self.period, self.free)
        self.free = 0


class Budget:
    """What a run may spend: reserved before each call, settled after it, in thousandths of a credit.

    No limit is ever passed: `limit`, of all calls of the run, with what it has `spent_before`, and those of
    budgets over many runs, in which a call counts by its tags. StoreError is raised where the file of the
    latter cannot be used: nothing must be sent. `alert` is called once for each used share of a budget.
    """

    def __init__(
        self,
        limit: int | None,
        spent_before: int,
        allowances: Sequence[Allowance] = (),
        *,
        tags: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.spent, self.reserved = spent_before, 0
        self.alert: Callable[[Alert], None] = lambda _: None
        self._limit, self._allowances, self._tags = limit, allowances, tags
        self._refused_by: Allowance | None = None
        self._alerted: set[tuple[str, object, float]] = set()

    def reserve(self, request: Request, price: int) -> bool:
        """Set `price` aside for a call, all or nothing; False where it does not fit. A free one fits."""
        if not price:
            return True
        if self._limit is not None and price > self._limit - self.spent - self.reserved:
            self._refused_by = None
            return False
        shares: list[tuple[Allowance, int]] = []
        for allowance in self._allowances:
            share = self._share(allowance, request, None)
            if share and not allowance.allot(share):
                self._refused_by = allowance
                return False
            shares.append((allowance, share))
        for allowance, share in shares:
            allowance.reserve(share)
        self.reserved += price
        if self._limit is not None or self._allowances:
            self._alert_used_shares()
        return True

    def settle(self, request: Request, reserved: int, costs: Sequence[int]) -> None:
        """Replace what was set aside for a call by what each of its rows has cost."""
        self.reserved -= reserved
        self.spent += sum(costs)
        for allowance in self._allowances:
            share = self._share(allowance, request, None) if reserved else 0
            allowance.settle(share, self._share(allowance, request, costs))

    def _share(self, allowance: Allowance, request: Request, costs: Sequence[int] | None) -> int:
        """Return what of a call counts in a budget: the prices, or the costs, of the rows that match."""
        total = 0
        for place, row in enumerate(request.rows):
            if allowance.rule.matches({**self._tags, **(row.facts.get("tags") or {})}):
                total += row.price if costs is None else costs[place]
        return total

    def _alert_used_shares(self) -> None:
        """Call `alert` for the shares of budgets that are used by now."""
        limits = [
            (one.rule.name, one.period, one.rule.alerts, one.rule.millicredits, one.used)
            for one in self._allowances
        ]
        if self._limit is not None:
            limits.append(("max_credits", date.min, ALERTS, self._limit, self.spent + self.reserved))
        for name, period, shares, limit, used in limits:
            for share in shares:
                if used >= share * limit > 0 and (name, period, share) not in self._alerted:
                    self._alerted.add((name, period, share))
                    self.alert(Alert(name, share, to_credits(limit), to_credits(used)))

    def why_not(self, price: int) -> BudgetExceeded:
        """Return the error that names the limit which refused last.

        `price` is the price of all calls that the run would still make, in thousandths of a credit.
        """
        name, limit, spent, by = "max_credits", self._limit or 0, self.spent + self.reserved, ""
        advice = "resume the run with a higher max_credits"
        if (refused_by := self._refused_by) is not None:
            rule = refused_by.rule
            name, limit, period = rule.name, rule.millicredits, refused_by.period
            spent = refused_by.allotments.total(refused_by.id, period) - refused_by.free
            whose = "all runs of this key" if rule.account else "all runs that it counts"
            by = f" by {whose} since {period} (UTC)" if rule.period != "total" else f" by {whose}"
            where = f" ({rule.told_by})" if rule.told_by else ""
            later = "" if rule.period == "total" else f"next {rule.period}, or "
            advice = f"resume the run {later}with a higher {name}{where}"
        return BudgetExceeded(
            f"{name}={to_credits(limit):.15g}: {to_credits(spent):,.15g} spent or set aside{by}, "
            f"{to_credits(max(0, limit - spent)):,.15g} left, and the rest of the run costs "
            f"{to_credits(price):,.15g} credits. Everything that was made is kept; {advice}.",
            limit="run" if refused_by is None else name,
            max_credits=to_credits(limit),
            spent_credits=to_credits(spent),
            needed_credits=to_credits(price),
        )

    def close(self) -> None:
        """Give back what was allotted and not spent; what is still reserved stays counted."""
        for allowance in self._allowances:
            allowance.close()


@dataclass
class Plan:
    """The calls of a run's table, and which of them are still to be made."""

    prepared: Prepared
    keys: Any  # of each row's call, 16 bytes each in an Arrow array
    todo: Mask  # rows whose call is to be made
    free: Mask  # those among them that cost nothing: they are paid already
    cached: Mask  # rows whose answer the cache has
    due: dict[str, Row]  # by key, the failed records of calls that may have been billed and are sent again
    in_packs: Mask  # rows of those calls that shared theirs with others
    waits: dict[str, float] = field(default_factory=dict)
    """By key, the Unix time before which the service wants no call, as it asked an earlier process."""
    late: str = ""  # why rows are left out that would wait for longer than their patience; empty if none is

    def call(self, request: Request) -> Call:
        """Return the call of a request, with what an earlier process knows of it."""
        call = Call(request)
        if (due := self.due.get(request.key)) is not None:
            call.is_unknown = call.is_paid = True
            call.noted = None if due[NOTED] is None else bytes.fromhex(due[NOTED])
            before = {row.key: (self.due.get(row.key) or {}).get("credits") for row in request.rows}
            call.booked = {key: round(credits * CREDIT) for key, credits in before.items() if credits}
        return call

    def wait_s(self, request: Request) -> float:
        """Return the seconds until a call may be sent, as far as the service asked to wait with its rows."""
        until = (
            max((self.waits.get(row.key, 0.0) for row in request.rows), default=0.0) if self.waits else 0.0
        )
        return min(max(0.0, until - time.time()), LONGEST_RETRY_AFTER_S)

    @property
    def charged_millicredits(self) -> int:
        """Price of the calls to make that were not paid before, in thousandths of a credit."""
        return int(self.prepared.prices[self.todo & ~self.free].sum())

    def packs_again(self, backend: Backend) -> Iterator[Request]:
        """Yield the calls of several rows that may have been billed, as they were, and leave out their rows.

        Only the very same call is free once more, or one that goes on from what was noted; rows of others
        stay as they are.
        """
        packs: dict[str, list[str]] = {}
        for key, row in self.due.items():
            if row[PACK] is not None:
                packs.setdefault(row[PACK], []).append(key)
        wanted = self.todo & self.in_packs
        again = {request.key: request for request in self.requests(wanted)} if packs else {}
        for pack, keys in packs.items():
            row = self.due[keys[0]]
            for request in backend.pack(iter([again[key] for key in keys if key in again])):
                if request.key == pack or row[NOTED] is not None:
                    self.due[request.key] = row
                    yield request
        self.todo &= ~wanted

    def requests(self, wanted: Mask) -> Iterator[Request]:
        """Yield the requests of rows that are wanted by then, reading the table as far as it is asked."""
        columns = [ROW_ID, BASE_KEY, TAKE, PRICE, REQUEST, TAGS]
        folder, start = self.prepared.table_folder, 0
        source = folder.source(self.prepared.entry.file)
        codes = self.keys.dictionary_encode().indices.to_numpy()
        counts = np.bincount(codes, minlength=1)[codes]  # how many rows have the call of each row
        with storing(folder, "reading the table"), pq.ParquetFile(source) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                if not wanted[start:].any():
                    return
                places = start + np.flatnonzero(wanted[start : start + batch.num_rows])
                rows = batch.take(places - start).to_pylist()
                keys, numbers = self.keys.take(places).to_pylist(), counts[places].tolist()
                for row, key, number in zip(rows, keys, numbers, strict=True):
                    known, _, body = row[REQUEST].partition(b"\n")
                    characters, varies, facts = loads(known)
                    if row[TAGS] is not None:
                        facts["tags"] = loads(row[TAGS])
                    if number > 1:
                        facts["rows"] = number
                    yield Request(
                        b"",
                        body,
                        row[PRICE],
                        characters,
                        facts,
                        varies,
                        base_key=row[BASE_KEY],
                        take=row[TAKE],
                        key=key.hex(),
                        row_id=row[ROW_ID],
                    )
                start += batch.num_rows


def _sources(plan: Plan, backend: Backend) -> Iterator[Iterator[Request]]:
    yield plan.packs_again(backend)
    # Begun only now: what goes out again in packs is not among the rest.
    yield backend.pack(plan.requests(plan.todo))


class Queue:
    """Hands out calls one at a time and reserves the price of each.

    Calls that were put back come first, then the calls of the plan. At most `most_at_once` calls of a kind of
    work are out. While a kind has no room, its calls are held and calls of other kinds pass them. Without a
    budget nothing is reserved. `stopped` is the reason why no more calls are handed out, and `stopped_by` the
    error behind that reason.
    """

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        budget: Budget | None,
        most_at_once: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._plan, self._backend, self._budget = plan, backend, budget
        self._most_at_once = most_at_once
        self._out_of: Counter[str] = Counter()  # calls that are out, by kind of work
        self._held: dict[str, deque[Call]] = {}  # calls of kinds without room, in the order of the plan
        self._requests = itertools.chain.from_iterable(_sources(plan, backend))
        self._front: deque[Call] = deque()
        self._later: list[tuple[float, int, Call]] = []
        self._order = itertools.count()
        self._out = 0  # calls that were taken and have not ended
        self._is_plan_read = False  # whether the plan has no further call
        self._changed = asyncio.Event()
        self._is_used_up = False  # whether the budget has refused a call that no end of another can make fit
        # Thousandths of a credit: all unpaid calls of the plan (once used up), those that were read of it,
        # and calls that the budget refused.
        self._planned = self._read = self._refused = 0
        self.stopped: StopReason | None = None
        self.stopped_by: SpeechframeError | None = None

    @property
    def is_over(self) -> bool:
        """Whether no call will be handed out any more."""
        has_calls = self._out or self._waiting or not self._is_plan_read
        return self.stopped is not None or not has_calls

    @property
    def _waiting(self) -> int:
        """Number of calls that were read from the plan or put back, and are not out."""
        return len(self._front) + len(self._later) + sum(map(len, self._held.values()))

    def _work_of(self, call: Call) -> str:
        return self._backend.work_of(call.request.facts)

    def _has_room(self, work: str) -> bool:
        return self._out_of[work] < self._most_at_once.get(work, sys.maxsize)

    def _next(self) -> Call | None:
        """Return the first call whose kind of work has room, and hold the calls before it."""
        for work, held in self._held.items():
            if held and self._has_room(work):
                return held.popleft()
        while sum(map(len, self._held.values())) < _MOST_HELD:
            if self._later and self._later[0][0] <= time.monotonic():
                call = heapq.heappop(self._later)[2]
            elif self._front:
                call = self._front.popleft()
            elif (request := next(self._requests, None)) is not None:
                call = self._plan.call(request)
                self._read += 0 if call.is_paid else request.price
                if (wait_s := self._plan.wait_s(request)) > 0:
                    heapq.heappush(self._later, (time.monotonic() + wait_s, next(self._order), call))
                    continue
            else:
                self._is_plan_read = True
                return None
            if self._has_room(work := self._work_of(call)):
                return call
            self._held.setdefault(work, deque()).append(call)
        return None

    async def take(self) -> Call | None:
        """Return the next call. Return None if none is left, or after a wait for a change: ask again then."""
        if self.stopped is not None:
            return None
        if (call := self._next()) is None:
            if not self.is_over:
                later_s = self._later[0][0] - time.monotonic() if self._later else 0.0
                await self.wait_for_change(later_s if later_s > 0 else None)
            return None
        price = 0 if call.is_paid else call.request.price
        if self._budget is None or self._budget.reserve(call.request, price):
            call.reserved, call.rows = price, call.request.parts or (call.request,)
            self._out += 1
            self._out_of[self._work_of(call)] += 1
            return call
        self._front.appendleft(call)
        if self._out and not self._is_used_up:
            # Wait: a call under way may turn out to cost less than was set aside for it.
            await self.wait_for_change()
            return None
        # The budget is used up: what costs something stays pending, what is paid is still sent.
        if not self._is_used_up:
            self._is_used_up, self._planned = True, self._plan.charged_millicredits
            self._plan.todo &= self._plan.free
        waiting = [*self._front, *itertools.chain(*self._held.values())]
        later = [entry[2] for entry in self._later]
        self._refused += sum(call.request.price for call in (*waiting, *later) if not call.is_paid)
        self._front, self._held = deque(call for call in waiting if call.is_paid), {}
        self._later = [entry for entry in self._later if entry[2].is_paid]
        heapq.heapify(self._later)
        return None

    async def wait_for_change(self, timeout_s: float | None = None) -> None:
        """Wait until a call has ended or was put back, `timeout_s` at most."""
        self._changed.clear()  # whoever waits already was woken when it was set
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def put_back(self, call: Call, delay_s: float = 0.0) -> None:
        """Put a call back that was taken: to the front, or for later."""
        if delay_s > 0:
            heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._order), call))
        else:
            self._front.append(call)
        self.finish(call)

    def finish(self, call: Call, instead: Iterable[Call] = ()) -> None:
        """Note that a call that was taken has ended. The calls `instead` of it are handed out next."""
        self._front.extend(instead)
        self._out -= 1
        self._out_of[self._work_of(call)] -= 1
        self._changed.set()

    def stop(self, reason: StopReason, error: SpeechframeError | None = None) -> None:
        """Hand out no more calls; what is under way ends."""
        if self.stopped is None:
            self.stopped, self.stopped_by = reason, error
            self._changed.set()

    def end(self) -> None:
        """Note that all calls that were handed out have ended. Stop if calls are left, with the reason."""
        if self._is_used_up and self._budget is not None:
            rest = self._planned - self._read + self._refused
            self.stop(StopReason.BUDGET, self._budget.why_not(rest))
        elif self._plan.late:
            self.stop(StopReason.UNREACHABLE, ConnectionFailed(self._plan.late, sent=False))
