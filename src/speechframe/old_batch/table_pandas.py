"""pandas frames as a table: what Arrow cannot hold stands in it as text."""

import math
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.old_batch.table_arrow import from_reader, holds_bytes
from speechframe.old_batch.table_input import (
    BATCH_ROWS,
    TEXT_COLUMN,
    UNFIT,
    TableInput,
    check_names,
    first_line,
    not_stored,
    problem,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_texts", "frame_of", "from_pandas", "is_frame"]

_HALF = "half a character (a lone surrogate)"
_INDEX = "texts, numbers or times; reset_index(drop=True) leaves it out"


def frame_of(data: Any, dtype: Any = None) -> "pd.DataFrame":
    """Return columns or rows in Python's own containers as a frame.

    Raises
    ------
    InvalidRows
        When they make none.
    """
    import pandas as pd

    try:
        return pd.DataFrame(data, dtype=dtype)
    except UNFIT as error:
        raise InvalidRows([problem("table", f"cannot be read as a table: {first_line(error)}")]) from None


def is_frame(thing: Any) -> bool:
    """Return whether something of pandas is a table: an index, an array or a grouping is none."""
    import pandas as pd

    return isinstance(thing, (pd.DataFrame, pd.Series))


def from_pandas(
    frame: Any, plain: str = TEXT_COLUMN, carry: frozenset[str] = frozenset(), named: Iterable[str] = ()
) -> TableInput:
    """Return a pandas frame or Series as a table; what Arrow cannot hold stands in it as text."""
    import pandas as pd

    named = set(named)
    if isinstance(frame, pd.Series):
        frame = frame.to_frame(frame.name if frame.name in named else plain)
    _check_names([str(name) for name in frame.columns])
    odd: dict[str, dict[int, str]] = {}
    carried: dict[str, Sequence[Any] | None] = {}
    columns = {}
    for name in frame.columns:
        if str(name) in carry:
            carried[str(name)] = list(frame[name])
            columns[str(name)] = _as_paths(frame[name])
            continue
        is_named = str(name) in named
        try:
            columns[str(name)], strange = _storable(_untyped(frame[name]) if is_named else frame[name])
        except UNFIT as error:
            raise InvalidRows([not_stored(str(name), first_line(error))]) from None
        if strange:
            odd[str(name)] = strange
    clean = pd.DataFrame(columns, index=frame.index)
    try:
        table = pa.Table.from_pandas(clean)
    except UNFIT as error:
        found = [(name, _why_not(clean[[name]])) for name in columns]
        words = [not_stored(name, why) for name, why in found if why]
        raise InvalidRows(words or [_why_no_index(frame.index, error)]) from None
    _check_index(table.schema)
    read = from_reader(table.to_reader(BATCH_ROWS), frozenset(carried))
    read.carried = carried
    read.row_ids = None if _counts_from_zero(frame.index) else [str(value) for value in frame.index]
    read.odd_values = odd
    return read


def _check_names(names: Sequence[str]) -> None:
    check_names(names)
    broken = [ascii(name) for name in names if not _is_whole(name)]
    if broken:
        raise InvalidRows(
            [problem("table", f"has a column {name}, whose name holds {_HALF}") for name in broken]
        )


def _check_index(schema: pa.Schema) -> None:
    """Raise InvalidRows for an index that cannot come back with the rows: a run folder keeps no bytes."""
    levels = (schema.pandas_metadata or {}).get("index_columns", ())
    if any(isinstance(level, str) and holds_bytes(schema.field(level).type) for level in levels):
        raise InvalidRows([_index_problem("holds bytes, which a run folder does not keep")])


def _why_no_index(index: "pd.Index[Any]", error: BaseException) -> dict[str, Any]:
    values = (value for number in range(index.nlevels) for value in index.get_level_values(number))
    broken = next((value for value in values if isinstance(value, str) and not _is_whole(value)), None)
    if broken is not None:
        return _index_problem(f"holds {_HALF}", value=ascii(broken))
    return _index_problem(f"cannot be stored: {first_line(error)}")


def _index_problem(words: str, *, value: Any = None) -> dict[str, Any]:
    return problem("id", f"the index {words}", value=value, allowed=_INDEX)


def _why_not(column: "pd.DataFrame") -> str:
    try:
        pa.Table.from_pandas(column, preserve_index=False)
    except UNFIT as error:
        return first_line(error)
    return ""


def _counts_from_zero(index: Any) -> bool:
    start, step = getattr(index, "start", None), getattr(index, "step", None)
    return start == 0 and step == 1


def _as_paths(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of texts and paths as texts; of anything else nothing: the run keeps no copy of it."""
    values = [None if _is_null(value) else value for value in column]
    are_paths = all(value is None or isinstance(value, (str, PathLike)) for value in values)
    texts = as_texts([None if value is None else str(value) for value in values])[0] if are_paths else None
    return column.__class__(texts, index=column.index, dtype=object)


def _untyped(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of nothing but missing values without a type, any other as it is."""
    # pandas makes numbers of a column that is empty, or has nothing but gaps, whatever it was to hold.
    if column.dtype.kind != "f" or not column.isna().all():
        return column
    return column.__class__([None] * len(column), index=column.index, dtype=object)


def _storable(column: "pd.Series[Any]") -> tuple["pd.Series[Any]", dict[int, str]]:
    import pandas as pd

    if isinstance(column.dtype, pd.SparseDtype):
        # Arrow has no such columns.
        column = column.astype(column.dtype.subtype)
    # Only object columns can hold what Arrow cannot.
    if column.dtype != object:
        return column, {}
    values = list(column)
    texts, strange = as_texts(values)
    # A column without any text keeps its own type where Arrow has one for it.
    if _fits_arrow(values) and (not strange or len(strange) == sum(not _is_null(v) for v in values)):
        return column, {}
    return column.__class__(texts, index=column.index, dtype=object), strange


def _fits_arrow(values: list[Any]) -> bool:
    try:
        pa.array(values, from_pandas=True)
    except UNFIT:
        return False
    return True


def as_texts(values: Sequence[Any]) -> tuple[list[Any], dict[int, str]]:
    """Return `values` as strings and nulls, and what each that was something else is, by position.

    Examples
    --------
    >>> as_texts(["a", None, 3])
    (['a', None, '3'], {2: 'int'})
    """
    strange: dict[int, str] = {}
    texts: list[str | None] = []
    for i, value in enumerate(values):
        if _is_null(value):
            texts.append(None)
        elif isinstance(value, str) and _is_whole(value):
            texts.append(value)
        else:
            strange[i] = _HALF if isinstance(value, str) else type(value).__name__
            texts.append(str(value).encode("utf-8", "replace").decode())
    return texts, strange


def _is_whole(text: str) -> bool:
    # A lone surrogate is half a character: it can be stored nowhere and spoken by no one.
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_null(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in {"NAType", "NaTType"}
