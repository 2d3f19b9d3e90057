"""Read the rows of a run for a browser, one page at a time, sorted and filtered, without the audio."""

import operator
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from speechframe.batch.live import Run
from speechframe.page.clips import ClipShelf, Entry
from speechframe.store.reviews import KEEP, REJECT, read_latest_reviews
from speechframe.store.rows import ROW_ID_COLUMN as ROW_ID
from speechframe.store.schema import AUDIO_COLUMN, BOOKKEEPING_COLUMNS, FINISHED_STATUSES, WORDS_COLUMN

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

__all__ = ["SORT_KEYS", "VERDICT_FILTERS", "Arrangement", "RowReader"]

SORT_KEYS = ("row", "text", "voice", "locale", "status", "seconds", "verdict")
"""Columns by which rows can be sorted. ``row`` is the run's own order."""

NO_VERDICT = "none"
VERDICT_FILTERS = ("", KEEP, REJECT, NO_VERDICT)
"""Values of the filter for verdicts. ``""`` shows all rows, and ``none`` shows rows without a verdict."""

_SHOWN_COLUMNS = {"voice": "voice_id", "locale": "locale", "status": "status", "seconds": "audio_seconds"}
"""Columns of the run that the page shows, by name on the page."""

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
    """Reader of a run's rows for the pages of a browser.

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
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.columns = run.columns
        # A run omits columns whose values are already in the caller's table. They can be read as well.
        self._column_names = {*run.columns, *map(run.name_of, run.manifest.table.hidden)}
        kept = run.manifest.schema.names
        self.audible = AUDIO_COLUMN in kept
        source = run.manifest.table.arguments.get("text", {}).get("column")
        given = [source] if source in self.columns else []
        # A row takes the first of these texts that it has. Without a result, only the caller's table has one.
        made = [run.name_of(name) for name in _TEXT_COLUMNS if name in kept]
        translated = [run.name_of(name) for name in _TRANSLATED_COLUMNS if name in kept]
        self._texts = list(dict.fromkeys([*translated, *given, *made]))
        hidden = {*map(run.name_of, (AUDIO_COLUMN, WORDS_COLUMN))}
        self.searchable = [c for c in run.columns if c not in hidden and not c.startswith("__index_level_")]
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
        import pyarrow.compute as pc

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
            names = [*map(self.run.name_of, (ROW_ID, *_SHOWN_COLUMNS.values()))]
            available_columns = [
                name for name in dict.fromkeys([*names, *self._texts]) if name in self._column_names
            ]
            self._known = None  # frees the old table before the new one is built
            parts = [
                _to_batch(self._convert_to_page_columns(batch.to_pandas()))
                for batch in self.run.batches(available_columns)
            ]
            self._known = stamp, pa.Table.from_batches(parts, _SORT_SCHEMA)
        return self._known[1]

    def _convert_to_page_columns(self, rows: "pd.DataFrame") -> "pd.DataFrame":
        """Return rows of the run with the column names of a page."""
        import pandas as pd

        text = pd.Series(index=rows.index, dtype=object)
        for name in self._texts:
            text = text.where(text.notna(), rows[name])
        columns = {"row_id": rows[self.run.name_of(ROW_ID)].astype(str), "text": text.fillna("").astype(str)}
        for name, column in _SHOWN_COLUMNS.items():
            found = self.run.name_of(column)
            columns[name] = rows[found] if found in rows else pd.Series(index=rows.index, dtype=object)
        return pd.DataFrame(columns)

    # -- pages -----------------------------------------------------------------------

    def read_page(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at some positions as plain values for the page. Only these rows are read."""
        name_of = self.run.name_of
        hidden_columns = {"why": "error_message", "sha256": "sha256", "key": "request_key"}
        names = [*map(name_of, (ROW_ID, *_SHOWN_COLUMNS.values(), *hidden_columns.values())), *self._texts]
        rows = self.run.rows_at(
            positions, [name for name in dict.fromkeys(names) if name in self._column_names]
        )
        frame = rows.to_pandas()
        shown = self._convert_to_page_columns(frame)
        for name, column in hidden_columns.items():
            shown[name] = frame[name_of(column)]
        shown = shown.astype(object).where(shown.notna(), None)
        return [
            self._make_line(position, row)
            for position, row in zip(positions, shown.to_dict("records"), strict=True)
        ]

    def _make_line(self, position: int, row: Mapping[Any, Any]) -> dict[str, Any]:
        """Return a row and its review as plain values for the page."""
        review = self.reviews.loc[row["row_id"]] if row["row_id"] in self.reviews.index else None
        return {
            "place": int(position),
            "row": row["row_id"],
            "text": row["text"],
            "voice": row["voice"],
            "locale": row["locale"],
            "status": row["status"],
            "seconds": round(row["seconds"] or 0.0, 3),
            "why": row["why"],
            "sha256": row["sha256"],
            "verdict": None if review is None else review["verdict"],
            "comment": None if review is None else review["comment"],
            "corrected_text": None if review is None else review["corrected_text"],
            "reviewer": None if review is None else review["reviewer"],
            "judged_sha256": None if review is None else review["sha256"],
            # A review is old if new audio has replaced the reviewed audio.
            "is_old": review is not None and review["sha256"] != row["sha256"],
        }

    def read_entry(self, position: int) -> Entry:
        """Return all data of the row at a position, except its audio."""
        name_of = self.run.name_of
        ours = [name_of(ROW_ID), name_of("request_key")]
        columns = [c for c in self.columns if not self.audible or c != name_of(AUDIO_COLUMN)]
        fields = self.run.rows_at(
            [position], list(dict.fromkeys([*columns, *self._texts, *ours]))
        ).to_pylist()[0]
        row_id, key = str(fields.pop(ours[0])), fields[ours[1]]
        status, why = fields[name_of("status")], fields[name_of("error_message")]
        silent = f"row {row_id!r} has no audio, because its status is {status}" + (f" ({why})" if why else "")
        words = fields.get(name_of("word_durations")) or ()
        return Entry(
            key or f"row {position}",
            row_id,
            label=row_id,
            text=next((str(fields[name]) for name in self._texts if fields[name]), ""),
            words=tuple((w["word"], w["start_ms"], w["end_ms"]) for w in words),
            audio_seconds=fields.get(name_of("audio_seconds")) or 0.0,
            voice_id=fields.get(name_of("voice_id")),
            locale=fields.get(name_of("locale")),
            status=status,
            problem=silent if status not in FINISHED_STATUSES and self.audible else None,
            fields=fields,
        )

    def make_shelf(self, entries: Iterable[Entry]) -> ClipShelf:
        """Return the clips of some rows. The id of a clip is the request key of its call."""
        held = list({entry.clip_id: entry for entry in entries}.values())
        return ClipShelf(held, [partial(self.run.clip_of_call, entry.clip_id) for entry in held], len(held))

    def format_other_columns(self, entry: Entry) -> dict[str, str]:
        """Return the columns of a row that its page does not show elsewhere, as texts."""
        shown = {
            *map(self.run.name_of, (*BOOKKEEPING_COLUMNS, ROW_ID, "word_durations", "locale", "text")),
            *self._texts[:1],
        }
        shown = shown - {*map(self.run.name_of, ("take", "credits"))} | {self.run.name_of("audio_seconds")}
        return {
            name: str(value)
            for name, value in entry.fields.items()
            if name not in shown and value not in (None, "") and not name.startswith("__index_level_")
        }


def _to_batch(rows: "pd.DataFrame") -> pa.RecordBatch:
    """Return rows as a record batch with the schema :data:`_SORT_SCHEMA`."""
    columns: list[Any] = []
    for f in _SORT_SCHEMA:
        is_category = f.type == _CATEGORY_TYPE
        column: Any = pa.array(rows[f.name], pa.string() if is_category else f.type, from_pandas=True)
        columns.append(column.dictionary_encode() if is_category else column)
    return pa.RecordBatch.from_arrays(columns, schema=_SORT_SCHEMA)


def _match_text(rows: pa.RecordBatch, sought: str) -> "npt.NDArray[np.bool_]":
    """Return a mask of the rows whose id or text contains `sought`. Case is ignored."""
    import pyarrow.compute as pc

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
    """Return a mask of the values that equal `one`."""
    import pyarrow.compute as pc

    wanted: Any = pa.scalar(value)
    return _convert_mask(pc.equal(values, wanted))


def _convert_mask(mask: Any) -> "npt.NDArray[np.bool_]":
    """Return a Boolean array of Arrow as an array of NumPy. Null becomes False."""
    return np.asarray(mask.fill_null(False), bool)


def _sort_positions(values: Any, *, descending: bool) -> "npt.NDArray[np.int64]":
    """Return the positions that sort the values. Missing values are last in both directions."""
    import pyarrow.compute as pc

    plain = values.cast(pa.string()) if values.type == _CATEGORY_TYPE else values
    direction = "descending" if descending else "ascending"
    keys: Any = [("value", direction)]
    # Arrow places nulls at the end by default.
    order = pc.sort_indices(pa.table({"value": plain}), sort_keys=keys)
    return np.asarray(order, np.int64)
