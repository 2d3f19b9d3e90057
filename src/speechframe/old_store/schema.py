"""The columns of parts and ledger, and the records whose fields they are."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

AUDIO_COLUMN = "audio"

AUDIO_TYPE: pa.StructType = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""What `datasets` calls Audio; with ``large_binary`` it would not be recognised."""

WORD_TYPE: pa.StructType = pa.struct(
    [("word", pa.string()), ("start_ms", pa.int32()), ("end_ms", pa.int32())]
)

WORDS_TYPE: pa.DataType = pa.list_(WORD_TYPE)

_TIME: pa.DataType = pa.timestamp("us", tz="UTC")

# `datasets` takes the features named here from the file's schema and infers the others from Arrow types.
_FEATURES = json.dumps({"info": {"features": {AUDIO_COLUMN: {"_type": "Audio"}}}})
HUGGINGFACE_METADATA: Mapping[bytes | str, bytes | str] = {b"huggingface": _FEATURES.encode()}

_AUDIO_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    (AUDIO_COLUMN, AUDIO_TYPE),
    ("text", pa.string()),
    ("word_durations", WORDS_TYPE),
    ("format", pa.string()),
    ("sample_rate", pa.int32()),
    ("channels", pa.int32()),
    ("audio_seconds", pa.float64()),
)
_CALL_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("billed_characters", pa.int64()),
    ("credits", pa.float64()),
    ("balance_after", pa.int64()),
    ("status", pa.string()),
    ("error_code", pa.string()),
    ("error_message", pa.string()),
    ("error_status", pa.int32()),
    ("trace_id", pa.string()),
    ("attempts", pa.int32()),
    ("latency_ms", pa.float64()),
    ("lane", pa.string()),
    ("service", pa.string()),
    ("model", pa.string()),
    ("voice_id", pa.string()),
    ("locale", pa.string()),
    ("warnings", pa.list_(pa.string())),
    ("sha256", pa.string()),
    ("request_key", pa.string()),
    ("take", pa.int32()),
    ("finished_at", _TIME),
)
_TRANSCRIPTION: tuple[tuple[str, pa.DataType], ...] = (("transcription", pa.string()),)
_TRANSLATION_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("text", pa.string()),
    ("translated_text", pa.string()),
    ("route", pa.string()),
    ("length_ratio", pa.float64()),
    ("placeholders_ok", pa.bool_()),
    ("glossary_ok", pa.bool_()),
)

BOOKKEEPING = frozenset(name for name, _ in _CALL_COLUMNS) - {"locale"}
"""Columns that say how an answer came about, not what it is."""

PART_SCHEMA = pa.schema([*_AUDIO_COLUMNS, *_CALL_COLUMNS], metadata=dict(HUGGINGFACE_METADATA))
"""A row of a part: one call that has an outcome, as runs of speech keep it."""

PART_SCHEMAS: Mapping[str, pa.Schema] = {
    "change_voice": pa.schema(
        [*_AUDIO_COLUMNS, *_TRANSCRIPTION, *_CALL_COLUMNS], metadata=dict(HUGGINGFACE_METADATA)
    ),
    "translate": pa.schema([*_TRANSLATION_COLUMNS, *_CALL_COLUMNS]),
}
"""Rows of parts of operations that keep something else."""

RECORD_SCHEMA = pa.schema(
    dict([*_AUDIO_COLUMNS, *_TRANSCRIPTION, *_TRANSLATION_COLUMNS, *_CALL_COLUMNS]).items()
)
"""Every column that any part may have."""


NEEDED_COLUMNS = frozenset({"request_key", "status", AUDIO_COLUMN, "translated_text"})
"""Without one of them a row is of no use: whose call it is, what became of it, and what was paid for.

A file of an earlier version may lack any other column; whoever reads it finds nulls there.
"""


def record_columns(columns: Sequence[str]) -> pa.Schema:
    """Return some columns of parts, in this order."""
    return pa.schema([RECORD_SCHEMA.field(name) for name in columns])


def part_schema(operation: str | None) -> pa.Schema:
    """Return the columns of an operation's parts.

    Examples
    --------
    >>> part_schema("translate").names[:2]
    ['text', 'translated_text']
    """
    return PART_SCHEMAS.get(operation or "", PART_SCHEMA)


LEDGER_SCHEMA = pa.schema(
    [
        ("time", _TIME),
        ("run_id", pa.string()),
        ("request_key", pa.string()),
        ("take", pa.int32()),
        ("attempt", pa.int32()),
        ("operation", pa.string()),
        ("model", pa.string()),
        ("locale", pa.string()),
        ("voice_id", pa.string()),
        ("format", pa.string()),
        ("characters", pa.int64()),
        ("audio_seconds", pa.float64()),
        ("credits", pa.float64()),
        ("credits_basis", pa.string()),
        ("balance_after", pa.int64()),
        ("lane", pa.string()),
        ("service", pa.string()),
        ("key_fingerprint", pa.string()),
        ("user", pa.string()),
        ("host", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("status", pa.string()),
        ("error_code", pa.string()),
        ("latency_ms", pa.float64()),
        ("trace_id", pa.string()),
        ("idempotency", pa.bool_()),
    ]
)
"""A row of the ledger: one attempt. Never text, never a key."""


class CallStatus(StrEnum):
    """What became of a call, as the column ``status`` says it."""

    DONE = "done"
    CACHED = "cached"
    SUSPECT = "suspect"
    FAILED = "failed"
    CHARGED_UNKNOWN = "charged_unknown"
    PENDING = "pending"
    INVALID = "invalid"


FINISHED = frozenset({CallStatus.DONE.value, CallStatus.CACHED.value, CallStatus.SUSPECT.value})
"""Statuses whose record goes into a part; any other outcome goes into ``failed.parquet``."""


class CreditsBasis(StrEnum):
    """How a ledger row knows its credits."""

    REPORTED = "reported"
    COMPUTED = "computed"
    UNKNOWN = "unknown"
    NONE = "none"


def now() -> datetime:
    """Return the time as records hold it: UTC, microseconds."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Record:
    """The outcome of one call: a row of a part, or of ``failed.parquet``.

    Parameters
    ----------
    request_key
        The call's content key.
    status
        ``done``, ``cached`` or ``suspect`` (goes into a part), ``failed`` or ``charged_unknown``.
    audio_bytes
        The audio file as the service sent it.
    audio_path
        A name for it; ``<request_key>.<format>`` if left out.
    word_durations
        Word, start and end in ms, in order; None where nobody said when words are heard.
    sample_rate
        Hz.
    credits_millis
        Thousandths of a credit; the column ``credits`` holds credits.
    balance_after
        Characters left on the key after this call, where the service said so.
    sha256
        Of `audio_bytes`, 64 hex digits; computed when left out. A wrong one counts as damage of the log.
    latency_ms
        Of the attempt that succeeded.
    finished_at
        UTC.
    transcription
        What was said in a clip.
    translated_text, route, length_ratio
        A translation, the languages it went through, its characters over those of the source.
    placeholders_ok, glossary_ok
        Whether what must not be translated, and what must be translated so, came back right.
    """

    request_key: str
    status: str
    audio_bytes: bytes | None = None
    audio_path: str | None = None
    text: str | None = None
    word_durations: Sequence[tuple[str, int, int]] | None = ()
    format: str | None = None
    sample_rate: int | None = None
    channels: int | None = None
    audio_seconds: float | None = None
    billed_characters: int | None = None
    credits_millis: int | None = None
    balance_after: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_status: int | None = None
    trace_id: str | None = None
    attempts: int = 1
    latency_ms: float | None = None
    lane: str | None = None
    service: str | None = None
    model: str | None = None
    voice_id: str | None = None
    locale: str | None = None
    warnings: Sequence[str] = ()
    sha256: str | None = None
    take: int = 0
    finished_at: datetime = field(default_factory=now)
    transcription: str | None = None
    translated_text: str | None = None
    route: str | None = None
    length_ratio: float | None = None
    placeholders_ok: bool | None = None
    glossary_ok: bool | None = None


@dataclass(slots=True)
class SentRecord:
    """What is written before an attempt: without an answer it is all that is known of it.

    Parameters
    ----------
    request_key
        The call's content key; one attempt of a key at a time.
    attempt
        1 for the first.
    time
        UTC.
    lane
        Where it goes.
    characters, millicredits
        What it will cost at most.
    idempotency_key
        The ``Idempotency-Key`` it carries.
    take, model, voice_id, locale, format
        For the ledger row of an attempt nobody lived to describe.
    """

    request_key: str
    attempt: int = 1
    time: datetime = field(default_factory=now)
    lane: str | None = None
    characters: int | None = None
    millicredits: int | None = None
    idempotency_key: str | None = None
    take: int = 0
    model: str | None = None
    voice_id: str | None = None
    locale: str | None = None
    format: str | None = None


@dataclass(slots=True)
class LedgerRow:
    """One attempt and what it cost. Never text.

    Parameters
    ----------
    request_key
        The call's content key.
    status
        ``done``, ``charged_unknown``, or how the attempt ended otherwise.
    attempt
        1 for the first; taken from the :class:`SentRecord` when left out.
    credits_millis
        Thousandths of a credit; the column ``credits`` holds credits.
    credits_basis
        ``reported``, ``computed``, ``unknown`` (credits are what it cost if it was billed) or ``none``.
    balance_after
        Characters left on the key, where the service said so.
    key_fingerprint
        Of the key, never the key.
    idempotency
        An ``Idempotency-Key`` was sent and is honoured.
    """

    request_key: str
    status: str
    time: datetime = field(default_factory=now)
    run_id: str | None = None
    take: int = 0
    attempt: int | None = None
    operation: str | None = None
    model: str | None = None
    locale: str | None = None
    voice_id: str | None = None
    format: str | None = None
    characters: int | None = None
    audio_seconds: float | None = None
    credits_millis: int | None = None
    credits_basis: str | None = None
    balance_after: int | None = None
    lane: str | None = None
    service: str | None = None
    key_fingerprint: str | None = None
    user: str | None = None
    host: str | None = None
    tags: Sequence[str] = ()
    error_code: str | None = None
    latency_ms: float | None = None
    trace_id: str | None = None
    idempotency: bool | None = None


def names(kind: type[Any]) -> tuple[str, ...]:
    """Return the field names of a record class, in order."""
    return tuple(f.name for f in fields(kind))
