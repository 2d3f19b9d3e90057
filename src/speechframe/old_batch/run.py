"""A run: what was asked and what came back, live while it goes and from its folder ever after."""

import html
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from os import PathLike
from typing import TYPE_CHECKING, Any

from speechframe.errors import SpeechframeError
from speechframe.old_batch.books import IN_VAIN, SETTLED
from speechframe.old_batch.feed import Outcomes, is_running_here
from speechframe.old_batch.naming import ROW_ID
from speechframe.old_batch.options import Options
from speechframe.old_batch.outcome import CHARGED_UNKNOWN, DONE, FAILED, HEARD, LOST, PENDING, STATES, SUSPECT
from speechframe.old_batch.plan import Estimate
from speechframe.old_batch.progress import Progress, counted, credits_in_words, duration
from speechframe.old_batch.run_rows import RunRows
from speechframe.old_batch.selection import Selection, chosen_rows, sampled_rows
from speechframe.old_store import RunFolder
from speechframe.old_store.run_state import PLANNED, RUNNING, STATE_KEY, STOP_KEY, STOPPED, StopReason

if TYPE_CHECKING:
    from speechframe.old_batch.live import Live

DRIFT_KEY = "drift_characters"
REMARK_KEY = "remark"
TRANSLATE = "translate"

_OF_ONE_CALL = frozenset({"run_dir", "id", "take", "max_credits", "progress", "wait", "dry_run"})
"""Run options that say nothing of the next call, or that the run's folder keeps."""


class Run(RunRows):
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
        super().__init__(folder)
        self.estimate = estimate
        self.problems = list(problems)
        self._live: Live | None = None

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
        if self._noted_state == RUNNING and not self._folder.is_locked:
            # Its end may have been written since this was read.
            with suppress(SpeechframeError):  # a folder that is gone is not mended by asking for its state
                self._folder.refresh()
            if self._noted_state == RUNNING and not self._folder.is_locked:
                # Its process died: nobody wrote an end.
                return STOPPED
        return self._noted_state

    @property
    def _noted_state(self) -> str:
        return str(self._folder.manifest.extra.get(STATE_KEY, PLANNED))

    @property
    def stopped_because(self) -> str | None:
        """Why it ends early: a :class:`~speechframe.old_store.run_state.StopReason`, as its word, or None."""
        status = self.status
        reason = self._folder.manifest.extra.get(STOP_KEY)
        if reason is None and status == STOPPED:
            return StopReason.INTERRUPTED.value
        return None if reason is None else str(reason)

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
        KeyboardInterrupt, SystemExit
            At Ctrl-C and SIGTERM while a plain ``for`` waits, when the run has stopped as in :meth:`wait`.
            In the body of the loop, and with the program's end, the run is stopped in the same order.
        CancelledError
            Where an ``async for`` is cancelled (by Ctrl-C under ``asyncio.run``, say) while it waits. Unless
            somebody else follows the run or waits for it, the run has stopped as in ``await run``.

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
        if not self._live.ended.done() and is_running_here(self._live.loop):
            raise RuntimeError("run.wait() would block the loop that makes the run: use `await run`")
        with self._live.in_order(), self._live.awaited():
            self._live.ended.result(timeout_s)
        return self

    def __await__(self) -> "Generator[Any, None, Run]":
        """Wait for the end of a live run: ``await run``.

        Cancelled, it stops the run and calls in flight finish first; cancelled again, it cancels them.
        ``await asyncio.shield(run)`` only stops waiting.
        """
        return self._wait_async().__await__()

    async def _wait_async(self) -> "Run":
        if self._live is not None:
            await self._live.until_ended()
        return self

    # -- what became of it -----------------------------------------------------------

    def select(self, rows: Any) -> Selection:
        """Return some of the rows, which go wherever the run goes.

        Parameters
        ----------
        rows
            Ids of rows, a mask with a truth value for every row (a Series goes by its index), a DataFrame of
            the run's rows (its column of ids counts, by value; where it has none, its index), or a function
            that gives one of these for the run's DataFrame.

        Raises
        ------
        KeyError
            When no row has one of the ids, or a frame does not say which rows it has.
        ValueError
            When a mask is not as long as the run, or a Series with another index.

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
        return sampled_rows(self, count, seed, self._folder.places_of(HEARD).tolist())

    @property
    def stats(self) -> dict[str, Any]:
        """Rows by status, credits, attempts and seconds of audio, as plain values.

        ``retries`` are the attempts in vain, but for the last one of each call that came to nothing. Of
        translations, ``translated_characters`` instead of ``audio_seconds``.
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
        attempts: Counter[str] = Counter()
        credits = 0.0
        for some in self._folder.attempts(["status", "credits"]):
            attempts.update(_counted(some.column("status")))
            credits += pc.sum(some.column("credits")).as_py() or 0.0
        return {
            "rows": rows,
            **{name: counts[name] for name in STATES if counts[name] or name in {DONE, FAILED, PENDING}},
            **({"translated_characters": int(size)} if is_text else {"audio_seconds": round(size, 3)}),
            "credits": round(credits, 3),
            "attempts": sum(n for status, n in attempts.items() if status != SETTLED),
            DRIFT_KEY: self._folder.manifest.extra.get(DRIFT_KEY, 0),
            "retries": self._retries(attempts),
        }

    def _retries(self, attempts: Counter[str]) -> int:
        of_calls = self._folder.index().counts()
        return sum(attempts[name] for name in IN_VAIN) - sum(of_calls.get(name, 0) for name in LOST)

    def summary(self) -> str:
        """Return what happened, in a few lines for people."""
        s = self.stats
        states = ", ".join(f"{s[name]:,} {name.replace('_', ' ')}" for name in STATES if s.get(name))
        lines = [
            f"{self.operation} run {self.place}: {self.status}"
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
        return "\n".join([*lines, *self._advice(s)])

    def _advice(self, s: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is to be done about a run with these :attr:`stats`."""
        if s[FAILED]:
            yield "run.failed shows these rows; resume(run) tries them again"
        elif s.get(CHARGED_UNKNOWN):
            again = 'resume(run, on_unknown="retry") sends them again, where that may be billed again'
            yield f"run.failed shows these rows; {again}"
        elif s[PENDING] and self.stopped_by is not None:
            yield str(self.stopped_by)
        elif s[PENDING] and self.stopped_because == StopReason.BUDGET:
            yield "resume(run, max_credits=...) goes on where it stopped, within a higher budget"
        elif s[PENDING]:
            yield "resume(run) goes on where it stopped"
        if s.get(SUSPECT) and self.operation == TRANSLATE:
            yield "error_message says what is suspect"
        elif s.get(SUSPECT):
            yield 'error_message says what is suspect; resume(run, redo="suspect") makes another take'

    def __repr__(self) -> str:
        because = f" ({self.stopped_because})" if self.stopped_because else ""
        return f"<Run {self.place!r}: {self.operation}, {self.status}{because}>"

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


def _counted(column: Any) -> dict[str, int]:
    return {str(one["values"]): one["counts"] for one in column.value_counts().to_pylist()}
