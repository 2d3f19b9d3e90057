"""Open and read a run from its folder: its rows, clips, ledger (the attempts with costs) and reviews."""

import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.audio.clip import Clip
from speechframe.errors import StoreError
from speechframe.settings.typed import expand_home, is_address
from speechframe.spec.speech import Format
from speechframe.store import parts, records, returned_reviews, reviews
from speechframe.store.cache import Cache
from speechframe.store.folder import Folder, Manifest, convert_read_errors, read_manifest
from speechframe.store.records import Snapshot, convert_to_hex, read_snapshot
from speechframe.store.remote import open_folder_on, open_remote_folder
from speechframe.store.rows import ROW_ID_COLUMN, Joined, Rows, Selection
from speechframe.store.schema import (
    AUDIO_COLUMN,
    COLUMN_PREFIX,
    FINISHED_STATUSES,
    PENDING,
    STATUSES,
    WORDS_COLUMN,
)
from speechframe.store.verify import Problem, verify
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.dataset as ds

_NUMBER_OR_QUOTATION = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d.,:]*")
_MAX_KIND_LENGTH = 60
"""Longest kind of a warning in characters. A longer kind is cut off."""
_ALWAYS_COUNTED = {"done", "failed", PENDING}
"""Statuses that :attr:`StoredRun.stats` contains even if no row has them."""
_AUDIO_COLUMNS = (ROW_ID_COLUMN, "sha256", "request_key")
"""Columns with a row's id, the hash of its audio, and the key of its call."""


def open_folder(path: "str | os.PathLike[str] | Folder") -> Folder:
    """Return the folder of a run, at a local path or at an address that fsspec supports.

    The folder need not exist. Raise StoreError if `path` cannot be a path or an address.
    """
    if isinstance(path, Folder):
        return path
    given: Any = path
    if not isinstance(given, Path) and hasattr(given, "fs"):  # a UPath
        return open_folder_on(given.fs, given.path)
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    is_whole = isinstance(text, str) and text.encode("utf-8", "ignore").decode() == text
    if not text or not is_whole or "\0" in text:
        raise StoreError(
            f"{given!r} is not a folder of a run: give a path in UTF-8 ('.' is the current folder) "
            "or an address"
        )
    if "://" in text:
        return open_remote_folder(text)
    if is_address(text):
        raise StoreError(
            f"{text!r} is an address without its second slash, which a Path removes: pass it as a string"
        )
    try:
        # Use an absolute path, because a notebook may change its working directory during a run.
        return Folder(expand_home(text).absolute())
    except ValueError as error:
        raise StoreError(f"{text}: {error}") from None


class StoredRun(Rows):
    """A run that is read from its folder, while the run is made or later."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.path = folder, folder.path
        self.manifest: Manifest = read_manifest(folder)
        self.run_id, self.operation = self.manifest.run_id, self.manifest.operation
        self.service = self.manifest.service
        # The columns of the run's results.
        self.record_schema = parts.make_part_schema(self.manifest.schema).remove_metadata()
        self.shows_last_kept = False  # see `with_last_kept`
        self._snapshot: Snapshot | None = None
        # The columns and the row ids of the run's tables, by file. Each file is read only once.
        self._schemas: dict[str, pa.Schema] = {}
        self._ids: dict[str, Any] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Return the run in a folder, or at an address such as ``s3://bucket/run``."""
        return cls(open_folder(path))

    def refresh(self) -> Self:
        """Read run.json again, because another process may have changed it."""
        self.manifest = read_manifest(self.folder)
        return self

    def with_last_kept(self) -> "StoredRun":
        """Return the same run, in which rows without good audio show the last audio that a review kept.

        Such a row has changed since: its text is another one or stale, or its new audio failed. The column
        ``last_kept``, which ``generate(lock="kept")`` writes, names the audio. Use the result to deliver
        audio, for example with :func:`export`.

        Examples
        --------
        >>> run = open_run("runs/audio")  # doctest: +SKIP
        >>> export(run.with_last_kept(), "out/audio", name="{locale}/{id}")  # doctest: +SKIP
        """
        found = StoredRun(self.folder)
        found.shows_last_kept = True
        return found

    @property
    def short_path(self) -> str:
        """Path of the run's folder, relative to the working directory if the folder is inside it."""
        # Otherwise, for an address, and if the working directory was removed, return the full path.
        with suppress(ValueError, AttributeError, OSError):
            return str(self.path.relative_to(Path.cwd()))
        return str(self.path)

    @property
    def columns(self) -> list[str]:
        """Names of all columns: those of the caller's table, then those of speechframe, audio included."""
        return self.join_records(None, audio=True).schema.names

    def name_of(self, column: str) -> str:
        """Return the name that a column of speechframe has in this run.

        The name is ``speech_...`` if the caller's table already has a column with this name.
        """
        return self.join_records(None, audio=False).name_of(column)

    def snapshot(self) -> Snapshot:
        """Return an index of the calls that have ended so far, with the positions of their records."""
        self._snapshot = found = read_snapshot(self.folder, self._snapshot)
        return found

    def rows_at(self, places: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows at these positions in the run's table, in this order.

        Audio is included only if `columns` contains its column.
        """
        wanted, back = np.unique(np.asarray(places, np.int64), return_inverse=True)
        return Selection(self, wanted.tolist()).to_arrow(columns).take(back)

    def newest(self, count: int) -> list[str]:
        """Return the ``request_key`` of the `count` calls that were answered last, the newest first."""
        index = self.snapshot().index
        return convert_to_hex(index.keys[index.find_with_status(FINISHED_STATUSES)[::-1][:count]])

    @property
    def part_files(self) -> list[Path]:
        """The Parquet files of finished calls, for tools that read files."""
        return [self.path / parts.PARTS_FOLDER / name for name in self.folder.list_names(parts.PARTS_FOLDER)]

    @property
    def dataset(self) -> "ds.Dataset":
        """The finished calls as a pyarrow dataset of the part files."""
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
            The row's id, which is its value in the ``id`` column or in the index.

        Raises
        ------
        KeyError
            If no row has this id, or if the row has no audio. The message contains the reason.
        """
        names = [self.name_of("request_key"), self.name_of("status")]
        (key, status) = (c[0].as_py() for c in self.rows_at([self._find_position(row_id)], names).columns)
        try:
            return self.clip_of_call(key)
        except KeyError:
            raise KeyError(f"row {row_id!r} has no audio: it is {status}") from None

    def clip_of_call(self, request_key: str) -> Clip:
        """Return the clip of the call with this ``request_key``. Raise KeyError if the call has no audio."""
        snapshot = self.snapshot()
        (found,) = snapshot.read_records(snapshot.index.find([request_key]), self.record_schema).to_pylist()
        audio = found.get(AUDIO_COLUMN)
        if not audio or audio["bytes"] is None:
            raise KeyError(f"the call {request_key!r} has no audio")
        words = found.get(WORDS_COLUMN)
        if words is None:
            words = snapshot.get_aligned_words([request_key])[0].as_py()
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

    def _find_position(self, row_id: str | int) -> int:
        ids = self._read_row_ids()
        position: int = pc.index(ids, str(row_id)).as_py()
        if position < 0:
            examples = ", ".join(map(repr, ids[:3].to_pylist()))
            raise KeyError(f"no row has the id {row_id!r}; some ids of this run are {examples}")
        return position

    def _read_row_ids(self) -> Any:
        if (file := self.manifest.table.file) not in self._ids:
            self._ids[file] = self.to_arrow([self.name_of(ROW_ID_COLUMN)]).column(0)
        return self._ids[file]

    # -- statuses, warnings and costs ------------------------------------------------

    def statuses(self) -> list[str]:
        """Return the status of each row, in the order of the table. Results are not read."""
        return [status for (status,) in self._read_values("status")]

    def call_counts(self) -> dict[str, int]:
        """Return the number of different calls of the table by status. Invalid rows have no call."""
        names = [self.name_of("request_key"), self.name_of("status")]
        calls = self.to_arrow(names).drop_null().group_by(names).aggregate([])
        return dict(Counter(map(str, calls.column(names[1]).to_pylist())))

    @property
    def failed(self) -> "pd.DataFrame":
        """All rows that failed, are invalid, or may have been billed without an answer.

        Suspect rows are not included, because they have an answer. Find them with
        ``frame[frame["status"] == "suspect"]``.
        """
        others = {*FINISHED_STATUSES, PENDING}
        positions = [position for position, status in enumerate(self.statuses()) if status not in others]
        return Selection(self, positions).to_pandas()

    @property
    def warnings(self) -> "pd.DataFrame":
        """All warnings of the answers, with ``row_id``, ``kind`` and ``words``.

        ``kind`` is ``words`` without numbers and quotations.
        """
        import pandas as pd

        rows = self._read_values(ROW_ID_COLUMN, "warnings")
        found = [
            (row_id, find_warning_kind(warning), warning)
            for row_id, warnings in rows
            for warning in warnings or ()
        ]
        return pd.DataFrame(found, columns=["row_id", "kind", "words"])

    def _read_values(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the values of each row in these columns of speechframe."""
        for batch in self.batches([self.name_of(name) for name in columns]):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    @property
    def ledger(self) -> "pd.DataFrame":
        """All attempts of the run with their costs, in order of time. The ledger contains no text."""
        frame: pd.DataFrame = records.read_ledger(self.snapshot()).to_pandas(maps_as_pydicts="strict")
        return frame

    @property
    def stats(self) -> dict[str, Any]:
        """The number of rows in all and by status, credits, attempts, retries and seconds of audio.

        ``retries`` counts the failed attempts after which a call was sent again. Runs of translations have
        ``translated_characters`` instead of ``audio_seconds``.
        """
        counts = Counter(self.statuses())
        sizes: dict[str, Any] = {}
        if "audio_seconds" in self.record_schema.names:
            lengths = self._read_values("audio_seconds")
            sizes["audio_seconds"] = round(sum(seconds or 0.0 for (seconds,) in lengths), 3)
        elif "translated_text" in self.record_schema.names:
            texts = self._read_values("translated_text")
            sizes["translated_characters"] = sum(len(text or "") for (text,) in texts)
        snapshot = self.snapshot()
        spent = records.read_ledger(snapshot, ["time", "status", "credits"])
        states: Any = spent.column("status").value_counts()
        attempts = Counter({state["values"]: state["counts"] for state in states.to_pylist()})
        calls = snapshot.index.count_by_status()
        lost = sum(calls[status] for status in STATUSES if status not in FINISHED_STATUSES)
        return {
            "rows": counts.total(),
            **{name: counts[name] for name in STATUSES if counts[name] or name in _ALWAYS_COUNTED},
            **sizes,
            "credits": round(pc.sum(spent.column("credits")).as_py() or 0.0, 3),
            "attempts": attempts.total() - attempts["cached"],
            "retries": sum(attempts[status] for status in records.FAILED_STATUSES) - lost,
        }

    def count_undecided(self) -> dict[str, int]:
        """Return the numbers of rows that need a person, by reason.

        ``needs_shortening`` are lines that do not fit their slot. ``stale`` are translations whose source has
        changed. Reasons without rows are left out.
        """
        found: dict[str, int] = {}
        for column, value in (("slot_status", "needs_shortening"), ("translation_state", "stale")):
            if COLUMN_PREFIX + column in self.read_table_schema().names:
                count = sum(one == value for (one,) in self._read_values(column))
                found |= {value: count} if count else {}
        return found

    def verify(self) -> list[Problem]:
        """Return all problems of the folder's files. This method reads all files, audio included."""
        return verify(self.folder)

    # -- reviews ---------------------------------------------------------------------

    @property
    def reviews(self) -> "pd.DataFrame":
        """The latest review of each reviewed row, for example from :func:`speechframe.browse`.

        The columns are ``row_id``, ``verdict`` (``keep``, ``reject`` or None), ``comment``,
        ``corrected_text``, ``reviewer``, ``reviewed_at``, ``sha256`` (of the reviewed audio), ``rating``
        (1 to 5) and ``is_current`` (True if the row still has this audio). ``reviews.parquet`` in the folder
        contains all reviews, earlier ones included.
        """
        newest = reviews.read_latest_reviews(self.folder)
        now = dict(self._read_values(ROW_ID_COLUMN, "sha256")) if len(newest) else {}
        verdicts = zip(newest.index, newest["sha256"], strict=True)
        newest["is_current"] = [sha256 == now.get(row_id) for row_id, sha256 in verdicts]
        columns = [*reviews.REVIEWS_SCHEMA.names, "is_current"]
        return newest.astype({"is_current": bool}).reset_index()[columns]

    def review(
        self,
        row_id: str | int,
        verdict: str | None = None,
        *,
        comment: str | None = None,
        corrected_text: str | None = None,
        rating: int | None = None,
        sha256: str | None = None,
        reviewer: str | None = None,
    ) -> None:
        """Write a review of a row. The review is on disk when this method returns.

        Parameters
        ----------
        row_id, verdict
            The row, and ``keep`` or ``reject``. ``""`` withdraws the verdict.
        comment, corrected_text
            A comment, and a corrected text of the row. ``""`` withdraws them.
        rating
            A mark from 1 to 5. 0 withdraws it.
        sha256, reviewer
            SHA-256 of the reviewed audio (default: the row's current audio), and the reviewer's name
            (default: the user who runs this process).

        Raises
        ------
        InvalidRows
            If the verdict or the rating is not one of these values.
        KeyError
            If no row has the id.
        StoreError
            If the folder cannot be written.

        Examples
        --------
        >>> run = open_run("runs/demo")  # doctest: +SKIP
        >>> run.review("17", "reject", comment="the name is wrong")  # doctest: +SKIP
        >>> resume(run, redo="rejected")  # doctest: +SKIP
        """
        if sha256 is None:
            sha256, _ = self._find_audio(row_id)
        values = {"verdict": verdict, "comment": comment, "corrected_text": corrected_text, "rating": rating}
        values |= {"row_id": str(row_id), "sha256": sha256, "reviewer": reviewer}
        reviews.add_review(self.folder, values)
        if verdict == reviews.REJECT:
            # Remove the answer from the cache only if the row still has the rejected audio. The row may have
            # other audio by now, or may be missing in the run's table.
            with suppress(KeyError):
                now, key = self._find_audio(row_id)
                self._remove_from_cache([key] if now == sha256 else [])

    def read_reviews(self, source: Any) -> "pd.DataFrame":
        """Store the reviews that people sent back, and return their conflicts.

        All valid reviews are stored in one step, with the reviewers and times of the files. A review that the
        run already has is not stored again. A line with the numbers of reviews and conflicts is printed.

        Parameters
        ----------
        source
            A JSON file that a review page saved, a sheet, a folder with such files, or a list of these. A
            sheet is an XLSX or CSV file with the column ``row_id``, and with ``verdict``, ``comment``,
            ``corrected_text`` or ``rating``. The columns ``reviewer``, ``sha256`` and ``reviewed_at`` are
            optional. A sheet without ``sha256`` is about the current audio of its rows.

        Returns
        -------
        pandas.DataFrame
            The conflicts, with ``row_id``, ``reviewer``, ``verdict``, ``corrected_text``, ``file`` and
            ``problem``. A review is in conflict if the row has other audio now or is not in the run, or if
            the review is invalid. A file that cannot be read, or is about another run, has one line. If
            people gave different verdicts or corrected texts for the same audio, none of these is stored, and
            all are returned. Reviews that the run already had stay, and have the file ``reviews.parquet``. To
            settle a conflict, call :meth:`review`, and remove the file. ``frame.attrs`` has the numbers of
            ``new`` and ``known`` reviews.

        Raises
        ------
        StoreError
            If `source` names no files, or if the folder of the run cannot be written.

        Examples
        --------
        >>> run = open_run("runs/demo")  # doctest: +SKIP
        >>> conflicts = run.read_reviews("reviews/")  # doctest: +SKIP
        >>> resume(run, redo="rejected")  # doctest: +SKIP
        """
        import pandas as pd

        audio = {row_id: (sha256, key) for row_id, sha256, key in self._read_values(*_AUDIO_COLUMNS)}
        hashes = {row_id: sha256 for row_id, (sha256, _) in audio.items()}
        found = returned_reviews.read_returned_reviews(self.folder, self.run_id, hashes, source)
        if found.new:
            reviews.write_reviews(self.folder, found.new)
            verdicts = {r["row_id"]: r["verdict"] for r in found.new if r["verdict"] is not None}
            rejected = [row_id for row_id, verdict in verdicts.items() if verdict == reviews.REJECT]
            self._remove_from_cache([audio[row_id][1] for row_id in rejected])
        conflicts = pd.DataFrame(found.conflicts, columns=returned_reviews.CONFLICT_COLUMNS, dtype=object)
        conflicts = conflicts.where(conflicts.notna(), None)
        conflicts.attrs = {"new": len(found.new), "known": found.known}
        # Notebooks show standard error in a red box.
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        output = sys.stderr if getattr(shell, "kernel", None) is None else sys.stdout
        output.write(f"{describe_returned_reviews(conflicts)}\n")
        return conflicts

    def _remove_from_cache(self, keys: Sequence[str]) -> None:
        """Remove rejected answers from the cache, so that no other run uses them."""
        if keys and (cache := read_manifest(self.folder).cache) is not None:
            for key in keys:
                Cache(cache).remove(key)

    def _find_audio(self, row_id: str | int) -> tuple[str, str]:
        """Return the SHA-256 of a row's current audio, and the ``request_key`` of its call."""
        names = [self.name_of(name) for name in _AUDIO_COLUMNS[1:]]
        found = self.rows_at([self._find_position(row_id)], names)
        return found.column(0)[0].as_py(), found.column(1)[0].as_py()

    # -- some of the rows ------------------------------------------------------------

    def select(self, rows: Any) -> "Selection":
        """Return some of the rows as a selection, which can be read or used as a table like a run.

        Parameters
        ----------
        rows
            Ids of rows, a mask with a bool for each row, a DataFrame with the column ``row_id``, or a
            function that gets the run's DataFrame and returns one of these.

        Raises
        ------
        KeyError
            If no row has one of the ids, or if a DataFrame has no column ``row_id``.
        ValueError
            If a mask has another length or another index than the run.

        Examples
        --------
        >>> run = open_run("runs/demo")  # doctest: +SKIP
        >>> run.select(lambda frame: frame["locale"] == "fr-FR")  # doctest: +SKIP
        """
        import pandas as pd

        if callable(rows):
            rows = rows(self.to_pandas())
        if isinstance(rows, pd.DataFrame):
            name = self.name_of(ROW_ID_COLUMN)
            if name not in rows.columns:
                raise KeyError(f"the frame has no column {name!r}: keep this column, which has the row ids")
            rows = rows[name]
        elif isinstance(rows, pd.Series) and pd.api.types.is_bool_dtype(rows.dtype):
            if not rows.index.equals(self.to_pandas([self.name_of("status")]).index):
                fault = "the index of this mask is not the run's: make it of run.to_pandas(), or give a list"
                raise ValueError(f"{fault} in the run's order (mask.tolist())")
            rows = rows.fillna(value=False)
        values, ids = list(rows), self._read_row_ids().to_pylist()
        if values and all(isinstance(value, (bool, np.bool_)) for value in values):
            if len(values) != len(ids):
                sizes = (
                    f"a mask of {format_count(len(values), 'value')}",
                    f"a run of {format_count(len(ids), 'row')}",
                )
                raise ValueError(" does not fit ".join(sizes))
            return Selection(self, np.flatnonzero(values).tolist())
        position_of = {row_id: position for position, row_id in enumerate(ids)}
        found = {position_of[str(v)] if str(v) in position_of else self._find_position(v) for v in values}
        return Selection(self, sorted(found))

    def sample(self, count: int, *, seed: int = 0) -> "Selection":
        """Return a random sample of the rows that have an answer. Equal seeds give equal samples.

        Parameters
        ----------
        count, seed
            Number of rows (all rows with an answer if there are fewer), and the seed of the random choice.
        """
        positions = [row for row, status in enumerate(self.statuses()) if status in FINISHED_STATUSES]
        drawn = random.Random(seed).sample(positions, min(count, len(positions)))  # noqa: S311 - nothing is secret
        return Selection(self, sorted(drawn))

    def join_records(self, columns: Sequence[str] | None, *, audio: bool) -> Joined:
        """Return a reader of all rows, each with the current result of its call."""
        return Joined(self, columns, audio=audio, places=None)

    def read_table_schema(self) -> pa.Schema:
        """Return the columns of the run's table. Each table file is read only once."""
        if (file := self.manifest.table.file) not in self._schemas:
            with convert_read_errors(self.folder, file):
                self._schemas[file] = pq.read_schema(self.folder.get_source(file))
        return self._schemas[file]


def describe_returned_reviews(conflicts: "pd.DataFrame") -> str:
    """Return the numbers of a result of :meth:`StoredRun.read_reviews` as one sentence."""
    applied, known = (format_count(conflicts.attrs[name], "review") for name in ("new", "known"))
    more = "; see the column problem" if len(conflicts) else ""
    return f"{applied} applied, {known} already in the run, {format_count(len(conflicts), 'conflict')}{more}"


def find_warning_kind(warning: str) -> str:
    """Return the kind of a warning: its words without numbers and quotations, cut off after 60 characters.

    Examples
    --------
    >>> find_warning_kind("pause 'x' of 70 s was clamped to 60 s")
    'pause … of … s was clamped to … s'
    """
    kind = _NUMBER_OR_QUOTATION.sub("…", warning)
    return kind if len(kind) <= _MAX_KIND_LENGTH else kind[: _MAX_KIND_LENGTH - 1] + "…"
