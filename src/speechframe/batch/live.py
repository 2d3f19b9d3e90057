"""A run as its caller has it: live while this process makes it, and from its folder ever after."""

import html
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from speechframe._loop import run_sync
from speechframe._words import counted, printable
from speechframe.batch.plan import Estimate
from speechframe.batch.progress import (
    Live,
    Outcomes,
    Progress,
    credits_in_words,
    duration,
    left_on_key,
    warnings_in_words,
)
from speechframe.errors import SpeechframeError
from speechframe.store.folder import Folder
from speechframe.store.reader import StoredRun, warning_kind
from speechframe.store.schema import CHARGED_UNKNOWN, FAILED, PENDING, STATUSES, SUSPECT, StopReason

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
        self,
        folder: Folder,
        *,
        estimate: Estimate | None = None,
        problems: Sequence[dict[str, Any]] = (),
        live: Live | None = None,
    ) -> None:
        super().__init__(folder)
        self.estimate, self.problems, self._live = estimate, list(problems), live

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the folder: who unpickles it opens the run there, as it is by then."""
        return (open_run, (self.folder,))

    @property
    def status(self) -> str:
        """``planned``, ``running``, ``finished`` (every row has an outcome) or ``stopped``."""
        if self._live is not None and not self._live.ended.done():
            return RUNNING
        if self.manifest.state == RUNNING and not self.folder.is_locked:
            # Its end may have been written since run.json was read.
            self.refresh()
            if self.manifest.state == RUNNING and not self.folder.is_locked:
                # Its process died: nobody wrote an end.
                return STOPPED
        return self.manifest.state

    @property
    def stopped_because(self) -> str | None:
        """Why it ended early: a :class:`~speechframe.store.schema.StopReason`, as its word, or None."""
        status = self.status
        if status == RUNNING:
            return None
        because = self.manifest.stopped_because
        return StopReason.INTERRUPTED.value if because is None and status == STOPPED else because

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
        return {name: value for name, value in vars(self._live.options).items() if name not in _OF_ONE_CALL}

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
        if (live := self._live) is not None:
            live.check_loop(blocks="run.wait() would block the loop that makes the run: use `await run`")
            if not live.ended.done():
                run_sync(live.until_ended(timeout_s=timeout_s))
            live.ended.result()
        return self

    def __await__(self) -> "Generator[Any, None, Run]":
        """Wait for the end of a live run: ``await run``.

        Cancelled, it stops the run and calls in flight finish first; cancelled again, it cancels them.
        ``await asyncio.shield(run)`` only stops waiting.
        """
        if self._live is not None:
            yield from self._live.until_ended().__await__()
        return self

    def state_in_words(self) -> str:
        """Return the status and, of a run that ended early, why and what to do."""
        status, because = self.status, self.stopped_because
        if because is None:
            return status
        return printable(f"{status} ({because}): {self._how_to_go_on}")

    @property
    def _how_to_go_on(self) -> str:
        return self.manifest.stopped_words or "resume(run) goes on where it stopped"

    def summary(self) -> str:
        """Return what happened, in a few lines for people."""
        s = self.stats
        states = ", ".join(f"{s[name]:,} {name.replace('_', ' ')}" for name in STATUSES if s.get(name))
        because = f" ({self.stopped_because})" if self.stopped_because else ""
        made = [counted(s["rows"], "row") + f": {states or 'none'}", result_of(s)]
        lines = [
            f"{self.operation} run {self.short_path}: {self.status}{because}",
            "; ".join(filter(None, made)),
            f"{credits_in_words(s['credits'])} in {counted(s['attempts'], 'attempt')} on {self.service}",
            self.manifest.remark or "",
        ]
        if self.estimate is not None and self.progress is None:
            lines.append(f"planned: {self.estimate.line()}")
        if (p := self.progress) is not None and p.total:
            lines.append(f"{counted(p.ended, p.unit)} in {p.seconds:,.1f} s ({p.rate:,.1f} a second)")
            if p.balance is not None:
                lines.append(left_on_key(p.balance))
        return printable("\n".join(filter(None, [*lines, self._warned(), *self._advice(s)])))

    def _advice(self, s: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is to be done about a run with these :attr:`stats`."""
        if s[FAILED]:
            yield "run.failed shows these rows; resume(run) tries them again"
        elif s.get(CHARGED_UNKNOWN):
            again = 'resume(run, on_unknown="retry") sends them again, where that may be billed again'
            yield f"run.failed shows these rows; {again}"
        elif s[PENDING]:
            yield self._how_to_go_on
        if s.get(SUSPECT):
            takes = '; resume(run, redo="suspect") makes another take' if "audio_seconds" in s else ""
            yield f"error_message says what is suspect{takes}"

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

    def __repr__(self) -> str:
        plan = "" if self.estimate is None else f"planned: {self.estimate.line()}"
        # As this process has counted them: asyncio asks for the repr of whatever it returns.
        warned = warnings_in_words(p.warned, p.examples) if (p := self.progress) else self._warned()
        said = [f"{self.operation}, {self.state_in_words()}", plan, warned]
        return printable(f"<Run {self.short_path!r}: {'; '.join(filter(None, said))}>")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary())}</pre>"


def open_run(path: str | PathLike[str]) -> Run:
    """Return the run in the folder `path`, to read it; :func:`resume` goes on with it.

    Raises
    ------
    NotARun
        When the folder holds no run.
    RunMismatch
        When another version of speechframe made it, in another layout.
    """
    return Run.open(path)


def result_of(stats: Mapping[str, Any]) -> str:
    """Return in words how much came of a run with these :attr:`Run.stats`; empty where nobody measures it."""
    if "translated_characters" in stats:
        return f"{counted(stats['translated_characters'], 'character')} of translation"
    return f"{duration(stats['audio_seconds'])} of audio" if "audio_seconds" in stats else ""
