"""Hand out the calls of a run in order. The queue begins with the plan, the list of calls to make."""

import asyncio
import heapq
import itertools
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from speechframe.batch.backend import Backend, Request
from speechframe.batch.budget import Budget
from speechframe.batch.earlier import read_request
from speechframe.batch.lanes import LONGEST_RETRY_AFTER_S
from speechframe.batch.prepare import Prepared
from speechframe.errors import ConnectionFailed, SpeechframeError
from speechframe.spec.billing import MILLICREDITS_PER_CREDIT
from speechframe.store.folder import convert_os_errors
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
"""Number of rows of the table in memory at a time."""
_MAX_HELD_CALLS = 2048
"""Largest number of held calls. A call is held while too many calls of its kind of work (such as one engine
of the service) are under way."""


@dataclass(slots=True)
class Call:
    """One call to the service, with the state of its attempts."""

    request: Request
    is_unknown: bool = False  # True if an attempt may have been billed but got no answer
    is_in_ledger: bool = False  # True once the price is in the ledger: further attempts are free
    noted: bytes | None = None  # data that an earlier attempt passed to `Attempt.note`
    reserved: int = 0  # reserved price in thousandths of a credit
    sends: int = 0  # number of attempts, each with a line in the ledger
    failures: int = 0  # number of attempts that count towards max_attempts
    began: float = 0.0  # monotonic time of the first attempt
    retakes: int = 0  # number of suspect takes (renderings of the same content) before this take
    costs: Counter[str] = field(default_factory=Counter)
    """Cost of all attempts so far in thousandths of a credit, by the key of each row."""
    rows: tuple[Request, ...] = ()  # the requests that get a record each, set when the call is handed out
    booked: dict[str, int] = field(default_factory=dict)
    """Charge of an earlier attempt in thousandths of a credit by row key, if it differs from the row's
    price."""
    work: str = ""  # kind of work (see `Backend.work_of`), set when the call is handed out or held

    def make_entries(self) -> list[Row]:
        """Return the ledger columns of each row for :meth:`~speechframe.store.journal.Journal.write_sent`."""
        return [
            {
                "request_key": row.key,
                "take": row.take,
                "characters": row.characters,
                "price": self.get_charge(row),
                "millicredits": 0 if self.is_in_ledger else row.price,
                **row.facts,
            }
            for row in self.rows or self.request.rows
        ]

    def get_charge(self, row: Request) -> int:
        """Return the charge of a row for an earlier attempt, in thousandths of a credit."""
        return self.booked.get(row.key, row.price)


@dataclass
class Plan:
    """The calls of a run's table. A mask has one bool for each row of the table."""

    prepared: Prepared
    keys: Any  # call key of each row, 16 bytes each in an Arrow array
    todo: Mask  # rows whose call is still to be made
    already_paid: Mask  # rows of `todo` that cost nothing, because an earlier attempt paid for them
    cached: Mask  # rows whose answer is in the cache
    failed_records: dict[str, Row]  # failed records by call key, of possibly billed calls to send again
    in_packs: Mask  # rows whose possibly billed call was a pack (one call for several rows)
    waits: dict[str, float] = field(default_factory=dict)
    """Earliest Unix time of the next call by call key, from a Retry-After that an earlier process
    received."""
    late: str = ""  # the reason for leaving out rows whose wait exceeds patience_s, or empty
    groups: list[int] | None = None  # row groups of the table's file that the masks cover, None for all
    sharers: npt.NDArray[np.uint32] | None = None  # for each row, the number of rows with the same call

    def count_sharers(self) -> npt.NDArray[np.uint32]:
        """Return for each row the number of rows in the table with the same call."""
        if self.sharers is None:
            codes = self.keys.dictionary_encode().indices.to_numpy()
            self.sharers = np.bincount(codes, minlength=1)[codes].astype(np.uint32)
        return self.sharers

    def make_call(self, request: Request) -> Call:
        """Return the call of a request, with the state of its attempts in earlier processes."""
        call = Call(request)
        if (failed := self.failed_records.get(request.key)) is not None:
            call.is_unknown = call.is_in_ledger = True
            call.noted = None if failed[NOTED] is None else bytes.fromhex(failed[NOTED])
            before = {
                row.key: (self.failed_records.get(row.key) or {}).get("credits") for row in request.rows
            }
            call.booked = {
                key: round(credits * MILLICREDITS_PER_CREDIT) for key, credits in before.items() if credits
            }
        return call

    def compute_wait_s(self, request: Request) -> float:
        """Return the seconds until the service accepts a call for the rows of `request`, usually 0."""
        until = (
            max((self.waits.get(row.key, 0.0) for row in request.rows), default=0.0) if self.waits else 0.0
        )
        return min(max(0.0, until - time.time()), LONGEST_RETRY_AFTER_S)

    @property
    def charged_millicredits(self) -> int:
        """Price of all unpaid calls that are still to be made, in thousandths of a credit."""
        return int(self.prepared.prices[self.todo & ~self.already_paid].sum())

    def read_packs_again(self, backend: Backend) -> Iterator[Request]:
        """Yield each possibly billed pack (a call for several rows) again, and remove its rows from `todo`.

        A repeat is free only if the pack is identical, or if its answer was noted. Packs for which neither
        holds are not sent, and their rows keep their failed record.
        """
        packs: dict[str, list[str]] = {}
        for key, row in self.failed_records.items():
            if row[PACK] is not None:
                packs.setdefault(row[PACK], []).append(key)
        wanted = self.todo & self.in_packs
        again = {request.key: request for request in self.read_requests(wanted)} if packs else {}
        for pack, keys in packs.items():
            row = self.failed_records[keys[0]]
            for request in backend.pack(iter([again[key] for key in keys if key in again])):
                if request.key == pack or row[NOTED] is not None:
                    self.failed_records[request.key] = row
                    yield request
        self.todo &= ~wanted

    def read_requests(self, wanted: Mask) -> Iterator[Request]:
        """Yield a request for each row that is True in `wanted`. The mask may change between yields."""
        columns = [ROW_ID, BASE_KEY, TAKE, PRICE, REQUEST, TAGS]
        folder, start = self.prepared.table_folder, 0
        source = folder.get_source(self.prepared.entry.file)
        counts = self.count_sharers()
        with convert_os_errors(folder, "reading the table"), pq.ParquetFile(source) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=self.groups, columns=columns):
                if not wanted[start:].any():
                    return
                places = start + np.flatnonzero(wanted[start : start + batch.num_rows])
                rows = batch.take(places - start).to_pylist()
                keys, numbers = self.keys.take(places).to_pylist(), counts[places].tolist()
                for row, key, number in zip(rows, keys, numbers, strict=True):
                    request = read_request(row, key.hex())
                    yield replace(request, facts={**request.facts, "rows": number}) if number > 1 else request
                start += batch.num_rows


def _make_sources(plan: Plan, backend: Backend) -> Iterator[Iterator[Request]]:
    yield plan.read_packs_again(backend)
    # Create this generator second, because `read_packs_again` first removes its rows from `todo`.
    yield backend.pack(plan.read_requests(plan.todo))


class Queue:
    """Hands out calls one at a time and reserves the price of each call.

    Calls that were put back come first, then the calls of the plan. `most_at_once` limits the calls under way
    by kind of work. If a kind has reached its limit, the queue holds calls of this kind and hands out calls
    of other kinds. Without a budget no price is reserved. `stopped` is the reason why no more calls are
    handed out, or None. `stopped_by` is the error behind that reason, or None.
    """

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        budget: Budget | None,
        most_at_once: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.plan, self._backend, self._budget = plan, backend, budget
        self._most_at_once = most_at_once
        self._under_way_by_kind: Counter[str] = Counter()  # number of calls under way by kind of work
        self._held: dict[str, deque[Call]] = {}  # held calls by kind of work, in the order of the plan
        self._requests: Iterator[Request] = itertools.chain.from_iterable(_make_sources(plan, backend))
        self._front: deque[Call] = deque()
        self._later: list[tuple[float, int, Call]] = []
        self._order = itertools.count()
        self._under_way = 0  # number of calls that were taken and have not ended
        self._is_plan_read = False  # True once all calls of the plan have been read
        self._changed = asyncio.Event()
        self._is_used_up = False  # True once the budget refused a call while no other call was under way
        # Prices in thousandths of a credit: all unpaid calls of the plan (set once the budget is used up),
        # the unpaid calls read from the plan so far, and the calls refused by the budget.
        self._planned = self._read_unpaid = self._refused = 0
        self.stopped: StopReason | None = None
        self.stopped_by: SpeechframeError | None = None

    @property
    def is_over(self) -> bool:
        """True if the queue will hand out no more calls."""
        has_calls = self._under_way or self._waiting or not self._is_plan_read
        return self.stopped is not None or not has_calls

    @property
    def _waiting(self) -> int:
        """Number of calls that were read from the plan or put back, and are not under way."""
        return len(self._front) + len(self._later) + sum(map(len, self._held.values()))

    def _has_room(self, work: str) -> bool:
        return self._under_way_by_kind[work] < self._most_at_once.get(work, sys.maxsize)

    def _take_next(self) -> Call | None:
        """Return the first call whose kind of work is below its limit, and hold the calls before this call.

        Return None if there is no such call, or if the largest number of calls is held.
        """
        for work, held in self._held.items():
            if held and self._has_room(work):
                return held.popleft()
        while sum(map(len, self._held.values())) < _MAX_HELD_CALLS:
            if self._later and self._later[0][0] <= time.monotonic():
                call = heapq.heappop(self._later)[2]
            elif self._front:
                call = self._front.popleft()
            elif (request := next(self._requests, None)) is not None:
                call = self.plan.make_call(request)
                self._read_unpaid += 0 if call.is_in_ledger else request.price
                if (wait_s := self.plan.compute_wait_s(request)) > 0:
                    heapq.heappush(self._later, (time.monotonic() + wait_s, next(self._order), call))
                    continue
            else:
                self._is_plan_read = True
                return None
            call.work = self._backend.work_of(call.request.facts)
            if self._has_room(call.work):
                return call
            self._held.setdefault(call.work, deque()).append(call)
        return None

    async def take(self) -> Call | None:
        """Return the next call, or None.

        None means that no call is left, or that the queue changed while this method waited. After None, check
        `is_over`. If it is False, call this method again.
        """
        if self.stopped is not None:
            return None
        if (call := self._take_next()) is None:
            if not self.is_over:
                later_s = self._later[0][0] - time.monotonic() if self._later else 0.0
                await self.wait_for_change(later_s if later_s > 0 else None)
            return None
        price = 0 if call.is_in_ledger else call.request.price
        if self._budget is None or self._budget.reserve(call.request, price):
            call.reserved, call.rows = price, call.request.parts or (call.request,)
            self._under_way += 1
            self._under_way_by_kind[call.work] += 1
            return call
        self._front.appendleft(call)
        if self._under_way and not self._is_used_up:
            # Wait, because a call under way may cost less than its reserved price.
            await self.wait_for_change()
            return None
        # The budget is used up. Drop the calls that would cost something. Send the calls that are paid
        # already.
        if not self._is_used_up:
            self._is_used_up, self._planned = True, self.plan.charged_millicredits
            self.plan.todo &= self.plan.already_paid
        waiting = [*self._front, *itertools.chain(*self._held.values())]
        later = [entry[2] for entry in self._later]
        self._refused += sum(call.request.price for call in (*waiting, *later) if not call.is_in_ledger)
        self._front, self._held = deque(call for call in waiting if call.is_in_ledger), {}
        self._later = [entry for entry in self._later if entry[2].is_in_ledger]
        heapq.heapify(self._later)
        return None

    async def wait_for_change(self, timeout_s: float | None = None) -> None:
        """Wait until a call ends, a call is put back or the queue stops, for at most `timeout_s` seconds."""
        self._changed.clear()  # earlier waiters miss nothing, because `set` has already woken them
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def put_back(self, call: Call, delay_s: float = 0.0) -> None:
        """Put a taken call back, to be handed out before the plan's calls, or after `delay_s` seconds."""
        if delay_s > 0:
            heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._order), call))
        else:
            self._front.append(call)
        self.finish(call)

    def finish(self, call: Call, instead: Iterable[Call] = ()) -> None:
        """Note that a taken call has ended. The calls `instead` are handed out before the plan's calls."""
        self._front.extend(instead)
        self._under_way -= 1
        self._under_way_by_kind[call.work] -= 1
        self._changed.set()

    def stop(self, reason: StopReason, error: SpeechframeError | None = None) -> None:
        """Hand out no more calls. Calls under way end normally. Only the first stop sets the reason."""
        if self.stopped is None:
            self.stopped, self.stopped_by = reason, error
            self._changed.set()

    def end(self) -> None:
        """Note that all handed-out calls have ended. If the plan has calls left over, stop with the reason.

        The reason is a used-up budget, or a Retry-After that is too long.
        """
        if self._is_used_up and self._budget is not None:
            rest = self._planned - self._read_unpaid + self._refused
            self.stop(StopReason.BUDGET, self._budget.explain_refusal(rest))
        elif self.plan.late:
            self.stop(StopReason.UNREACHABLE, ConnectionFailed(self.plan.late, sent=False))
