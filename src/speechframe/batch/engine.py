"""Makes the calls of a run. Workers send calls, and one booker writes the answers to the run's journal.

A worker sends a call, passes the answer or error to the booker, and takes the next call at once. A worker is
at most one answer ahead of the booker. So a burst of answers leads to a burst of calls, without a wait for
bookkeeping. The booker judges answers in a thread and writes one after the other. A row counts once its
record is written.

The journal is a sequence of files on disk, the segments. A full segment is converted to a part, which is one
Parquet file of results.
"""

import asyncio
import hashlib
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from speechframe import errors
from speechframe.batch.backend import Answer, Attempt, Backend, Finding, Opened, Request
from speechframe.batch.budget import Budget
from speechframe.batch.lanes import LONGEST_RETRY_AFTER_S, SHARING_PERIOD_S, Lane, choose_lanes
from speechframe.batch.options import Options
from speechframe.batch.progress import Outcome, Progress, get_error_code
from speechframe.batch.queue import Call, Queue
from speechframe.batch.verdicts import Verdict, judge_error
from speechframe.errors import BadAnswer, ConnectionFailed, SpeechframeError, TimedOut
from speechframe.store import parts
from speechframe.store.cache import Cache
from speechframe.store.folder import Folder
from speechframe.store.journal import Ended, Journal
from speechframe.store.ledger import Ledger
from speechframe.store.reader import find_warning_kind
from speechframe.store.schema import (
    CHARGED_UNKNOWN,
    DONE,
    FAILED,
    NOTED,
    PACK,
    PENDING,
    SUSPECT,
    WAIT_UNTIL,
    Row,
    StopReason,
)
from speechframe.writing.words import replace_unprintable

LONGEST_WAIT_S = 0.25
"""Longest time in seconds that a worker or the engine waits before it looks for changes again."""
MAX_UNAVAILABLE_S = 60.0
"""A run stops if all lanes (addresses that take calls) are unreachable for this number of seconds, or for
``patience_s`` if ``patience_s`` is shorter."""
MAX_UNUSABLE_ANSWERS = 10
"""A run stops if this number of answers was unusable and none was usable."""
BACKOFF_S, LONGEST_BACKOFF_S = 0.25, 30.0
"""The delay before a repeat is random. Its upper bound in seconds doubles with each failure of the call, from
2 * `BACKOFF_S` to `LONGEST_BACKOFF_S`."""
MAX_JUDGED_ATTEMPTS = 32
"""Largest number of ended attempts that the booker judges before it writes them."""
MAX_HELD_ANSWER_BYTES = 256 << 20
"""Largest memory in bytes of all answers together that are not written yet."""
RETRIED_STATUS = "retried"
"""Status in the ledger of a failed attempt whose rows are sent again."""
UNBILLED_VERDICTS = frozenset({Verdict.NOW, Verdict.LATER})
"""Verdicts on calls that were certainly not billed. They are repeated within max_attempts and patience_s."""


class _EndedAttempt(NamedTuple):
    """An attempt that has ended."""

    call: Call
    lane: Lane
    outcome: Answer | SpeechframeError
    booked: asyncio.Event  # set once the attempt is written to the journal


def _restart_timeout(limit: asyncio.Timeout, limit_s: float) -> None:
    """Restart a timeout of `limit_s` seconds, unless it has expired."""
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + limit_s)


@dataclass(eq=False, repr=False)
class CallMaker(ABC):
    """Makes the calls of a queue. The parts belong to the run.

    `folder`, `journal`, `ledger`, `cache` and `budget` are where calls are stored, looked up and counted. The
    last three may be None. `update_budget` reads the spending of other machines, or is None. `had_answers` is
    True if the service has given usable answers to other workers of the run.
    """

    backend: Backend
    opened: Opened
    options: Options
    queue: Queue
    lanes: Sequence[Lane]
    progress: Progress
    run_id: str
    folder: Folder
    journal: Journal
    ledger: Ledger | None
    cache: Cache | None
    budget: Budget | None
    update_budget: Callable[[], None] | None
    had_answers: bool = False

    @abstractmethod
    async def run(self) -> None:
        """Make the calls, and return once all calls have ended."""

    @abstractmethod
    def stop(self, *, drain: bool, reason: StopReason) -> None:
        """Send no more calls. Without `drain` also cancel the calls under way."""


@dataclass(eq=False, repr=False)
class Engine(CallMaker):
    """Makes the calls of a queue in this process, and writes their answers and errors to the journal."""

    def __post_init__(self) -> None:
        self._has_takes, self._repeats_are_free = self.opened.takes, self.opened.repeats_free_s > 0
        self._ended_attempts: asyncio.Queue[_EndedAttempt] = asyncio.Queue()
        self._workers: set[asyncio.Task[None]] = set()
        self._judge_thread = ThreadPoolExecutor(1, "speechframe-judge")
        self._disk_thread = ThreadPoolExecutor(1, "speechframe-disk")
        self._conversion: asyncio.Future[None] | None = None
        self._held_bytes: dict[int, int] = {}  # id of the call to the memory of its unwritten answer
        self._judge_memory: dict[str, Any] = {}  # memory of `Backend.judge` over all answers
        self._is_cancelled = False
        self._usable, self._unusable = int(self.had_answers), 0
        self._announced_until: float | None = None

    async def run(self) -> None:
        """Make the calls, and return once all calls have ended.

        After a stop, return once the calls under way have ended. The error of a call is written to the
        journal and not raised. Any other error, such as a full disk or a bug, is raised. It leaves the
        journal as a kill would, and the next run recovers the journal.
        """
        helpers = {asyncio.create_task(self._book_attempts()), asyncio.create_task(self._do_periodic_work())}
        try:
            while not self.queue.is_over or self._workers:
                self._start_workers()
                await self._wait_for_any(self._workers | helpers)
            self.queue.end()
            all_booked = asyncio.create_task(self._ended_attempts.join())
            while not all_booked.done():
                await self._wait_for_any({all_booked} | helpers)
            if self._conversion is not None:
                await self._conversion
            await self._run_in_disk_thread(self._convert_segment, self.journal.close)
        finally:
            for task in self._workers | helpers:
                task.cancel()
            await asyncio.gather(*self._workers, *helpers, return_exceptions=True)
            self._judge_thread.shutdown()
            self._disk_thread.shutdown()
            self.journal.close()

    def stop(self, *, drain: bool, reason: StopReason) -> None:
        """Send no more calls. Without `drain` also cancel the calls under way, which may have been billed."""
        self.queue.stop(reason)
        # Do not wait for jobs, because they may take hours. The jobs go on at the service. The next run finds
        # each job by the id that its attempt noted.
        if not drain or self.backend.is_long:
            self._is_cancelled = True
            for task in self._workers:
                task.cancel()

    # -- sending ---------------------------------------------------------------------

    async def _wait_for_any(self, tasks: "set[asyncio.Task[None]]") -> None:
        done, _ = await asyncio.wait(tasks, timeout=LONGEST_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        self._workers -= done
        for task in done:
            if not (task.cancelled() and self._is_cancelled):
                task.result()  # tasks return the errors of calls, so an error raised here ends the run

    def _start_workers(self) -> None:
        """Start the missing workers of all usable lanes."""
        for lane in choose_lanes(self.lanes):
            while lane.workers_to_add > 0 and not self.queue.is_over:
                lane.workers += 1
                self._workers.add(asyncio.create_task(self._run_worker(lane)))

    async def _run_worker(self, lane: Lane) -> None:
        slot: int | None = None
        booked = asyncio.Event()  # set once the worker's last answer is written
        booked.set()
        try:
            while not self.queue.is_over and (missing := lane.workers_to_add) >= 0:
                if missing > 0:
                    self._start_workers()
                if (slot := lane.take_permit(slot)) is None:
                    await self.queue.wait_for_change(LONGEST_WAIT_S)  # other processes hold all permits
                elif (wait_s := lane.compute_wait_s()) > 0:
                    await self.queue.wait_for_change(wait_s)
                elif call := await self.queue.take():
                    outcome = await self._make_attempt(call, lane, slot)
                    await booked.wait()
                    booked.clear()
                    self._ended_attempts.put_nowait(_EndedAttempt(call, lane, outcome, booked))
        finally:
            lane.workers -= 1
            if slot is not None:
                lane.give_permit_back(slot)

    async def _make_attempt(self, call: Call, lane: Lane, slot: int) -> Answer | SpeechframeError:
        """Make one attempt of a call, and return the answer or the error."""
        now = time.monotonic()
        request, timeout_s, is_idempotent = call.request, self.options.timeout_s, self._repeats_are_free
        call.sends += 1
        call.began = call.began or now
        self.journal.write_sent(
            request.key, call.sends, lane.name, time.time(), call.make_entries(), idempotency=is_idempotent
        )
        if call.noted is not None:
            # Repeat the note of an earlier attempt, because recovery reads only the last attempt's lines.
            self.journal.write_note(request.key, call.noted)
        left_s = call.began + self.options.patience_s - now
        limit_s = left_s if timeout_s is None else min(timeout_s, left_s)
        limit_s = math.inf if self.backend.is_long else limit_s
        limit = asyncio.timeout(limit_s)
        attempt = Attempt(
            lane=lane.name,
            deadline_s=timeout_s,
            idempotency_key=f"{self.run_id}-{request.key}" if is_idempotent else None,
            take=request.take if self._has_takes else 0,
            noted=call.noted,
            note=partial(self._write_note, call),
            admit=partial(self._wait_for_memory, call),
        )
        if timeout_s is None:
            attempt.extend = partial(_restart_timeout, limit, limit_s)
        ticket = lane.begin(slot)
        outcome: Answer | SpeechframeError
        try:
            async with limit:
                outcome = await self.backend.send(request, attempt)
        except SpeechframeError as error:
            outcome = error
        except TimeoutError:
            outcome = TimedOut(f"no whole answer within {limit_s:,.3g} s", sent=True)
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
            message = "cancelled while the call was under way"
            if self.backend.is_long and call.noted:
                message = "the run stopped waiting for this job: the job goes on, and resume() finds it"
            outcome = ConnectionFailed(message, sent=True)
        lane.end(ticket, outcome)
        if isinstance(outcome, Answer) and outcome.latency_ms is None:
            outcome.latency_ms = 1000 * (time.monotonic() - now)
        return outcome

    async def _write_note(self, call: Call, data: bytes) -> None:
        call.noted = data
        self.journal.write_note(call.request.key, data)
        await self._run_in_disk_thread(self.journal.sync)

    async def _wait_for_memory(self, call: Call, count: int) -> None:
        """Wait until memory for `count` more bytes of an answer is available.

        Raise BadAnswer instead of waiting if the answer already holds memory, because two such answers could
        wait for each other. Also raise BadAnswer if `count` bytes can never fit.
        """
        held = self._held_bytes.get(id(call), 0)
        while sum(self._held_bytes.values()) + count > MAX_HELD_ANSWER_BYTES:
            if held or count > MAX_HELD_ANSWER_BYTES:
                raise BadAnswer(
                    f"an answer needs {count / 1e6:,.0f} MB more memory, but all answers under way may use "
                    f"{MAX_HELD_ANSWER_BYTES / 1e6:,.0f} MB together: lower max_concurrency"
                )
            await self.queue.wait_for_change()  # the queue changes when an answer is written
        self._held_bytes[id(call)] = held + count

    # -- booking ---------------------------------------------------------------------

    async def _book_attempts(self) -> None:
        """Judge and write answers as they come. Convert each full segment of the journal to a part."""
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._ended_attempts.get()]
            while not self._ended_attempts.empty() and len(batch) < MAX_JUDGED_ATTEMPTS:
                batch.append(self._ended_attempts.get_nowait())
            # `map` is lazy, so `list` calls `_judge_attempt` in the thread.
            results = await loop.run_in_executor(self._judge_thread, list, map(self._judge_attempt, batch))
            for ended, judged in zip(batch, results, strict=True):
                self._held_bytes.pop(id(ended.call), None)
                if isinstance(judged, SpeechframeError):
                    self._handle_failure(ended.call, ended.lane, judged)
                elif isinstance(ended.outcome, Answer):
                    self._write_answer(ended.call, ended.outcome, *judged)
                if isinstance(ended.outcome, Answer):
                    # A late second answer on this connection could be mistaken for the next call's answer.
                    fits = not isinstance(judged, SpeechframeError) and judged[0] != SUSPECT
                    ended.outcome.release(fits)
                ended.booked.set()
                self._ended_attempts.task_done()
            if self.journal.is_full:
                if self._conversion is not None:
                    await self._conversion
                self._conversion = self._run_in_disk_thread(
                    self._convert_segment, self.journal.begin_next_segment()
                )

    def _judge_attempt(self, ended: _EndedAttempt) -> tuple[str, list[Ended]] | SpeechframeError:
        """Decode and judge an answer. Return the status of the attempt, and the end of each row.

        Return the error instead if the attempt failed, or if the answer is unusable for all rows. This method
        runs in a thread.
        """
        call, lane, answer, _ = ended
        if isinstance(answer, SpeechframeError):
            return answer
        try:
            records = self.backend.records(call.request, answer)
        except SpeechframeError as error:
            return error
        ends, statuses = list[Ended](), set[str]()
        for row_request, record in zip(call.rows, records, strict=True):
            charged_before = call.get_charge(row_request) if call.is_in_ledger else 0
            if isinstance(record, SpeechframeError):
                is_billed = judge_error(record) is Verdict.UNUSABLE
                statuses.add(status := CHARGED_UNKNOWN if is_billed else FAILED)
                row = self._make_failed_record(call, row_request, lane, record, status)
                price = call.get_charge(row_request) if is_billed else 0
                basis = "computed" if is_billed else "none"
                if record.millicredits is not None:
                    price, basis = record.millicredits, "reported"
                    row["credits"] = price / 1000
                ends.append(Ended(price - charged_before, basis, row, error=record))
                continue
            findings: Sequence[Finding] = ()
            if self.options.truth_checks:
                findings = self.backend.judge(row_request, record, self._judge_memory)
            price = row_request.price if record.millicredits is None else record.millicredits
            statuses.add(status := SUSPECT if findings else DONE)
            row = {
                **self._make_record_base(call, row_request, lane, status, price),
                **record.values,
                "audio": record.audio_name,
                "balance_after": answer.balance,
                "trace_id": answer.trace_id,
                "latency_ms": answer.latency_ms,
                "warnings": record.warnings,
                "sha256": None if record.audio is None else hashlib.sha256(record.audio).hexdigest(),
            }
            if findings:
                row["error_code"] = findings[0].code
                row["error_message"] = "; ".join([finding.words for finding in findings])
            ends.append(Ended(price - charged_before, record.basis, row, record.audio))
        # FAILED would mean that no row was billed. So an attempt with a billed row without a result is DONE.
        status = SUSPECT if SUSPECT in statuses else FAILED if statuses == {FAILED} else DONE
        return status, ends

    def _write_answer(self, call: Call, answer: Answer, status: str, ends: list[Ended]) -> None:
        """Write an answer, report its rows, and queue retakes of its suspect rows."""
        facts = {
            "latency_ms": answer.latency_ms,
            "trace_id": answer.trace_id,
            "balance_after": answer.balance,
        }
        self._settle_attempt(call, status, ends, facts)
        self._usable += 1
        if answer.balance is not None:
            self.progress.balance = answer.balance
        retakes: list[Call] = []
        may_retake = self._has_takes and call.retakes < self.options.max_retakes
        may_retake = may_retake and call.request.varies and not call.request.parts
        for row_request, end in zip(call.rows, ends, strict=True):
            row = self._report_row(call, row_request, end)
            if row["status"] == DONE and self.cache is not None and self.options.truth_checks:
                self._disk_thread.submit(self.cache.put, row_request.key, row, end.audio)
            elif row["status"] == SUSPECT and may_retake:
                self.progress.total += 1
                retakes.append(Call(row_request.as_take(row_request.take + 1), retakes=call.retakes + 1))
        self.queue.finish(call, retakes)

    def _handle_failure(self, call: Call, lane: Lane, error: SpeechframeError) -> None:
        """Write a failed attempt. Then repeat, split or fail the call, or stop the run.

        The verdict on the error decides what happens.
        """
        request, options, verdict = call.request, self.options, judge_error(error)
        was_unknown, was_not_sent = call.is_unknown, isinstance(error, ConnectionFailed) and not error.sent
        may_be_billed = verdict in {Verdict.LOST, Verdict.UNUSABLE}
        ends = self._charge_failure(call, verdict)
        facts = {"error_code": get_error_code(error), "trace_id": getattr(error, "trace_id", None)}
        call.failures += verdict is not Verdict.NOW and not was_not_sent
        delay_s = retry_after_s = getattr(error, "retry_after_s", None) or 0.0
        if verdict is not Verdict.NOW:
            backoff_s = min(BACKOFF_S * 2**call.failures, LONGEST_BACKOFF_S)
            delay_s = max(retry_after_s, random.uniform(0, backoff_s))  # noqa: S311 - a delay is not a secret
        left_s = call.began + options.patience_s - time.monotonic()
        retries_lost = verdict is Verdict.LOST and options.on_unknown == "retry"
        repeats_billed = self.queue.stopped is None and (self._repeats_are_free or retries_lost)
        may_repeat = repeats_billed if may_be_billed else verdict in UNBILLED_VERDICTS
        if verdict is Verdict.STOP:
            self._settle_attempt(call, FAILED, ends, facts)
            self.queue.put_back(call)
            is_quota = isinstance(error, errors.PaymentRequired)
            self.queue.stop(StopReason.QUOTA if is_quota else StopReason.REFUSED, error)
        elif may_repeat and call.failures < options.max_attempts and delay_s < left_s:
            if may_be_billed or retry_after_s:
                # If this process is killed before an answer is written, this record remains. It shows that
                # the row may have been billed, or when the service accepts the next call (Retry-After).
                status = CHARGED_UNKNOWN if call.is_unknown else PENDING
                for row_request, end in zip(call.rows, ends, strict=True):
                    end.row = self._make_failed_record(call, row_request, lane, error, status)
            self._settle_attempt(call, RETRIED_STATUS, ends, facts)
            if self.queue.stopped is None:
                self.progress.count_retry(get_error_code(error))
            self.queue.put_back(call, delay_s)
        elif verdict is Verdict.FAIL and request.parts:
            # Send a refused pack as two halves, so that only its faulty rows fail.
            middle = len(request.parts) // 2
            halves = (request.parts[:middle], request.parts[middle:])
            self._settle_attempt(call, RETRIED_STATUS, ends, facts)
            smaller = [one for half in halves for one in self.backend.pack(iter(half))]
            self.queue.finish(call, [Call(one, costs=call.costs) for one in smaller])
        elif verdict is Verdict.UNUSABLE and was_unknown and options.on_unknown == "retry":
            # An earlier attempt may have been billed, but its answer is lost. Replace the call by a new call.
            self._settle_attempt(call, RETRIED_STATUS, ends, facts)
            self.queue.finish(call, [Call(request, costs=call.costs)])
        else:
            self._fail_rows(call, lane, error, ends, facts, retry_after_s if delay_s >= left_s else 0.0)
        # Do not count an answer after a lost attempt. It may be an outdated repeat of the lost answer.
        self._unusable += verdict is Verdict.UNUSABLE and not was_unknown
        if self._unusable >= MAX_UNUSABLE_ANSWERS and not self._usable:
            message = f"the first {self._unusable} answers were unusable, so the run stopped: {error}"
            self.queue.stop(StopReason.UNUSABLE, BadAnswer(message))

    def _charge_failure(self, call: Call, verdict: Verdict) -> list[Ended]:
        """Update `is_unknown` and `is_in_ledger` after a failed attempt. Return the cost of each row."""
        if verdict in {Verdict.LOST, Verdict.UNUSABLE}:
            basis = "unknown" if verdict is Verdict.LOST else "computed"
            ends = [Ended(0 if call.is_in_ledger else asked.price, basis) for asked in call.rows]
            # Further attempts cost nothing if repeats are free, or if they only fetch an answer whose address
            # was noted.
            call.is_unknown, call.is_in_ledger = True, self._repeats_are_free or call.noted is not None
            return ends
        if verdict is Verdict.FAIL and call.is_in_ledger and call.request.parts and self._repeats_are_free:
            # Refund the price of the lost attempt. If it had been billed, this free repeat would have brought
            # its answer. Only a pack needs the refund, because its halves are billed again. A call of one row
            # keeps the price and ends as `charged_unknown`.
            call.is_unknown = call.is_in_ledger = False
            return [Ended(-asked.price, "computed") for asked in call.rows]
        return [Ended(0, "none") for _ in call.rows]

    def _fail_rows(
        self, call: Call, lane: Lane, error: SpeechframeError, ends: list[Ended], facts: Row, waits_s: float
    ) -> None:
        """Fail the rows of a call.

        `waits_s` is the service's Retry-After in seconds if this row may not wait so long, otherwise 0.
        """
        status = CHARGED_UNKNOWN if call.is_unknown else FAILED
        message = f" (the service asks to wait {waits_s:,.0f} s, longer than patience_s leaves this row)"
        for row_request, end in zip(call.rows, ends, strict=True):
            end.row, end.error = self._make_failed_record(call, row_request, lane, error, status), error
            end.row["error_message"] += message if waits_s else ""
        self._settle_attempt(call, status, ends, facts)
        for row_request, end in zip(call.rows, ends, strict=True):
            self._report_row(call, row_request, end)
        self.queue.finish(call)
        if self.options.on_error == "raise":
            self.queue.stop(StopReason.FAILED, error)

    def _settle_attempt(self, call: Call, status: str, ends: list[Ended], facts: Row) -> None:
        """Write the end of an attempt, with the records in `ends`. Then book the cost of the attempt."""
        self.journal.write_end(call.request.key, status, ends, **facts)
        costs = [end.millicredits for end in ends]
        self.progress.credits_millis += sum(costs)
        for row_request, cost in zip(call.rows, costs, strict=True):
            call.costs[row_request.key] += cost
        if self.budget is not None:
            self.budget.settle(call.request, call.reserved, costs)
        call.reserved = 0

    def _report_row(self, call: Call, row_request: Request, end: Ended) -> Row:
        """Report the outcome of a row whose record is written, and return the record."""
        row = end.row or {}
        status = row["status"]
        for warning in row.get("warnings") or ():
            self.progress.warn(find_warning_kind(warning), warning)
        self.progress.add(
            Outcome(
                row_request.row_id,
                row_request.key,
                status,
                row["attempts"],
                row.get("audio_seconds"),
                call.costs[row_request.key],
                reason=row["error_message"] if status == SUSPECT else None,
                error=end.error,
            )
        )
        return row

    def _make_failed_record(
        self, call: Call, row_request: Request, lane: Lane, error: SpeechframeError, status: str
    ) -> Row:
        """Return the record of a row without a usable answer."""
        price = call.get_charge(row_request) if status == CHARGED_UNKNOWN else 0
        wait_s = getattr(error, "retry_after_s", None)
        return {
            **self._make_record_base(call, row_request, lane, status, price),
            "error_code": get_error_code(error),
            "error_message": replace_unprintable(getattr(error, "message", None) or str(error)),
            "error_status": getattr(error, "status", None),
            "trace_id": getattr(error, "trace_id", None),
            NOTED: None if call.noted is None else call.noted.hex(),
            PACK: call.request.key if call.request.parts else None,
            WAIT_UNTIL: None if not wait_s else time.time() + min(wait_s, LONGEST_RETRY_AFTER_S),
        }

    def _make_record_base(self, call: Call, row_request: Request, lane: Lane, status: str, price: int) -> Row:
        return {
            **row_request.facts,
            "request_key": row_request.key,
            "take": row_request.take,
            "status": status,
            "credits": price / 1000,
            "billed_characters": row_request.characters,
            "attempts": call.sends,
            "lane": lane.name,
            "service": self.backend.service,
            "finished_at": time.time(),
        }

    # -- periodic work ------------------------------------------------------------------

    async def _do_periodic_work(self) -> None:
        """Sync the journal, share the lanes' learned limits, and stop the run if the service is gone."""
        while True:
            await asyncio.sleep(SHARING_PERIOD_S)
            await self._run_in_disk_thread(self.journal.sync)
            for lane in self.lanes:
                lane.share_learned()
            self._start_workers()
            self._announce_waits()
            unavailable_s = time.monotonic() - max(lane.unavailable_since_s for lane in self.lanes)
            if unavailable_s <= min(MAX_UNAVAILABLE_S, self.options.patience_s):
                continue
            if await self.backend.is_answering():
                # The service is slow but reachable.
                for lane in self.lanes:
                    lane.end_rest()
            else:
                message = "the service has not answered for a while; the run stopped and keeps all answers"
                self.queue.stop(StopReason.UNREACHABLE, ConnectionFailed(message, sent=False))

    def _announce_waits(self) -> None:
        """Report the time until which the service accepts no calls, if all lanes must wait.

        Stop the run if this wait exceeds ``patience_s``.
        """
        times = [lane.waits_until for lane in self.lanes]
        until = None if None in times else min(at for at in times if at is not None)
        if until is None or until == self._announced_until:
            return
        self._announced_until = until
        at = datetime.fromtimestamp(until).astimezone().strftime("%H:%M:%S")
        message = f"the service accepts no calls until {at}"
        self.progress.note(message)
        if until - time.time() > self.options.patience_s:
            message = f"{message}, longer than patience_s allows: run again then"
            self.queue.stop(StopReason.UNREACHABLE, ConnectionFailed(message, sent=False))

    def _convert_segment(self, close_segment: Callable[[], int]) -> None:
        parts.convert_segment(self.folder, close_segment(), self.backend.columns, self.ledger)
        if self.update_budget is not None:
            self.update_budget()

    def _run_in_disk_thread(self, function: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(self._disk_thread, function, *args)
