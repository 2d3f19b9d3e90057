"""Calls become answers in the journal: workers over one lazy queue, one booker, one table of decisions.

A worker only sends. It hands what came back to the booker and takes the next call at once; it is at most one
answer ahead of the booker. The booker looks at answers in a thread, writes one after the other, and only then
does a row count. So a burst of answers is followed by a burst of calls, not by bookkeeping.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from speechframe import errors
from speechframe.batch.backend import Answer, Attempt, Backend, Finding, Record, Request
from speechframe.batch.budget import Budget
from speechframe.batch.decisions import (
    BACKOFF_S,
    LONGEST_BACKOFF_S,
    Policy,
    Verdict,
    counts,
    error_columns,
    reason_of,
    verdict_of,
)
from speechframe.batch.lanes import Lane, Lanes
from speechframe.batch.lanes import Outcome as LaneOutcome
from speechframe.batch.memory import Memory
from speechframe.batch.progress import Outcome, Progress, code_of
from speechframe.batch.queue import Call, Queue
from speechframe.errors import BadAnswer, ConnectionFailed, SpeechframeError, TimedOut
from speechframe.store import journal, parts
from speechframe.store.cache import Cache
from speechframe.store.folder import Folder
from speechframe.store.schema import CHARGED_UNKNOWN, DONE, FAILED, NOTED, PACK, SUSPECT, Row, StopReason

TICK_S = 0.25
GONE_S = 60.0
"""A run stops when no lane has answered for so long, or for a row's patience if that is shorter."""
FIRST_ANSWERS = 10
"""A run stops when so many answers came and none of them could be used."""
MOST_LOOKED_AT = 32
SETTLED = "retried"


@dataclass(slots=True)
class _Looked:
    """An answer as it was looked at: a record for each row or why it has none, and what speaks against it."""

    records: list[Record | SpeechframeError]
    findings: list[Sequence[Finding]]
    digests: list[str | None] = field(default_factory=list)


_Sent = tuple[Call, Lane, Answer | SpeechframeError, asyncio.Event]
"""A call, where it was sent, what came back, and what is set when that is written down."""


class Engine:
    """Makes the calls of a queue and keeps what comes of them.

    Parameters
    ----------
    backend
        Opened.
    queue, lanes, budget, policy
        What to send, where, for how much, and for how long.
    folder, log
        The run's folder and its journal.
    run_id
        For idempotency keys.
    takes
        The service makes other takes.
    cache
        Where good answers are kept for other runs; None for nowhere.
    judges
        Whether answers are looked at (``truth_checks``).
    raises
        Whether the first row that fails ends the run (``on_error="raise"``).
    tell
        Told the end of every row's call once it is on disk, its warnings, and the balance of the key.
    progress
        Counts attempts that are made again.
    """

    def __init__(
        self,
        backend: Backend,
        queue: Queue,
        lanes: Lanes,
        budget: Budget,
        policy: Policy,
        *,
        folder: Folder,
        log: journal.Journal,
        run_id: str,
        takes: bool,
        cache: Cache | None,
        judges: bool,
        raises: bool,
        tell: Callable[[Outcome, Sequence[str], int | None], None],
        progress: Progress,
    ) -> None:
        self._backend, self._queue, self._lanes = backend, queue, lanes
        self._budget, self._policy = budget, policy
        self._folder, self._log, self._run_id, self._takes = folder, log, run_id, takes
        self._cache, self._judges, self._raises = cache, judges, raises
        self._tell, self._progress = tell, progress
        self._answers: asyncio.Queue[_Sent] = asyncio.Queue()
        self._workers: set[asyncio.Task[None]] = set()
        self._looker = ThreadPoolExecutor(1, "speechframe-look")
        self._disk = ThreadPoolExecutor(1, "speechframe-disk")
        self._cutting: asyncio.Future[None] | None = None
        self._memory = Memory()
        self._learned: dict[str, Any] = {}
        self._is_cancelled = False
        self._usable = self._unusable = 0
        self._said_until: float | None = None

    async def run(self) -> None:
        """Return when every call has ended, or the queue was stopped and what was under way has ended.

        Whatever else ends it (a full disk, a bug) leaves the journal as a kill would, for the next run to
        recover.
        """
        helpers = {asyncio.create_task(self._book()), asyncio.create_task(self._tick())}
        try:
            while not self._queue.is_over or self._workers:
                self._staff()
                await self._first_of(self._workers | helpers)
            booked = asyncio.create_task(self._answers.join())
            while not booked.done():
                await self._first_of({booked} | helpers)
            if self._cutting is not None:
                await self._cutting
            await self._on_disk(self._cut, self._log.close)
        finally:
            for task in self._workers | helpers:
                task.cancel()
            await asyncio.gather(*self._workers, *helpers, return_exceptions=True)
            self._looker.shutdown()
            self._disk.shutdown()
            self._log.close()

    def stop(self, *, drain: bool, reason: StopReason) -> None:
        """Send no more calls; those under way end, or (no `drain`) are cancelled and may have been billed."""
        self._queue.stop(reason)
        if not drain:
            self._is_cancelled = True
            for task in self._workers:
                task.cancel()

    # -- sending ---------------------------------------------------------------------

    async def _first_of(self, tasks: "set[asyncio.Task[None]]") -> None:
        done, _ = await asyncio.wait(tasks, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
        self._workers -= done
        for task in done:
            if not (task.cancelled() and self._is_cancelled):
                task.result()  # errors of calls are values; what is raised here ends the run

    def _staff(self) -> None:
        """Give each lane as many workers as it has room for."""
        for lane in self._lanes.usable():
            while lane.room > 0 and not self._queue.is_over:
                lane.workers += 1
                self._workers.add(asyncio.create_task(self._work(lane)))

    async def _work(self, lane: Lane) -> None:
        slot: int | None = None
        booked = asyncio.Event()  # of the worker's last answer
        booked.set()
        try:
            while not self._queue.is_over and lane.room >= 0:
                if slot is None and (slot := lane.take_permit()) is None:
                    await self._queue.changed(TICK_S)  # other processes hold all permits
                elif (wait_s := lane.wait_s()) > 0:
                    await self._queue.changed(wait_s)
                elif call := await self._queue.take():
                    outcome = await self._attempt(call, lane, slot)
                    await booked.wait()
                    booked.clear()
                    self._answers.put_nowait((call, lane, outcome, booked))
                    if not lane.keeps(slot):
                        lane.give_permit(slot)
                        slot = None
        finally:
            lane.workers -= 1
            if slot is not None:
                lane.give_permit(slot)

    async def _attempt(self, call: Call, lane: Lane, slot: int) -> Answer | SpeechframeError:
        """Make one attempt; its failure is a value."""
        now = time.monotonic()
        call.sends += 1
        call.began = call.began or now
        repeats = self._policy.repeats_are_free
        self._log.sent(call.request.key, call.sends, lane.name, time.time(), call.parts, idempotency=repeats)
        left_s = call.began + self._policy.patience_s - now
        limit_s = left_s if self._policy.timeout_s is None else min(self._policy.timeout_s, left_s)
        attempt = Attempt(
            lane=lane.name,
            deadline_s=self._policy.timeout_s,
            idempotency_key=f"{self._run_id}-{call.request.key}" if repeats else None,
            take=call.request.take if self._takes else 0,
            noted=call.noted,
            note=lambda data: self._note(call, data),
            admit=self._memory.room_for(call),
        )
        ticket = lane.begin(slot)
        outcome: Answer | SpeechframeError
        try:
            async with asyncio.timeout(limit_s):
                outcome = await self._backend.send(call.request, attempt)
        except SpeechframeError as error:
            outcome = error
        except TimeoutError:
            outcome = TimedOut(f"no whole answer within {limit_s:,.3g} s", sent=True)
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
            outcome = ConnectionFailed("cancelled while the call was under way", sent=True)
        lane.end(ticket, _of_lane(outcome), retry_after_s=getattr(outcome, "retry_after_s", None))
        if isinstance(outcome, Answer) and outcome.latency_ms is None:
            outcome.latency_ms = 1000 * (time.monotonic() - now)
        if lane.room > 0:
            self._staff()
        return outcome

    async def _note(self, call: Call, data: bytes) -> None:
        call.noted = data
        self._log.noted(call.request.key, data)
        await self._on_disk(self._log.sync)

    # -- booking ---------------------------------------------------------------------

    async def _book(self) -> None:
        """Look at answers as they come, write them down, and let their rows count."""
        loop = asyncio.get_running_loop()
        while True:
            some = [await self._answers.get()]
            while not self._answers.empty() and len(some) < MOST_LOOKED_AT:
                some.append(self._answers.get_nowait())
            looked = await loop.run_in_executor(self._looker, self._look_at, some)
            for (call, lane, outcome, booked), found in zip(some, looked, strict=True):
                self._memory.release(call)
                if isinstance(found, _Looked) and isinstance(outcome, Answer):
                    self._keep(call, lane, outcome, found)
                elif isinstance(found, SpeechframeError):
                    self._react(call, lane, found)
                booked.set()
                self._answers.task_done()
            if self._log.is_full:
                if self._cutting is not None:
                    await self._cutting
                self._cutting = self._on_disk(self._cut, self._log.roll())

    def _look_at(self, some: list[_Sent]) -> list[_Looked | SpeechframeError]:
        """In a thread: decode answers and judge them."""
        return [
            outcome if isinstance(outcome, SpeechframeError) else self._look(call.request, outcome)
            for call, _, outcome, _ in some
        ]

    def _look(self, request: Request, answer: Answer) -> _Looked | SpeechframeError:
        try:
            records = self._backend.records(request, answer)
        except SpeechframeError as error:
            return error
        looked = _Looked(records, [() for _ in records])
        for place, (row, record) in enumerate(zip(request.rows, records, strict=True)):
            if isinstance(record, SpeechframeError):
                looked.digests.append(None)
                continue
            looked.digests.append(None if record.audio is None else hashlib.sha256(record.audio).hexdigest())
            if self._judges:
                looked.findings[place] = self._backend.judge(row, record, self._learned)
        return looked

    def _keep(self, call: Call, lane: Lane, answer: Answer, looked: _Looked) -> None:
        """Write an answer down; then its rows count."""
        costs, ends = [], []
        for part, record, findings, digest in zip(
            call.request.rows, looked.records, looked.findings, looked.digests, strict=True
        ):
            if isinstance(record, SpeechframeError):
                price, basis = part.price, "computed"
                row = self._failed_row(call, part, lane, record, CHARGED_UNKNOWN)
            else:
                price = part.price if record.millicredits is None else record.millicredits
                basis = record.basis
                row = self._row(call, part, lane, answer, record, findings, digest)
            cost = price - (part.price if call.counted else 0)
            audio = None if isinstance(record, SpeechframeError) else record.audio
            costs.append(journal.Ended(cost, basis, row, audio))
            ends.append(_ended(part, row, cost, record))
        status = SUSPECT if any(looked.findings) else DONE
        self._end(call, status, costs, ends, answer=answer)
        self._usable += 1
        for part, record, findings in zip(call.request.rows, looked.records, looked.findings, strict=True):
            if isinstance(record, SpeechframeError):
                continue
            if findings:
                self._retake(call, part)
            elif self._cache is not None and self._judges:
                row = next(cost.row for cost in costs if cost.row and cost.row["request_key"] == part.key)
                self._disk.submit(self._cache.put, part.key, row, record.audio)

    def _retake(self, call: Call, part: Request) -> None:
        """Have another take made of a suspect answer, if the run is to and the service can."""
        if call.retakes < self._policy.max_retakes and part.varies and self._takes and not call.request.parts:
            self._progress.total += 1
            self._queue.add(Call(part.as_take(part.take + 1), retakes=call.retakes + 1))

    def _react(self, call: Call, lane: Lane, error: SpeechframeError) -> None:
        """Decide by the table what becomes of a call that has no answer."""
        verdict = verdict_of(error)
        if verdict is Verdict.UNUSABLE:
            self._unusable += 1
        call.failures += counts(error)
        told_s = getattr(error, "retry_after_s", None) or 0.0
        delay_s = self._delay_s(call, verdict, told_s)
        left_s = self._policy.patience_s - (time.monotonic() - (call.began or time.monotonic()))
        is_again = (
            self._policy.sends_again(verdict)
            and call.failures < self._policy.max_attempts
            and delay_s < left_s
        )
        was_counted = call.counted
        costs = self._costs_of(call, verdict, error)
        if verdict is Verdict.STOP:
            self._log.ended(call.request.key, FAILED, costs, **_of_error(error))
            self._put_back(call, costs)
            self._queue.stop(reason_of(error), error)
        elif is_again and self._queue.stopped is not None and verdict in {Verdict.NOW, Verdict.LATER}:
            self._log.ended(call.request.key, SETTLED, costs, **_of_error(error))
            self._put_back(call, costs)
        elif is_again and self._queue.stopped is None:
            if verdict in {Verdict.LOST, Verdict.UNUSABLE}:
                # Until an answer is written down, the row says what a killed process would have left.
                for part, cost in zip(call.request.rows, costs, strict=True):
                    cost.row = self._failed_row(call, part, lane, error, CHARGED_UNKNOWN)
                call.is_paid = self._policy.repeats_are_free
            self._log.ended(call.request.key, SETTLED, costs, **_of_error(error))
            self._progress.retried(code_of(error))
            self._put_back(call, costs, delay_s)
        elif verdict is Verdict.FAIL and call.request.parts:
            self._split(call, costs, error)
        elif verdict is Verdict.UNUSABLE and was_counted and self._policy.retries_unknown:
            # What an earlier answer names cannot be fetched any more: the call itself is made again, once.
            self._log.ended(call.request.key, SETTLED, costs, **_of_error(error))
            self._budget.settle(call.reserved, sum(cost.millicredits for cost in costs))
            self._queue.add(Call(call.request))
            self._queue.done()
        else:
            self._fail(call, lane, error, verdict, costs, told_s if delay_s >= left_s else 0.0)
        if self._unusable >= FIRST_ANSWERS and not self._usable:
            words = f"the first {self._unusable} answers were of no use, so the run stopped: {error}"
            self._queue.stop(StopReason.UNUSABLE, BadAnswer(words))

    @staticmethod
    def _delay_s(call: Call, verdict: Verdict, told_s: float) -> float:
        if verdict is Verdict.NOW:
            return told_s
        longest_s = min(BACKOFF_S * 2**call.failures, LONGEST_BACKOFF_S)
        return max(told_s, random.uniform(0, longest_s))  # noqa: S311 - a delay is no secret

    def _costs_of(self, call: Call, verdict: Verdict, error: SpeechframeError) -> list[journal.Ended]:
        """Return what a failed attempt cost: the price once, however often a call may have been billed."""
        del error
        rows = call.request.rows
        if verdict in {Verdict.LOST, Verdict.UNUSABLE}:
            basis = "unknown" if verdict is Verdict.LOST else "computed"
            # Where an earlier attempt noted its answer, this one has only tried to fetch the rest of it.
            is_counted = call.counted and (self._policy.repeats_are_free or call.noted is not None)
            call.counted, call.is_unknown = True, True
            if self._policy.repeats_are_free:
                # Whatever becomes of the next attempt, the ledger has its price.
                call.parts = [{**part, "millicredits": 0} for part in call.parts]
            return [journal.Ended(0 if is_counted else row.price, basis) for row in rows]
        if verdict is Verdict.FAIL and call.counted and call.request.parts and self._policy.repeats_are_free:
            # A service that bills repeats once would have sent the answer: the lost attempt was not billed. A
            # row of its own stays in doubt, but a pack is split, and its rows are counted anew.
            call.counted, call.is_unknown = False, False
            return [journal.Ended(-row.price, "computed") for row in rows]
        return [journal.Ended(0, "none") for _ in rows]

    def _put_back(self, call: Call, costs: list[journal.Ended], delay_s: float = 0.0) -> None:
        self._budget.settle(call.reserved, sum(cost.millicredits for cost in costs))
        call.reserved = 0
        self._queue.back(call, delay_s)

    def _split(self, call: Call, costs: list[journal.Ended], error: SpeechframeError) -> None:
        """Send a refused pack as two halves, so that only what is wrong with it fails."""
        self._log.ended(call.request.key, SETTLED, costs, **_of_error(error))
        self._budget.settle(call.reserved, sum(cost.millicredits for cost in costs))
        rows = call.request.parts
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            for request in self._backend.pack(iter(half)):
                self._queue.add(Call(request))
        self._queue.done()

    def _fail(
        self,
        call: Call,
        lane: Lane,
        error: SpeechframeError,
        verdict: Verdict,
        costs: list[journal.Ended],
        told_s: float,
    ) -> None:
        """Let a call end without an answer."""
        status = CHARGED_UNKNOWN if call.is_unknown else FAILED
        ends = []
        for part, cost in zip(call.request.rows, costs, strict=True):
            cost.row = self._failed_row(call, part, lane, error, status)
            if told_s and verdict is not Verdict.LOST:
                words = f"the service asks to wait {told_s:,.0f} s, longer than patience_s leaves this row"
                cost.row["error_message"] = f"{cost.row['error_message']} ({words})"
            ends.append(_ended(part, cost.row, cost.millicredits, error))
        self._end(call, status, costs, ends, error=error)
        if self._raises:
            self._queue.stop(StopReason.FAILED, error)

    def _end(
        self,
        call: Call,
        status: str,
        costs: list[journal.Ended],
        ends: list[Outcome],
        *,
        answer: Answer | None = None,
        error: SpeechframeError | None = None,
    ) -> None:
        """Write a call's last attempt and its rows, and only then let them count."""
        facts: Row = _of_error(error) if error is not None else {}
        if answer is not None:
            facts = {
                "latency_ms": answer.latency_ms,
                "trace_id": answer.trace_id,
                "balance_after": answer.balance,
            }
        self._log.ended(call.request.key, status, costs, **facts)
        self._budget.settle(call.reserved, sum(cost.millicredits for cost in costs))
        balance = None if answer is None else answer.balance
        for end, cost in zip(ends, costs, strict=True):
            self._tell(end, (cost.row or {}).get("warnings") or (), balance)
        self._queue.done()

    def _row(
        self,
        call: Call,
        part: Request,
        lane: Lane,
        answer: Answer,
        record: Record,
        findings: Sequence[Finding],
        digest: str | None,
    ) -> Row:
        """Return the record of a row that has an answer."""
        price = part.price if record.millicredits is None else record.millicredits
        row = {
            **self._of_call(call, part, lane),
            **record.values,
            "audio": record.audio_name,
            "status": SUSPECT if findings else DONE,
            "credits": price / 1000,
            "balance_after": answer.balance,
            "trace_id": answer.trace_id,
            "latency_ms": answer.latency_ms,
            "warnings": record.warnings,
            "sha256": digest,
        }
        if findings:
            row["error_code"] = findings[0].code
            row["error_message"] = "; ".join(finding.words for finding in findings)
        return row

    def _failed_row(self, call: Call, part: Request, lane: Lane, error: SpeechframeError, status: str) -> Row:
        """Return the record of a row that has none."""
        row = {**self._of_call(call, part, lane), "status": status, **error_columns(error)}
        row["credits"] = part.price / 1000 if status == CHARGED_UNKNOWN else 0.0
        row[NOTED] = None if call.noted is None else call.noted.hex()
        row[PACK] = call.request.key if call.request.parts else None
        return row

    def _of_call(self, call: Call, part: Request, lane: Lane) -> Row:
        return {
            **part.facts,
            "request_key": part.key,
            "take": part.take,
            "billed_characters": part.characters,
            "attempts": call.sends,
            "lane": lane.name,
            "service": self._backend.service,
            "finished_at": time.time(),
        }

    # -- now and then ------------------------------------------------------------------

    async def _tick(self) -> None:
        """Outlive a power cut, look at what other processes do, and notice a service that is gone."""
        while True:
            await asyncio.sleep(TICK_S)
            await self._on_disk(self._log.sync)
            for lane in self._lanes:
                lane.share_out()
            self._staff()
            self._heed_waits()
            since = self._lanes.all_gone_since()
            if since is not None and time.monotonic() - since > min(GONE_S, self._policy.patience_s):
                words = "the service has not answered for a while; the run stopped and keeps what it has"
                self._queue.stop(StopReason.UNREACHABLE, ConnectionFailed(words, sent=False))

    def _heed_waits(self) -> None:
        """Say until when the service lets nobody call, and stop where that is longer than a row may take."""
        times = [lane.waits_until for lane in self._lanes]
        until = None if None in times else min(at for at in times if at is not None)
        if until is None or until == self._said_until:
            return
        self._said_until = until
        at = datetime.fromtimestamp(until).astimezone().strftime("%H:%M:%S")
        words = f"the service lets nobody call until {at}"
        self._progress.note(words)
        if until - time.time() > self._policy.patience_s:
            words = f"{words}, longer than patience_s allows: run again then"
            self._queue.stop(StopReason.UNREACHABLE, ConnectionFailed(words, sent=False))

    def _cut(self, close: Callable[[], int]) -> None:
        parts.cut(self._folder, close(), self._backend.columns)

    def _on_disk(self, function: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(self._disk, function, *args)


def _ended(part: Request, row: Row, cost: int, outcome: Record | SpeechframeError) -> Outcome:
    return Outcome(
        part.row_id,
        part.key,
        row["status"],
        row["attempts"],
        row.get("audio_seconds"),
        cost,
        reason=row.get("error_message") if row["status"] == SUSPECT else None,
        error=outcome if isinstance(outcome, SpeechframeError) else None,
    )


def _of_error(error: SpeechframeError) -> Row:
    columns = error_columns(error)
    return {"error_code": columns["error_code"], "trace_id": columns["trace_id"]}


def _of_lane(outcome: Answer | SpeechframeError) -> LaneOutcome:
    """Return what an attempt says of its lane."""
    if isinstance(outcome, errors.RateLimited):
        return LaneOutcome.REFUSED
    if isinstance(outcome, (errors.Unavailable, ConnectionFailed)):
        return LaneOutcome.UNAVAILABLE
    return (
        LaneOutcome.PASSED
        if isinstance(outcome, (Answer, errors.ServiceError, BadAnswer))
        else LaneOutcome.OTHER
    )
