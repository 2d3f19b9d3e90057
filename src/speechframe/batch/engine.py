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
from datetime import datetime
from typing import Any, NamedTuple

from speechframe import errors
from speechframe.batch.backend import Answer, Attempt, Backend, Finding, Opened, Record, Request
from speechframe.batch.budget import Budget
from speechframe.batch.decisions import Verdict, counts, error_columns, verdict_of
from speechframe.batch.follow import Live
from speechframe.batch.lanes import Lane, Lanes
from speechframe.batch.lanes import Outcome as LaneOutcome
from speechframe.batch.memory import Memory
from speechframe.batch.progress import Outcome, code_of
from speechframe.batch.queue import Call, Queue
from speechframe.errors import BadAnswer, ConnectionFailed, SpeechframeError, TimedOut
from speechframe.store import parts
from speechframe.store.cache import Cache
from speechframe.store.folder import Folder
from speechframe.store.journal import Ended, Journal
from speechframe.store.reader import warning_kind
from speechframe.store.schema import CHARGED_UNKNOWN, DONE, FAILED, NOTED, PACK, SUSPECT, Row, StopReason

TICK_S = 0.25
GONE_S = 60.0
"""A run stops when no lane has answered for so long, or for a row's patience if that is shorter."""
FIRST_ANSWERS = 10
"""A run stops when so many answers came and none of them could be used."""
BACKOFF_S, LONGEST_BACKOFF_S = 0.25, 30.0
MOST_LOOKED_AT = 32
RETRIED = "retried"


class _Looked(NamedTuple):
    """What an answer holds for one row: its record or why it has none, and what speaks against it."""

    record: Record | SpeechframeError
    findings: Sequence[Finding] = ()
    sha256: str | None = None


class _Sent(NamedTuple):
    """An attempt that has ended."""

    call: Call
    lane: Lane
    outcome: Answer | SpeechframeError
    booked: asyncio.Event  # set when it is written down


class Engine:
    """Makes the calls of a queue and keeps what comes of them.

    Parameters
    ----------
    backend, opened
        The service.
    queue, lanes, budget
        What to send, where, and for how much.
    folder, log, run_id
        The run's folder and its journal; its id, for idempotency keys.
    cache
        Where good answers are kept for other runs; None for nowhere.
    live
        The run's progress and options; told the end of every row's call once it is on disk.
    """

    def __init__(
        self,
        backend: Backend,
        opened: Opened,
        queue: Queue,
        lanes: Lanes,
        budget: Budget,
        *,
        folder: Folder,
        log: Journal,
        run_id: str,
        cache: Cache | None,
        live: Live,
    ) -> None:
        self._backend, self._queue, self._lanes, self._budget = backend, queue, lanes, budget
        self._folder, self._log, self._run_id, self._cache = folder, log, run_id, cache
        self._live, self._progress, self._options = live, live.progress, live.options
        self._takes, self._repeats_are_free = opened.takes, opened.repeats_free_s > 0
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
                    self._answers.put_nowait(_Sent(call, lane, outcome, booked))
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
        request, timeout_s = call.request, self._options.timeout_s
        call.sends += 1
        call.began = call.began or now
        rows = [
            {
                "request_key": row.key,
                "take": row.take,
                "characters": row.characters,
                "price": row.price,
                "millicredits": 0 if call.is_paid else row.price,
                **row.facts,
            }
            for row in request.rows
        ]
        is_free = self._repeats_are_free
        self._log.sent(request.key, call.sends, lane.name, time.time(), rows, idempotency=is_free)
        left_s = call.began + self._options.patience_s - now
        limit_s = left_s if timeout_s is None else min(timeout_s, left_s)
        attempt = Attempt(
            lane=lane.name,
            deadline_s=timeout_s,
            idempotency_key=f"{self._run_id}-{request.key}" if is_free else None,
            take=request.take if self._takes else 0,
            noted=call.noted,
            note=lambda data: self._note(call, data),
            admit=self._memory.room_for(call),
        )
        ticket = lane.begin(slot)
        outcome: Answer | SpeechframeError
        try:
            async with asyncio.timeout(limit_s):
                outcome = await self._backend.send(request, attempt)
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
            for sent, found in zip(some, looked, strict=True):
                self._memory.release(sent.call)
                if isinstance(found, SpeechframeError):
                    self._react(sent.call, sent.lane, found)
                    self._count_unusable(found)
                elif isinstance(sent.outcome, Answer):
                    self._keep(sent.call, sent.lane, sent.outcome, found)
                sent.booked.set()
                self._answers.task_done()
            if self._log.is_full:
                if self._cutting is not None:
                    await self._cutting
                self._cutting = self._on_disk(self._cut, self._log.roll())

    def _look_at(self, some: list[_Sent]) -> list[list[_Looked] | SpeechframeError]:
        """In a thread: decode answers and judge them; an error where an answer is of no use for any row."""
        found: list[list[_Looked] | SpeechframeError] = []
        for call, _, outcome, _ in some:
            try:
                if isinstance(outcome, SpeechframeError):
                    raise outcome
                records = self._backend.records(call.request, outcome)
            except SpeechframeError as error:
                found.append(error)
                continue
            looked = []
            for row, record in zip(call.request.rows, records, strict=True):
                if isinstance(record, SpeechframeError):
                    looked.append(_Looked(record))
                    continue
                findings = (
                    self._backend.judge(row, record, self._learned) if self._options.truth_checks else ()
                )
                sha256 = None if record.audio is None else hashlib.sha256(record.audio).hexdigest()
                looked.append(_Looked(record, findings, sha256))
            found.append(looked)
        return found

    def _keep(self, call: Call, lane: Lane, answer: Answer, looked: list[_Looked]) -> None:
        """Write an answer down; then its rows count."""
        ends: list[Ended] = []
        for part, (record, findings, sha256) in zip(call.request.rows, looked, strict=True):
            price, basis, audio = part.price, "computed", None
            if isinstance(record, SpeechframeError):
                row = self._failed_row(call, part, lane, record, CHARGED_UNKNOWN)
            else:
                price = part.price if record.millicredits is None else record.millicredits
                basis, audio = record.basis, record.audio
                row = {
                    **self._row(call, part, lane, SUSPECT if findings else DONE, price),
                    **record.values,
                    "audio": record.audio_name,
                    "balance_after": answer.balance,
                    "trace_id": answer.trace_id,
                    "latency_ms": answer.latency_ms,
                    "warnings": record.warnings,
                    "sha256": sha256,
                }
                if findings:
                    row["error_code"] = findings[0].code
                    row["error_message"] = "; ".join(finding.words for finding in findings)
            ends.append(Ended(price - (part.price if call.is_paid else 0), basis, row, audio))
        facts = {
            "latency_ms": answer.latency_ms,
            "trace_id": answer.trace_id,
            "balance_after": answer.balance,
        }
        self._settle(call, SUSPECT if any(one.findings for one in looked) else DONE, ends, facts)
        self._usable += 1
        if answer.balance is not None:
            self._progress.balance = answer.balance
        for part, (record, findings, _), end in zip(call.request.rows, looked, ends, strict=True):
            self._tell(part, end, record)
            if isinstance(record, SpeechframeError):
                continue
            if not findings:
                if self._cache is not None and self._options.truth_checks and end.row is not None:
                    self._disk.submit(self._cache.put, part.key, end.row, record.audio)
            elif (
                call.retakes < self._options.max_retakes
                and part.varies
                and self._takes
                and part is call.request
            ):
                self._progress.total += 1
                self._queue.add(Call(part.as_take(part.take + 1), retakes=call.retakes + 1))
        self._queue.done()

    def _react(self, call: Call, lane: Lane, error: SpeechframeError) -> None:
        """Decide by the table what becomes of a call that has no answer."""
        request, options, verdict = call.request, self._options, verdict_of(error)
        was_unknown = call.is_unknown
        ends = self._costs_of(call, verdict)
        facts = {name: error_columns(error)[name] for name in ("error_code", "trace_id")}
        call.failures += counts(error)
        told_s = getattr(error, "retry_after_s", None) or 0.0
        delay_s = told_s
        if verdict is not Verdict.NOW:
            longest_s = min(BACKOFF_S * 2**call.failures, LONGEST_BACKOFF_S)
            delay_s = max(told_s, random.uniform(0, longest_s))  # noqa: S311 - a delay is no secret
        left_s = options.patience_s - (time.monotonic() - (call.began or time.monotonic()))
        has_time = call.failures < options.max_attempts and delay_s < left_s
        if verdict is Verdict.STOP:
            self._settle(call, FAILED, ends, facts)
            self._queue.back(call)
            is_quota = isinstance(error, errors.PaymentRequired)
            self._queue.stop(StopReason.QUOTA if is_quota else StopReason.REFUSED, error)
        elif has_time and self._goes_again(verdict):
            if verdict in {Verdict.LOST, Verdict.UNUSABLE}:
                # Until an answer is written down, the row says what a killed process would have left.
                for part, end in zip(request.rows, ends, strict=True):
                    end.row = self._failed_row(call, part, lane, error, CHARGED_UNKNOWN)
            self._settle(call, RETRIED, ends, facts)
            if self._queue.stopped is None:
                self._progress.retried(code_of(error))
            self._queue.back(call, delay_s)
        elif verdict is Verdict.FAIL and request.parts:
            # A refused pack goes as two halves, so that only what is wrong with it fails.
            self._settle(call, RETRIED, ends, facts)
            middle = len(request.parts) // 2
            halves = (request.parts[:middle], request.parts[middle:])
            self._replace([smaller for half in halves for smaller in self._backend.pack(iter(half))])
        elif verdict is Verdict.UNUSABLE and was_unknown and options.on_unknown == "retry":
            # What an earlier answer names cannot be fetched any more: the call itself is made again, once.
            self._settle(call, RETRIED, ends, facts)
            self._replace([request])
        else:
            waits_s = told_s if delay_s >= left_s and verdict is not Verdict.LOST else 0.0
            self._fail(call, lane, error, ends, facts, waits_s)

    def _replace(self, requests: list[Request]) -> None:
        """Make new calls instead of one that has ended."""
        for request in requests:
            self._queue.add(Call(request))
        self._queue.done()

    def _count_unusable(self, error: SpeechframeError) -> None:
        """Stop where nothing that comes can be used."""
        self._unusable += verdict_of(error) is Verdict.UNUSABLE
        if self._unusable >= FIRST_ANSWERS and not self._usable:
            words = f"the first {self._unusable} answers were of no use, so the run stopped: {error}"
            self._queue.stop(StopReason.UNUSABLE, BadAnswer(words))

    def _goes_again(self, verdict: Verdict) -> bool:
        """Return whether a call with this verdict is sent again, as far as attempts and patience allow."""
        if verdict in {Verdict.NOW, Verdict.LATER}:
            return True
        is_asked = verdict is Verdict.LOST and self._options.on_unknown == "retry"
        is_free = verdict in {Verdict.LOST, Verdict.UNUSABLE} and self._repeats_are_free
        return self._queue.stopped is None and (is_asked or is_free)

    def _fail(
        self,
        call: Call,
        lane: Lane,
        error: SpeechframeError,
        ends: list[Ended],
        facts: Row,
        waits_s: float,
    ) -> None:
        """Let a call end without an answer."""
        status = CHARGED_UNKNOWN if call.is_unknown else FAILED
        for part, end in zip(call.request.rows, ends, strict=True):
            end.row = self._failed_row(call, part, lane, error, status)
            if waits_s:
                words = f"the service asks to wait {waits_s:,.0f} s, longer than patience_s leaves this row"
                end.row["error_message"] += f" ({words})"
        self._settle(call, status, ends, facts)
        for part, end in zip(call.request.rows, ends, strict=True):
            self._tell(part, end, error)
        self._queue.done()
        if self._options.on_error == "raise":
            self._queue.stop(StopReason.FAILED, error)

    def _costs_of(self, call: Call, verdict: Verdict) -> list[Ended]:
        """Return what a failed attempt cost: where repeats are free, the price once for all attempts."""
        rows = call.request.rows
        if verdict in {Verdict.LOST, Verdict.UNUSABLE}:
            basis = "unknown" if verdict is Verdict.LOST else "computed"
            ends = [Ended(0 if call.is_paid else row.price, basis) for row in rows]
            # With a noted answer, the next attempt only fetches the rest of it.
            call.is_unknown, call.is_paid = True, self._repeats_are_free or call.noted is not None
            return ends
        if verdict is Verdict.FAIL and call.is_paid and call.request.parts and self._repeats_are_free:
            # A service that bills repeats once would have sent the answer: the lost attempt was not billed. A
            # row of its own stays in doubt, but a pack is split, and its rows are counted anew.
            call.is_unknown = call.is_paid = False
            return [Ended(-row.price, "computed") for row in rows]
        return [Ended(0, "none") for _ in rows]

    def _settle(self, call: Call, status: str, ends: list[Ended], facts: Row) -> None:
        """Write the end of an attempt, with the records of the rows that end by it, and what it cost."""
        self._log.ended(call.request.key, status, ends, **facts)
        self._budget.settle(call.reserved, sum(end.millicredits for end in ends))
        call.reserved = 0

    def _tell(self, part: Request, end: Ended, came: Record | SpeechframeError) -> None:
        """Let everybody know what became of a row's call, now that it is on disk."""
        row = end.row or {}
        status = row["status"]
        for words in row.get("warnings") or ():
            self._progress.warn(warning_kind(words), words)
        self._live.outcome(
            Outcome(
                part.row_id,
                part.key,
                status,
                row["attempts"],
                row.get("audio_seconds"),
                end.millicredits,
                reason=row["error_message"] if status == SUSPECT else None,
                error=came if isinstance(came, SpeechframeError) else None,
            )
        )

    def _failed_row(self, call: Call, part: Request, lane: Lane, error: SpeechframeError, status: str) -> Row:
        """Return the record of a row that has no answer."""
        price = part.price if status == CHARGED_UNKNOWN else 0
        return {
            **self._row(call, part, lane, status, price),
            **error_columns(error),
            NOTED: None if call.noted is None else call.noted.hex(),
            PACK: call.request.key if call.request.parts else None,
        }

    def _row(self, call: Call, part: Request, lane: Lane, status: str, price: int) -> Row:
        return {
            **part.facts,
            "request_key": part.key,
            "take": part.take,
            "status": status,
            "credits": price / 1000,
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
            if since is not None and time.monotonic() - since > min(GONE_S, self._options.patience_s):
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
        if until - time.time() > self._options.patience_s:
            words = f"{words}, longer than patience_s allows: run again then"
            self._queue.stop(StopReason.UNREACHABLE, ConnectionFailed(words, sent=False))

    def _cut(self, close: Callable[[], int]) -> None:
        parts.cut(self._folder, close(), self._backend.columns)

    def _on_disk(self, function: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(self._disk, function, *args)


def _of_lane(outcome: Answer | SpeechframeError) -> LaneOutcome:
    """Return what an attempt says of its lane."""
    if isinstance(outcome, errors.RateLimited):
        return LaneOutcome.REFUSED
    if isinstance(outcome, (errors.Unavailable, ConnectionFailed)):
        return LaneOutcome.UNAVAILABLE
    said = (Answer, errors.ServiceError, BadAnswer)
    return LaneOutcome.PASSED if isinstance(outcome, said) else LaneOutcome.OTHER
