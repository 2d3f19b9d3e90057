"""A run as its caller has it: live while this process makes it, and from its folder ever after."""

import asyncio
import html
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import Any

from speechframe.batch.estimate import Estimate
from speechframe.batch.follow import Live, Outcomes
from speechframe.batch.options import Options
from speechframe.batch.progress import (
    Outcome,
    Progress,
    counted,
    credits_in_words,
    dashboard,
    duration,
    warnings_in_words,
)
from speechframe.errors import SpeechframeError
from speechframe.store.folder import Folder
from speechframe.store.reader import StoredRun, warning_kind
from speechframe.store.schema import CHARGED_UNKNOWN, FAILED, PENDING, STATUSES, SUSPECT, StopReason

__all__ = ["Live", "Outcome", "Outcomes", "Run", "open_run", "result_of"]

RUNNING, STOPPED = "running", "stopped"

_OF_ONE_CALL = frozenset(
    {"run_dir", "id", "sep", "quoting", "take", "tags", "max_credits", "progress", "wait", "dry_run"}
)
"""Run options that say nothing of the next call, or that the run's folder keeps."""


class Run(StoredRun):
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
        self, folder: Folder, *, estimate: Estimate | None = None, problems: Sequence[dict[str, Any]] = ()
    ) -> None:
        super().__init__(folder)
        self.estimate = estimate
        self.problems = list(problems)
        self._live: Live | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_read_end = False

    def attach(self, live: Live, task: "asyncio.Task[None]") -> None:
        """Be the live run that `task` makes.

        Parameters
        ----------
        live
            The run.
        task
            Closes `live` when it ends; that is done here for one that is cancelled before it begins.
        """
        self._live, self._has_read_end = live, False
        # An event loop holds its tasks by weak references only.
        self._task = task
        task.add_done_callback(lambda task: live.close(None if task.cancelled() else task.exception()))

    async def hand_over(self) -> "Run":
        """Return the live run to its caller: at its end, or at once with ``wait=False``.

        With ``progress="dashboard"`` the dashboard is shown meanwhile in the notebook's cell.
        """
        live = self._live
        if live is None:
            return self
        show = dashboard(live.options.progress)
        shown = None if show is None else asyncio.create_task(asyncio.to_thread(show, self))
        if live.options.wait:
            await live.until_ended()
        if shown is not None:
            # The cell must not end before: what it shows later would be shown nowhere. A page that cannot be
            # shown ends no run.
            await asyncio.wait({shown})
            if (error := shown.exception()) is not None:
                live.progress.note(f"the dashboard of this run cannot be shown: {error}")
        return self

    @property
    def status(self) -> str:
        """``planned``, ``running``, ``finished`` (every row has an outcome) or ``stopped``."""
        if self._live is not None:
            if not self._live.ended.done():
                return RUNNING
            self._read_end()
        if self.manifest.state == RUNNING and not self.folder.is_locked:
            # Its end may have been written since run.json was read.
            self.refresh()
            if self.manifest.state == RUNNING and not self.folder.is_locked:
                # Its process died: nobody wrote an end.
                return STOPPED
        return self.manifest.state

    def _read_end(self) -> None:
        """Read once what the end of the live run has written into run.json."""
        if not self._has_read_end:
            self.refresh()
            self._has_read_end = True

    @property
    def stopped_because(self) -> str | None:
        """Why it ended early: a :class:`~speechframe.store.schema.StopReason`, as its word, or None."""
        status = self.status
        if self.manifest.stopped_because is None and status == STOPPED:
            return StopReason.INTERRUPTED.value
        return self.manifest.stopped_because

    @property
    def stopped_by(self) -> SpeechframeError | None:
        """The error that ended it early, if it ran in this process and one did.

        Of a budget it is :class:`~speechframe.BudgetExceeded`: which limit it was, what is left of it, what
        the calls to come would cost and what to do.
        """
        return self._live.stopped_by if self._live is not None else None

    @property
    def progress(self) -> Progress | None:
        """Counters of the last run in this process; None when there was none."""
        return self._live.progress if self._live is not None else None

    @property
    def last_options(self) -> dict[str, Any]:
        """Run options of the last call in this process, as :func:`resume` takes them; empty without one."""
        if self._live is None:
            return {}
        names = [f.name for f in fields(Options) if f.name not in _OF_ONE_CALL]
        return {name: getattr(self._live.options, name) for name in names}

    def go_on_as(self, other: "Run") -> None:
        """Be from now on the live run that `other` is: this run, resumed."""
        self.__dict__ = other.__dict__.copy()

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
        KeyboardInterrupt, SystemExit
            At Ctrl-C and SIGTERM while a plain ``for`` waits, when the run has stopped as in :meth:`wait`.
        CancelledError
            Where an ``async for`` is cancelled (by Ctrl-C under ``asyncio.run``, say) while it waits. Unless
            somebody else follows the run or waits for it, the run has stopped as in ``await run``.

        Examples
        --------
        >>> run = generate(frame, voice="nora", wait=False)  # doctest: +SKIP
        >>> for outcome in run.outcomes():  # doctest: +SKIP
        ...     print(outcome.row_id, outcome.status)
        """
        if self._live is None or self._live.options.wait:
            raise RuntimeError(
                "only a live run has outcomes to come: start it with wait=False, or read run.batches()"
            )
        return Outcomes(self._live)

    def stop(self, *, drain: bool = True) -> None:
        """Start no further call.

        Parameters
        ----------
        drain
            Let calls in flight finish. False cancels them: they may have been billed, and their rows
            become ``charged_unknown``.
        """
        if self._live is not None:
            self._live.end(drain=drain, because=StopReason.STOPPED)

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
        RuntimeError
            In the event loop that makes the run, which would wait for itself: there it is ``await run``.
        SpeechframeError
            What ended the run, with ``on_error="raise"`` or when its folder failed.
        KeyboardInterrupt, SystemExit
            At Ctrl-C and SIGTERM, when the run has stopped: calls in flight finish first. A second Ctrl-C
            cancels them, and so do 8 s after SIGTERM.
        """
        if self._live is None:
            return self
        if not self._live.ended.done() and self._live.is_in_this_loop():
            raise RuntimeError("run.wait() would block the loop that makes the run: use `await run`")
        with self._live.in_order(), self._live.followed():
            self._live.ended.result(timeout_s)
        return self

    def __await__(self) -> "Generator[Any, None, Run]":
        """Wait for the end of a live run: ``await run``.

        Cancelled, it stops the run and calls in flight finish first; cancelled again, it cancels them.
        ``await asyncio.shield(run)`` only stops waiting.
        """
        return self._until_ended().__await__()

    async def _until_ended(self) -> "Run":
        if self._live is not None:
            await self._live.until_ended()
        return self

    def summary(self) -> str:
        """Return what happened, in a few lines for people."""
        s = self.stats
        states = ", ".join(f"{s[name]:,} {name.replace('_', ' ')}" for name in STATUSES if s.get(name))
        because = f" ({self.stopped_because})" if self.stopped_because else ""
        made = [counted(s["rows"], "row") + f": {states or 'none'}", result_of(s)]
        lines = [
            f"{self.operation} run {self.place}: {self.status}{because}",
            "; ".join(filter(None, made)),
            f"{credits_in_words(s['credits'])} in {counted(s['attempts'], 'attempt')} on {self.service}",
            self.manifest.remark or "",
        ]
        if (p := self.progress) is not None and p.total:
            lines.append(f"{counted(p.ended, p.unit)} in {p.seconds:,.1f} s ({p.rate:,.1f} a second)")
            if p.balance is not None:
                lines.append(f"{p.balance:,} characters are left on the key")
        return "\n".join(filter(None, [*lines, self._warned(), *self._advice(s)]))

    def _warned(self) -> str:
        """Return in words how many warnings the answers have, by kind."""
        counts: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for batch in self.batches([self.name_of("warnings")]):
            column: Any = batch.column(0)
            for one in column.flatten().value_counts().to_pylist():
                kind = warning_kind(one["values"])
                counts[kind] += one["counts"]
                examples.setdefault(kind, one["values"])
        return warnings_in_words(counts, examples)

    def _advice(self, s: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is to be done about a run with these :attr:`stats`."""
        if s[FAILED]:
            yield "run.failed shows these rows; resume(run) tries them again"
        elif s.get(CHARGED_UNKNOWN):
            again = 'resume(run, on_unknown="retry") sends them again, where that may be billed again'
            yield f"run.failed shows these rows; {again}"
        elif s[PENDING]:
            yield self.manifest.stopped_words or "resume(run) goes on where it stopped"
        if s.get(SUSPECT):
            takes = '; resume(run, redo="suspect") makes another take' if "audio_seconds" in s else ""
            yield f"error_message says what is suspect{takes}"

    def __repr__(self) -> str:
        because = f" ({self.stopped_because})" if self.stopped_because else ""
        warned = self._warned()
        return f"<Run {self.place!r}: {self.operation}, {self.status}{because}{warned and '; '}{warned}>"

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
        When another version of speechframe made it, in another layout.
    """
    return Run.open(path)


def result_of(stats: Mapping[str, Any]) -> str:
    """Return how much came of a run with these :attr:`Run.stats`, for people; empty where nobody measures it.

    Examples
    --------
    >>> result_of({"audio_seconds": 90.0}), result_of({"translated_characters": 1200})
    ('1.5 min of audio', '1,200 characters of translation')
    """
    if "translated_characters" in stats:
        return f"{counted(stats['translated_characters'], 'character')} of translation"
    return f"{duration(stats['audio_seconds'])} of audio" if "audio_seconds" in stats else ""
