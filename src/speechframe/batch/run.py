"""A run: what was asked and what came back, live while it goes and from its folder ever after."""

import asyncio
import html
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe._loop import TERM_DRAIN_S, Terminated, gentle_termination
from speechframe.batch.books import ERROR, REFUSED, SETTLED
from speechframe.batch.clip import Clip
from speechframe.batch.options import Options
from speechframe.batch.outcome import CHARGED_UNKNOWN, DONE, FAILED, HEARD, INVALID, PENDING, STATES, SUSPECT
from speechframe.batch.plan import Estimate
from speechframe.batch.planner import ROW_ID
from speechframe.batch.progress import Progress, counted, credits_in_words, duration
from speechframe.batch.reviews import reviews_of, write_reviews
from speechframe.batch.selection import Selection, chosen_rows, framed, sampled_rows
from speechframe.batch.stream import Outcomes, is_running_here
from speechframe.batch.table import TableInput
from speechframe.errors import StoreError
from speechframe.spec.speech import Format
from speechframe.store import RunFolder, is_remote
from speechframe.store.reviews import Review
from speechframe.store.schema import AUDIO_COLUMN, BOOKKEEPING
from speechframe.store.writer import user_name

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.dataset as ds

MOST_AUDIO_BYTES = 2 * 2**30
"""Audio that :meth:`Run.to_pandas` takes into memory at most."""

PLANNED, RUNNING, FINISHED, STOPPED = "planned", "running", "finished", "stopped"
STATE_KEY = "state"
STOP_KEY = "stopped_because"
DRIFT_KEY = "drift_characters"
REMARK_KEY = "remark"
TRANSLATE = "translate"

_OF_ONE_CALL = frozenset({"run_dir", "id", "take", "max_credits", "progress", "wait", "dry_run"})
"""Run options that say nothing of the next call, or that the run's folder keeps."""


@dataclass
class Live:
    """A run in motion: the task that makes it, and how to stop it."""

    task: "asyncio.Task[None]"
    loop: asyncio.AbstractEventLoop
    stop: Callable[[bool], None]
    progress: Progress
    outcomes: Outcomes
    options: Options = field(default_factory=Options)
    ended: "Future[None]" = field(default_factory=Future)


class Run:
    """A table of rows and what became of each, in a folder of Parquet files.

    Returned by the verbs, :func:`open_run` and :func:`resume`; not made directly.

    Attributes
    ----------
    path
        The run's folder.
    estimate
        What the last plan found; None for a run that was only opened.
    problems
        Problems of the last plan, one mapping each.

    Examples
    --------
    >>> run = open_run("speechframe-runs/demo")  # doctest: +SKIP
    >>> run.to_pandas()["status"].value_counts()  # doctest: +SKIP
    >>> run.ledger["credits"].sum()  # doctest: +SKIP

    Rows with equal calls share one: ``credits`` in the table is the price of a row's call, and what was
    spent is the sum over :attr:`ledger`.
    """

    def __init__(
        self, folder: RunFolder, *, estimate: Estimate | None = None, problems: Sequence[dict[str, Any]] = ()
    ) -> None:
        self._folder = folder
        self.estimate = estimate
        self.problems = list(problems)
        self._live: Live | None = None

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._folder.path

    @property
    def run_id(self) -> str:
        """What names the run in ledgers and idempotency keys."""
        return self._folder.manifest.run_id

    @property
    def operation(self) -> str:
        """The verb."""
        return self._folder.manifest.operation

    @property
    def service(self) -> str | None:
        """Identity of the service that made it."""
        return self._folder.manifest.service

    # -- while it runs ---------------------------------------------------------------

    @property
    def status(self) -> str:
        """``planned``, ``running``, ``finished`` (every row has an outcome) or ``stopped``."""
        if self._live is not None and not self._live.ended.done():
            return RUNNING
        state = str(self._folder.manifest.extra.get(STATE_KEY, PLANNED))
        if state == RUNNING and not self._folder.is_locked:
            # Its process died: nobody wrote an end.
            return STOPPED
        return state

    @property
    def stopped_because(self) -> str | None:
        """Why it ended early: ``quota key budget unreachable unavailable stopped interrupted``, or None."""
        reason = self._folder.manifest.extra.get(STOP_KEY)
        if reason is None and self.status == STOPPED:
            return "interrupted"
        return None if reason is None else str(reason)

    @property
    def progress(self) -> Progress | None:
        """Counters of the last run in this process; None when there was none."""
        return self._live.progress if self._live is not None else None

    @property
    def last_options(self) -> dict[str, Any]:
        """Run options of the last call in this process, as :func:`resume` takes them; empty without one."""
        if self._live is None:
            return {}
        said = {f.name: getattr(self._live.options, f.name) for f in fields(Options)}
        return {name: value for name, value in said.items() if name not in _OF_ONE_CALL}

    def refresh(self) -> "Run":
        """Read again what the run's folder says of it, which another process may have changed."""
        if self._live is None or self._live.ended.done():
            self._folder.refresh()
        return self

    def go_on_as(self, other: "Run") -> None:
        """Be from now on the live run that `other` is: this run, resumed."""
        self._folder, self._live = other._folder, other._live  # noqa: SLF001 - another run of this class
        self.estimate, self.problems = other.estimate, other.problems

    def outcomes(self) -> Outcomes:
        """Return the outcomes of a live run's calls as they come, for ``for`` and ``async for``.

        The iteration begins with the run's first call, whenever it is asked for, and ends with the run. An
        outcome has ``row_id`` (of the first row with the call), ``status``, ``attempts`` and, as it fits,
        ``audio_seconds``, ``credits_millis``, ``reason`` or ``error``. A row of which another take is made by
        itself comes once for each take.

        Raises
        ------
        RuntimeError
            For a run that is not live in this process (``wait=False`` makes one), and for a plain ``for``
            in the loop that makes the run.

        Examples
        --------
        >>> run = generate(frame, voice="nora", wait=False)  # doctest: +SKIP
        >>> for outcome in run.outcomes():  # doctest: +SKIP
        ...     print(outcome.row_id, outcome.status)
        """
        if self._live is None or not self._live.outcomes.is_kept:
            raise RuntimeError(
                "only a live run has outcomes to come: start it with wait=False, or read run.batches()"
            )
        return self._live.outcomes

    def stop(self, *, drain: bool = True) -> None:
        """Start no further call.

        Parameters
        ----------
        drain
            Let calls in flight finish. False cancels them: they may have been billed, and their rows
            become ``charged_unknown``.
        """
        if self._live is not None and not self._live.ended.done():
            self._live.loop.call_soon_threadsafe(self._live.stop, drain)

    def wait(self, timeout_s: float | None = None) -> "Run":
        """Wait for the end of a live run and return it.

        Parameters
        ----------
        timeout_s
            Seconds to wait at most.

        Raises
        ------
        TimeoutError
            When it has not ended by then; it goes on.
        SpeechframeError
            What ended the run, with ``on_error="raise"`` or when its folder failed.
        KeyboardInterrupt, SystemExit
            At Ctrl-C and SIGTERM, when the run has stopped: calls in flight finish first. A second Ctrl-C
            cancels them, and so do 8 s after SIGTERM.
        """
        if self._live is None:
            return self
        if not self._live.ended.done() and is_running_here(self._live.loop):
            raise RuntimeError("run.wait() would block the loop that makes the run: use `await run`")
        with gentle_termination():
            try:
                self._live.ended.result(timeout_s)
            except (KeyboardInterrupt, Terminated) as order:
                self._end_for(order, self._live.ended)
                raise
        return self

    def _end_for(self, order: BaseException, ended: "Future[None]") -> None:
        """Stop a live run in good order, as an interrupted verb does; a second Ctrl-C cancels calls."""
        self.stop()
        try:
            ended.result(TERM_DRAIN_S if isinstance(order, Terminated) else None)
        except (KeyboardInterrupt, TimeoutError):
            self.stop(drain=False)
            ended.result()

    def __await__(self) -> "Generator[Any, None, Run]":
        """Wait for the end of a live run: ``await run``."""
        return self._wait_async().__await__()

    async def _wait_async(self) -> "Run":
        if self._live is not None:
            await asyncio.shield(asyncio.wrap_future(self._live.ended))
        return self

    # -- what it holds ---------------------------------------------------------------

    def batches(
        self, columns: Sequence[str] | None = None, *, audio: bool = True, batch_rows: int | None = None
    ) -> "Iterator[pa.RecordBatch]":
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
        return self._folder.joined(columns, audio=audio, batch_rows=batch_rows)

    def rows_at(self, places: Sequence[int], columns: Sequence[str] | None = None) -> "pa.RecordBatch":
        """Return some rows without their audio, reading little else: for pages of a long table.

        Parameters
        ----------
        places
            Where they lie in the run's table, counted from 0; the result has their order.
        columns
            Names in the result; None for all.
        """
        return self._folder.rows_at(places, columns)

    def newest(self, count: int) -> list[str]:
        """Return the ``request_key`` of the calls whose audio came last, the newest first."""
        return self._folder.newest(count)

    @property
    def reviews(self) -> "pd.DataFrame":
        """What people said of the rows in :func:`speechframe.browse`: the last word on each, one line a row.

        Columns: ``row_id``, ``verdict`` (``keep``, ``reject`` or None), ``comment``, ``corrected_text``,
        ``reviewer``, ``reviewed_at``, ``sha256`` of the audio the verdict is of, and ``is_current``: whether
        the row still has that audio. All that was ever said stands in ``reviews.parquet`` of the folder.
        """
        return reviews_of(self._folder)

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
            key, _ = self._find(str(row_id))
            found = self._folder.row(key, ["sha256"]) if key is not None else None
            sha256 = found["sha256"] if found is not None else None
        who = user_name() if reviewer is None else reviewer
        write_reviews(self._folder, Review(str(row_id), verdict, comment, corrected_text, sha256, who))

    def to_arrow(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> "pa.Table":
        """Return the rows as one Arrow table; see :meth:`to_pandas`."""
        import pyarrow as pa

        self._refuse_large(columns, audio=audio)
        schema = self._folder.joined_schema(columns, audio=audio)
        return pa.Table.from_batches(self._folder.joined(columns, audio=audio), schema)

    def to_pandas(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> "pd.DataFrame":
        """Return the rows as a DataFrame with the caller's index.

        Parameters
        ----------
        columns
            Names in the result; None for all but audio.
        audio
            With the column ``audio`` (dicts of ``bytes`` and ``path``).

        Raises
        ------
        StoreError
            When that is more than 2 GB of audio: use :meth:`batches`.
        """
        return self.to_arrow(columns, audio=audio).to_pandas()

    def _refuse_large(self, columns: Sequence[str] | None, *, audio: bool) -> None:
        name = self.name_of("audio")
        if not (audio if columns is None else name in columns):
            return
        size = sum(path.stat().st_size for path in (self.path / "parts").glob("*.parquet"))
        if size > MOST_AUDIO_BYTES:
            raise StoreError(
                f"the run holds {size / 2**30:.1f} GB of audio, too much for one frame: "
                "read it with run.batches(), or leave audio out"
            )

    def as_rows(self, named: Iterable[str] = (), *, batch_rows: int | None = None) -> TableInput:
        """Return the rows as the table of another run: what came of them, not how.

        These are the caller's columns and what the verb made of them (``translated_text``, ``locale`` and so
        on). A row without an answer is there all the same.

        Parameters
        ----------
        named
            Columns to have as well: audio, or status, price and the like, which are of this run alone.
        batch_rows
            Rows a batch at most.
        """
        import pyarrow as pa

        wanted = {*named}
        own = {self.name_of(name) for name in (*BOOKKEEPING, AUDIO_COLUMN)} - wanted
        whole = self._folder.joined_schema(audio=True)
        names = [name for name in whole.names if name not in own]
        kept = pa.schema([whole.field(name) for name in names]).with_metadata(
            self._folder.joined_schema(names).metadata
        )
        batches = self._folder.joined(names, batch_rows=batch_rows)
        return TableInput(kept, batches, row_ids=self._values(ROW_ID), is_run=True)

    def _values(self, column: str) -> list[str]:
        batches = self._folder.joined([self.name_of(column)])
        return [str(value) for batch in batches for value in batch.column(0).to_pylist()]

    def select(self, rows: Any) -> Selection:
        """Return some of the rows, which go wherever the run goes.

        Parameters
        ----------
        rows
            Ids of rows, a mask with a truth value for every row, a DataFrame of the run's rows (its index
            counts), or a function that gives one of these for the run's DataFrame.

        Raises
        ------
        KeyError
            When no row has one of the ids.
        ValueError
            When a mask is not as long as the run.

        Examples
        --------
        >>> run = open_run("runs/demo")  # doctest: +SKIP
        >>> run.select(lambda frame: frame["locale"] == "fr-FR")  # doctest: +SKIP
        """
        return chosen_rows(self, rows, self._values(ROW_ID))

    def sample(self, count: int, *, seed: int = 0) -> Selection:
        """Return rows that have audio, drawn at random: the same for the same seed.

        Parameters
        ----------
        count
            How many; all of them when there are fewer.
        seed
            Of the draw.
        """
        return sampled_rows(self, count, seed, self._values("status"))

    @property
    def dataset(self) -> "ds.Dataset":
        """The finished calls as a pyarrow dataset over the part files."""
        from pyarrow import dataset

        files: list[Any] = self.part_files
        if is_remote(self.path):
            remote: Any = self.path
            there: ds.Dataset = dataset.dataset(
                [file.path for file in files], format="parquet", filesystem=remote.fs
            )
            return there
        return dataset.dataset([str(file) for file in files], format="parquet")

    @property
    def part_files(self) -> list[Path]:
        """The Parquet files of finished calls, for tools that read files."""
        return sorted(p for p in (self.path / "parts").glob("*.parquet") if p.name != "failed.parquet")

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
        key, status = self._find(str(row_id))
        found = self._folder.row(key) if key is not None else None
        if (clip := _clip_of(found)) is None:
            raise KeyError(f"row {row_id!r} has no audio: it is {found['status'] if found else status}")
        return clip

    def clip_of_call(self, request_key: str) -> Clip:
        """Return the clip of a call: of every row whose ``request_key`` this is.

        Raises
        ------
        KeyError
            When there is no such call, or it has no audio.
        """
        if (clip := _clip_of(self._folder.row(request_key))) is None:
            raise KeyError(f"the call {request_key!r} has no audio")
        return clip

    def _find(self, row_id: str) -> tuple[str | None, str]:
        import pyarrow.compute as pc

        names = [self.name_of(ROW_ID), self.name_of("request_key")]
        with self._folder.table() as file:
            for batch in file.iter_batches(columns=names):
                at = pc.index(batch.column(names[0]), row_id).as_py()
                if at >= 0:
                    key = batch.column(names[1])[at].as_py()
                    return key, PENDING if key else INVALID
        raise KeyError(f"no row has the id {row_id!r}; {self._ids_in_words()}")

    def _ids_in_words(self) -> str:
        entry = self._folder.tables()[-1]
        with self._folder.table() as file:
            name = entry.name_of(ROW_ID)
            first = next(file.iter_batches(3, columns=[name]), None)
        examples = ", ".join(map(repr, first.column(0).to_pylist())) if first is not None else "none"
        where = f"the column {entry.id_column!r}" if entry.id_column else "the table's index"
        return f"ids are the values of {where}, such as {examples}"

    @property
    def failed(self) -> "pd.DataFrame":
        """The rows without audio that were sent or refused: their ids, status and errors.

        A suspect row has audio: ``frame[frame["status"] == "suspect"]``.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        others, name = pa.array([*HEARD, PENDING]), self.name_of("status")
        found, places, start = [], [], 0
        for batch in self._folder.joined():
            mask = pc.invert(pc.is_in(batch.column(name), value_set=others))
            found.append(batch.filter(mask))
            places.extend((start + np.flatnonzero(mask.to_numpy(zero_copy_only=False))).tolist())
            start += batch.num_rows
        return framed(pa.Table.from_batches(found, self._folder.joined_schema()), places)

    @property
    def ledger(self) -> "pd.DataFrame":
        """Every attempt and what it cost, by time; never text."""
        return self._folder.ledger().to_pandas()

    @property
    def stats(self) -> dict[str, Any]:
        """Rows by status, calls, credits, attempts and seconds of audio, as plain values.

        Of translations, ``translated_characters`` instead of ``audio_seconds``.
        """
        import pyarrow.compute as pc

        counts: Counter[str] = Counter()
        size, rows = 0.0, 0
        is_text = self.operation == TRANSLATE
        sizes = self.name_of("translated_text" if is_text else "audio_seconds")
        for batch in self._folder.joined([self.name_of("status"), sizes]):
            rows += batch.num_rows
            counts.update(_counted(batch.column(0)))
            column: Any = batch.column(1)
            size += pc.sum(pc.utf8_length(column) if is_text else column).as_py() or 0
        ledger = self._folder.ledger()
        attempts = _counted(ledger.column("status"))
        return {
            "rows": rows,
            **{name: counts[name] for name in STATES if counts[name] or name in {DONE, FAILED, PENDING}},
            **({"translated_characters": int(size)} if is_text else {"audio_seconds": round(size, 3)}),
            "credits": round(pc.sum(ledger.column("credits")).as_py() or 0.0, 3),
            "attempts": sum(n for status, n in attempts.items() if status != SETTLED),
            DRIFT_KEY: self._folder.manifest.extra.get(DRIFT_KEY, 0),
            "retries": attempts.get(ERROR, 0) + attempts.get(REFUSED, 0),
        }

    def summary(self) -> str:
        """Return what happened, in a few lines for people."""
        s = self.stats
        states = ", ".join(f"{s[name]:,} {name.replace('_', ' ')}" for name in STATES if s.get(name))
        lines = [
            f"{self.operation} run {self.path}: {self.status}"
            + (f" ({self.stopped_because})" if self.stopped_because else ""),
            f"{counted(s['rows'], 'row')}: {states or 'none'}; {result_of(s)}",
            f"{credits_in_words(s['credits'])} in {counted(s['attempts'], 'attempt')} on {self.service}",
        ]
        if remark := self._folder.manifest.extra.get(REMARK_KEY):
            lines.append(str(remark))
        if self.progress is not None and self.progress.total:
            p = self.progress
            lines.append(f"{counted(p.ended, p.unit)} in {p.seconds:,.1f} s ({p.rate:,.1f} a second)")
            if p.balance is not None:
                lines.append(f"{p.balance:,} characters are left on the key")
        if s[FAILED]:
            lines.append("run.failed shows these rows; resume(run) tries them again")
        elif s.get(CHARGED_UNKNOWN):
            again = 'resume(run, on_unknown="retry") sends them again, where that may be billed again'
            lines.append(f"run.failed shows these rows; {again}")
        elif s[PENDING]:
            lines.append("resume(run) goes on where it stopped")
        if s.get(SUSPECT) and self.operation == TRANSLATE:
            lines.append("error_message says what is suspect")
        elif s.get(SUSPECT):
            lines.append('error_message says what is suspect; resume(run, redo="suspect") makes another take')
        return "\n".join(lines)

    @property
    def columns(self) -> list[str]:
        """The columns of the run's rows: the caller's and ours, audio among them."""
        return list(self._folder.joined_schema(audio=True).names)

    def name_of(self, column: str) -> str:
        """Return what a column of ours is called in this run: ``speech_...`` where the table has its name."""
        tables = self._folder.tables()
        return tables[-1].name_of(column) if tables else column

    def __repr__(self) -> str:
        because = f" ({self.stopped_because})" if self.stopped_because else ""
        return f"<Run {str(self.path)!r}: {self.operation}, {self.status}{because}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary())}</pre>"


def open_run(path: str | PathLike[str]) -> Run:
    """Return the run in the folder `path`, to read it; :func:`resume` goes on with it.

    Parameters
    ----------
    path
        The run's folder.

    Raises
    ------
    NotARun
        When the folder holds no run.
    RunMismatch
        When a newer version of speechframe made it.
    """
    return Run(RunFolder.open(path))


def result_of(stats: Mapping[str, Any]) -> str:
    """Return how much came of a run with these :attr:`Run.stats`, for people.

    Examples
    --------
    >>> result_of({"audio_seconds": 90.0}), result_of({"translated_characters": 1200})
    ('1.5 min of audio', '1,200 characters of translation')
    """
    if "translated_characters" in stats:
        return f"{counted(stats['translated_characters'], 'character')} of translation"
    return f"{duration(stats['audio_seconds'])} of audio"


def _clip_of(found: Mapping[str, Any] | None) -> Clip | None:
    audio = (found or {}).get("audio")
    if found is None or not audio or audio["bytes"] is None:
        return None
    return Clip(
        audio=audio["bytes"],
        format=Format(found["format"]),
        sample_rate=found["sample_rate"],
        channels=found["channels"] or 1,
        text=found["text"] or "",
        words=tuple((w["word"], w["start_ms"], w["end_ms"]) for w in found["word_durations"] or ()),
        voice_id=found["voice_id"],
        credits=found["credits"] or 0.0,
        warnings=tuple(found["warnings"] or ()),
    )


def _counted(column: Any) -> dict[str, int]:
    return {str(one["values"]): one["counts"] for one in column.value_counts().to_pylist()}
