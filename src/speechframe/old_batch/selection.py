"""Some rows of a run, which go wherever the run goes."""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from speechframe.old_batch.clip import Clip
from speechframe.old_batch.table import TableInput

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from speechframe.old_batch.run import Run

__all__ = ["Selection", "chosen_rows", "framed", "sampled_rows"]

_WHOLE_FLOATS = 2**53


@dataclass(frozen=True, eq=False)
class Selection:
    """Rows of a run, in the run's order: made by :meth:`Run.select` and :meth:`Run.sample`.

    Parameters
    ----------
    run
        The run.
    positions
        Where the rows lie in the run's table, counted from 0, ascending.

    Examples
    --------
    >>> from speechframe import open_run
    >>> open_run("runs/demo").select([0, 1]).to_pandas()  # doctest: +SKIP
    """

    run: "Run"
    positions: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.positions)

    def clip(self, row_id: str | int) -> Clip:
        """Return one row's clip; see :meth:`Run.clip`."""
        return self.run.clip(row_id)

    def batches(
        self, columns: Sequence[str] | None = None, *, audio: bool = True, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as :meth:`Run.batches` does."""
        return self.run._folder.joined(  # noqa: SLF001 - a run and its rows are one
            columns, audio=audio, batch_rows=batch_rows, places=self.positions
        )

    def to_arrow(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> pa.Table:
        """Return the rows as one Arrow table; see :meth:`Run.to_pandas`."""
        return self.run._arrow(columns, audio=audio, places=self.positions)  # noqa: SLF001 - a run and its rows are one

    def to_pandas(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> "pd.DataFrame":
        """Return the rows as a DataFrame; see :meth:`Run.to_pandas`."""
        names = self.run._with_index(columns)  # noqa: SLF001 - as above
        return framed(self.to_arrow(names, audio=audio), self.positions)

    def as_rows(self, named: Iterable[str] = (), *, batch_rows: int | None = None) -> TableInput:
        """Return the rows as the table of another run; see :meth:`Run.as_rows`."""
        found = self.run._as_rows(named, batch_rows, self.positions)  # noqa: SLF001 - as above
        return replace(found, schema=found.schema.remove_metadata())

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {self.run!r}>"


def framed(table: pa.Table, positions: Sequence[int]) -> "pd.DataFrame":
    """Return rows of a run as a DataFrame with the index they have in the run.

    Parameters
    ----------
    table
        The rows, with the schema of the run.
    positions
        Where they lie in the run.
    """
    import numpy as np
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas()
    columns = (table.schema.pandas_metadata or {}).get("index_columns")
    first = columns[0] if columns else {"kind": "range", "start": 0, "step": 1}
    if isinstance(first, dict):
        # An index that is only counted is in no column: Arrow would count the rows that are left.
        frame.index = pd.Index(first["start"] + first["step"] * np.asarray(positions, np.int64))
    return frame


def chosen_rows(run: "Run", rows: Any, ids: Sequence[str]) -> Selection:
    """Return rows of a run by what people name rows with; see :meth:`Run.select`.

    Raises
    ------
    KeyError
        When no row has one of the ids, or a frame does not say which rows it has.
    ValueError
        When a mask is not as long as the run, or has another index.
    """
    import numpy as np
    import pandas as pd

    if callable(rows):
        rows = rows(run.to_pandas())
    if isinstance(rows, pd.DataFrame):
        return Selection(run, tuple(sorted({*_places_of(run, rows, ids)})))
    if isinstance(rows, pd.Series) and pd.api.types.is_bool_dtype(rows.dtype):
        rows = rows.fillna(value=False)  # as pandas has it of a mask with gaps
    values = list(rows)
    if values and all(isinstance(value, (bool, np.bool_)) for value in values):
        if len(values) != len(ids):
            raise ValueError(f"a mask of {len(values):,} values does not fit a run of {len(ids):,} rows")
        mask = np.array(values, np.bool_)
        if isinstance(rows, pd.Series):
            mask = mask[_order(run, rows.index, ids)]
        return Selection(run, tuple(np.flatnonzero(mask).tolist()))
    return Selection(run, tuple(sorted({*_places_by_id(values, ids)})))


def _order(run: "Run", index: "pd.Index[Any]", ids: Sequence[str]) -> "npt.NDArray[np.intp]":
    """Return where the run's rows stand in a mask with this index: that of a sorted frame, say."""
    import numpy as np
    import pandas as pd

    own, given = _hashable(_index_of(run)), _hashable(index)
    if _is_named_like(own, given, run):
        if own.equals(given):
            return np.arange(len(own))
        if own.is_unique and given.is_unique and (places := given.get_indexer(own)).min(initial=0) >= 0:
            return places
    column = _id_column(run)
    rows: list[int] = []
    if column is not None and column in index.names:
        with suppress(KeyError):  # ids that are not the run's, or without their language
            rows = list(_places_by_value(run, pd.DataFrame(index=index), column, ids))
    if len({*rows}) == len(ids):
        return np.argsort(rows)
    raise ValueError(
        "a Series as a mask goes by its index, and this one's is not the run's: give one that was made of "
        "run.to_pandas(), or a list (mask.tolist()) in the run's order"
    )


def _is_named_like(own: "pd.Index[Any]", given: "pd.Index[Any]", run: "Run") -> bool:
    """Return whether an index may be the run's by its names: that of a column of the run has other values."""
    columns = set(run.columns)
    return own.nlevels == given.nlevels and all(
        theirs is None or str(theirs) == str(ours) or str(theirs) not in columns
        for ours, theirs in zip(own.names, given.names, strict=True)
    )


def _places_by_id(values: Iterable[Any], ids: Sequence[str]) -> Iterator[int]:
    places = {row_id: k for k, row_id in enumerate(ids)}
    for value in values:
        if str(value) not in places:
            raise _unknown(value, ids)
        yield places[str(value)]


def _unknown(row_id: Any, ids: Sequence[str]) -> KeyError:
    return KeyError(f"no row has the id {row_id!r}; ids are such as {', '.join(map(repr, ids[:3]))}")


def _places_of(run: "Run", frame: "pd.DataFrame", ids: Sequence[str]) -> Iterable[int]:
    """Return where the rows of a frame that was made of the run's lie in its table."""
    column = _id_column(run)
    if column is not None and column in frame.columns:
        # The index may be of anything then: of the caller's table, or what a merge has made.
        return _places_by_value(run, frame, column, ids)
    own, given = _hashable(_index_of(run)), _hashable(frame.index)
    if column is not None and column in given.names:
        # The run's index may have the name of the ids and other values.
        is_own = own.is_unique and _is_named_like(own, given, run) and given.isin(own).all()
        if not is_own:
            return _places_by_value(run, frame, column, ids)
    if not own.is_unique:
        raise KeyError("the run's index names several rows alike: select by ids, or by a mask")
    places: list[int] = own.get_indexer(given).tolist()
    if -1 in places:
        unknown = frame.index[places.index(-1)]
        raise KeyError(f"no row of the run has {unknown} in its index: select by ids, or by a mask")
    return places


def _id_column(run: "Run") -> str | None:
    return run._folder.tables()[-1].id_column  # noqa: SLF001 - a run and its rows are one


def _index_of(run: "Run") -> "pd.Index[Any]":
    return run.to_pandas([run.name_of("status")]).index


def _places_by_value(run: "Run", frame: "pd.DataFrame", column: str, ids: Sequence[str]) -> Iterator[int]:
    """Yield where the rows of a frame lie by its ids, whose values may have another type."""
    names, own = [column], _values_of(run, [column])
    if len(set(own)) < len(own):
        # Of each row of the caller's there is one for every language.
        names = [column, run.name_of("locale")]
        own = _values_of(run, names)
    unclear = [name for name in names if len(_named(frame, name)) != 1]
    if unclear or len(set(own)) < len(own):
        raise KeyError(
            "the frame does not say which rows of the run it has: that takes one column "
            f"{(unclear or names)[-1]!r}; select by ids, or by a mask"
        )
    places: dict[tuple[Any, ...], int] = {values: k for k, values in enumerate(own)}
    worded: dict[tuple[Any, ...], int] = {}
    for given in zip(*(_named(frame, name)[0] for name in names), strict=True):
        values = tuple(map(_comparable, given))
        found = places.get(values)
        if found is None:
            worded = worded or _worded(places, ids)
            found = next((worded[key] for key in _readings(given, values) if key in worded), None)
        if found is None:
            raise _unknown(given[0], ids)
        yield found


def _worded(places: dict[tuple[Any, ...], int], ids: Sequence[str]) -> dict[tuple[Any, ...], int]:
    """Return places by ids as the run has them in words, by their values as texts, and by their values."""
    texts = {tuple(map(str, values)): k for values, k in places.items()}
    return {(row_id,): k for k, row_id in enumerate(ids)} | texts | places  # later ones count


def _readings(given: tuple[Any, ...], values: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield what else an id of a frame may be in the run, beside its language where there is one."""
    yield values
    yield tuple(map(str, given))
    yield tuple(map(str, values))
    for time in _times(given[0]):
        yield time, *values[1:]


def _times(value: Any) -> Iterator[Any]:
    """Yield the times a date or a text stands for (in ISO 8601, or spans as pandas has them), or the date."""
    import pandas as pd

    if isinstance(value, str):
        with suppress(ValueError):
            datetime.fromisoformat(value)  # pandas reads far more as a time, such as "7"
            yield pd.Timestamp(value)
        with suppress(ValueError):
            yield pd.Timedelta(value)
    elif isinstance(value, pd.Timestamp) and value == value.normalize():
        yield value.date()
    elif isinstance(value, date):
        with suppress(ValueError):
            yield pd.Timestamp(value)


def _values_of(run: "Run", names: Sequence[str]) -> list[tuple[Any, ...]]:
    frame = run.to_pandas(names)
    columns = (_named(frame, name)[0] for name in names)
    return [tuple(map(_comparable, values)) for values in zip(*columns, strict=True)]


def _named(frame: "pd.DataFrame", name: str) -> list[Any]:
    """Return the columns of this name, or where there is none the levels of the index."""
    found: list[Any] = [frame.iloc[:, k] for k, label in enumerate(frame.columns) if label == name]
    levels = (k for k, label in enumerate(frame.index.names) if label == name)
    return found or [frame.index.get_level_values(k) for k in levels]


def _hashable(index: "pd.Index[Any]") -> "pd.Index[Any]":
    """Return an index whose values can be looked up: a run gives back arrays for lists and tuples."""
    import pandas as pd

    is_plain = isinstance(index, pd.MultiIndex) or index.dtype.kind in "biufmM"
    if is_plain or all(map(pd.api.types.is_hashable, index)):
        return index
    found: pd.Index[Any] = pd.Index(list(map(_comparable, index)), name=index.name, tupleize_cols=False)
    return found


def _comparable(value: Any) -> Any:
    """Return a value so that it can be looked up and is equal to what it was before it changed its type."""
    if isinstance(value, (str, int)):  # what most ids are, of which there are many
        return value
    import numpy as np
    import pandas as pd

    if isinstance(value, (np.ndarray, list)):
        value = tuple(value.tolist() if isinstance(value, np.ndarray) else value)
    if isinstance(value, (float, np.floating)):
        value = float(value)
        # Beyond these a float stands for several whole numbers, and is equal to one of them.
        if abs(value) >= _WHOLE_FLOATS:
            return "float", value
        return int(value) if value.is_integer() else value
    return value if pd.api.types.is_hashable(value) else str(value)


def sampled_rows(run: "Run", count: int, seed: int, with_audio: Sequence[int]) -> Selection:
    """Return some of the rows that have audio, drawn by a seed; see :meth:`Run.sample`."""
    drawn = random.Random(seed).sample(with_audio, min(count, len(with_audio)))  # noqa: S311 - nothing is secret
    return Selection(run, tuple(sorted(drawn)))
