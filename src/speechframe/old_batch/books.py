"""What a run writes down of every attempt, and what it reads there of earlier ones.

Each ledger row says what its attempt cost **more** than those before it: the
repeat of a call that is in the ledger as billed, or as perhaps billed, costs
nothing where the service honours ``Idempotency-Key``. So the sum over a ledger
is what the service billed, or a little more where that is not known.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import SpeechframeError
from speechframe.old_batch.operation import Planned
from speechframe.old_batch.outcome import CHARGED_UNKNOWN, SENT, error_fields
from speechframe.old_store import KeyIndex, LedgerRow, Record, SentRecord
from speechframe.old_store.files import storing
from speechframe.old_store.ledger import ledger_files, read_attempts
from speechframe.old_store.look import Standing
from speechframe.old_store.spending import month_of
from speechframe.old_store.writer import host_name, user_name
from speechframe.spec.billing import CREDIT

ERROR = "error"
REFUSED = "refused"
SETTLED = "settled"
"""Status of a ledger row that is no attempt: the balance said what an earlier one cost."""

IN_VAIN = frozenset({ERROR, REFUSED, CHARGED_UNKNOWN})
"""Statuses of attempts that brought nothing."""


@dataclass(frozen=True)
class Identity:
    """What every ledger row of this run says: who, with which key, on which service."""

    run_id: str
    operation: str
    service: str
    key_fingerprint: str
    tags: tuple[str, ...] = ()
    user: str | None = field(default_factory=user_name)
    host: str | None = field(default_factory=host_name)

    def sent(
        self, planned: Planned, *, attempt: int, lane: str, price: int, idempotency_key: str | None
    ) -> SentRecord:
        """Return what is written before an attempt that will cost `price` thousandths of a credit at most."""
        return SentRecord(
            request_key=planned.request_key,
            attempt=attempt,
            time=datetime.now(UTC),
            lane=lane,
            characters=planned.characters,
            millicredits=price,
            idempotency_key=idempotency_key,
            take=planned.take,
            model=planned.model,
            voice_id=planned.voice_id,
            locale=planned.locale,
            format=planned.format,
        )

    def ledger_row(self, planned: Planned, *, lane: str, idempotency: bool, **facts: Any) -> LedgerRow:
        """Return the ledger's row of one attempt.

        Parameters
        ----------
        planned, lane, idempotency
            What was sent, where, and whether its repeat would be free.
        **facts
            How it ended: ``status``, ``latency_ms``, ``credits_millis`` and so on.
        """
        return LedgerRow(
            time=datetime.now(UTC),
            run_id=self.run_id,
            request_key=planned.request_key,
            take=planned.take,
            operation=self.operation,
            model=planned.model,
            locale=planned.locale,
            voice_id=planned.voice_id,
            format=planned.format,
            characters=planned.characters,
            lane=lane,
            service=self.service,
            key_fingerprint=self.key_fingerprint,
            user=self.user,
            host=self.host,
            tags=list(self.tags),
            idempotency=idempotency,
            **facts,
        )

    def failure(
        self, planned: Planned, error: SpeechframeError, *, status: str, lane: str, attempts: int, spent: int
    ) -> Record:
        """Return what is kept of a call without an answer.

        Parameters
        ----------
        planned, error
            The call, and why it has no answer.
        status
            ``failed`` or ``charged_unknown``.
        lane
            Where it was sent last.
        attempts
            How often it was sent.
        spent
            Thousandths of a credit it cost nevertheless.
        """
        return Record(
            request_key=planned.request_key,
            take=planned.take,
            status=status,
            text=planned.text,
            attempts=attempts,
            lane=lane,
            service=self.service,
            model=planned.model,
            voice_id=planned.voice_id,
            locale=planned.locale,
            credits_millis=spent,
            finished_at=datetime.now(UTC),
            **error_fields(error),
        )


@dataclass(frozen=True)
class Before:
    """What earlier drives of a run left behind.

    Attributes
    ----------
    spent_millis
        Thousandths of a credit; what may have been billed counts as billed.
    spent_by_month
        The same by fingerprint of the key and month (UTC) of sending.
    paid
        Calls that are in the ledger as billed, or perhaps billed, and whose repeat is free.
    unknown
        Calls that may have been billed without an answer.
    unbooked
        Calls that were made, and the ledger has no attempt of them: nobody knows what they cost. Counted
        where somebody asked for it.
    """

    spent_millis: int = 0
    spent_by_month: Mapping[tuple[str, str], int] = field(default_factory=dict)
    paid: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    unbooked: int = 0


_COLUMNS = (
    "request_key", "status", "time", "latency_ms", "idempotency", "credits", "credits_basis",
    "key_fingerprint",
)  # fmt: skip
_MONTHS = 12


def read_before(
    folder: Path,
    standing: Standing,
    *,
    key_fingerprint: str,
    remembered: timedelta,
    index: KeyIndex | None = None,
) -> Before:
    """Return what the ledger of a run says, reading it in bounded memory.

    Parameters
    ----------
    folder
        The run's folder.
    standing
        Its calls in doubt and its ledger.
    key_fingerprint
        The key in use: what another one paid for is not free for it.
    remembered
        How long the service surely remembers an ``Idempotency-Key``; nothing where it honours none.
    index
        Calls with an outcome, no newer than `standing`, to count those that the ledger has lost.
    """
    by_month: Counter[tuple[str, str]] = Counter()
    paid: dict[str, datetime] = {}
    unbooked = None if index is None else _Unbooked(index)
    for attempts in _attempts(folder, standing):
        if unbooked is not None:
            unbooked.take(attempts)
        by_month.update(_by_month(attempts))
        if remembered:
            for row in attempts.filter(_may_be_paid(attempts, key_fingerprint)).to_pylist():
                key, time = row["request_key"], row["time"]
                # The first of them counts: the service remembers from there.
                paid[key] = min(time, paid.get(key, time))
    oldest = datetime.now(UTC) - remembered
    still_paid = frozenset(key for key, time in paid.items() if time > oldest)
    return Before(
        sum(by_month.values()),
        by_month,
        still_paid,
        frozenset(standing.unknown),
        0 if unbooked is None else unbooked.count(),
    )


class _Unbooked:
    """Calls that were sent and have no attempt in the ledger; takes a byte for each call of the index."""

    def __init__(self, index: KeyIndex) -> None:
        self._index = index
        self._is_booked = np.zeros(len(index), np.bool_)

    def take(self, attempts: pa.RecordBatch) -> None:
        at = self._index.find(attempts.column("request_key"))
        self._is_booked[at[at >= 0]] = True

    def count(self) -> int:
        is_sent = self._index.with_status(np.arange(len(self._index)), SENT)
        left = np.flatnonzero(is_sent & ~self._is_booked)
        # Of a call that stands in two parts, the first of its places alone was found.
        columns = self._index.columns
        first = self._index.find_halves((columns.high[left], columns.low[left]))
        return len(np.unique(first[~self._is_booked[first]]))


def read_spent(folder: Path) -> dict[tuple[str, str], int]:
    """Return what a run has spent, by fingerprint of the key and month of sending."""
    by_month: Counter[tuple[str, str]] = Counter()
    for attempts in _attempts(folder):
        by_month.update(_by_month(attempts))
    return by_month


def _attempts(folder: Path, standing: Standing | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the attempts of `standing`; without it, those that have their files."""
    with storing(folder, "reading the ledger"):
        written = ledger_files(folder) if standing is None else standing.files
        others = () if standing is None else standing.others
        for table in read_attempts(written, _COLUMNS, others=others):
            yield from table.to_batches()


def _by_month(attempts: pa.RecordBatch) -> dict[tuple[str, str], int]:
    """Return fingerprint of the key and month of sending to thousandths of a credit."""
    # A row is dated when its attempt ended; the attempt belongs to the month it was sent in.
    took_us = pc.cast(pc.round(pc.multiply(attempts.column("latency_ms").fill_null(0.0), 1000.0)), pa.int64())
    sent: Any = pc.subtract(attempts.column("time"), pc.cast(took_us, pa.duration("us")))
    months = pc.add(pc.multiply(pc.year(sent), _MONTHS), pc.subtract(pc.month(sent), 1))
    table = pa.table(
        {
            "key": attempts.column("key_fingerprint").fill_null(""),
            "month": months,
            "credits": attempts.column("credits").fill_null(0.0),
        }
    )
    sums = table.group_by(["key", "month"]).aggregate([("credits", "sum")]).to_pylist()
    return {(row["key"], _month_of(row["month"])): round(CREDIT * row["credits_sum"]) for row in sums}


def _month_of(number: int) -> str:
    return month_of(datetime(number // _MONTHS, number % _MONTHS + 1, 1, tzinfo=UTC))


def _may_be_paid(attempts: pa.RecordBatch, key_fingerprint: str) -> Any:
    unanswered = pc.is_in(attempts.column("status"), value_set=pa.array([ERROR, CHARGED_UNKNOWN]))
    charged = pc.not_equal(attempts.column("credits_basis"), pa.scalar("none"))
    same_key = pc.equal(attempts.column("key_fingerprint"), pa.scalar(key_fingerprint))
    free = pc.and_(same_key, attempts.column("idempotency"))
    return pc.and_(pc.and_(unanswered, charged), free).fill_null(False)
