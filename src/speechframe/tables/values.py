"""Python's own values as Arrow batches, in which every value is what it was."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.tables.columns import is_missing, problem
from speechframe.tables.table import BATCH_ROWS, CARRIED_ROWS, HALF, UNFIT, drained, first_line, not_stored

_EXACT = frozenset({str, int, float, bool})
"""What Arrow keeps as it is where a column holds nothing else."""


def chunks_of(values: Iterable[Any], plain: str, carry: frozenset[str]) -> Iterator[Any]:
    """Yield a list or generator as dicts of columns, some rows at a time, or the Arrow batches it yields.

    Its values are texts or clips (the column `plain`), dicts (one a row) or Arrow batches.
    """
    source = iter(values)
    head = list(islice(source, 1))
    if head and isinstance(head[0], (pa.RecordBatch, pa.Table)):
        yield from chain(head, source)
        return
    is_rows = bool(head) and isinstance(head[0], Mapping)
    if is_rows and plain in carry and plain not in head[0]:
        # A clip as the datasets library gives it is a dict too, and no row of a table.
        is_rows = not {"bytes", "array"} & head[0].keys()
    # Of a list all rows at once: its types are those of all.
    size = None if isinstance(values, Sequence) else CARRIED_ROWS if carry else BATCH_ROWS
    source = chain(head, source)
    while True:
        chunk: list[Any] = []
        try:
            chunk.extend(islice(source, size))
        finally:  # also where the source breaks off: whoever counts the rows knows at which one
            if chunk or not head:
                yield _columns_of_rows(chunk) if is_rows else {plain: chunk}
        if not chunk or size is None:
            return


def _columns_of_rows(chunk: Sequence[Any]) -> dict[str, list[Any]]:
    odd = next((type(row).__name__ for row in chunk if not isinstance(row, Mapping)), None)
    if odd is not None:
        raise InvalidRows([problem("table", f"holds a {odd} among rows that are dicts")])
    names = dict.fromkeys(chain.from_iterable(chunk))
    return {str(name): [row.get(name) for row in chunk] for name in names}


def batches_of(
    chunks: Iterable[Any],
    carry: frozenset[str],
    carried: dict[str, Iterator[Any]],
    schema: pa.Schema | None = None,
    start: int = 0,  # how many rows came before
) -> Iterator[Any]:
    """Yield dicts of columns as Arrow batches; Arrow batches are yielded as they are.

    Columns of `carry` are stored where the first values are paths; what other values they have gets into
    `carried`, before the first batch is yielded. Types are those of `schema` or of the first rows.
    """
    kinds = None if schema is None else {column.name: column.type for column in schema}
    queues: dict[str, deque[Any]] = {}
    for columns in chunks:
        if not isinstance(columns, dict):
            yield columns
            continue
        count = len(next(iter(columns.values()), ()))
        arrays: list[pa.Array[Any]] = []
        for name in columns if kinds is None else {**kinds, **queues, **columns}:
            values = columns.get(name, [None] * count)
            if name in carry and name not in queues:
                paths = as_paths(values)
                if paths is None and kinds is None:
                    queues[name] = deque()
                    carried[name] = drained(queues[name])
                values = paths or values
            if name in queues:
                queues[name].extend(values)
            elif kinds is not None and name not in kinds:
                words = f"has a column {name!r} that the rows before have not"
                raise InvalidRows([problem("table", words, allowed="the columns of the first rows")])
            else:
                arrays.append(array_of(name, values, None if kinds is None else kinds[name], start))
        if kinds is None:
            names = [name for name in columns if name not in queues]
            # Of a column with nothing in it so far, texts are the likeliest.
            arrays = [array.cast(pa.string()) if pa.types.is_null(array.type) else array for array in arrays]
            kinds = {name: array.type for name, array in zip(names, arrays, strict=True)}
        yield pa.RecordBatch.from_arrays(arrays, list(kinds)) if arrays else without_columns(count)
        start += count


def without_columns(count: int) -> pa.RecordBatch:
    """Return a batch of rows that have no columns."""
    return pa.record_batch({"row": pa.nulls(count)}).select([])


def as_paths(values: Sequence[Any]) -> list[str | None] | None:
    """Return texts and paths as texts; None where other values are among them."""
    if not all(is_missing(value) or isinstance(value, (str, PathLike)) for value in values):
        return None
    return [None if is_missing(value) else str(value) for value in values]


def array_of(
    column: str, values: Sequence[Any], kind: pa.DataType | None = None, start: int = 0
) -> "pa.Array[Any]":
    """Return values, the first one of row `start`, as an Arrow array that gives the same values back.

    Where Arrow would give back others, InvalidRows names the column and the first such row.
    """
    types = set(map(type, values)) - {type(None)}
    way_out = (
        f"one kind of value a column; as text: table[{column!r}].map(str), or .map(json.dumps) for dicts"
    )
    try:
        array: pa.Array[Any] = pa.array(values, kind, from_pandas=True)
        if len(types) <= 1 and types <= _EXACT:
            return array
        back = array.to_pylist()
    except UNFIT as error:
        row, words = _odd_value(values)
        place = None if row is None else start + row
        raise InvalidRows([not_stored(column, words or first_line(error), way_out, place)]) from None
    for row, (given, kept) in enumerate(zip(values, back, strict=True), start):
        if not _is_same(given, kept):
            words = f"{_shown(given)} would come back as {_shown(kept)}"
            raise InvalidRows([not_stored(column, words, way_out, row)])
    return array


def _is_same(given: Any, kept: Any) -> bool:
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, Mapping):
        is_dict = isinstance(kept, dict) and given.keys() == kept.keys()
        return is_dict and all(_is_same(value, kept[name]) for name, value in given.items())
    if isinstance(given, (list, tuple)):
        is_list = isinstance(kept, list) and len(given) == len(kept)
        return is_list and all(map(_is_same, given, kept))
    if is_missing(given) or kept is None:
        return is_missing(given) and is_missing(kept)
    return bool(given == kept)


def _odd_value(values: Sequence[Any]) -> tuple[int | None, str]:
    """Return where and why values are no one column: a value that is no whole text, or of another kind."""
    first: Any = None
    for row, value in enumerate(values):
        if isinstance(value, str) and value != value.encode("utf-8", "ignore").decode():
            return row, f"it holds {HALF}"
        if is_missing(value):
            continue
        first = value if first is None else first
        if type(value) is not type(first):
            kinds = f"{type(value).__name__}, the values before it are {type(first).__name__}"
            return row, f"{_shown(value)} is {kinds}"
    return None, ""


def _shown(value: Any) -> str:
    words = ascii(value)
    return words if len(words) <= 60 else f"{words[:60]}..."  # noqa: PLR2004 - as much as tells it
