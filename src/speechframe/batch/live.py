"""The run object that users get. It follows a run that this process makes, or reads the folder of a run."""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from speechframe.batch.notebook import find_cell
from speechframe.batch.plan import Estimate
from speechframe.batch.progress import (
    Live,
    Outcomes,
    Progress,
    describe_balance,
    describe_duration,
    describe_warnings,
)
from speechframe.errors import SpeechframeError
from speechframe.processes.loop import run_sync
from speechframe.settings.spending import OPERATIONS
from speechframe.store.folder import Folder
from speechframe.store.reader import StoredRun, find_warning_kind
from speechframe.store.schema import CHARGED_UNKNOWN, FAILED, PENDING, STATUSES, SUSPECT, StopReason
from speechframe.writing.notebook import Problems, format_lines
from speechframe.writing.words import format_count, replace_unprintable, shorten_service

RUNNING, STOPPED = "running", "stopped"

_OPTIONS_NOT_REPEATED = frozenset(
    {"run_dir", "id", "sep", "quoting", "take", "tags", "max_credits", "progress", "wait", "dry_run"}
    | {"executor", "executor_workers"}
)
"""Run options to leave out of :attr:`Run.last_options`. They apply only to one call of a verb (such as
`generate`), or the run's folder stores them. The pool of an executor may be closed meanwhile."""


class Run(StoredRun):
    """A table of rows with their results, in a folder of Parquet files.

    The verbs, :func:`open_run` and :func:`resume` return runs. Do not create a run directly.

    Attributes
    ----------
    path
        The run's folder.
    estimate
        Estimate of the last plan. None for a run that was only opened.
    problems
        Problems of the last plan, one mapping each.
    notes
        Remarks on the last plan in words, such as the number of skipped rows with the reason.

    Examples
    --------
    >>> run = open_run("speechframe-runs/demo")  # doctest: +SKIP
    >>> run.to_pandas()["status"].value_counts()  # doctest: +SKIP
    >>> run.ledger["credits"].sum()  # doctest: +SKIP

    Rows with equal calls share one call. ``credits`` in the table is the price of a row's call. The spending
    of the run is the sum over :attr:`ledger`.
    """

    def __init__(
        self,
        folder: Folder,
        *,
        estimate: Estimate | None = None,
        problems: Sequence[dict[str, Any]] = (),
        notes: Sequence[str] = (),
        live: Live | None = None,
    ) -> None:
        super().__init__(folder)
        self.estimate, self.problems, self.notes = estimate, Problems(problems), list(notes)
        self._live = live

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the folder. Unpickling opens the run in this folder, in its state at that time."""
        return (open_run, (self.folder,))

    @property
    def status(self) -> str:
        """``planned``, ``running``, ``finished`` (every row has an outcome) or ``stopped``."""
        if self._live is not None and not self._live.ended.done():
            return RUNNING
        if self.manifest.state == RUNNING and not self.folder.is_locked:
            # The end of the run may have been written since run.json was read.
            self.refresh()
            if self.manifest.state == RUNNING and not self.folder.is_locked:
                # The process died before it could write an end.
                return STOPPED
        return self.manifest.state

    @property
    def stopped_because(self) -> str | None:
        """Reason of an early end, as a value of :class:`~speechframe.store.schema.StopReason`, or None."""
        status = self.status
        if status == RUNNING:
            return None
        because = self.manifest.stopped_because
        return StopReason.INTERRUPTED.value if because is None and status == STOPPED else because

    @property
    def stopped_by(self) -> SpeechframeError | None:
        """The error that ended the run early in this process, or None.

        If a budget ended the run, the error is :class:`~speechframe.BudgetExceeded`. It contains the name of
        the limit, the credits left, the price of the remaining calls, and advice.
        """
        return self._live.stopped_by if self._live is not None else None

    @property
    def progress(self) -> Progress | None:
        """Counters of this run, if this process made or resumed it, else None."""
        return self._live.progress if self._live is not None else None

    @property
    def last_options(self) -> dict[str, Any]:
        """Options of the last call that made or resumed this run in this process, for :func:`resume`.

        Options that apply only to one call or that the folder stores are left out. The result is empty if
        this process neither made nor resumed the run.
        """
        if self._live is None:
            return {}
        return {
            name: value
            for name, value in vars(self._live.options).items()
            if name not in _OPTIONS_NOT_REPEATED
        }

    def take_state_of(self, other: "Run") -> None:
        """Copy the state of `other`, the live run that :func:`resume` made of this run."""
        self.__dict__ = other.__dict__.copy()

    def outcomes(self) -> Outcomes:
        """Return an iterable of the outcomes of a live run's calls, for ``for`` and ``async for``.

        The iteration begins with the first outcome of this process, waits for each further outcome, and ends
        with the run. Only the newest 100,000 outcomes are kept for late readers. An outcome has
        ``row_id`` (of the first row with the call), ``status`` and ``attempts``. If they apply, it also has
        ``audio_seconds``, ``credits_millis``, ``reason`` or ``error``. If the run makes retakes of a suspect
        row, the row has one outcome per take.

        Raises
        ------
        RuntimeError
            If the run is not live in this process (start it with ``wait=False``), or if a plain ``for`` runs
            in the loop that makes the run.
        KeyboardInterrupt, SystemExit
            After Ctrl-C or SIGTERM while a plain ``for`` waits. The run has then stopped as in :meth:`wait`.
        CancelledError
            If an ``async for`` is cancelled while it waits, for example by Ctrl-C under ``asyncio.run``. The
            run has then stopped as in ``await run``, unless another reader follows it or another task waits
            for it.

        Examples
        --------
        >>> run = generate(frame, voice="nora", wait=False)  # doctest: +SKIP
        >>> for outcome in run.outcomes():  # doctest: +SKIP
        ...     print(outcome.row_id, outcome.status)
        """
        if self._live is None or self._live.options.wait:
            raise RuntimeError(
                "only a live run has outcomes to wait for: start it with wait=False, or read run.batches()"
            )
        return Outcomes(self._live)

    def stop(self, *, drain: bool = True) -> None:
        """Start no further call, and return at once.

        The folder is locked until the run has ended. Call :meth:`wait` before you resume the run.

        Parameters
        ----------
        drain
            True lets calls in flight finish. False cancels these calls. They may have been billed, and their
            rows become ``charged_unknown``.
        """
        if self._live is not None:
            self._live.end(drain=drain, because=StopReason.STOPPED)

    def wait(self, timeout_s: float | None = None) -> "Run":
        """Wait for the end of a live run and return it.

        Parameters
        ----------
        timeout_s
            Longest wait in seconds.

        Raises
        ------
        TimeoutError
            If the run has not ended within `timeout_s`. The run goes on.
        RuntimeError
            If the caller is in the event loop that makes the run, because the wait would block this loop. Use
            ``await run`` instead.
        SpeechframeError
            The error that ended the run: the error of a call (only with ``on_error="raise"``), or another
            error, such as a full disk.
        KeyboardInterrupt, SystemExit
            After Ctrl-C or SIGTERM, once the run has stopped. Calls in flight finish first. A second Ctrl-C
            cancels them. After SIGTERM they are cancelled after 8 s.
        """
        if (live := self._live) is not None:
            live.refuse_endless_wait(
                blocks="run.wait() would block the event loop that makes the run: use `await run`"
            )
            if not live.ended.done():
                run_sync(live.wait_until_ended(timeout_s=timeout_s))
            live.ended.result()
        return self

    def __await__(self) -> "Generator[Any, None, Run]":
        """Wait for the end of a live run with ``await run``.

        A cancellation stops the run and waits for the calls in flight. A second cancellation cancels these
        calls. If ``await asyncio.shield(run)`` is cancelled, the run goes on.
        """
        if self._live is not None:
            yield from self._live.wait_until_ended().__await__()
        return self

    def describe_state(self) -> str:
        """Return the status. For a run that ended early, add the reason and advice."""
        status, because = self.status, self.stopped_because
        if because is None:
            return status
        return replace_unprintable(f"{status} ({because}): {self._how_to_go_on}")

    @property
    def _how_to_go_on(self) -> str:
        return self.manifest.stopped_words or f"{self._write_resume()} goes on where it stopped"

    def _write_resume(self, *arguments: str) -> str:
        """Return the call that resumes this run, as Python code for a message."""
        # Only the caller has the backend of a run that `run()` made.
        own = () if self.operation in OPERATIONS else ("backend=...",)
        return f"resume({', '.join(('run', *arguments, *own))})"

    def summary(self) -> str:
        """Return a summary of the run for people, as a text of a few lines.

        It leaves out the notes and warnings that the same cell of a notebook already shows.
        """
        stats, p = self.stats, self.progress
        is_told = p is not None and p.cell is not None and p.cell == find_cell()
        shown = [name for name in STATUSES if stats.get(name)]
        states = ", ".join(f"{stats[name]:,} {name.replace('_', ' ')}" for name in shown)
        because = f" ({self.stopped_because})" if self.stopped_because else ""
        made = [format_count(stats["rows"], "row") + f": {states or 'none'}", describe_results(stats)]
        spent = format_count(stats["credits"], "credit")
        lines = [
            f"{self.operation} run {self.short_path}: {self.status}{because}",
            "; ".join(filter(None, made)),
            f"{spent} in {format_count(stats['attempts'], 'attempt')} on {shorten_service(self.service)}",
            self.manifest.remark or "",
            *(() if is_told else self.notes),
        ]
        lines.append(self._describe_plan())
        if p is not None and p.total:
            lines.append(f"{p.describe_answers()} in {p.seconds:,.1f} s ({p.rate:,.1f} a second)")
            if p.balance is not None:
                lines.append(describe_balance(p.balance))
        lines.append("" if is_told else self._describe_warnings())
        return replace_unprintable("\n".join(filter(None, [*lines, *self._give_advice(stats)])))

    def _describe_plan(self) -> str:
        """Return the plan of a dry run as text. Empty without a plan, or if this process made the run."""
        if self.estimate is None or self.progress is not None:
            return ""
        return f"{'planned' if self.status == 'planned' else 'to resume'}: {self.estimate.line()}"

    def _give_advice(self, stats: Mapping[str, Any]) -> Iterator[str]:
        """Yield advice for a run with these :attr:`stats`."""
        if stats[FAILED]:
            yield f"run.failed shows these rows; {self._write_resume()} tries them again"
        elif stats.get(CHARGED_UNKNOWN):
            again = self._write_resume('on_unknown="retry"')
            yield f"run.failed shows these rows; {again} sends them again, and they may be billed twice"
        elif stats[PENDING]:
            yield self._how_to_go_on
        undecided = self.count_undecided()
        if lines := undecided.get("needs_shortening"):
            yield f"{format_count(lines, 'line')} too long for the slot; characters_to_lose says by how much"
        if stale := undecided.get("stale"):
            yield f"{format_count(stale, 'translation')} stale: the source has changed since then"
        if stats.get(SUSPECT):
            again = self._write_resume('redo="suspect"')
            takes = f"; {again} makes another take" if "audio_seconds" in stats else ""
            yield f"error_message says what is suspect{takes}"

    def _describe_warnings(self) -> str:
        """Return the number of warnings of each kind in words, with an example. Empty without warnings."""
        counts: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for batch in self.batches([self.name_of("warnings")]):
            column: Any = batch.column(0)
            for warning_count in column.flatten().value_counts().to_pylist():
                kind = find_warning_kind(warning_count["values"])
                counts[kind] += warning_count["counts"]
                examples.setdefault(kind, warning_count["values"])
        return describe_warnings(counts, examples)

    def __repr__(self) -> str:
        # Use the counts of this process if it has them, because asyncio often calls repr and reading is slow.
        p = self.progress
        warned = describe_warnings(p.warned, p.examples) if p else self._describe_warnings()
        made = str(p) if p else self._describe_plan()
        texts = [f"{self.operation}, {self.describe_state()}", made, warned]
        return replace_unprintable(f"<Run {self.short_path!r}: {'; '.join(filter(None, texts))}>")

    def _repr_html_(self) -> str:
        return format_lines(self.summary())


def open_run(path: str | PathLike[str]) -> Run:
    """Return the run in the folder `path` for reading. :func:`resume` continues a run.

    Raises
    ------
    NotARun
        If the folder does not contain a run.
    RunMismatch
        If another version of speechframe wrote the run, in another layout.
    """
    return Run.open(path)


def describe_results(stats: Mapping[str, Any]) -> str:
    """Return the amount of translation or audio in words, from :attr:`Run.stats`. Empty for other results."""
    if "translated_characters" in stats:
        return f"{format_count(stats['translated_characters'], 'character')} of translation"
    return f"{describe_duration(stats['audio_seconds'])} of audio" if "audio_seconds" in stats else ""
