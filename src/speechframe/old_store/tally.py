"""What the events of a log amount to. The writer and the recovery use the same, so they cannot disagree."""

from dataclasses import dataclass, replace

from speechframe.old_store.entries import Flight
from speechframe.old_store.failed import Failure
from speechframe.old_store.schema import FINISHED, CallStatus, CreditsBasis, LedgerRow, Record, SentRecord

_NO_ANSWER = "the request was sent, but the run ended before an answer was recorded: it may have been billed"


@dataclass(frozen=True)
class Origin:
    """What a ledger row says of the run and of who made it.

    Parameters
    ----------
    run_id, operation, service, key_fingerprint
        From the run's manifest.
    user, host, tags
        Of the process that sent.
    """

    run_id: str | None = None
    operation: str | None = None
    service: str | None = None
    key_fingerprint: str | None = None
    user: str | None = None
    host: str | None = None
    tags: tuple[str, ...] = ()


class Tally:
    """Calls in flight, the ledger and the calls without audio, as the events so far leave them.

    Attributes
    ----------
    flights
        request_key to the call in flight.
    ledger, changes
        Of the current segment.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.flights: dict[str, Flight] = {}
        self.ledger: list[LedgerRow] = []
        self.changes: dict[str, Failure | None] = {}

    def sent(self, sent: SentRecord) -> None:
        """Note that an attempt begins."""
        before = self.flights.get(sent.request_key)
        if before is not None and not before.in_ledger:
            self.ledger.append(self._unknown_row(before.sent))
        self.flights[sent.request_key] = Flight(sent)

    def attempt(self, row: LedgerRow) -> None:
        """Note that an attempt ended; of one that may have been billed, the answer is still to come."""
        flight = self._book(row)
        if flight is None:
            return
        if row.status in FINISHED or row.status == CallStatus.CHARGED_UNKNOWN:
            flight.in_ledger = True
        else:
            del self.flights[row.request_key]

    def answer(self, record: Record, row: LedgerRow | None) -> bool:
        """Note a call's outcome; return whether it goes into a part."""
        if row is not None:
            self._book(row)
        flight = self.flights.pop(record.request_key, None)
        if record.status in FINISHED:
            self.changes[record.request_key] = None
            return True
        sent = None
        if record.status == CallStatus.CHARGED_UNKNOWN:
            sent = flight.sent if flight is not None else _sent_of(record)
        self.changes[record.request_key] = Failure(record, sent)
        return False

    def carry(self, flight: Flight) -> None:
        """Take over a call that was in flight when the previous segment ended."""
        self.flights[flight.sent.request_key] = flight

    def settle(self) -> None:
        """Close the books: no more answers will come, so what is in flight may have been billed."""
        for key, flight in self.flights.items():
            if not flight.in_ledger:
                self.ledger.append(self._unknown_row(flight.sent))
            self.changes[key] = Failure(self._unknown_record(flight.sent), flight.sent)
        self.flights = {}

    def take(self) -> tuple[list[LedgerRow], dict[str, Failure | None]]:
        """Return ledger and changes of the segment that ends."""
        taken = self.ledger, self.changes
        self.ledger, self.changes = [], {}
        return taken

    def _book(self, row: LedgerRow) -> Flight | None:
        flight = self.flights.get(row.request_key)
        if row.attempt is None and flight is not None:
            row = replace(row, attempt=flight.sent.attempt)
        self.ledger.append(row)
        return flight

    def _unknown_row(self, sent: SentRecord) -> LedgerRow:
        who = self.origin
        return LedgerRow(
            request_key=sent.request_key, status=CallStatus.CHARGED_UNKNOWN, time=sent.time,
            run_id=who.run_id, take=sent.take, attempt=sent.attempt, operation=who.operation,
            model=sent.model, locale=sent.locale, voice_id=sent.voice_id, format=sent.format,
            characters=sent.characters, credits_millis=sent.millicredits,
            credits_basis=CreditsBasis.UNKNOWN, lane=sent.lane, service=who.service,
            key_fingerprint=who.key_fingerprint, user=who.user, host=who.host, tags=who.tags,
            idempotency=sent.idempotency_key is not None,
        )  # fmt: skip

    def _unknown_record(self, sent: SentRecord) -> Record:
        return Record(
            request_key=sent.request_key, status=CallStatus.CHARGED_UNKNOWN, error_code="NoAnswer",
            error_message=_NO_ANSWER, attempts=sent.attempt, lane=sent.lane, service=self.origin.service,
            model=sent.model, voice_id=sent.voice_id, locale=sent.locale, take=sent.take,
            finished_at=sent.time,
        )  # fmt: skip


def _sent_of(record: Record) -> SentRecord:
    return SentRecord(
        request_key=record.request_key, attempt=record.attempts, time=record.finished_at, lane=record.lane,
        characters=record.billed_characters, millicredits=record.credits_millis, take=record.take,
        model=record.model, voice_id=record.voice_id, locale=record.locale, format=record.format,
    )  # fmt: skip
