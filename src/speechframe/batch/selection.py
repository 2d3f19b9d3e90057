"""Some rows of a run, which go wherever the run goes."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from speechframe.batch.clip import Clip
from speechframe.batch.table import TableInput

if TYPE_CHECKING:
    import pandas as pd

    from speechframe.batch.run import Run

__all__ = ["Selection", "chosen_rows", "framed", "sampled_rows"]


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
        return framed(self.to_arrow(columns, audio=audio), self.positions)

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
        When no row has one of the ids.
    ValueError
        When a mask is not as long as the run.
    """
    import numpy as np
    import pandas as pd

    if callable(rows):
        rows = rows(run.to_pandas())
    if isinstance(rows, pd.DataFrame):
        return Selection(run, tuple(sorted({*_places_of(run, rows, ids)})))
    values = list(rows)
    if values and all(isinstance(value, (bool, np.bool_)) for value in values):
        if len(values) != len(ids):
            raise ValueError(f"a mask of {len(values):,} values does not fit a run of {len(ids):,} rows")
        return Selection(run, tuple(int(k) for k in np.flatnonzero(values)))
    return Selection(run, tuple(sorted({*_places_by_id(values, ids)})))


def _places_by_id(values: Iterable[Any], ids: Sequence[str]) -> Iterator[int]:
    places = {row_id: k for k, row_id in enumerate(ids)}
    for value in values:
        if str(value) not in places:
            raise KeyError(f"no row has the id {value!r}; ids are such as {', '.join(map(repr, ids[:3]))}")
        yield places[str(value)]


def _places_of(run: "Run", frame: "pd.DataFrame", ids: Sequence[str]) -> Iterable[int]:
    """Return where the rows of a frame that was made of the run's lie in its table."""
    entry = run._folder.tables()[-1]  # noqa: SLF001 - a run and its rows are one
    named = entry.id_column in frame.columns and len(set(ids)) == len(ids)
    if named and set(map(str, frame[entry.id_column])) <= set(ids):
        # An index that the caller's table had beside its ids may be of anything.
        return _places_by_id(frame[entry.id_column], ids)
    named_by = (run._folder.joined_schema().pandas_metadata or {}).get("index_columns", ())  # noqa: SLF001 - as above
    levels = [level for level in named_by if isinstance(level, str)]
    own = run.to_pandas([run.name_of("status"), *levels]).index
    if not own.is_unique:
        raise KeyError("the run's index names several rows alike: select by ids, or by a mask")
    places: list[int] = own.get_indexer(frame.index).tolist()
    if -1 in places:
        unknown = frame.index[places.index(-1)]
        raise KeyError(f"no row of the run has {unknown} in its index: select by ids, or by a mask")
    return places


def sampled_rows(run: "Run", count: int, seed: int, with_audio: Sequence[int]) -> Selection:
    """Return some of the rows that have audio, drawn by a seed; see :meth:`Run.sample`."""
    drawn = random.Random(seed).sample(with_audio, min(count, len(with_audio)))  # noqa: S311 - nothing is secret
    return Selection(run, tuple(sorted(drawn)))
