"""Sends calls: lanes of workers over one queue, a budget, a log before and after every attempt."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from speechframe.batch.books import ERROR, REFUSED, Before, Identity
from speechframe.batch.budget import Budget
from speechframe.batch.job import Job, Ways
from speechframe.batch.limiter import Lane
from speechframe.batch.operation import Context, Operation, Planned
from speechframe.batch.outcome import (
    CHARGED_UNKNOWN,
    DONE,
    FAILED,
    ChargedUnknown,
    Done,
    Failed,
    Outcome,
    error_fields,
)
from speechframe.batch.progress import Bar, Progress
from speechframe.batch.queue import RowQueue
from speechframe.batch.retry import Charge, Decision, Verdict, decide, delay_s
from speechframe.client import Client, Spoken
from speechframe.errors import (
    ConnectionFailed,
    PaymentRequired,
    SpeechframeError,
    TimedOut,
    Unavailable,
)
from speechframe.store import LedgerRow, Record, RunWriter

log = logging.getLogger(__name__)

UNREACHABLE_S = 60.0
"""How long a service may give no answer at all before the run stops: a router restarts within that."""


class Engine:
    """Makes the calls of one run.

    Parameters
    ----------
    operation
        The verb.
    client
        Sends one attempt at a time.
    lanes
        Where calls go, in order of preference.
    budget
        What may be spent.
    writer
        The run folder's log.
    ways, identity, before
        See there.
    progress, bar
        Counters, and what is drawn of them.
    """

    def __init__(
        self,
        operation: Operation,
        client: Client,
        lanes: list[Lane],
        budget: Budget,
        writer: RunWriter,
        *,
        ways: Ways,
        identity: Identity,
        progress: Progress,
        bar: Bar,
        before: Before | None = None,
        on_outcome: Callable[[Outcome], None] | None = None,
    ) -> None:
        self.operation = operation
        self.client = client
        self.lanes = lanes
        self.budget = budget
        self.writer = writer
        self.ways = ways
        self.identity = identity
        self.progress = progress
        self.bar = bar
        self.before = before or Before()
        self.on_outcome = on_outcome
        self.stopped_because: str | None = None
        self.stopped_by: SpeechframeError | None = None
        self._queue: RowQueue[Job] = RowQueue(iter(()))
        self._workers: list[asyncio.Task[None]] = []

    async def run(self, calls: Iterator[Planned]) -> None:
        """Make `calls`; return when all have an outcome or the run was stopped.

        Cancelled, it cancels the calls in flight; those may have been billed and are recorded so.

        Raises
        ------
        StoreError
            When the folder takes no more: no further call starts, those in flight finish first.
        """
        self._queue = RowQueue(map(self._job, calls))
        if self.stopped_because is not None:
            # Told to stop before it began.
            self._queue.close()
        self._workers = [
            asyncio.create_task(self._work(lane), name=f"speechframe-{lane.name}-{i}")
            for lane in self.lanes
            for i in range(lane.cap)
        ]
        try:
            await self._drained()
            for job in self._queue.waiting():
                self._leave(job)
        finally:
            self.bar.draw(force=True)

    def abort(self) -> None:
        """Cancel the calls in flight; those may have been billed and are recorded so."""
        self.stop("interrupted")
        for worker in self._workers:
            worker.cancel()

    def stop(self, because: str, error: SpeechframeError | None = None) -> None:
        """Start no further call; calls in flight finish."""
        if self.stopped_because is None:
            self.stopped_because, self.stopped_by = because, error
            log.info("the run stops: %s", because)
        self._queue.close()

    async def _drained(self) -> None:
        """Wait for every worker; after the error of one, no call starts, and the others finish theirs."""
        try:
            await asyncio.wait(self._workers, return_when=asyncio.FIRST_EXCEPTION)
            self._queue.close()
            await asyncio.wait(self._workers)
        finally:
            for worker in self._workers:
                worker.cancel()
            # Wait for the end of each, so that every log record of a cancelled call is written.
            ends = await asyncio.gather(*self._workers, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _job(self, planned: Planned) -> Job:
        key = planned.request_key
        paid = self.ways.repeat_is_free and key in self.before.paid
        return Job(planned, is_paid=paid, is_unknown=key in self.before.unknown)

    async def _work(self, lane: Lane) -> None:
        # A paused lane takes no row: another lane may be free for it.
        while await lane.ready(self._queue.finished):
            job = await self._queue.next()
            if job is None:
                return
            if lane.is_paused:
                self._queue.front(job)
            elif self._reserve(job):
                async with lane.permit():
                    await self._attempt(job, lane)
            self.bar.draw()

    def _reserve(self, job: Job) -> bool:
        """Set aside what `job` may cost; where that does not fit, put it back and return False."""
        if job.reserved:
            return True
        if self.budget.reserve(job.price):
            job.reserved = job.price
            return True
        if self.budget.reserved:
            # Calls under way may yet settle for less than was set aside for them.
            self._queue.hold(job)
        else:
            rest = self.progress.total - self.progress.ended
            self.stop("budget", self.budget.exceeded(self.budget_needed(job), rest))
            self._queue.front(job)
        return False

    def budget_needed(self, job: Job) -> int:
        """Return what the calls that remain need, in thousandths of a credit."""
        return max(self.progress.planned_millis - self.progress.ended_millis, job.planned.millicredits)

    async def _attempt(self, job: Job, lane: Lane) -> None:
        planned = job.planned
        job.sends += 1
        job.lane = lane.name
        key = idempotency_key(self.identity.run_id, planned) if self.ways.repeat_is_free else None
        take = planned.take if self.ways.sends_takes else 0
        call = replace(planned.call, idempotency_key=key, take=take)
        began = time.monotonic()
        self.writer.sent(
            self.identity.sent(
                planned, attempt=job.sends, lane=lane.name, price=job.price, idempotency_key=key
            )
        )
        try:
            answer = await self.client.send_once(call, region=lane.region, timeout_s=self.ways.timeout_s)
        except SpeechframeError as error:
            self._failed_attempt(job, lane, error, began)
        except asyncio.CancelledError:
            lost = TimedOut("the run was stopped while this call was in flight", sent=True)
            decision = Decision(Verdict.UNKNOWN, Charge.UNKNOWN)
            self._give_up(job, lost, self._book_failed(job, lost, decision, began))
            raise
        else:
            self._succeed(job, lane, answer)

    def _succeed(self, job: Job, lane: Lane, answer: Spoken) -> None:
        lane.answered()
        planned, price = job.planned, job.price
        context = Context(attempts=job.sends, lane=lane.name, service=self.identity.service)
        self.writer.answer(
            self.operation.record(planned, answer, context),
            self._ledger(
                job,
                status=DONE,
                latency_ms=answer.latency_ms,
                credits_millis=price,
                credits_basis=(Charge.COMPUTED if price else Charge.NONE).value,
                audio_seconds=answer.audio_seconds,
                trace_id=answer.trace_id,
                balance_after=answer.remaining_characters,
            ),
        )
        self._settle(job, price)
        self.progress.audio_seconds += answer.audio_seconds
        if answer.remaining_characters is not None:
            self.progress.balance = answer.remaining_characters
        self._end(job, DONE, Done(planned.request_key, job.attempts, answer.audio_seconds, job.spent))

    def _failed_attempt(self, job: Job, lane: Lane, error: SpeechframeError, began: float) -> None:
        decision = decide(
            error, repeat_is_free=self.ways.repeat_is_free, retry_unknown=self.ways.retry_unknown
        )
        told_s = self._told_s(job, error)
        self._note_health(lane, error, began, told_s)
        row = self._book_failed(job, error, decision, began)
        if decision.verdict in {Verdict.FAIL, Verdict.UNKNOWN} or self._is_spent(job, decision):
            self._give_up(job, error, row)
            return
        self.writer.attempt(row)
        if decision.verdict is Verdict.STOP:
            self.stop("quota" if isinstance(error, PaymentRequired) else "key", error)
            self._queue.front(job)
        else:
            self.progress.retried(getattr(error, "code", None) or type(error).__name__)
            self._again(job, lane, decision, told_s)

    def _told_s(self, job: Job, error: SpeechframeError) -> float | None:
        """Return the seconds the service asked for, within the patience that is left for `job`."""
        told_s = getattr(error, "retry_after_s", None)
        return None if told_s is None else min(told_s, max(0.0, self.ways.patience_s - job.seconds))

    def _note_health(self, lane: Lane, error: SpeechframeError, began: float, told_s: float | None) -> None:
        """Rest a lane that gives no answer or says it is down; stop when no lane gives any."""
        if isinstance(error, Unavailable):
            lane.rest(began, told_s=told_s, silent=False)
        elif not isinstance(error, ConnectionFailed):
            lane.answered()
        else:
            lane.rest(began, silent=True)
            limit_s = min(UNREACHABLE_S, self.ways.patience_s)
            log.info("%s gives no answer, it is tried for %.0f s: %s", lane.name, limit_s, error)
            if all(o.silences >= self.ways.max_attempts and o.silent_s >= limit_s for o in self.lanes):
                self.stop("unreachable", error)

    def _is_spent(self, job: Job, decision: Decision) -> bool:
        if decision.verdict in {Verdict.UNREACHED, Verdict.STOP}:
            return False
        if job.seconds > self.ways.patience_s:
            return True
        return decision.verdict is Verdict.AGAIN_LATER and job.attempts >= self.ways.max_attempts

    def _again(self, job: Job, lane: Lane, decision: Decision, told_s: float | None) -> None:
        if decision.verdict is Verdict.AGAIN_FIRST:
            # Refused by a cap: no attempt was lost. The lane rests; the row keeps its place at the front.
            job.uncounted += 1
            lane.refusals += 1
            # A service that says "now" (0) is not taken at its word: many were told the same.
            lane.pause(delay_s(min(job.uncounted, 5) if told_s is None else 1, told_s=told_s))
            self._queue.front(job)
        elif decision.verdict is Verdict.UNREACHED:
            job.uncounted += 1
            self._queue.front(job)
        elif decision.pauses_lane:
            # It is the lane that rests: another may take the row at once.
            self._queue.front(job)
        else:
            self._queue.later(job, delay_s(job.attempts, told_s=told_s))

    def _give_up(self, job: Job, error: SpeechframeError, row: LedgerRow | None) -> None:
        """End a call without an answer; what may have been billed is never just failed."""
        self._release(job)
        key, status = job.planned.request_key, CHARGED_UNKNOWN if job.is_unknown else FAILED
        self.writer.answer(self._failure(job, status, error), row)
        if job.is_unknown:
            self._end(job, status, ChargedUnknown(key, job.attempts, error, job.spent))
        else:
            self._end(job, status, Failed(key, job.attempts, error))

    def _leave(self, job: Job) -> None:
        """Let go of a call the run does not come back to; what may have been billed is never just pending."""
        self._release(job)
        if job.is_unknown and job.last_error is not None:
            self._give_up(job, job.last_error, None)

    def _book_failed(self, job: Job, error: SpeechframeError, decision: Decision, began: float) -> LedgerRow:
        """Settle what a failed attempt cost, and return its row for the ledger."""
        spent = job.price if decision.charge is not Charge.NONE else 0
        facts = error_fields(error)
        status = REFUSED if decision.verdict is Verdict.AGAIN_FIRST else ERROR
        row = self._ledger(
            job,
            status=CHARGED_UNKNOWN if decision.charge is Charge.UNKNOWN else status,
            latency_ms=1000 * (time.monotonic() - began),
            credits_millis=spent,
            credits_basis=decision.charge.value,
            error_code=facts["error_code"],
            trace_id=facts["trace_id"],
        )
        job.last_error = error
        job.is_unknown |= decision.charge is Charge.UNKNOWN
        if decision.charge is not Charge.NONE:
            # It may have been billed: the budget must count it as if it was.
            self._settle(job, spent)
            job.is_paid = self.ways.repeat_is_free
        elif decision.verdict is Verdict.STOP:
            self._release(job)
        return row

    def _settle(self, job: Job, spent: int) -> None:
        self.budget.settle(reserved=job.reserved, spent=spent)
        job.reserved = 0
        job.spent += spent
        self.progress.credits_millis += spent
        self._queue.release()

    def _release(self, job: Job) -> None:
        self.budget.settle(reserved=job.reserved, spent=0)
        job.reserved = 0
        self._queue.release()

    def _end(self, job: Job, status: str, outcome: Outcome) -> None:
        self.progress.count(status)
        self.progress.ended_millis += job.planned.millicredits
        self._queue.done()
        if self.on_outcome is not None:
            self.on_outcome(outcome)

    def _failure(self, job: Job, status: str, error: SpeechframeError) -> Record:
        return self.identity.failure(
            job.planned, error, status=status, lane=job.lane, attempts=job.sends, spent=job.spent
        )

    def _ledger(self, job: Job, **facts: Any) -> LedgerRow:
        free = self.ways.repeat_is_free
        return self.identity.ledger_row(job.planned, lane=job.lane, idempotency=free, **facts)


def idempotency_key(run_id: str, planned: Planned) -> str:
    """Return a call's ``Idempotency-Key``: the same for every attempt of this run."""
    return f"{run_id}-{planned.request_key}"
