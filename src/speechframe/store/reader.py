"""Reading a run: its rows as tables, batches and clips, its ledger, and what people say of it."""

import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.audio.clip import Clip
from speechframe.errors import StoreError
from speechframe.spec.speech import Format
from speechframe.store import ledger, parts, reviews
from speechframe.store.folder import Folder
from speechframe.store.index import Numbers, Snapshot, SnapshotReader
from speechframe.store.manifest import Manifest, read_manifest
from speechframe.store.records import WORDS_FOLDER, Records, records_of, words_of
from speechframe.store.remote import open_folder
from speechframe.store.rows import OUR_ROW_ID, Joined, RowRecords, table_schema
from speechframe.store.schema import AUDIO, BASE_KEY, FINISHED, PENDING, ROW_ID, STATUSES, TAKE
from speechframe.store.selection import Rows, Selection, in_order
from speechframe.store.verify import Problem, verify

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.dataset as ds

_CLIP = (
    "audio", "format", "sample_rate", "channels", "text", "word_durations", "voice_id", "credits", "warnings",
)  # fmt: skip
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d.,:]*")
_KIND_LENGTH = 60


class StoredRun(Rows):
    """A run as its folder has it, while it is made or ever after.

    Parameters
    ----------
    folder
        The run's folder.

    Raises
    ------
    NotARun, RunMismatch, StoreError
        When it holds no run, one of another layout, or cannot be read.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder)
        self._snapshots = SnapshotReader(folder)
        self._records: Records | None = None
        # Of the newest table and of its words, from when they are wanted first.
        self._table: tuple[str, pa.Schema] | None = None
        self._ids: tuple[str, pa.Array[Any]] | None = None
        self._words: tuple[list[str], Records | None] | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Return the run in a folder, or at an address such as ``s3://bucket/run``."""
        return cls(open_folder(path))

    def refresh(self) -> Self:
        """Read run.json again, which another process may have changed."""
        self.manifest = read_manifest(self.folder)
        return self

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def place(self) -> str:
        """The run's folder as people would type it in the folder they are in."""
        with suppress(ValueError, OSError):  # not below it, at an address, or in a folder that is gone
            return str(self.path.relative_to(Path.cwd()))
        return str(self.path)

    @property
    def run_id(self) -> str:
        """What names the run in ledgers and idempotency keys."""
        return self.manifest.run_id

    @property
    def operation(self) -> str:
        """The verb."""
        return self.manifest.operation

    @property
    def service(self) -> str:
        """Identity of the service that made it."""
        return self.manifest.service

    @property
    def columns(self) -> list[str]:
        """The columns of the run's rows: the caller's and ours, audio among them."""
        return self.joined(None, audio=True).schema.names

    def name_of(self, column: str) -> str:
        """Return what a column of ours is called in this run: ``speech_...`` where the table has its name."""
        return self.joined(None, audio=False).name_of(column)

    def snapshot(self) -> Snapshot:
        """Return which calls have ended by now, and where their records are."""
        return self._snapshots.read()

    def rows_at(self, places: Sequence[int], columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return some rows without their audio, reading little else: for pages of a long table.

        Parameters
        ----------
        places
            Where they are in the run's table, counted from 0; the result has their order.
        columns
            Names in the result; None for all.
        """
        return self.joined(columns, audio=False).rows(places)

    def newest(self, count: int) -> list[str]:
        """Return the ``request_key`` of the calls whose answers came last, the newest first."""
        return self.snapshot().index.newest(count)

    @property
    def part_files(self) -> list[Path]:
        """The Parquet files of finished calls, for tools that read files."""
        return [self.path / parts.PARTS / name for name in self.folder.names(parts.PARTS)]

    @property
    def dataset(self) -> "ds.Dataset":
        """The finished calls as a pyarrow dataset over the part files."""
        from pyarrow import dataset

        files = [getattr(path, "on_filesystem", str(path)) for path in self.part_files]
        filesystem: Any = getattr(self.folder, "filesystem", None)
        found: ds.Dataset = dataset.dataset(files, format="parquet", filesystem=filesystem)
        return found

    # -- single calls ----------------------------------------------------------------

    def clip(self, row_id: str | int) -> Clip:
        """Return one row's clip.

        Parameters
        ----------
        row_id
            The row's id: its value in the ``id`` column, or of the index.

        Raises
        ------
        KeyError
            When no row has this id, or the row has no audio; says which.
        """
        row = self._row(str(row_id))
        if (clip := self._clip(row.records, row.positions)) is None:
            raise KeyError(f"row {row_id!r} has no audio: it is {row.statuses()[0].as_py()}")
        return clip

    def clip_of_call(self, request_key: str) -> Clip:
        """Return the clip of a call: of every row whose ``request_key`` this is.

        Raises
        ------
        KeyError
            When there is no such call, or it has no audio.
        """
        records = self.records()
        if (clip := self._clip(records, records.index.find([request_key]))) is None:
            raise KeyError(f"the call {request_key!r} has no audio")
        return clip

    def _clip(self, records: Records, positions: Numbers) -> Clip | None:
        columns = [name for name in _CLIP if name in records.schema.names]
        found: dict[str, Any] = records.take(positions, columns, few=True).to_pylist()[0]
        audio = found.get(AUDIO)
        if not audio or audio["bytes"] is None:
            return None
        words = found.get("word_durations")
        if words is None and (aligned := words_of(self.folder, self.folder.names(WORDS_FOLDER))) is not None:
            (key,) = records.index.keys(positions)
            words = aligned.take(aligned.index.find([key]), ["word_durations"]).column(0)[0].as_py()
        return Clip(
            audio=audio["bytes"],
            format=Format(found.get("format") or str(audio["path"]).rpartition(".")[2].upper()),
            sample_rate=found.get("sample_rate") or 0,
            channels=found.get("channels") or 1,
            text=found.get("text") or "",
            words=tuple((w["word"], w["start_ms"], w["end_ms"]) for w in words or ()),
            voice_id=found.get("voice_id"),
            credits=found.get("credits") or 0.0,
            warnings=tuple(found.get("warnings") or ()),
        )

    def _row(self, row_id: str) -> RowRecords:
        file = self.manifest.table.file
        if self._ids is None or self._ids[0] != file:
            ids = [some.rows.column(ROW_ID) for some in self._with_records()]
            self._ids = file, pa.concat_arrays([pa.array([], pa.string()), *ids])
        place = pc.index(self._ids[1], row_id).as_py()
        if place < 0:
            column = self.manifest.table.id_column
            where = f"the column {column!r}" if column else "the table's index"
            such = ", ".join(map(repr, self._ids[1][:3].to_pylist()))
            raise KeyError(f"no row has the id {row_id!r}; ids are the values of {where}, such as {such}")
        (row,) = self._with_records([place])
        return row

    # -- what became of it -----------------------------------------------------------

    def statuses(self) -> list[str]:
        """Return the status of every row, without reading any record."""
        return [status for some in self._with_records() for status in some.statuses().to_pylist()]

    def call_counts(self) -> dict[str, int]:
        """Return how many of the table's different calls have each status."""
        rows = [
            pa.table(
                [some.rows.column(BASE_KEY), some.rows.column(TAKE), some.statuses()],
                ["key", "take", "status"],
            )
            for some in self._with_records()
        ]
        if not rows:
            return {}
        calls = pa.concat_tables(rows).group_by(["key", "take", "status"]).aggregate([])
        sent = calls.filter(calls.column("key").is_valid())
        return dict(Counter(map(str, sent.column("status").to_pylist())))

    @property
    def failed(self) -> "pd.DataFrame":
        """The rows without an answer that were sent or refused: their ids, status and errors.

        A suspect row has its answer: ``frame[frame["status"] == "suspect"]``.
        """
        others = {*FINISHED, PENDING}
        return self._at([place for place, status in enumerate(self.statuses()) if status not in others])

    @property
    def warnings(self) -> "pd.DataFrame":
        """Every warning about an answer: ``row_id``, ``kind`` (alike for warnings alike) and ``words``."""
        import pandas as pd

        names = [self.name_of(OUR_ROW_ID), self.name_of("warnings")]
        found = [
            (row_id, warning_kind(words), words)
            for batch in self.batches(names)
            for row_id, said in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            for words in said or ()
        ]
        return pd.DataFrame(found, columns=["row_id", "kind", "words"])

    @property
    def ledger(self) -> "pd.DataFrame":
        """Every attempt and what it cost, by time; never text."""
        frame: pd.DataFrame = ledger.ledger(self.folder).to_pandas(maps_as_pydicts="strict")
        return frame

    @property
    def stats(self) -> dict[str, Any]:
        """Rows by status, credits, attempts and seconds of audio, as plain values.

        ``retries`` are the attempts that brought no answer, but for the last one of each call that has none.
        Of translations, ``translated_characters`` instead of ``audio_seconds``.
        """
        counts = Counter(self.statuses())
        sizes: dict[str, Any] = {}
        if "audio_seconds" in self.records().schema.names:
            sizes["audio_seconds"] = round(self._sum("audio_seconds", lambda column: column), 3)
        elif "translated_text" in self.records().schema.names:
            sizes["translated_characters"] = int(self._sum("translated_text", pc.utf8_length))
        attempts: Counter[str] = Counter()
        credits = 0.0
        for _, some in ledger.attempts(self.folder, ["status", "credits"]):
            attempts.update(map(str, some.column("status").to_pylist()))
            credits += pc.sum(some.column("credits")).as_py() or 0.0
        calls = self.records().index.counts()
        lost = sum(calls[status] for status in STATUSES if status not in FINISHED)
        always = {"done", "failed", "pending"}
        return {
            "rows": counts.total(),
            **{name: counts[name] for name in STATUSES if counts[name] or name in always},
            **sizes,
            "credits": round(credits, 3),
            "attempts": sum(n for status, n in attempts.items() if status != "settled"),
            "retries": sum(attempts[status] for status in ledger.FAILED_STATUSES) - lost,
        }

    def _sum(self, column: str, measure: Any) -> float:
        batches = self.batches([self.name_of(column)])
        return sum(pc.sum(measure(batch.column(0))).as_py() or 0 for batch in batches)

    def verify(self) -> list[Problem]:
        """Return everything that is wrong with the folder's files; reads all of them, audio too."""
        return verify(self.folder)

    # -- reviews ---------------------------------------------------------------------

    @property
    def reviews(self) -> "pd.DataFrame":
        """What people said of the rows in :func:`speechframe.browse`: the last word on each, one line a row.

        Columns: ``row_id``, ``verdict`` (``keep``, ``reject`` or None), ``comment``, ``corrected_text``,
        ``reviewer``, ``reviewed_at``, ``sha256`` of the audio the verdict is of, and ``is_current``: whether
        the row still has that audio. All that was ever said is in ``reviews.parquet`` of the folder.
        """
        newest = reviews.last_words(self.folder)
        names = [self.name_of(OUR_ROW_ID), self.name_of("sha256")]
        batches = self.batches(names) if len(newest) else ()
        columns = ([column.to_pylist() for column in batch.columns] for batch in batches)
        now = {row_id: sha256 for ids, hashes in columns for row_id, sha256 in zip(ids, hashes, strict=True)}
        pairs = zip(newest.index, newest["sha256"], strict=True)
        newest["is_current"] = [sha256 == now.get(row_id) for row_id, sha256 in pairs]
        return newest.astype({"is_current": bool}).reset_index()[[*reviews.COLUMNS, "is_current"]]

    def review(
        self,
        row_id: str | int,
        verdict: str | None = None,
        *,
        comment: str | None = None,
        corrected_text: str | None = None,
        sha256: str | None = None,
        reviewer: str | None = None,
    ) -> None:
        """Write down what somebody says of a row; it is on the disk when this returns.

        Parameters
        ----------
        row_id
            The row.
        verdict
            ``keep``, ``reject``, or ``""``, which takes it back.
        comment, corrected_text
            Words; ``""`` takes them back.
        sha256
            Of the audio that was heard; by default of what the row has now.
        reviewer
            Who says it; by default who runs this process.

        Raises
        ------
        InvalidRows
            For another verdict.
        KeyError
            When no row has the id.
        StoreError
            When the folder cannot be written.

        Examples
        --------
        >>> run = open_run("runs/demo")  # doctest: +SKIP
        >>> run.review("17", "reject", comment="the name is wrong")  # doctest: +SKIP
        >>> resume(run, redo="rejected")  # doctest: +SKIP
        """
        if sha256 is None:
            row = self._row(str(row_id))
            found = row.records.take(row.positions, ["sha256"], few=True)
            sha256 = found.column(0)[0].as_py()
        reviews.add_review(
            self.folder,
            str(row_id),
            verdict,
            comment=comment,
            corrected_text=corrected_text,
            sha256=sha256,
            reviewer=reviewer,
        )

    # -- some of the rows ------------------------------------------------------------

    def select(self, rows: Any) -> "Selection":
        """Return some of the rows, which go wherever the run goes.

        Parameters
        ----------
        rows
            Ids of rows, a mask with a truth value for every row (a Series with the run's index), a DataFrame
            with the column ``row_id``, or a function that gives one of these for the run's DataFrame.

        Raises
        ------
        KeyError
            When no row has one of the ids, or a frame does not say which rows it has.
        ValueError
            When a mask is not as long as the run, or a Series has another index.

        Examples
        --------
        >>> run = open_run("runs/demo")  # doctest: +SKIP
        >>> run.select(lambda frame: frame["locale"] == "fr-FR")  # doctest: +SKIP
        """
        import pandas as pd

        if callable(rows):
            rows = rows(self.to_pandas())
        if isinstance(rows, pd.DataFrame):
            name = self.name_of(OUR_ROW_ID)
            if name not in rows.columns:
                raise KeyError(f"the frame does not say which rows of the run it has: it needs {name!r}")
            rows = rows[name].tolist()
        elif isinstance(rows, pd.Series) and pd.api.types.is_bool_dtype(rows.dtype):
            rows = in_order(rows.fillna(value=False), self.to_pandas([self.name_of("status")]).index)
        values = list(rows)
        ids = [row_id for some in self._with_records() for row_id in some.rows.column(ROW_ID).to_pylist()]
        if values and all(isinstance(value, (bool, np.bool_)) for value in values):
            if len(values) != len(ids):
                raise ValueError(f"a mask of {len(values):,} values does not fit a run of {len(ids):,} rows")
            return Selection(self, tuple(np.flatnonzero(values).tolist()))
        place_of = {row_id: place for place, row_id in enumerate(ids)}
        if unknown := [value for value in values if str(value) not in place_of]:
            such = ", ".join(map(repr, ids[:3]))
            raise KeyError(f"no row has the id {unknown[0]!r}; ids are such as {such}")
        return Selection(self, tuple(sorted({place_of[str(value)] for value in values})))

    def sample(self, count: int, *, seed: int = 0) -> "Selection":
        """Return rows that have an answer, drawn at random: the same for the same seed.

        Parameters
        ----------
        count
            How many; all of them when there are fewer.
        seed
            Of the draw.
        """
        places = [place for place, status in enumerate(self.statuses()) if status in FINISHED]
        drawn = random.Random(seed).sample(places, min(count, len(places)))  # noqa: S311 - nothing is secret
        return Selection(self, tuple(sorted(drawn)))

    def _at(self, places: Sequence[int]) -> "pd.DataFrame":
        return Selection(self, tuple(places)).to_pandas()

    def records(self) -> Records:
        """Return the records of all calls that have ended by now."""
        snapshot = self.snapshot()
        if self._records is None or self._records.index is not snapshot.index:
            self._records = records_of(self.folder, snapshot, self.manifest.schema)
        return self._records

    def joined(self, columns: Sequence[str] | None, *, audio: bool) -> Joined:
        """Return the run's table joined to its records as they are now."""
        if not self.manifest.tables:
            raise StoreError(f"{self.path}: the run was given no table yet")
        entry, words = self.manifest.table, self.folder.names(WORDS_FOLDER)
        if self._table is None or self._table[0] != entry.file:
            self._table = entry.file, table_schema(self.folder, entry)
        if self._words is None or self._words[0] != words:
            self._words = words, words_of(self.folder, words)
        return Joined(
            self.folder, entry, self._table[1], self.records(), self._words[1], columns, audio=audio
        )

    def _with_records(self, places: Sequence[int] | None = None) -> Iterator[RowRecords]:
        return self.joined([], audio=False).with_records([], 1 << 16, places)


def warning_kind(words: str) -> str:
    """Return what warnings alike have in common: their words without numbers and quotations.

    Examples
    --------
    >>> warning_kind("pause 'x' of 70 s was clamped to 60 s")
    'pause … of … s was clamped to … s'
    """
    kind = _VARIABLE.sub("…", words)
    return kind if len(kind) <= _KIND_LENGTH else kind[: _KIND_LENGTH - 1] + "…"
