"""Rows of a run as tables and batches: all of them, or those that were selected."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from speechframe.audio.clip import Clip
from speechframe.errors import StoreError
from speechframe.store.rows import OUR_ROW_ID, Joined
from speechframe.store.schema import AUDIO, BOOKKEEPING

if TYPE_CHECKING:
    import pandas as pd

MOST_AUDIO_BYTES = 2 << 30
"""Audio that :meth:`Rows.to_pandas` takes into memory at most."""


class Rows(ABC):
    """Rows of a run that can be read: all of them, or those that were selected."""

    @abstractmethod
    def joined(self, columns: Sequence[str] | None, *, audio: bool) -> Joined:
        """Return the run's table joined to its records as they are now."""

    @abstractmethod
    def clip(self, row_id: str | int) -> Clip:
        """Return one row's clip."""

    @property
    def places(self) -> Sequence[int] | None:
        """Where the rows are in the run's table, counted from 0, ascending; None for all of it."""
        return None

    def batches(
        self, columns: Sequence[str] | None = None, *, audio: bool = True, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the table's order, our columns beside the caller's, in bounded memory.

        Parameters
        ----------
        columns
            Names in the result; None for all.
        audio
            With the column of audio, when `columns` is None.
        batch_rows
            Rows a batch at most.
        """
        return self.joined(columns, audio=audio).batches(batch_rows, self.places)

    def to_arrow(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> pa.Table:
        """Return the rows as one Arrow table; see :meth:`to_pandas`."""
        joined = self.joined(columns, audio=audio)
        size, batches = 0, []
        for batch in joined.batches(None, self.places):
            # Rows with equal calls share one answer on disk, and have one each in a frame.
            size += batch.nbytes if joined.has_audio else 0
            if size > MOST_AUDIO_BYTES:
                raise StoreError(
                    f"these rows hold more than {MOST_AUDIO_BYTES >> 30} GB of audio, too much for one "
                    "frame: read them with batches(), or leave audio out"
                )
            batches.append(batch)
        return pa.Table.from_batches(batches, joined.schema)

    def to_pandas(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> "pd.DataFrame":
        """Return the rows as a DataFrame with the caller's index.

        Parameters
        ----------
        columns
            Names in the result, beside the index; None for all but audio.
        audio
            With the column ``audio`` (dicts of ``bytes`` and ``path``).

        Raises
        ------
        StoreError
            When that is more than 2 GB of audio: use :meth:`batches`.
        """
        if columns is not None and not isinstance(columns, str):
            levels = self.joined(None, audio=False).index_columns
            columns = list(dict.fromkeys([*columns, *levels]))
        return framed(self.to_arrow(columns, audio=audio), self.places)

    def as_batches(
        self, named: Iterable[str] = (), batch_rows: int | None = None
    ) -> tuple[pa.Schema, Iterator[tuple[pa.RecordBatch, list[str]]]]:
        """Return the rows as the table of another run: what came of them, not how.

        These are the caller's columns and what the run made of them (``translated_text``, ``locale`` and so
        on). A row without an answer is there all the same.

        Parameters
        ----------
        named
            Columns to have as well: audio, or status, credits and the like, which are of this run alone.
        batch_rows
            Rows a batch at most.

        Returns
        -------
        tuple
            The schema; and batches with the id of each row.
        """
        whole = self.joined(None, audio=True)
        own = {whole.name_of(name) for name in (*BOOKKEEPING, AUDIO, OUR_ROW_ID)} - {*named}
        names = [name for name in whole.schema.names if name not in own]
        schema = self.joined(names, audio=True).schema
        if self.places is not None:
            schema = schema.remove_metadata()  # pandas would count an index that has gaps now

        row_id = whole.name_of(OUR_ROW_ID)

        def batches() -> Iterator[tuple[pa.RecordBatch, list[str]]]:
            read = self.batches([*dict.fromkeys([*names, row_id])], batch_rows=batch_rows)
            for batch in read:
                columns = [batch.column(name) for name in names]
                ids: list[Any] = batch.column(row_id).to_pylist()
                yield pa.RecordBatch.from_arrays(columns, schema=schema), ids

        return schema, batches()


@dataclass(frozen=True, eq=False)
class Selection(Rows):
    """Rows of a run, in the run's order: made by :meth:`Run.select` and :meth:`Run.sample`.

    Parameters
    ----------
    run
        The run.
    positions
        Where the rows are in the run's table, counted from 0, ascending.

    Examples
    --------
    >>> from speechframe import open_run
    >>> open_run("runs/demo").select([0, 1]).to_pandas()  # doctest: +SKIP
    """

    run: Rows
    positions: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.positions)

    def clip(self, row_id: str | int) -> Clip:
        """Return one row's clip; see :meth:`Run.clip`."""
        return self.run.clip(row_id)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {self.run!r}>"

    @property
    def places(self) -> Sequence[int]:
        """The same as :attr:`positions`."""
        return self.positions

    def joined(self, columns: Sequence[str] | None, *, audio: bool) -> Joined:
        """Return the run's whole table joined to its records."""
        return self.run.joined(columns, audio=audio)


def framed(table: pa.Table, places: Sequence[int] | None) -> "pd.DataFrame":
    """Return rows of a run as a DataFrame with the index they have in the run."""
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas()
    said = {c["field_name"]: c["numpy_type"] for c in (table.schema.pandas_metadata or {}).get("columns", ())}
    for field in table.schema:
        is_object = said.get(field.name) == "object"
        if field.name in frame.columns and (
            pa.types.is_nested(field.type) or (is_object and frame[field.name].dtype.kind in "fiu")
        ):
            # By itself pandas makes 1.0 of a 1 that stands in a list or beside None.
            values = table[field.name].to_pylist()
            frame[field.name] = pd.Series(values, index=frame.index, dtype=object)
    if places is not None:
        levels = (table.schema.pandas_metadata or {}).get("index_columns") or [{"start": 0, "step": 1}]
        if isinstance(levels[0], dict):
            # An index that is only counted is in no column: Arrow would count the rows that are left.
            frame.index = pd.Index(levels[0]["start"] + levels[0]["step"] * np.asarray(places, np.int64))
    return frame


def in_order(mask: "pd.Series[Any]", index: "pd.Index[Any]") -> "pd.Series[Any]":
    """Return a mask in the order of a run whose frame has this index."""
    if mask.index.equals(index):
        return mask
    if mask.index.is_unique and len(mask) == len(index) and index.isin(mask.index).all():
        return mask.loc[index]
    raise ValueError(
        "a Series as a mask goes by its index, and this one's is not the run's: make it of run.to_pandas(), "
        "or give a list (mask.tolist()) in the run's order"
    )
