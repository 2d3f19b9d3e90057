"""The rows of a run as a browser shows them: a page at a time, in any order, without their audio."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from speechframe.batch.live import Run
from speechframe.page.clips import Entry, Shelf
from speechframe.store.reviews import KEEP, REJECT, last_words
from speechframe.store.rows import OUR_ROW_ID as ROW_ID
from speechframe.store.schema import AUDIO, BOOKKEEPING, FINISHED

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

__all__ = ["SORTED_BY", "VERDICTS", "Arranged", "RowReader"]

SORTED_BY = ("row", "text", "voice", "locale", "status", "seconds", "verdict")
"""What rows can be sorted by; ``row`` is the run's own order."""

NO_VERDICT = "none"
VERDICTS = ("", KEEP, REJECT, NO_VERDICT)
"""What rows can be filtered by; ``""`` is all of them."""

_FACTS = {"voice": "voice_id", "locale": "locale", "status": "status", "seconds": "audio_seconds"}
_TEXTS = ("text", "transcription")
_TRANSLATED = ("translated_text",)
_FEW = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema(
    {
        "row_id": pa.string(), "text": pa.string(), "voice": _FEW, "locale": _FEW, "status": _FEW,
        "seconds": pa.float64(),
    }
)  # fmt: skip
"""What rows are sorted and searched by."""


@dataclass(frozen=True)
class Arranged:
    """Which rows are shown, and in which order; see :meth:`DatasetBrowser.show`."""

    search: str = ""
    status: str = ""
    verdict: str = ""
    by: str = "row"
    descending: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether that is every row in its place."""
        return self == Arranged()

    def to_page(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class RowReader:
    """Reads a run's rows for pages.

    Parameters
    ----------
    run
        The run.

    Attributes
    ----------
    audible
        Rows of this run have audio.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.columns = run.columns
        # A run leaves out of its columns what the caller's table says already.
        self._there = {*run.columns, *map(run.name_of, run.manifest.table.hidden)}
        kept = run.manifest.schema.names
        self.audible = AUDIO in kept
        source = run.manifest.table.arguments.get("text", {}).get("column")
        given = [source] if source in self.columns else []
        # A row that is not made yet has only the text it was given.
        made = [run.name_of(name) for name in _TEXTS if name in kept]
        translated = [run.name_of(name) for name in _TRANSLATED if name in kept]
        self._texts = list(dict.fromkeys([*translated, *given, *made]))
        self._known: tuple[Any, pa.Table] | None = None
        self._order: tuple[Any, Arranged, Sequence[int]] | None = None
        self._reviews: pd.DataFrame | None = None

    @property
    def total(self) -> int:
        """How many rows the run has."""
        return self.run.manifest.table.rows

    @property
    def reviews(self) -> "pd.DataFrame":
        """The last words on rows, by row id; read once until :meth:`forget_reviews`."""
        if self._reviews is None:
            self._reviews = last_words(self.run.folder)
        return self._reviews

    def forget_reviews(self) -> None:
        """Read the reviews anew when they are wanted next."""
        self._reviews = None

    def places(self, arranged: Arranged) -> Sequence[int]:
        """Return where the rows lie that are shown, in the order they are shown in.

        Every row in its own place costs nothing; anything else reads the texts and states of all rows, once
        until something changes.
        """
        if arranged.is_plain:
            return range(self.total)
        self.forget_reviews()
        stamp = (self._stamp(), len(self.reviews), self.reviews["reviewed_at"].max())
        if self._order is None or self._order[:2] != (stamp, arranged):
            self._order = stamp, arranged, self._arrange(arranged)
        return self._order[2]

    def _arrange(self, arranged: Arranged) -> Sequence[int]:
        facts = self._facts()
        verdicts = self._verdicts(facts) if arranged.verdict or arranged.by == "verdict" else None
        places = np.flatnonzero(self._kept(arranged, facts, verdicts))
        if arranged.by == "row":
            ordered = places[::-1] if arranged.descending else places
        else:
            values: Any = verdicts if arranged.by == "verdict" else facts[arranged.by]
            ordered = places[_order(values.take(places), descending=arranged.descending)]
        # Numbers of Python to whoever takes one, eight bytes each till then.
        return array("q", ordered.astype(np.int64).tobytes())

    def _kept(self, arranged: Arranged, facts: pa.Table, verdicts: Any) -> "npt.NDArray[np.bool_]":
        """Return which rows search and filters leave."""
        kept = np.ones(facts.num_rows, bool)
        if arranged.status:
            kept &= _is(facts["status"], arranged.status)
        if arranged.verdict == NO_VERDICT:
            kept &= _true(verdicts.is_null())
        elif arranged.verdict:
            kept &= _is(verdicts, arranged.verdict)
        if arranged.search:
            sought = arranged.search.casefold()
            found = [_has_in_it(rows, sought) for rows in facts.select(["row_id", "text"]).to_batches()]
            kept &= np.concatenate([np.empty(0, bool), *found])
        return kept

    def _verdicts(self, facts: pa.Table) -> Any:
        """Return the verdict on every row, null for one without."""
        import pyarrow.compute as pc

        reviews = self.reviews
        said = pa.array(reviews["verdict"], pa.string(), from_pandas=True)
        return pc.take(said, pc.index_in(facts["row_id"], pa.array(reviews.index, pa.string())))

    def _stamp(self) -> Any:
        # Records are only ever added.
        return self.run.manifest.table.file, len(self.run.snapshot().index)

    def _facts(self) -> pa.Table:
        """Return what all rows are sorted and searched by: no more than their texts and some numbers."""
        stamp = self._stamp()
        if self._known is None or self._known[0] != stamp:
            names = [*map(self.run.name_of, (ROW_ID, *_FACTS.values()))]
            there = [name for name in dict.fromkeys([*names, *self._texts]) if name in self._there]
            self._known = None  # both would be held until the new one is whole
            parts = [_packed(self._told(batch.to_pandas())) for batch in self.run.batches(there)]
            self._known = stamp, pa.Table.from_batches(parts, _SCHEMA)
        return self._known[1]

    def _told(self, rows: "pd.DataFrame") -> "pd.DataFrame":
        """Return rows of the run under the names of a page."""
        import pandas as pd

        text = pd.Series(index=rows.index, dtype=object)
        for name in self._texts:
            text = text.where(text.notna(), rows[name])
        told = {"row_id": rows[self.run.name_of(ROW_ID)].astype(str), "text": text.fillna("").astype(str)}
        for name, column in _FACTS.items():
            found = self.run.name_of(column)
            told[name] = rows[found] if found in rows else pd.Series(index=rows.index, dtype=object)
        return pd.DataFrame(told)

    # -- pages -----------------------------------------------------------------------

    def page(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """Return rows as a page lists them; reads these rows only."""
        name_of = self.run.name_of
        more = {"why": "error_message", "sha256": "sha256", "key": "request_key"}
        names = [*map(name_of, (ROW_ID, *_FACTS.values(), *more.values())), *self._texts]
        rows = self.run.rows_at(places, [name for name in dict.fromkeys(names) if name in self._there])
        frame = rows.to_pandas()
        told = self._told(frame)
        for name, column in more.items():
            told[name] = frame[name_of(column)]
        told = told.astype(object).where(told.notna(), None)
        return [self._line(place, row) for place, row in zip(places, told.to_dict("records"), strict=True)]

    def _line(self, place: int, row: Mapping[Any, Any]) -> dict[str, Any]:
        said = self.reviews.loc[row["row_id"]] if row["row_id"] in self.reviews.index else None
        return {
            "place": int(place),
            "row": row["row_id"],
            "text": row["text"],
            "voice": row["voice"],
            "locale": row["locale"],
            "status": row["status"],
            "seconds": round(row["seconds"] or 0.0, 3),
            "why": row["why"],
            "sha256": row["sha256"],
            "verdict": None if said is None else said["verdict"],
            "comment": None if said is None else said["comment"],
            "corrected_text": None if said is None else said["corrected_text"],
            "reviewer": None if said is None else said["reviewer"],
            # It was said of audio that another take has replaced since.
            "is_old": said is not None and said["sha256"] != row["sha256"],
        }

    def entry(self, place: int) -> Entry:
        """Return all that is known of a row but its audio."""
        name_of = self.run.name_of
        ours = [name_of(ROW_ID), name_of("request_key")]
        columns = [c for c in self.columns if not self.audible or c != name_of(AUDIO)]
        fields = self.run.rows_at([place], list(dict.fromkeys([*columns, *self._texts, *ours]))).to_pylist()[
            0
        ]
        row_id, key = str(fields.pop(ours[0])), fields[ours[1]]
        status, why = fields[name_of("status")], fields[name_of("error_message")]
        silent = f"row {row_id!r} has no audio: it is {status}" + (f" ({why})" if why else "")
        words = fields.get(name_of("word_durations")) or ()
        return Entry(
            key or f"row {place}",
            row_id,
            label=row_id,
            text=next((str(fields[name]) for name in self._texts if fields[name]), ""),
            words=tuple((w["word"], w["start_ms"], w["end_ms"]) for w in words),
            audio_seconds=fields.get(name_of("audio_seconds")) or 0.0,
            voice_id=fields.get(name_of("voice_id")),
            locale=fields.get(name_of("locale")),
            status=status,
            problem=silent if status not in FINISHED and self.audible else None,
            fields=fields,
        )

    def shelf(self, entries: Iterable[Entry]) -> Shelf:
        """Return the clips of rows; their names are those of their calls."""
        held = list({entry.clip_id: entry for entry in entries}.values())
        return Shelf(held, [partial(self.run.clip_of_call, entry.clip_id) for entry in held], len(held))

    def others(self, entry: Entry) -> dict[str, str]:
        """Return the columns of a row that its page does not show elsewhere, as texts."""
        shown = {
            *map(self.run.name_of, (*BOOKKEEPING, ROW_ID, "word_durations", "locale", "text")),
            *self._texts[:1],
        }
        shown = shown - {*map(self.run.name_of, ("take", "credits"))} | {self.run.name_of("audio_seconds")}
        return {
            name: str(value)
            for name, value in entry.fields.items()
            if name not in shown and value not in (None, "") and not name.startswith("__index_level_")
        }


def _packed(told: "pd.DataFrame") -> pa.RecordBatch:
    """Return rows as :data:`_SCHEMA` has them."""
    columns: list[Any] = []
    for f in _SCHEMA:
        is_few = f.type == _FEW
        column: Any = pa.array(told[f.name], pa.string() if is_few else f.type, from_pandas=True)
        columns.append(column.dictionary_encode() if is_few else column)
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _has_in_it(rows: pa.RecordBatch, sought: str) -> "npt.NDArray[np.bool_]":
    """Return which rows have this in id or text, in small letters or capitals."""
    import pyarrow.compute as pc

    columns: list[Any] = [rows.column("row_id"), rows.column("text"), "\n"]
    both: Any = pc.binary_join_element_wise(*columns)
    if pc.all(pc.string_is_ascii(both)).as_py():
        return _true(pc.match_substring(pc.ascii_lower(both), sought))
    # Arrow's small letters are not those that Python compares: it leaves "ß" what it is.
    return np.array([sought in one.casefold() for one in both.to_pylist()], bool)


def _is(values: Any, one: str) -> "npt.NDArray[np.bool_]":
    """Return where a value is this one."""
    import pyarrow.compute as pc

    wanted: Any = pa.scalar(one)
    return _true(pc.equal(values, wanted))


def _true(mask: Any) -> "npt.NDArray[np.bool_]":
    """Return where a mask is true; null is not."""
    return np.asarray(mask.fill_null(False), bool)


def _order(values: Any, *, descending: bool) -> "npt.NDArray[np.int64]":
    """Return the order of values; those that are missing come last, whichever way."""
    import pyarrow.compute as pc

    plain = values.cast(pa.string()) if values.type == _FEW else values
    way = "descending" if descending else "ascending"
    keys: Any = [("value", way)]
    # Arrow puts nulls at the end by itself.
    order = pc.sort_indices(pa.table({"value": plain}), sort_keys=keys)
    return np.asarray(order, np.int64)
