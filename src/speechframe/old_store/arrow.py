"""Records to Arrow and back; a value a column cannot hold costs that value, never the record."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from speechframe.old_store.schema import (
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
_NAMES = {kind: names(kind) for kind in _SCHEMAS}
_values = {kind: attrgetter(*_NAMES[kind]) for kind in _SCHEMAS}

_Fields = Mapping[str, Sequence[Any]]
"""Field name to its value in every row."""


def record_batch(records: Sequence[Record], schema: pa.Schema) -> pa.RecordBatch:
    """Return `records` as rows of `schema`, one of a part."""
    return _convert(records, Record, schema)


def ledger_batch(rows: Sequence[LedgerRow]) -> pa.RecordBatch:
    """Return `rows` as rows of :data:`LEDGER_SCHEMA`."""
    return _convert(rows, LedgerRow, LEDGER_SCHEMA)


def _convert(rows: Sequence[_Row], kind: type[_Row], schema: pa.Schema) -> pa.RecordBatch:
    try:
        return _batch(_fields(rows, kind), schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Rare, so it may be slow: find the values that do not fit and keep everything else.
        return _batch(_fields([repaired(row) for row in rows], kind), schema)


def _fields(rows: Sequence[_Row], kind: type[_Row]) -> _Fields:
    """Return the fields of the rows, each as one sequence; every row is looked at once for all of them."""
    if not rows:
        return dict.fromkeys(_NAMES[kind], ())
    return dict(zip(_NAMES[kind], zip(*map(_values[kind], rows), strict=True), strict=True))


def _batch(fields: _Fields, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        _SPECIAL[f.name](fields) if f.name in _SPECIAL else pa.array(fields[f.name], f.type) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _audio(fields: _Fields) -> "pa.Array[Any]":
    contents, named = fields["audio_bytes"], zip(*map(fields.__getitem__, _PATH_FIELDS), strict=True)
    missing = [content is None for content in contents]
    paths = [
        None if is_missing else path or f"{key}.{(format or 'bin').lower()}"
        for is_missing, (path, key, format) in zip(missing, named, strict=True)
    ]
    return pa.StructArray.from_arrays(
        [_binary([content or b"" for content in contents]), pa.array(paths, pa.string())],
        fields=list(AUDIO_TYPE),
        mask=pa.array(missing, pa.bool_()),
    )


def _binary(contents: Sequence[bytes]) -> "pa.Array[Any]":
    # Given one by one, Arrow copies them again each time it runs out of room; joined by Python, they lie in
    # memory that is fetched from the kernel for every batch.
    ends = pa.array(np.cumsum([0, *map(len, contents)]), pa.int32())
    values = pa.allocate_buffer(ends[-1].as_py())
    room, start = memoryview(values).cast("B"), 0
    for content in contents:
        end = start + len(content)
        room[start:end] = content
        start = end
    buffers = [None, ends.buffers()[1], values]
    found: pa.Array[Any] = pa.Array.from_buffers(pa.binary(), len(contents), buffers, null_count=0)
    return found


def _words(fields: _Fields) -> "pa.Array[Any]":
    lists = fields["word_durations"]
    ends = np.cumsum([0, *(len(words or ()) for words in lists)], dtype=np.int32)
    missing = pa.array([words is None for words in lists], pa.bool_())
    words = list(chain.from_iterable(filter(None, lists)))
    children = [pa.array([word[i] for word in words], kind) for i, kind in enumerate(_WORD_KINDS)]
    structs = pa.StructArray.from_arrays(children, fields=list(WORD_TYPE))
    found: pa.Array[Any] = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), structs, type=WORDS_TYPE, mask=missing
    )
    return found


def _credits(fields: _Fields) -> "pa.Array[Any]":
    millis = fields["credits_millis"]
    return pa.array([None if value is None else value / 1000 for value in millis], pa.float64())


_SPECIAL: dict[str, Callable[[_Fields], "pa.Array[Any]"]] = {
    "audio": _audio,
    "word_durations": _words,
    "credits": _credits,
}
_PATH_FIELDS = ("audio_path", "request_key", "format")


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
    for name in _NAMES[type(row)]:
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
