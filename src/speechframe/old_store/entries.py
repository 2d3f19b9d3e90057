"""Records as log entries and back.

A segment's opening names the fields, so entries are bare lists: short, quick to
write, and readable by a version with other fields.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from speechframe.old_store.arrow import from_microseconds, microseconds, repaired, text
from speechframe.old_store.log import SHA256_BYTES, encode_meta
from speechframe.old_store.schema import LedgerRow, Record, SentRecord, names

SENT_NAMES = names(SentRecord)
LEDGER_NAMES = names(LedgerRow)
RECORD_NAMES = tuple(name for name in names(Record) if name != "audio_bytes")

_sent_values = attrgetter(*SENT_NAMES)
_ledger_values = attrgetter(*LEDGER_NAMES)
_record_values = attrgetter(*RECORD_NAMES)
_SENT_TIME = SENT_NAMES.index("time")
_LEDGER_TIME = LEDGER_NAMES.index("time")
_RECORD_TIME = RECORD_NAMES.index("finished_at")

FIELDS = {"sent": SENT_NAMES, "ledger": LEDGER_NAMES, "record": RECORD_NAMES}
"""What a segment's opening says of its entries."""


@dataclass(slots=True)
class Flight:
    """A call in flight: its last attempt, and whether the ledger has that attempt already."""

    sent: SentRecord
    in_ledger: bool = False


def _values(row: Any, values: Callable[[Any], tuple[Any, ...]], time_at: int) -> list[Any]:
    found = list(values(row))
    time = found[time_at]
    found[time_at] = None if time is None else microseconds(time)
    return found


def sent_values(sent: SentRecord) -> list[Any]:
    """Return the fields of `sent` in order, as JSON values."""
    return _values(sent, _sent_values, _SENT_TIME)


def carried_values(flights: Sequence[Flight]) -> list[Any]:
    """Return calls in flight as JSON values."""
    return [[sent_values(flight.sent), flight.in_ledger] for flight in flights]


def encode_sent(sent: SentRecord) -> tuple[bytes, SentRecord]:
    """Return the entry of `sent`, and `sent` as it was written."""
    try:
        return encode_meta(sent_values(sent)), sent
    except (UnicodeEncodeError, TypeError, ValueError):
        clean: dict[str, Any] = {
            name: value if isinstance(value, int | datetime) else text(value) for name, value in _pairs(sent)
        }
        sent = SentRecord(**clean)
        return encode_meta(sent_values(sent)), sent


def _pairs(sent: SentRecord) -> list[tuple[str, Any]]:
    return list(zip(SENT_NAMES, _sent_values(sent), strict=True))


def encode_attempt(row: LedgerRow) -> tuple[bytes, LedgerRow]:
    """Return the entry of a ledger row, and the row as it was written."""
    try:
        return encode_meta(_values(row, _ledger_values, _LEDGER_TIME)), row
    except (UnicodeEncodeError, TypeError, ValueError, AttributeError):
        row = repaired(row)
        return encode_meta(_values(row, _ledger_values, _LEDGER_TIME)), row


def encode_answer(record: Record, row: LedgerRow | None) -> tuple[bytes, Record, LedgerRow | None]:
    """Return the entry of an answer (its audio is the body), and both records as written."""
    if record.audio_bytes is not None and record.sha256 is None:
        record = replace(record, sha256=hashlib.sha256(record.audio_bytes).hexdigest())
    try:
        return _answer_meta(record, row), record, row
    except (UnicodeEncodeError, TypeError, ValueError, AttributeError):
        record, row = repaired(record), row and repaired(row)
        return _answer_meta(record, row), record, row


def sha256_of(record: Record) -> bytes | None:
    """Return the SHA-256 that a record says its audio has; None where it says none that could be one."""
    if not record.audio_bytes or record.sha256 is None:
        return None
    try:
        digest = bytes.fromhex(record.sha256)
    except ValueError:
        return None
    return digest if len(digest) == SHA256_BYTES else None


def _answer_meta(record: Record, row: LedgerRow | None) -> bytes:
    ledger = None if row is None else _values(row, _ledger_values, _LEDGER_TIME)
    return encode_meta(
        [_values(record, _record_values, _RECORD_TIME), ledger, record.audio_bytes is not None]
    )


@dataclass(frozen=True)
class Decoder:
    """Reads the entries of a segment by the field names its opening gives.

    Parameters
    ----------
    fields
        :data:`FIELDS` of the version that wrote the segment.
    """

    fields: Mapping[str, Sequence[str]]

    def sent(self, values: Sequence[Any]) -> SentRecord:
        """Return the record of a ``SENT`` entry."""
        return sent_from(dict(zip(self.fields["sent"], values, strict=False)))

    def flight(self, values: Sequence[Any]) -> Flight:
        """Return one call of a ``CARRIED`` entry."""
        return Flight(self.sent(values[0]), values[1])

    def ledger(self, values: Sequence[Any]) -> LedgerRow:
        """Return the row of an ``ATTEMPT`` entry."""
        return LedgerRow(
            **_known(dict(zip(self.fields["ledger"], values, strict=False)), LEDGER_NAMES, "time")
        )

    def answer(self, meta: Sequence[Any], body: bytes) -> tuple[Record, LedgerRow | None]:
        """Return the records of an ``ANSWER`` entry."""
        values, ledger, has_audio = meta
        known = _known(dict(zip(self.fields["record"], values, strict=False)), RECORD_NAMES, "finished_at")
        record = Record(**known, audio_bytes=body if has_audio else None)
        return record, None if ledger is None else self.ledger(ledger)


def sent_from(values: Mapping[str, Any]) -> SentRecord:
    """Return the record `values` hold by field name; names this version does not know are ignored."""
    return SentRecord(**_known(values, SENT_NAMES, "time"))


def _known(values: Mapping[str, Any], known_names: Sequence[str], time_name: str) -> dict[str, Any]:
    known = {name: value for name, value in values.items() if name in known_names}
    if isinstance(known.get(time_name), int):
        known[time_name] = from_microseconds(known[time_name])
    return known
