"""The queue of a run's calls, the run's budget, and the verdict on each failed attempt."""

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
from speechframe.writing.words import counted

Mask = npt.NDArray[np.bool_]

_ROWS_AT_ONCE = 256
_MOST_HELD = 2048
"""Largest number of held calls. A call is held while its kind of work has no room."""


@dataclass(slots=True)
class Call:
    """One call to the service, with the state of its attempts."""

    request: Request
    is_unknown: bool = False  # True if an attempt may have been billed but got no answer
    is_paid: bool = False  # True once the price is in the ledger: further attempts are free
    noted: bytes | None = None  # the data that an earlier attempt wrote with `Attempt.note`
    reserved: int = 0  # reserved price in thousandths of a credit
    sends: int = 0  # number of attempts, each with a line in the ledger
    failures: int = 0  # number of attempts that count towards max_attempts
    began: float = 0.0  # monotonic time of the first attempt
    retakes: int = 0  # number of suspect takes before this take
    costs: Counter[str] = field(default_factory=Counter)
    """Cost of all attempts so far in thousandths of a credit, by the key of each row."""
    rows: tuple[Request, ...] = ()  # the requests that get a record each, set when the call is handed out
    booked: dict[str, int] = field(default_factory=dict)  # row key to the charge, if not the row's price

    def charged(self, row: Request) -> int:
        """Return the charge of a row for an earlier attempt, in thousandths of a credit."""
        return self.booked.get(row.key, row.price)


class Verdict(Enum):
    """The next step for a call whose attempt failed."""

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
"""Statuses of gateways. With such an answer the service behind the gateway may still have billed the call."""


def verdict_of(error: SpeechframeError) -> Verdict:
    """Return the verdict on a call whose attempt ended with `error`."""
    if isinstance(error, ConnectionFailed):
        return Verdict.LOST if error.sent else Verdict.LATER
    if isinstance(error, ServiceError) and error.status in GATEWAYS:
        return Verdict.LOST
    return next(verdict for kind, verdict in VERDICTS if isinstance(error, kind))


@dataclass(frozen=True, slots=True)
class Alert:
    """Notice that a budget has reached one of its alert thresholds.

    `budget` is ``max_credits``, or the name of a budget shared by many runs. `share` is the threshold.
    """

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
    """One run's part of a budget shared by many runs, with the allotted and the free amount."""

    def __init__(self, rule: BudgetRule, allotments: Allotments, clock: Callable[[], float]) -> None:
        self.rule, self.allotments, self._clock = rule, allotments, clock
        self.id, self.period = rule.id, rule.start(clock())
        self.reserved = self.free = self._total = 0
        self._reserved_before = 0  # the part of `reserved` that belongs to earlier periods

    @property
    def used(self) -> int:
        """Amount that all runs have spent or reserved in this period, as last read from the allotments."""
        return self._total - self.free

    def allot(self, price: int) -> bool:
        """Request more for this run if needed. Return whether the free amount covers `price`."""
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
        """Reserve `price`. Call only after `allot(price)` returned True."""
        self.free -= price
        self.reserved += price

    def settle(self, reserved: int, cost: int) -> None:
        """Replace the reserved price of a call by its cost."""
        self.reserved -= reserved
        before = min(reserved, self._reserved_before)
        self._reserved_before -= before
        self.free += reserved - before - max(0, cost - before)

    def close(self) -> None:
        """Give the free amount back to the budget. Amounts that are still reserved stay counted."""
        if self.free:
            self.allotments.give_back(self.id, self.period, self.free)
        self.free = 0


class Budget:
    """The limits on a run's spending, in thousandths of a credit.

    A price is reserved before each call and settled after the call. Spending never exceeds `limit`, which
    includes `spent_before`, or any budget shared with other runs. A row counts towards a shared budget if its
    tags match. StoreError is raised if the file of a shared budget is unusable. The caller must then send
    nothing. `alert` is called once for each threshold that a budget reaches.
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
        """Reserve the whole `price` of a call. Return False if a limit does not allow it.

        A price of 0 is always allowed.
        """
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
        """Replace the reserved price of a call by the cost of each of its rows."""
        self.reserved -= reserved
        self.spent += sum(costs)
        for allowance in self._allowances:
            share = self._share(allowance, request, None) if reserved else 0
            allowance.settle(share, self._share(allowance, request, costs))

    def _share(self, allowance: Allowance, request: Request, costs: Sequence[int] | None) -> int:
        """Return the part of a call that counts towards a budget.

        The part is the sum over all rows with matching tags, of `costs` if given, otherwise of prices.
        """
        total = 0
        for place, row in enumerate(request.rows):
            if allowance.rule.matches({**self._tags, **(row.facts.get("tags") or {})}):
                total += row.price if costs is None else costs[place]
        return total

    def _alert_used_shares(self) -> None:
        """Call `alert` for each threshold that a budget has newly reached."""
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
        """Return the error that names the limit of the last refusal.

        `price` is the price of all remaining calls of the run, in thousandths of a credit.
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
            f"{counted(to_credits(price), 'credit')}. Everything that was made is kept; {advice}.",
            limit="run" if refused_by is None else name,
            max_credits=to_credits(limit),
            spent_credits=to_credits(spent),
            needed_credits=to_credits(price),
        )

    def close(self) -> None:
        """Give free amounts back to the budgets. Amounts that are still reserved stay counted."""
        for allowance in self._allowances:
            allowance.close()


@dataclass
class Plan:
    """The calls of a run's table, with masks of the rows whose call is still missing."""

    prepared: Prepared
    keys: Any  # call key of each row, 16 bytes each in an Arrow array
    todo: Mask  # rows whose call is still to be made
    free: Mask  # rows of `todo` that cost nothing, because they are already paid
    cached: Mask  # rows whose answer is in the cache
    due: dict[str, Row]  # call key to failed record, for possibly billed calls that are sent again
    in_packs: Mask  # rows whose possibly billed call was a pack (one call for several rows)
    waits: dict[str, float] = field(default_factory=dict)
    """Earliest Unix time of the next call, by key. An earlier process got the time from the service."""
    late: str = ""  # the reason for leaving out rows whose wait exceeds patience_s, or empty

    def call(self, request: Request) -> Call:
        """Return the call of a request, with the state that an earlier process recorded."""
        call = Call(request)
        if (due := self.due.get(request.key)) is not None:
            call.is_unknown = call.is_paid = True
            call.noted = None if due[NOTED] is None else bytes.fromhex(due[NOTED])
            before = {row.key: (self.due.get(row.key) or {}).get("credits") for row in request.rows}
            call.booked = {key: round(credits * CREDIT) for key, credits in before.items() if credits}
        return call

    def wait_s(self, request: Request) -> float:
        """Return the seconds until the service accepts a call for the rows of `request`, usually 0."""
        until = (
            max((self.waits.get(row.key, 0.0) for row in request.rows), default=0.0) if self.waits else 0.0
        )
        return min(max(0.0, until - time.time()), LONGEST_RETRY_AFTER_S)

    @property
    def charged_millicredits(self) -> int:
        """Price of all unpaid calls that are still to be made, in thousandths of a credit."""
        return int(self.prepared.prices[self.todo & ~self.free].sum())

    def packs_again(self, backend: Backend) -> Iterator[Request]:
        """Yield each possibly billed pack again, unchanged, and remove its rows from `todo`.

        A repeat is free only if the pack is identical, or if its answer was noted. Rows of all other packs
        keep their failed record.
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
        """Yield a request for each row set in `wanted`, lazily. The mask may change between yields."""
        columns = [ROW_ID, BASE_KEY, TAKE, PRICE, REQUEST, TAGS]
        folder, start = self.prepared.table_folder, 0
        source = folder.source(self.prepared.entry.file)
        codes = self.keys.dictionary_encode().indices.to_numpy()
        counts = np.bincount(codes, minlength=1)[codes]  # for each row, the number of rows with the same call
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
    # Create this generator second. `packs_again` has removed its rows from `todo` by then.
    yield backend.pack(plan.requests(plan.todo))


class Queue:
    """Hands out calls one at a time and reserves the price of each.

    Calls that were put back come first, then the calls of the plan. At most `most_at_once` calls of a kind of
    work are out. While a kind has no room, its calls are held and calls of other kinds pass them. Without a
    budget nothing is reserved. `stopped` is the reason why no more calls are handed out. `stopped_by` is the
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
        self._out = 0  # number of calls that were taken and have not ended
        self._is_plan_read = False  # True once the plan has no further call
        self._changed = asyncio.Event()
        self._is_used_up = False  # True once the budget refused a call while no other call was under way
        # Prices in thousandths of a credit: all unpaid calls of the plan (set once the budget is used up),
        # the unpaid calls read from the plan so far, and the calls refused by the budget.
        self._planned = self._read = self._refused = 0
        self.stopped: StopReason | None = None
        self.stopped_by: SpeechframeError | None = None

    @property
    def is_over(self) -> bool:
        """True if the queue will hand out no more calls."""
        has_calls = self._out or self._waiting or not self._is_plan_read
        return self.stopped is not None or not has_calls

    @property
    def _waiting(self) -> int:
        """Number of calls that were read from the plan or put back, and are not under way."""
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
        """Return the next call, or None.

        None means that no call is left, or that the queue has changed after a wait. Check `is_over`, then
        call this method again.
        """
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
            # Wait, because a call under way may cost less than its reserved price.
            await self.wait_for_change()
            return None
        # The budget is used up. Unpaid calls stay pending, but paid calls are still sent.
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
        self._changed.clear()  # safe, because `set` has already woken every earlier waiter
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def put_back(self, call: Call, delay_s: float = 0.0) -> None:
        """Put a taken call back, to the front or until after `delay_s` seconds."""
        if delay_s > 0:
            heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._order), call))
        else:
            self._front.append(call)
        self.finish(call)

    def finish(self, call: Call, instead: Iterable[Call] = ()) -> None:
        """Note that a taken call has ended. The queue hands out the calls `instead` next."""
        self._front.extend(instead)
        self._out -= 1
        self._out_of[self._work_of(call)] -= 1
        self._changed.set()

    def stop(self, reason: StopReason, error: SpeechframeError | None = None) -> None:
        """Hand out no more calls. Calls under way still end normally."""
        if self.stopped is None:
            self.stopped, self.stopped_by = reason, error
            self._changed.set()

    def end(self) -> None:
        """Note that all handed-out calls have ended. If calls are left over, stop with the reason."""
        if self._is_used_up and self._budget is not None:
            rest = self._planned - self._read + self._refused
            self.stop(StopReason.BUDGET, self._budget.why_not(rest))
        elif self._plan.late:
            self.stop(StopReason.UNREACHABLE, ConnectionFailed(self._plan.late, sent=False))
