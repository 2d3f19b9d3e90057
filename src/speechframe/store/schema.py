"""The columns of a run's files, the keys of its calls, and the statuses of its rows."""

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

AUDIO_COLUMN = "audio"
"""Column with the audio of an answer."""
WORDS_COLUMN = "word_durations"
"""Column with the words of an answer and their times."""

AUDIO_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""Type of a column of audio, as the library `datasets` expects it. The library does not accept
``large_binary``."""

WORDS_TYPE = pa.list_(pa.struct([("word", pa.string()), ("start_ms", pa.int32()), ("end_ms", pa.int32())]))
"""Type of a column of words: for each word its text, and its times in milliseconds."""

TIME_TYPE = pa.timestamp("us", tz="UTC")
"""Type of all columns of times."""

# Microseconds from 1970 to the beginning of the year 1 and the end of 9999, each with a day's margin for time
# zones.
_FIRST_US, _LAST_US = -62_135_510_400_000_000, 253_402_214_400_000_000

Row = dict[str, Any]

KEY_BYTES, KEY_PERSON = 16, b"speechframe-call"
"""Size in bytes, and personalisation, of the hash that makes a call key. Each take of a call has its own key,
written as 32 hex digits."""


def compute_call_key(base_key: str, take: int) -> str:
    """Return the key of a take (one rendering of the same content). The key of take 0 is `base_key`."""
    if not take:
        return base_key
    digest = hashlib.blake2b(f"{base_key} take {take}".encode(), digest_size=KEY_BYTES, person=KEY_PERSON)
    return digest.hexdigest()


def columns(**kinds: pa.DataType) -> pa.Schema:
    """Return a schema with these columns, in this order."""
    return pa.schema(list(kinds.items()))


# Statuses of a row. They are plain strings, because the value of an enum would cost a Python call per row.
PENDING, DONE, CACHED, SUSPECT = "pending", "done", "cached", "suspect"
FAILED, CHARGED_UNKNOWN, INVALID, SKIPPED = "failed", "charged_unknown", "invalid", "skipped"

STATUSES = (PENDING, DONE, CACHED, SUSPECT, FAILED, INVALID, SKIPPED, CHARGED_UNKNOWN)
"""All statuses, in the order of a summary."""

FINISHED_STATUSES = frozenset({DONE, CACHED, SUSPECT})
"""Statuses of records in ``parts/``. Records with other statuses are in ``failed/``."""


class StopReason(StrEnum):
    """The reason why a run ended before all calls were made."""

    BUDGET = "budget"
    QUOTA = "quota"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNUSABLE = "unusable"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


def check_times(table: pa.Table | pa.RecordBatch) -> None:
    """Raise ValueError if a table has a time that Python's datetime cannot represent, such as year 290000."""
    column: Any
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if column.type == TIME_TYPE and len(column):
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
    finished_at=TIME_TYPE,
)
"""Columns of every part (a Parquet file of results), whatever the backend. They describe the call of a
row."""

BOOKKEEPING_COLUMNS = frozenset(CALL_COLUMNS.names) - {"locale"}
"""Columns that describe the call, not the content of its answer."""

LEDGER_LAYOUT_NAME, LEDGER_LAYOUT = b"speechframe:ledger", b"1"
"""Name and number of the layout, in the metadata of each ledger file."""

LEDGER_SCHEMA = columns(
    time=TIME_TYPE,
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
).with_metadata({LEDGER_LAYOUT_NAME: LEDGER_LAYOUT})
"""Columns of the ledger. Each row is one attempt for one row's call. The ledger contains no text and no key.

``status`` is ``done``, ``suspect``, ``failed``, ``charged_unknown``, ``retried`` (the call was sent again) or
``cached`` (the answer came from the cache, without an attempt).

``credits`` is the best known charge. ``credits_basis`` is the source of that number: ``reported``,
``computed``, ``unknown`` (the charge if the attempt was billed) or ``none``. ``computed`` is the price by the
service document. ``reported`` is the charge that the service reported, or null. ``saved`` is the price that
was not paid, because other rows of the table share the call or because the answer was cached.

Rows never change. A later correction is a further row. The metadata contain the number of the layout.
"""

# Prefix of columns that speechframe adds to the caller's columns in `input/`, and of columns in `failed/`.
COLUMN_PREFIX = "spf:"
NOTED, PACK, WAIT_UNTIL = COLUMN_PREFIX + "noted", COLUMN_PREFIX + "pack", COLUMN_PREFIX + "wait_until"
"""Columns of ``failed/``. NOTED is data in hex digits with which a later attempt can continue. PACK is the
key of the call that the row shared with other rows. WAIT_UNTIL is the Unix time before which the service
accepts no call (Retry-After). Each may be null."""
_INPUT_TYPES: dict[str, pa.DataType] = {
    "row_id": pa.string(),
    "base_key": pa.string(),
    "take": pa.int32(),
    "price": pa.int64(),
    "request": pa.binary(),
    "tags": pa.string(),
    "ended": pa.string(),
    "problem": pa.string(),
}
INPUT_COLUMNS = columns(**{COLUMN_PREFIX + name: kind for name, kind in _INPUT_TYPES.items()})
ROW_ID, BASE_KEY, TAKE, PRICE, REQUEST, TAGS, ENDED, PROBLEM = _INPUT_NAMES = INPUT_COLUMNS.names
"""Columns of ``input/``. ROW_ID is the row's id. BASE_KEY is the key of take 0, or null for a row without a
call. TAKE is the number of the take. PRICE is in thousandths of a credit. REQUEST has the facts and the body
of the request, or null for a row without a call. TAGS are the row's tags as JSON, or null. ENDED is the
status of a row without a call, or null. PROBLEM is the reason why such a row is invalid or skipped, or null.

Further columns with the prefix are row columns, which :attr:`Backend.row_columns` declares."""


def find_row_columns(names: Iterable[str]) -> list[str]:
    """Return those of the `names` of the columns of an input file that are row columns, with their prefix."""
    return [name for name in names if name.startswith(COLUMN_PREFIX) and name not in _INPUT_NAMES]
