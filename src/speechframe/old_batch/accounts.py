"""What an attempt costs and how a call ends: budget, log, ledger and counters, always together."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from speechframe.errors import BudgetExceeded, PaymentRequired, SpeechframeError
from speechframe.old_batch.books import ERROR, REFUSED, SETTLED, Identity
from speechframe.old_batch.budget import Budget, to_come
from speechframe.old_batch.doubt import Doubt
from speechframe.old_batch.drift import Drift
from speechframe.old_batch.filler import Filler
from speechframe.old_batch.job import Job, Ways
from speechframe.old_batch.operation import Context, Looker, Operation, Planned
from speechframe.old_batch.outcome import (
    CACHED,
    CHARGED_UNKNOWN,
    DONE,
    FAILED,
    SUSPECT,
    ChargedUnknown,
    Done,
    Failed,
    Outcome,
    error_fields,
)
from speechframe.old_batch.progress import Progress
from speechframe.old_batch.retry import Charge, Decision, Verdict
from speechframe.old_batch.truth import MAY_BE_ANOTHER_S
from speechframe.old_client import Answer, Spoken
from speechframe.old_store import LedgerRow, Record, RunWriter, SentRecord
from speechframe.spec.billing import to_credits

REPORTED = "reported"
# To read the value of an enum is a call of Python.
_COMPUTED, _FREE = Charge.COMPUTED.value, Charge.NONE.value


def _nobody(outcome: Outcome) -> None:
    """Tell nobody."""


@dataclass
class Accounts:
    """Keeps the accounts of one run; whatever it notes is on disk when it returns.

    Parameters
    ----------
    operation, identity, ways
        The verb, what every ledger row says, how the run behaves.
    budget
        What may be spent.
    writer
        The run folder's log.
    progress
        Counters.
    truth
        Looks at every answer; None for no look.
    cache
        Answers of other runs; None for none.
    drift
        What the balance says beside these accounts.
    on_outcome
        Called with every outcome.
    """

    operation: Operation
    identity: Identity
    ways: Ways
    budget: Budget
    writer: RunWriter
    progress: Progress
    truth: Looker | None = None
    cache: Filler | None = None
    drift: Drift[Job] = field(default_factory=Drift)
    on_outcome: Callable[[Outcome], None] = field(default=_nobody)

    # -- before an attempt -------------------------------------------------------------

    def reserve(self, job: Job, *, in_doubt: bool = False) -> bool:
        """Set aside what `job` may cost; False where that does not fit; see :meth:`Budget.reserve`."""
        if job.reserved:
            return True
        price = job.price
        # What is still set aside for a lost answer covers its repeat.
        from_balance = 0 if job.from_balance else price
        if not self.budget.reserve(price, from_balance=from_balance, in_doubt=in_doubt):
            return False
        job.reserved = price
        job.from_balance += from_balance
        return True

    def exceeded(self, job: Job) -> BudgetExceeded:
        """Return the error that says why `job` does not fit, and what those that remain would cost."""
        p = self.progress
        needed = p.planned_millis - p.ended_millis
        if not job.is_unknown:  # that has an end of its own: perhaps billed, and not sent once more
            needed = max(needed, job.planned.millicredits)
        return self.budget.exceeded(needed, p.total - p.ended, unit=self.operation.unit)

    def refused(self, error: PaymentRequired) -> PaymentRequired:
        """Return the service's own error with what the calls that remain would cost."""
        p = self.progress
        if p.total == p.ended:
            return error
        words = to_come(p.planned_millis - p.ended_millis, p.total - p.ended, self.operation.unit)
        # The rows that have it keep it as it came.
        told = copy.copy(error)
        told.message = f"{error.message.rstrip('.')}; {words}. Everything paid for is kept."
        return told

    def sent(self, job: Job, *, idempotency_key: str | None) -> None:
        """Note that an attempt is about to be made."""
        job.mark = self.budget.mark()
        if job.planned.members:
            self.writer.sent_together(
                [self._sent(job, part, idempotency_key) for part in job.planned.members]
            )
        else:
            self.writer.sent(self._sent(job, job.planned, idempotency_key))

    def _sent(self, job: Job, part: Planned, idempotency_key: str | None) -> SentRecord:
        return self.identity.sent(
            part,
            attempt=job.sends,
            lane=job.lane,
            price=job.price_of(part),
            idempotency_key=idempotency_key,
        )

    # -- how an attempt ends -----------------------------------------------------------

    def answered(self, job: Job, answer: Answer) -> None:
        """End a call with its answer."""
        planned, price, balance = job.planned, job.price, answer.remaining_characters
        parts = planned.parts
        context = Context(attempts=job.sends, lane=job.lane, service=self.identity.service)
        records = self.operation.records(planned, answer, context)
        rows = []
        for part, record in zip(parts, records, strict=True):
            if self.truth is not None and (doubts := self.truth.doubts(part, answer, record)):
                _suspect(record, doubts)
                if isinstance(answer, Spoken) and any(doubt.code in MAY_BE_ANOTHER_S for doubt in doubts):
                    answer.came_on.drop()
            rows.append(self._answered_row(job, part, record, answer))
        self._keep(records, rows)
        self.budget.note_balance(balance, job.mark, job.from_balance)
        if balance is None:
            self.budget.balance.note_success(job.mark, job.from_balance)
        self._settle(job, price)
        self.drift.billed(to_credits(planned.millicredits) if price or job.is_due else 0)
        self.drift.seen(balance)
        self.progress.audio_seconds += answer.audio_seconds
        if balance is not None:
            self.progress.balance = balance
        for number, record in enumerate(records):
            # What nobody has looked at is not for other runs to trust.
            if self.cache is not None and self.truth is not None and record.status == DONE:
                self.cache.put(record)
            self._end(job, number, parts[number], record)

    def _keep(self, records: Sequence[Record], rows: Sequence[LedgerRow | None]) -> None:
        if len(records) == 1:
            self.writer.answer(records[0], rows[0])
        else:
            # Half of a pack could not be asked for again.
            self.writer.answer_together(list(zip(records, rows, strict=True)))

    def _answered_row(self, job: Job, part: Planned, record: Record, answer: Answer) -> LedgerRow:
        price = job.price_of(part)
        return self.identity.ledger_row(
            part,
            lane=job.lane,
            idempotency=self.ways.repeat_is_free,
            status=record.status,
            attempt=job.sends,
            latency_ms=answer.latency_ms,
            credits_millis=price,
            credits_basis=_COMPUTED if price else _FREE,
            audio_seconds=answer.audio_seconds,
            trace_id=answer.trace_id,
            error_code=record.error_code,
            balance_after=answer.remaining_characters,
        )

    def found(self, job: Job) -> bool:
        """End a call with the cache's answer; False when the cache has none any more."""
        record = None if self.cache is None else self.cache.cache.get(job.planned.request_key)
        job.is_cached = False
        if record is None:
            # The plan took it for free.
            self.progress.planned_millis += job.price
            return False
        record.text = job.planned.text or None
        self.writer.answer(record)
        self.progress.audio_seconds += record.audio_seconds or 0.0
        self._end(job, 0, job.planned, record)
        return True

    def failed(self, job: Job, error: SpeechframeError, decision: Decision, began: float) -> list[LedgerRow]:
        """Settle what a failed attempt cost, and return its rows for the ledger, one for each part."""
        is_charged = decision.charge is not Charge.NONE
        spent = job.price if is_charged else 0
        facts = error_fields(error)
        status = REFUSED if decision.verdict is Verdict.AGAIN_FIRST else ERROR
        if decision.charge is Charge.UNKNOWN or (is_charged and self._is_kept_together):
            status = CHARGED_UNKNOWN
        rows = [
            self._ledger(
                job,
                part,
                attempt=job.sends,
                status=status,
                latency_ms=1000 * (time.monotonic() - began),
                credits_millis=job.price_of(part) if is_charged else 0,
                credits_basis=decision.charge.value,
                error_code=facts["error_code"],
                trace_id=facts["trace_id"],
            )
            for part in job.planned.parts
        ]
        job.last_error = error
        job.is_unknown |= decision.charge is Charge.UNKNOWN
        if spent and self.ways.repeat_is_free:
            # Of all its attempts one is billed: which, the end of the call says.
            job.is_due = True
        elif spent:
            self._count_lost(job, is_sure=decision.charge is not Charge.UNKNOWN)
        if is_charged:
            # It may have been billed: the budget must count it as if it was.
            left = getattr(error, "remaining_characters", None)
            self.budget.note_balance(left, job.mark, job.from_balance)
            self._settle(job, spent, repeats_free=self.ways.repeat_is_free)
            if self.ways.repeat_is_free:
                # Nothing more is to be paid for it, however long its answer takes.
                self.progress.ended_millis += job.price
                job.is_paid = True
        elif decision.verdict is Verdict.STOP:
            self._release(job)
        return rows

    def tried(self, rows: Sequence[LedgerRow]) -> None:
        """Note an attempt that is not the call's last one."""
        for row in rows:
            self.writer.attempt(row)

    def give_up(self, job: Job, error: SpeechframeError, rows: Sequence[LedgerRow] = ()) -> None:
        """End a call without an answer; what may have been billed is never just failed."""
        if job.is_due:
            self._count_lost(job, is_sure=not job.is_unknown)
        self._release(job)
        is_kept = job.is_due and self._is_kept_together
        status = CHARGED_UNKNOWN if job.is_unknown or is_kept else FAILED
        parts = job.planned.parts
        records = [
            self.identity.failure(
                part, error, status=status, lane=job.lane, attempts=job.sends, spent=job.spent_on(part)
            )
            for part in parts
        ]
        self._keep(records, rows or [None] * len(parts))
        for number, record in enumerate(records):
            self._end(job, number, parts[number], record, error)

    @property
    def _is_kept_together(self) -> bool:
        # The repeat of a pack is free only as it was: its attempt must stay known until it has an answer.
        return self.operation.packs and self.ways.repeat_is_free

    def split(self, job: Job, rows: Sequence[LedgerRow] = ()) -> list[Job]:
        """Return the smaller packs to send instead of one; nothing for a call of its own.

        Nothing either for a pack that may have been billed: its parts would be billed again.

        Parameters
        ----------
        job
            What was refused for good and without a charge, or does not fit the budget.
        rows
            Of the refused attempt.
        """
        if job.is_unknown or job.is_due or job.spent:
            return []
        packs = self.operation.split(job.planned)
        if packs:
            self._release(job)
            self.tried(rows)
        names = dict(zip((part.request_key for part in job.planned.parts), job.row_ids, strict=False))
        return [
            Job(
                pack,
                row_ids=tuple(names.get(part.request_key, "") for part in pack.parts),
                sends=job.sends,
                uncounted=job.sends,
                started=job.started,
            )
            for pack in packs
        ]

    def leave(self, job: Job) -> None:
        """Let go of a call the run does not come back to; what may have been billed is never just pending."""
        self._release(job)
        if job.is_unknown and job.last_error is not None:
            self.give_up(job, job.last_error)

    def _count_lost(self, job: Job, *, is_sure: bool) -> None:
        if is_sure:
            self.drift.billed(to_credits(job.planned.millicredits))
        else:
            self.drift.doubtful(job, to_credits(job.planned.millicredits))

    # -- at quiet points ----------------------------------------------------------------

    def quiet(self, balance: int | None) -> None:
        """Compare with the balance, now that nothing is in flight; see :meth:`Drift.quiet`."""
        found = self.drift.quiet(balance)
        if found is not None and found.billed is not None:
            # It stays in doubt what came of it, but no longer what it cost.
            for part in found.billed.planned.parts:
                self.writer.attempt(
                    self._ledger(found.billed, part, status=SETTLED, credits_millis=0, credits_basis=REPORTED)
                )

    def _settle(self, job: Job, spent: int, *, repeats_free: bool = False) -> None:
        # Where a repeat is free, a lost answer was billed already or its repeat will be: the balance stays
        # set aside.
        held = 0 if repeats_free else job.from_balance
        self.budget.settle(reserved=job.reserved, spent=spent, balance_reserved=held, balance_spent=held)
        job.reserved = 0
        job.from_balance -= held
        job.spent += spent
        self.progress.credits_millis += spent

    def _release(self, job: Job) -> None:
        # An answer that was lost and not made good counts as billed.
        taken = job.from_balance if job.is_paid else 0
        self.budget.settle(
            reserved=job.reserved, spent=0, balance_reserved=job.from_balance, balance_spent=taken
        )
        job.reserved = job.from_balance = 0

    def _end(
        self, job: Job, number: int, part: Planned, record: Record, error: SpeechframeError | None = None
    ) -> None:
        self.progress.count(record.status, record.error_code)
        if record.status != CACHED and not job.is_paid:
            # In no sum of prices is what the cache had or was paid before; what was paid since is in already.
            self.progress.ended_millis += part.millicredits
        self.on_outcome(_outcome(job, number, part, record, error))

    def _ledger(self, job: Job, part: Planned, **facts: Any) -> LedgerRow:
        free = self.ways.repeat_is_free
        return self.identity.ledger_row(part, lane=job.lane, idempotency=free, **facts)


def _suspect(record: Record, doubts: Sequence[Doubt]) -> None:
    record.status = SUSPECT
    record.error_code = doubts[0].code.value
    record.error_message = "; ".join(doubt.words for doubt in doubts)


def _outcome(job: Job, number: int, part: Planned, record: Record, error: SpeechframeError | None) -> Outcome:
    key, attempts = record.request_key, job.attempts
    row_id = job.row_ids[number] if number < len(job.row_ids) else ""
    spent = job.spent_on(part)
    if error is None:
        return Done(
            key,
            row_id,
            attempts,
            record.audio_seconds or 0.0,
            spent,
            record.status,
            record.error_message,
        )
    if record.status == CHARGED_UNKNOWN:
        return ChargedUnknown(key, row_id, attempts, error, spent)
    return Failed(key, row_id, attempts, error)
