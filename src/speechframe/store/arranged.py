"""Read the rows of a run page by page, sorted and filtered, without the audio."""

import operator
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.store.reader import StoredRun
from speechframe.store.reviews import KEEP, REJECT, read_latest_reviews
from speechframe.store.rows import ROW_ID_COLUMN as ROW_ID
from speechframe.store.schema import AUDIO_COLUMN, WORDS_COLUMN

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

SORT_KEYS = ("row", "text", "voice", "locale", "status", "seconds", "verdict")
"""Columns by which rows can be sorted. ``row`` is the run's own order."""

NO_VERDICT = "none"
VERDICT_FILTERS = ("", KEEP, REJECT, NO_VERDICT)
"""Values of the filter for verdicts. ``""`` shows all rows, and ``none`` shows rows without a verdict."""

_SHOWN_COLUMNS = {"voice": "voice_id", "locale": "locale", "status": "status", "seconds": "audio_seconds"}
"""Columns of the run that a page shows, by name on the page."""

_AUDIO_FACTS = {"why": "error_message", "sha256": "sha256", "key": "request_key"}
"""Columns of the run about the audio of a row, by name on the page."""

_SHOWN_REVIEW = ("verdict", "comment", "corrected_text", "reviewer")
"""Fields of a review that a page shows."""

_TEXT_COLUMNS = ("text", "transcription")
"""Columns with the text of a result, the first choice first."""

_TRANSLATED_COLUMNS = ("translated_text",)
"""Columns with a translated text. A row shows this text instead of its source text."""

_COMPARISON = re.compile(r"(<=|>=|<|>)\s*(-?\d+(?:\.\d+)?)")
_OPERATORS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}

_CATEGORY_TYPE = pa.dictionary(pa.int32(), pa.string())
"""Type of columns with few different texts."""

_SORT_SCHEMA = pa.schema(
    {
        "row_id": pa.string(), "text": pa.string(), "voice": _CATEGORY_TYPE, "locale": _CATEGORY_TYPE,
        "status": _CATEGORY_TYPE, "seconds": pa.float64(),
    }
)  # fmt: skip
"""Columns for sorting and searching rows."""


@dataclass(frozen=True)
class Arrangement:
    """The filters and the order of the shown rows. See :meth:`DatasetBrowser.show`."""

    search: str = ""
    status: str = ""
    verdict: str = ""
    by: str = "row"
    descending: bool = False
    column: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether all rows are shown in the run's own order."""
        return self == Arrangement()

    def to_page(self) -> dict[str, Any]:
        """Return filters and order as plain values for the page."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class RowReader:
    """Reader of a run's rows, page by page.

    Parameters
    ----------
    run
        The run.

    Attributes
    ----------
    audible
        Whether rows of this run have audio.
    searchable
        Names of the columns in which values can be searched.
    text_columns
        Names of the columns with a text of the row, the first choice first.
    """

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        columns = run.columns
        # A run omits columns whose values are already in the caller's table. They can be read as well.
        self._column_names = {*columns, *map(run.name_of, run.manifest.table.hidden)}
        kept = run.manifest.schema.names
        self.audible = AUDIO_COLUMN in kept
        source = run.manifest.table.arguments.get("text", {}).get("column")
        given = [source] if source in columns else []
        # A row takes the first of these texts that it has. Without a result, only the caller's table has one.
        made = [run.name_of(name) for name in _TEXT_COLUMNS if name in kept]
        translated = [run.name_of(name) for name in _TRANSLATED_COLUMNS if name in kept]
        self.text_columns = list(dict.fromkeys([*translated, *given, *made]))
        hidden = {*map(run.name_of, (AUDIO_COLUMN, WORDS_COLUMN))}
        self.searchable = [c for c in columns if c not in hidden and not c.startswith("__index_level_")]
        self._known: tuple[Any, pa.Table] | None = None
        self._order: tuple[Any, Arrangement, Sequence[int]] | None = None
        self._reviews: pd.DataFrame | None = None

    @property
    def total(self) -> int:
        """Number of rows of the run."""
        return self.run.manifest.table.rows

    @property
    def reviews(self) -> "pd.DataFrame":
        """The latest review of each row, by row id. It is kept until :meth:`forget_reviews` is called."""
        if self._reviews is None:
            self._reviews = read_latest_reviews(self.run.folder)
        return self._reviews

    def forget_reviews(self) -> None:
        """Drop the reviews, so that the next use reads them again."""
        self._reviews = None

    def find_places(self, arranged: Arrangement, *, keep: bool = False) -> Sequence[int]:
        """Return the positions of the matching rows in the run, in the order of the browser.

        Without filters and in the run's own order, nothing is read. Otherwise the texts and statuses of all
        rows are read once, and again after a change of the run. With `keep`, the last result is returned even
        if reviews or results have changed since then. So a reviewer can turn pages without missing a row.
        """
        if arranged.is_plain:
            return range(self.total)
        table = self.run.manifest.table.file
        if keep and self._order is not None and self._order[0][0][0] == table and self._order[1] == arranged:
            return self._order[2]
        self.forget_reviews()
        stamp = (self._get_version(), len(self.reviews), self.reviews["reviewed_at"].max())
        if self._order is None or self._order[:2] != (stamp, arranged):
            self._order = stamp, arranged, self._arrange(arranged)
        return self._order[2]

    def _arrange(self, arranged: Arrangement) -> Sequence[int]:
        """Return the positions of the matching rows in their order."""
        sort_columns = self._read_sort_columns()
        verdicts = self._list_verdicts(sort_columns) if arranged.verdict or arranged.by == "verdict" else None
        places = np.flatnonzero(self._match_rows(arranged, sort_columns, verdicts))
        if arranged.by == "row":
            ordered = places[::-1] if arranged.descending else places
        else:
            values: Any = verdicts if arranged.by == "verdict" else sort_columns[arranged.by]
            ordered = places[_sort_positions(values.take(places), descending=arranged.descending)]
        # An array takes only eight bytes a number, and its items are Python integers, as JSON needs them.
        return array("q", ordered.astype(np.int64).tobytes())

    def _match_rows(
        self, arranged: Arrangement, sort_columns: pa.Table, verdicts: Any
    ) -> "npt.NDArray[np.bool_]":
        """Return a mask of the rows that match search and filters."""
        mask = np.ones(sort_columns.num_rows, bool)
        if arranged.status:
            mask &= _match_value(sort_columns["status"], arranged.status)
        if arranged.verdict == NO_VERDICT:
            mask &= _convert_mask(verdicts.is_null())
        elif arranged.verdict:
            mask &= _match_value(verdicts, arranged.verdict)
        if arranged.search:
            sought = arranged.search.casefold()
            if arranged.column:
                columns = (batch.column(0) for batch in self.run.batches([arranged.column]))
                found = [_match_column(values, sought) for values in columns]
            else:
                texts = sort_columns.select(["row_id", "text"]).to_batches()
                found = [_match_text(rows, sought) for rows in texts]
            mask &= np.concatenate([np.empty(0, bool), *found])
        return mask

    def _list_verdicts(self, sort_columns: pa.Table) -> Any:
        """Return the verdict on every row. It is null for a row without a verdict."""
        reviews = self.reviews
        verdicts = pa.array(reviews["verdict"], pa.string(), from_pandas=True)
        return pc.take(verdicts, pc.index_in(sort_columns["row_id"], pa.array(reviews.index, pa.string())))

    def _get_version(self) -> Any:
        """Return a value that changes with every change of the run."""
        # Records of calls are only added, so each change of the run changes their number.
        return self.run.manifest.table.file, len(self.run.snapshot().index)

    def _read_sort_columns(self) -> pa.Table:
        """Return the columns of :data:`_SORT_SCHEMA` for all rows, for sorting and searching."""
        stamp = self._get_version()
        if self._known is None or self._known[0] != stamp:
            self._known = None  # frees the old table before the new one is built
            batches = self.run.batches(self._choose_columns(_SHOWN_COLUMNS))
            parts = [self._rename(batch, _SHOWN_COLUMNS).cast(_SORT_SCHEMA) for batch in batches]
            self._known = stamp, pa.concat_tables([_SORT_SCHEMA.empty_table(), *parts])
        return self._known[1]

    def _choose_columns(self, columns: Mapping[str, str]) -> list[str]:
        """Return the names of id, texts and some columns of speechframe, as far as the run has them."""
        names = [*map(self.run.name_of, (ROW_ID, *columns.values())), *self.text_columns]
        return [name for name in dict.fromkeys(names) if name in self._column_names]

    def _rename(self, rows: Any, columns: Mapping[str, str]) -> pa.Table:
        """Return the id, the text and some columns of rows, with their names on a page."""
        texts: Any = [rows.column(name).cast(pa.string()) for name in self.text_columns]
        row_ids = rows.column(self.run.name_of(ROW_ID))
        found = {"row_id": row_ids, "text": pc.coalesce(*texts, "") if texts else pa.repeat("", len(row_ids))}
        for name, column in columns.items():
            own = self.run.name_of(column)
            found[name] = rows.column(own) if own in rows.schema.names else pa.nulls(rows.num_rows)
        return pa.table(found)

    # -- pages -----------------------------------------------------------------------

    def read_page(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at some positions as plain values for the page. Only these rows are read."""
        columns = _SHOWN_COLUMNS | _AUDIO_FACTS
        rows = self._rename(self.run.rows_at(positions, self._choose_columns(columns)), columns)
        return [self._make_line(*pair) for pair in zip(positions, rows.to_pylist(), strict=True)]

    def _make_line(self, position: int, row: Mapping[Any, Any]) -> dict[str, Any]:
        """Return a row and its review as plain values for the page."""
        review = self.reviews.loc[row["row_id"]] if row["row_id"] in self.reviews.index else None
        return {
            "place": int(position),
            "row": row["row_id"],
            **{name: row[name] for name in ("text", "voice", "locale", "status", "why", "sha256")},
            "seconds": round(row["seconds"] or 0.0, 3),
            **{name: None if review is None else review[name] for name in _SHOWN_REVIEW},
            "judged_sha256": None if review is None else review["sha256"],
            # A review is old if new audio has replaced the reviewed audio.
            "is_old": review is not None and review["sha256"] != row["sha256"],
        }


def _match_text(rows: pa.RecordBatch, sought: str) -> "npt.NDArray[np.bool_]":
    """Return a mask of the rows whose id or text contains `sought`. Case is ignored."""
    columns: list[Any] = [rows.column("row_id"), rows.column("text"), "\n"]
    both: Any = pc.binary_join_element_wise(*columns)
    if pc.all(pc.string_is_ascii(both)).as_py():
        return _convert_mask(pc.match_substring(pc.ascii_lower(both), sought))
    # Only Python's casefold converts "ß" to "ss". Arrow keeps "ß".
    return np.array([sought in one.casefold() for one in both.to_pylist()], bool)


def _match_column(values: Any, sought: str) -> "npt.NDArray[np.bool_]":
    """Return a mask of the values that contain `sought`, or of the numbers that a text such as ">2" fits."""
    compared = _COMPARISON.fullmatch(sought)
    if compared and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.asarray(_OPERATORS[compared[1]](numbers, float(compared[2])), bool)
    return np.array([v is not None and sought in str(v).casefold() for v in values.to_pylist()], bool)


def _match_value(values: Any, value: str) -> "npt.NDArray[np.bool_]":
    """Return a mask of the values that equal `value`."""
    wanted: Any = pa.scalar(value)
    return _convert_mask(pc.equal(values, wanted))


def _convert_mask(mask: Any) -> "npt.NDArray[np.bool_]":
    """Return a Boolean array of Arrow as an array of NumPy. Null becomes False."""
    return np.asarray(mask.fill_null(False), bool)


def _sort_positions(values: Any, *, descending: bool) -> "npt.NDArray[np.int64]":
    """Return the positions that sort the values. Missing values are last in both directions."""
    plain = values.cast(pa.string()) if values.type == _CATEGORY_TYPE else values
    # Arrow places nulls at the end by default.
    return np.asarray(pc.array_sort_indices(plain, "descending" if descending else "ascending"), np.int64)
