"""Sends calls: lanes of workers over one queue; what they cost and how they end is for :mod:`accounts`."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator

from speechframe._lasting import LastingTask
from speechframe.errors import (
    BadRequest,
    ConnectionFailed,
    PaymentRequired,
    RateLimited,
    ServerError,
    SpeechframeError,
    TimedOut,
    Unavailable,
)
from speechframe.old_batch.accounts import Accounts
from speechframe.old_batch.books import Before
from speechframe.old_batch.budget import BALANCE, not_said
from speechframe.old_batch.cap import Ticket
from speechframe.old_batch.job import Job, call_of, job_of
from speechframe.old_batch.limiter import Lane
from speechframe.old_batch.operation import Todo
from speechframe.old_batch.patience import Patience
from speechframe.old_batch.progress import Bar
from speechframe.old_batch.queue import STILL_S, RowQueue
from speechframe.old_batch.retry import FIRST_DELAY_S, Charge, Decision, Verdict, decide, delay_s
from speechframe.old_client import Client
from speechframe.old_store import LedgerRow
from speechframe.old_store.run_state import StopReason

log = logging.getLogger(__name__)


class Engine:
    """Makes the calls of one run.

    Parameters
    ----------
    client
        Sends one attempt at a time.
    lanes
        Where calls go, in order of preference.
    accounts
        What attempts cost and how calls end.
    bar
        What is drawn of the progress.
    before
        What earlier drives of the run left behind.
    ask_balance
        Asks the service what is left on the key; None where it does not say.
    on_wait
        Told why the run ends, before what is paid for is waited for.
    """

    def __init__(
        self,
        client: Client,
        lanes: list[Lane],
        accounts: Accounts,
        *,
        bar: Bar,
        before: Before | None = None,
        ask_balance: Callable[[], Awaitable[int | None]] = not_said,
        on_wait: Callable[[StopReason], object] = bool,
    ) -> None:
        self.client = client
        self.lanes = lanes
        self.accounts = accounts
        self.bar = bar
        self.before = before or Before()
        self._ask_balance = ask_balance
        self._on_wait = on_wait
        self._is_asking = False
        self.ways = accounts.ways
        self._patience = Patience(self.ways, lanes)
        self.stopped_because: StopReason | None = None
        self.stopped_by: SpeechframeError | None = None
        self._ends_at_once = False
        self._unfit: Job | None = None
        self._queue: RowQueue[Job] = RowQueue(iter(()))
        self._workers: dict[str, list[asyncio.Task[None]]] = {lane.name: [] for lane in lanes}
        self._trouble: Exception | None = None
        self._attempts = 0

    async def run(self, calls: Iterator[Todo]) -> None:
        """Make `calls`; return when all have an outcome or the run was stopped.

        Cancelled, it cancels the calls in flight; those may have been billed and are recorded so.

        Raises
        ------
        StoreError
            When the folder takes no more: no further call starts, those in flight finish first.
        """
        self._queue = RowQueue(job_of(todo, self.before, self.ways) for todo in calls)
        if self.stopped_because is not None:
            # Told to stop before it began.
            self._queue.close()
        try:
            await self._make()
            if self.stopped_because is not None and self.takes_free_only:
                # Behind the call that did not fit: what was paid is not left undelivered.
                for job in self._queue.reopen(self._is_free, within_s=STILL_S):
                    self.accounts.leave(job)
                if any(job.is_paid for job in self._queue.waiting()):
                    self._on_wait(self.stopped_because)
                with self._queue.closing(STILL_S):
                    await self._make()
            for job in self._queue.waiting():
                self.accounts.leave(job)
            self._say_what_is_left()
        finally:
            self.bar.draw(force=True)

    def abort(self) -> None:
        """Cancel the calls in flight; those may have been billed and are recorded so."""
        self.stop(StopReason.INTERRUPTED)
        for worker in self._all_workers():
            worker.cancel()

    def stop(self, because: StopReason, error: SpeechframeError | None = None) -> None:
        """Start no further call, but free ones behind the end of a limit; calls in flight finish."""
        self._ends_at_once |= because not in {StopReason.BUDGET, StopReason.QUOTA}
        if self.stopped_because is None:
            self.stopped_because, self.stopped_by = because, error
            log.info("the run stops: %s", because)
        self._queue.close()

    @property
    def takes_free_only(self) -> bool:
        """Whether a limit is used up and nothing else ends the run: what costs nothing is still made."""
        return self.stopped_because is not None and not self._ends_at_once

    def _is_free(self, job: Job) -> bool:
        # Of a key that the service refuses only what was paid is still wanted.
        return job.is_paid or (job.is_cached and self._unfit is not None)

    # -- workers ----------------------------------------------------------------------

    def _all_workers(self) -> list[asyncio.Task[None]]:
        return [worker for workers in self._workers.values() for worker in workers]

    async def _make(self) -> None:
        """Let lanes work until the queue has nothing more for them."""
        for lane in self.lanes:
            self._workers[lane.name] = []
            self._staff(lane)
        waker = LastingTask(self._wake_at_the_end(), name="speechframe-waker")
        try:
            await self._drained()
        finally:
            waker.cancel()

    def _staff(self, lane: Lane) -> None:
        """Give a lane one worker more when all it has are busy and it may use more."""
        workers = self._workers[lane.name]
        count = len(workers)
        if lane.in_flight >= count and count < lane.width and count < lane.limit:
            workers.append(LastingTask(self._work(lane), name=f"speechframe-{lane.name}-{len(workers)}"))

    async def _wake_at_the_end(self) -> None:
        await self._queue.finished.wait()
        for lane in self.lanes:
            lane.wake_all()

    async def _drained(self) -> None:
        """Wait for every worker; after the error of one, no call starts, and the others finish theirs."""
        try:
            # More may come while these are waited for.
            while running := [worker for worker in self._all_workers() if not worker.done()]:
                await asyncio.wait(running)
        finally:
            for worker in self._all_workers():
                worker.cancel()
            # Wait for the end of each, so that every log record of a cancelled call is written.
            await asyncio.gather(*self._all_workers(), return_exceptions=True)
        if self._trouble is not None:
            raise self._trouble

    def _say_what_is_left(self) -> None:
        """Have the error that ended the run name the price of the calls to come: others ended since."""
        if self._unfit is not None:
            self.stopped_by = self.accounts.exceeded(self._unfit)
        elif isinstance(self.stopped_by, PaymentRequired):
            self.stopped_by = self.accounts.refused(self.stopped_by)

    async def _work(self, lane: Lane) -> None:
        try:
            # A lane without a free place takes no row: another lane may be free for it.
            while (place := await lane.enter(self._queue.finished)) is not None:
                job = await self._use(lane, place)
                self.bar.draw()
                if job is None:
                    await self._queue.changed()
        except Exception as error:  # noqa: BLE001 - it is raised when those in flight have finished
            self._trouble = self._trouble or error
            self._queue.close()

    async def _use(self, lane: Lane, place: int) -> Job | None:
        """Take the next row for a place of `lane` and make its call."""
        ticket = None
        try:
            job = self._queue.take()
            if job is not None and job.is_put_off:
                self._let_go(job)
            elif job is not None and job.is_cached and self.accounts.found(job):
                self._queue.done()
                # A cached table must not keep the loop to itself.
                await asyncio.sleep(0)
            elif job is not None and await self._reserved(job):
                if lane.takes_turn():
                    ticket = lane.begin()
                    self._staff(lane)
                    await self._attempt(job, lane, ticket)
                else:
                    # With what was set aside for it, as one that was refused.
                    self._queue.front(job)
            return job
        finally:
            lane.leave(place, ticket)

    async def _reserved(self, job: Job) -> bool:
        """Set aside what `job` may cost; where that does not fit, put it back and return False."""
        if self.takes_free_only and not job.is_paid:
            # It was free, but the cache has lost it.
            self._queue.done()
            return False
        if self.accounts.reserve(job):
            return True
        if self.accounts.budget.reserved or self._is_asking:
            # Calls under way may yet settle for less than was set aside for them.
            self._queue.hold(job)
        elif self.accounts.budget.is_in_doubt:
            return await self._found_out(job)
        else:
            self._refuse(job)
        return False

    async def _found_out(self, job: Job) -> bool:
        """Ask whether a balance that would end the run is one, or let `job` find out."""
        self._is_asking = True
        try:
            mark = self.accounts.budget.mark()
            self.accounts.budget.note_balance(await self._ask_balance(), mark, is_sure=True)
        except BaseException:
            self._queue.front(job)
            raise
        finally:
            self._is_asking = False
            self._queue.release()
        if self.stopped_because is not None:
            self._queue.front(job)
        elif self.accounts.reserve(job, in_doubt=True):
            return True
        else:
            self._refuse(job)
        return False

    def _refuse(self, job: Job) -> None:
        """Split what does not fit, or stop."""
        if packs := self.accounts.split(job):
            # Credits that are left for some rows of a pack are not left unspent.
            self._queue.split(packs)
        else:
            error, self._unfit = self.accounts.exceeded(job), job
            self.stop(StopReason.QUOTA if error.limit == BALANCE else StopReason.BUDGET, error)
            self._queue.front(job)

    # -- one attempt ------------------------------------------------------------------

    async def _attempt(self, job: Job, lane: Lane, ticket: Ticket) -> None:
        job.sends += 1
        job.lane = lane.name
        call = call_of(job, self.ways, self.accounts.identity.run_id)
        began = time.monotonic()
        self._attempts += 1
        number, was_alone = self._attempts, sum(other.in_flight for other in self.lanes) == 1
        self.accounts.sent(job, idempotency_key=call.idempotency_key)
        try:
            answer = await self.client.send_once(call, region=lane.region, timeout_s=self.ways.timeout_s)
        except SpeechframeError as error:
            self._failed(job, lane, ticket, error, began)
        except asyncio.CancelledError:
            lost = TimedOut("the run was stopped while this call was in flight", sent=True)
            decision = Decision(Verdict.UNKNOWN, Charge.UNKNOWN)
            self._give_up(job, lost, self.accounts.failed(job, lost, decision, began))
            raise
        else:
            lane.passed(ticket)
            self.accounts.answered(job, answer)
            if was_alone and self._attempts == number and self.accounts.drift.has_doubt:
                self.accounts.quiet(answer.remaining_characters)
            self._queue.release()
            self._queue.done()

    def _failed(self, job: Job, lane: Lane, ticket: Ticket, error: SpeechframeError, began: float) -> None:
        decision = decide(
            error, repeat_is_free=self.ways.repeat_is_free, retry_unknown=self.ways.retry_unknown
        )
        self._note_health(job, lane, ticket, error, began)
        rows = self.accounts.failed(job, error, decision, began)
        self._queue.release()
        if decision.verdict in {Verdict.FAIL, Verdict.UNKNOWN} or self._is_spent(job, decision, error):
            # What concerns the address (404, 405) would only be said of each row.
            is_of_rows = isinstance(error, (BadRequest, ServerError))
            if is_of_rows and (packs := self.accounts.split(job, rows)):
                # One bad row costs one row: the others of its pack go again.
                self._queue.split(packs)
            else:
                self._give_up(job, error, rows)
            return
        self.accounts.tried(rows)
        if decision.verdict is Verdict.STOP:
            # Refused although it was paid: so would be every other repeat.
            self._ends_at_once |= job.is_paid
            self.stop(StopReason.QUOTA if isinstance(error, PaymentRequired) else StopReason.KEY, error)
            self._queue.front(job)
        else:
            self.accounts.progress.retried(getattr(error, "code", None) or type(error).__name__)
            self._again(job, decision, getattr(error, "retry_after_s", None))

    def _give_up(self, job: Job, error: SpeechframeError, rows: list[LedgerRow]) -> None:
        self.accounts.give_up(job, error, rows)
        self._queue.release()
        self._queue.done()

    def _note_health(
        self, job: Job, lane: Lane, ticket: Ticket, error: SpeechframeError, began: float
    ) -> None:
        """Tell the lane what the answer says of it; stop when no lane gives any answer."""
        told_s = self._patience.told_s(job, error)
        if isinstance(error, RateLimited):
            lane.refused(ticket, told_s=told_s)
        elif isinstance(error, Unavailable):
            lane.rest(began, told_s=told_s, silent=False)
        elif not isinstance(error, ConnectionFailed):
            lane.passed(ticket)
        else:
            lane.rest(began, silent=True)
            limit_s = self._patience.silence_s
            log.info("%s gives no answer, it is tried for %.0f s: %s", lane.name, limit_s, error)
            if self._patience.is_unreachable:
                self.stop(StopReason.UNREACHABLE, error)

    def _is_spent(self, job: Job, decision: Decision, error: SpeechframeError) -> bool:
        """Whether the row has had all attempts and all the time it may have."""
        if decision.verdict in {Verdict.UNREACHED, Verdict.STOP}:
            return False
        puts_off = decision.verdict is Verdict.AGAIN_FIRST or decision.pauses_lane
        if puts_off and self._patience.puts_off_everybody(job):
            # The service puts off everybody: that is no fault of this row, and would fail every other, too.
            job.uncounted += decision.pauses_lane
            self._ask_or_stop(job, error)
            return False
        if job.seconds > self.ways.patience_s:
            return True
        return decision.verdict is Verdict.AGAIN_LATER and job.attempts >= self.ways.max_attempts

    def _ask_or_stop(self, job: Job, error: SpeechframeError) -> None:
        """Stop where everybody is put off for too long, but let a row that never was find out before."""
        is_outage = isinstance(error, Unavailable)
        if self._patience.is_over(job, is_outage=is_outage):
            # Rows that were refused stand before all others: they may be the only ones.
            is_asking = not is_outage and self._patience.asks_another()
            if not (is_asking and self._queue.prefer_new()):
                self.stop(StopReason.UNAVAILABLE, error)

    def _again(self, job: Job, decision: Decision, told_s: float | None) -> None:
        wait_s: float | None = None
        if decision.verdict is not Verdict.AGAIN_LATER:
            # Refused by a cap, or never arrived: no attempt was lost, and the row keeps its place unless it
            # was told to wait.
            job.uncounted, wait_s = job.uncounted + 1, told_s
        elif not decision.pauses_lane or all(lane.is_paused for lane in self.lanes):
            # Not where only its lane rests: another may take the row at once.
            wait_s = delay_s(job.attempts, told_s=told_s)
        if wait_s:
            self._later(job, wait_s, told_s)
        else:
            self._queue.front(job)

    def _later(self, job: Job, delay_s: float, told_s: float | None) -> None:
        """Put a row back, due when its patience ends at the latest; told to wait for longer, it ends then."""
        patience_s = self._patience.left_s(job)
        job.is_put_off = told_s is not None and told_s > patience_s
        self._queue.later(job, min(delay_s, patience_s))

    def _let_go(self, job: Job) -> None:
        """End a row that was told to wait for longer than it may take; or the run, where all are put off."""
        error = job.last_error
        assert error is not None  # noqa: S101 - one told it so
        if self._patience.puts_off_everybody(job):
            self._ask_or_stop(job, error)
            # It ends when another has told which it is.
            self._queue.later(job, FIRST_DELAY_S)
        else:
            self._give_up(job, error, [])
