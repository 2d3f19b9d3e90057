"""Records to Arrow and back; a value a column cannot hold costs that value, never the record."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from speechframe.store.schema import (
    AUDIO_TYPE,
    LEDGER_SCHEMA,
    RECORD_SCHEMA,
    WORD_TYPE,
    WORDS_TYPE,
    LedgerRow,
    Record,
    names,
)

_Row = TypeVar("_Row", Record, LedgerRow)

_WORD_KINDS = [f.type for f in WORD_TYPE]
_SCHEMAS: Mapping[type, pa.Schema] = {Record: RECORD_SCHEMA, LedgerRow: LEDGER_SCHEMA}


def record_batch(records: Sequence[Record], schema: pa.Schema) -> pa.RecordBatch:
    """Return `records` as rows of `schema`, one of a part."""
    return _convert(records, schema, _PART_COLUMNS)


def ledger_batch(rows: Sequence[LedgerRow]) -> pa.RecordBatch:
    """Return `rows` as rows of :data:`LEDGER_SCHEMA`."""
    return _convert(rows, LEDGER_SCHEMA, {"credits": _credits})


def _convert(
    rows: Sequence[_Row], schema: pa.Schema, special: dict[str, Callable[[Sequence[Any]], "pa.Array[Any]"]]
) -> pa.RecordBatch:
    try:
        return _arrays(rows, schema, special)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Rare, so it may be slow: find the values that do not fit and keep everything else.
        return _arrays([repaired(row) for row in rows], schema, special)


def _arrays(
    rows: Sequence[Any], schema: pa.Schema, special: dict[str, Callable[[Sequence[Any]], "pa.Array[Any]"]]
) -> pa.RecordBatch:
    columns = [special[f.name](rows) if f.name in special else _plain(rows, f) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(rows: Sequence[Any], column: "pa.Field[Any]") -> "pa.Array[Any]":
    values: pa.Array[Any] = pa.array(map(attrgetter(column.name), rows), column.type, size=len(rows))
    return values


def _audio(records: Sequence[Record]) -> "pa.Array[Any]":
    content = pa.array([r.audio_bytes for r in records], pa.binary())
    path = pa.array([None if r.audio_bytes is None else audio_path(r) for r in records], pa.string())
    missing = pa.array([r.audio_bytes is None for r in records], pa.bool_())
    return pa.StructArray.from_arrays([content, path], fields=list(AUDIO_TYPE), mask=missing)


def audio_path(record: Record) -> str:
    """Return the name of the record's audio file."""
    return record.audio_path or f"{record.request_key}.{(record.format or 'bin').lower()}"


def _words(records: Sequence[Record]) -> "pa.Array[Any]":
    words = [word for r in records for word in r.word_durations or ()]
    ends = np.cumsum([0, *(len(r.word_durations or ()) for r in records)], dtype=np.int32)
    missing = pa.array([r.word_durations is None for r in records], pa.bool_())
    children = [pa.array([word[i] for word in words], kind) for i, kind in enumerate(_WORD_KINDS)]
    structs = pa.StructArray.from_arrays(children, fields=list(WORD_TYPE))
    lists: pa.Array[Any] = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), structs, type=WORDS_TYPE, mask=missing
    )
    return lists


def _credits(rows: Sequence[Record | LedgerRow]) -> "pa.Array[Any]":
    millis = (None if r.credits_millis is None else r.credits_millis / 1000 for r in rows)
    return pa.array(millis, pa.float64(), size=len(rows))


_PART_COLUMNS: dict[str, Callable[[Sequence[Any]], "pa.Array[Any]"]] = {
    "audio": _audio,
    "word_durations": _words,
    "credits": _credits,
}


def repaired(row: _Row) -> _Row:
    r"""Return `row` with every value in the type of its column.

    Lone surrogates become question marks, numbers of another type are
    converted, and what cannot be converted is left out.

    Examples
    --------
    >>> repaired(Record("k", "done", text="\ud800!", sample_rate=8000.0)).text
    '?!'
    """
    schema = _SCHEMAS[type(row)]
    changes: dict[str, Any] = {}
    for name in names(type(row)):
        value = getattr(row, name)
        if name == "word_durations":
            words = None if value is None else [word for word in map(_word, value) if word is not None]
            changes[name] = words
        elif name == "credits_millis":
            changes[name] = _number(value, pa.int64())
        elif name == "audio_bytes":
            changes[name] = None if value is None else bytes(value)
        elif name == "audio_path":
            changes[name] = text(value)
        else:
            changes[name] = _value(value, schema.field(name).type)
    return replace(row, **changes)


def _value(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return text(value)
    if pa.types.is_list(kind):
        return (
            [item for item in map(text, value) if item is not None] if isinstance(value, Iterable) else None
        )
    if pa.types.is_timestamp(kind):
        return value if isinstance(value, datetime) else None
    if pa.types.is_boolean(kind):
        return None if value is None else bool(value)
    return _number(value, kind)


def text(value: Any) -> str | None:
    """Return `value` as text that UTF-8 can hold."""
    if value is None:
        return None
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _number(value: Any, kind: pa.DataType) -> Any:
    try:
        if pa.types.is_floating(kind):
            return float(value)
        number = float(value)
        whole = int(value) if math.isfinite(number) else None
    except (TypeError, ValueError, OverflowError):
        return None
    if whole is None or abs(whole) >= 2 ** (kind.bit_width - 1):
        return None
    return whole


def _word(value: Any) -> tuple[str, int, int] | None:
    try:
        word, start_ms, end_ms = value
    except (TypeError, ValueError):
        return None
    start, end = (_number(v, pa.int32()) for v in (start_ms, end_ms))
    return None if start is None or end is None else (text(word) or "", start, end)


def microseconds(time: datetime) -> int:
    """Return the time as whole microseconds since 1970 UTC; a time without a zone is taken as UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """Return the UTC time that :func:`microseconds` wrote."""
    seconds, rest = divmod(value, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
