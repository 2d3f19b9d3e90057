"""The columns of a run's files, the keys of its calls, and what becomes of a call."""

import hashlib
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

AUDIO = "audio"
WORDS = "word_durations"

AUDIO_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""What `datasets` calls Audio; with ``large_binary`` it would not be recognised."""

WORDS_TYPE = pa.list_(pa.struct([("word", pa.string()), ("start_ms", pa.int32()), ("end_ms", pa.int32())]))

TIME = pa.timestamp("us", tz="UTC")

# Microseconds since 1970 at the ends of the years 1 to 9999, less a day: a zone may move a time.
_FIRST_US, _LAST_US = -62_135_510_400_000_000, 253_402_214_400_000_000

Row = dict[str, Any]

KEY_BYTES, PERSON = 16, b"speechframe-call"
"""Keys of calls are 32 hex digits of a hash of so many bytes, one for each take of a call."""


def call_key(base_key: str, take: int) -> str:
    """Return the key of a take of a call; take 0 has the call's own key."""
    if not take:
        return base_key
    digest = hashlib.blake2b(f"{base_key} take {take}".encode(), digest_size=KEY_BYTES, person=PERSON)
    return digest.hexdigest()


def columns(**kinds: pa.DataType) -> pa.Schema:
    """Return a schema with these columns, in this order."""
    return pa.schema(list(kinds.items()))


# What became of a row's call. Plain strings: reading an enum's value would be a call of Python for every row.
PENDING, DONE, CACHED, SUSPECT = "pending", "done", "cached", "suspect"
FAILED, CHARGED_UNKNOWN, INVALID = "failed", "charged_unknown", "invalid"

STATUSES = (PENDING, DONE, CACHED, SUSPECT, FAILED, INVALID, CHARGED_UNKNOWN)
"""In the order a summary lists them."""

FINISHED = frozenset({DONE, CACHED, SUSPECT})
"""Their records stand in ``parts/``; those of other calls that ended in ``failed/``."""


class StopReason(StrEnum):
    """Why a run ended before every call was made."""

    BUDGET = "budget"
    QUOTA = "quota"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNUSABLE = "unusable"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


def check_times(table: pa.Table | pa.RecordBatch) -> None:
    """Raise ValueError for a time that no calendar of Python has, such as the year 290000."""
    column: Any
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if column.type == TIME and len(column):
            ends: Any = pc.min_max(column.cast(pa.int64())).as_py()
            if ends["min"] is not None and not _FIRST_US <= ends["min"] <= ends["max"] <= _LAST_US:
                raise ValueError(f"{name} holds a time before the year 1 or after 9999")


CALL_COLUMNS = columns(
    billed_characters=pa.int64(),
    credits=pa.float64(),
    balance_after=pa.int64(),
    status=pa.string(),
    error_code=pa.string(),
    error_message=pa.string(),
    error_status=pa.int32(),
    trace_id=pa.string(),
    attempts=pa.int32(),
    latency_ms=pa.float64(),
    lane=pa.string(),
    service=pa.string(),
    model=pa.string(),
    voice_id=pa.string(),
    locale=pa.string(),
    warnings=pa.list_(pa.string()),
    sha256=pa.string(),
    request_key=pa.string(),
    take=pa.int32(),
    finished_at=TIME,
)
"""What every row of a part has, whatever the verb: how its answer came about."""

BOOKKEEPING = frozenset(CALL_COLUMNS.names) - {"locale"}
"""Columns that say how an answer came about, not what it is."""

LAYOUT_NAME, LAYOUT = b"speechframe:ledger", b"1"
"""What the metadata of each file of the ledger say of its layout."""

LEDGER = columns(
    time=TIME,
    run_id=pa.string(),
    request_key=pa.string(),
    take=pa.int32(),
    attempt=pa.int32(),
    operation=pa.string(),
    model=pa.string(),
    locale=pa.string(),
    voice_id=pa.string(),
    format=pa.string(),
    characters=pa.int64(),
    audio_seconds=pa.float64(),
    credits=pa.float64(),
    credits_basis=pa.string(),
    computed=pa.float64(),
    reported=pa.float64(),
    saved=pa.float64(),
    balance_after=pa.int64(),
    lane=pa.string(),
    service=pa.string(),
    key_fingerprint=pa.string(),
    user=pa.string(),
    host=pa.string(),
    tags=pa.map_(pa.string(), pa.string()),
    status=pa.string(),
    error_code=pa.string(),
    latency_ms=pa.float64(),
    trace_id=pa.string(),
    idempotency=pa.bool_(),
).with_metadata({LAYOUT_NAME: LAYOUT})
"""A row of the ledger: one attempt of one row's call. Never text, never a key.

Its ``status`` is ``done``, ``suspect``, ``failed``, ``charged_unknown``, ``retried`` (the call was tried
again) or ``cached`` (no attempt: the answer was in the cache). ``credits`` is what was billed as far as is
known, and ``credits_basis`` says how that is known: ``reported``, ``computed``, ``unknown`` (what it costs if
it was billed) or ``none``. ``computed`` is what it costs by the service document, ``reported`` what the
service said it has billed (null where it said nothing), ``saved`` what was not paid because other rows of the
table share the call, or because it was cached. Rows are never changed: what is learned later is a further
row. The number in the metadata is the layout's.
"""

# Columns of ours in `input/`, beside the caller's.
PREFIX = "spf:"
NOTED, PACK, WAIT_UNTIL = PREFIX + "noted", PREFIX + "pack", PREFIX + "wait_until"
"""Columns of ``failed/``: what an attempt noted to be gone on with, in hex digits; the key of the call
that the row shared with others; Unix time before which the service does not want the call again."""
ROW_ID, BASE_KEY, TAKE, PRICE, REQUEST, TAGS, PROBLEM = (
    PREFIX + name for name in ("row_id", "base_key", "take", "price", "request", "tags", "problem")
)
"""Row id; key of the first take (null: the row is invalid); take; thousandths of a credit; the request
(null where an earlier row has the same call, see `batch.plan`); the row's tags as JSON (null without); what
is wrong with an invalid row."""

_INPUT: dict[str, pa.DataType] = {
    ROW_ID: pa.string(),
    BASE_KEY: pa.string(),
    TAKE: pa.int32(),
    PRICE: pa.int64(),
    REQUEST: pa.binary(),
    TAGS: pa.string(),
    PROBLEM: pa.string(),
}
INPUT_COLUMNS = columns(**_INPUT)
