"""A run as its caller has it: live while this process makes it, and from its folder ever after."""

import asyncio
import contextlib
import html
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from os import PathLike
from typing import Any

from speechframe._ending import hold, release, running_loop, until_terminated
from speechframe._loop import INTERRUPT, background_loop, run_sync
from speechframe.batch.estimate import Estimate
from speechframe.batch.options import Options
from speechframe.batch.progress import (
    Outcome,
    Progress,
    counted,
    credits_in_words,
    duration,
    warnings_in_words,
)
from speechframe.errors import SpeechframeError
from speechframe.store.folder import Folder
from speechframe.store.reader import StoredRun, warning_kind
from speechframe.store.schema import CHARGED_UNKNOWN, FAILED, PENDING, STATUSES, SUSPECT, StopReason

RUNNING, STOPPED = "running", "stopped"

MOST_KEPT = 100_000
"""Outcomes kept for readers that are slow or come late; all of them are in the run's folder."""

_OF_ONE_CALL = frozenset(
    {"run_dir", "id", "sep", "quoting", "take", "tags", "max_credits", "progress", "wait", "dry_run"}
)
"""Run options that say nothing of the next call, or that the run's folder keeps."""


class Live:
    """A run that goes on in this process; made in its event loop.

    `stop` is called there, to make no further call: told whether calls in flight are to finish, and why.
    """

    def __init__(
        self, *, stop: Callable[[bool, StopReason], None], progress: Progress, options: Options
    ) -> None:
        self.progress, self.options, self._stop = progress, options, stop
        self.loop = asyncio.get_running_loop()
        self.ended: Future[None] = Future()
        self.stopped_by: SpeechframeError | None = None
        # One function to wake each of those who follow the run or wait for its end.
        self._followers: list[Callable[[], object]] = []
        # Nobody can follow a run whose caller waits for its end.
        self._kept: deque[Outcome] = deque(maxlen=0 if options.wait else MOST_KEPT)
        self._count = 0
        self._lock = threading.Lock()

    def start(self, making: Coroutine[Any, Any, None], name: str) -> None:
        """Let the run be made, and note its end."""
        hold(self)
        # An event loop holds its tasks by weak references only.
        self._task = asyncio.create_task(making, name=f"speechframe-run-{name}")
        self._task.add_done_callback(self._close)

    def outcome(self, outcome: Outcome) -> None:
        """Count the outcome of one call and hand it to everybody who follows the run."""
        self.progress.add(outcome)
        if outcome.error is not None:
            # The frames of a call hold its request and answer: many outcomes would keep many of them.
            outcome.error.__traceback__ = None
        with self._lock:
            self._kept.append(outcome)
            self._count += 1
        self._wake()

    def _close(self, task: "asyncio.Task[None]") -> None:
        release(self)
        # Cancelled with its loop, a run is like one whose process was killed: stopped, with all kept.
        error = None if task.cancelled() else task.exception()
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        for wake in tuple(self._followers):
            # The event loop of a reader may have been closed before its reader.
            with contextlib.suppress(RuntimeError):
                wake()

    def end(self, *, drain: bool, because: StopReason = StopReason.INTERRUPTED) -> None:
        """Make no further call; those in flight finish, or (no `drain`) are cancelled. From any thread."""
        if not self.ended.done():
            # The run's loop may have been closed before the run had ended.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._stop, drain, because)

    def check_loop(self, *, blocks: str = "") -> None:
        """Raise RuntimeError where the run cannot end: its loop is closed, or waiting here `blocks` it."""
        if self.ended.done():
            return
        if blocks and running_loop() is self.loop:
            raise RuntimeError(blocks)
        if self.loop.is_closed():
            release(self)
            raise RuntimeError(
                "the event loop of this run was closed before the run had ended; resume() makes the rest. "
                "Let the loop run until `await run` returns"
            )

    async def until_ended(
        self, cancelled: asyncio.CancelledError | None = None, timeout_s: float | None = None
    ) -> None:
        """Wait for the end of the run, in any event loop, and raise what ended it.

        Cancelled, the run stops and calls in flight finish; cancelled again, they are cancelled. Then the
        cancellation is raised. `cancelled` is the first cancellation, where there was one before.
        """
        self.check_loop()
        ended = asyncio.wrap_future(self.ended)
        # Or asyncio would report an error that nobody waits for any more.
        ended.add_done_callback(asyncio.Future.exception)
        if cancelled is not None:
            self.end(drain=True)
        with self._followed(bool):
            while not ended.done():
                try:
                    done, _ = await asyncio.wait({ended}, timeout=timeout_s)
                except asyncio.CancelledError as order:
                    self.end(drain=cancelled is None)
                    cancelled = order
                else:
                    if not done and cancelled is None:
                        raise TimeoutError(f"the run has not ended in {timeout_s:g} s; it goes on")
        # SIGTERM ends the program next: nobody is to go on as if the run had ended by itself.
        await until_terminated()
        if cancelled is not None:
            raise cancelled
        ended.result()

    @contextlib.contextmanager
    def _followed(self, wake: Callable[[], object]) -> Iterator[None]:
        self._followers.append(wake)
        try:
            yield
        finally:
            self._followers.remove(wake)

    @contextlib.contextmanager
    def reader(
        self, loop: asyncio.AbstractEventLoop
    ) -> Iterator[Callable[[], Coroutine[Any, Any, list[Outcome]]]]:
        """Return what waits in `loop` for the next outcomes and returns them; none at the end of the run."""
        arrived, position = asyncio.Event(), 0

        async def more() -> list[Outcome]:
            nonlocal position
            while True:
                arrived.clear()
                # Asked before reading: what comes in between is read the next time.
                has_ended = self.ended.done()
                with self._lock:
                    missing = min(self._count - position, len(self._kept))
                    # From the right end: the middle of a deque is slow to reach.
                    found = list(islice(reversed(self._kept), missing))[::-1]
                    position = self._count
                if found or has_ended:
                    return found
                self.check_loop()
                try:
                    await arrived.wait()
                except asyncio.CancelledError as order:
                    if order.args == (INTERRUPT,) or len(self._followers) == 1:
                        await self.until_ended(order)
                    raise

        with self._followed(lambda: loop.call_soon_threadsafe(arrived.set)):
            yield more


class Outcomes:
    """The outcomes of a live run; each ``for`` or ``async for`` begins with the first and ends with the run.

    The newest 100,000 are kept for readers that are slow or come late; who falls further behind goes on with
    the oldest that is kept.
    """

    def __init__(self, live: Live) -> None:
        self._live = live

    def __iter__(self) -> Iterator[Outcome]:
        """Yield each outcome when it comes, waiting for it."""
        self._live.check_loop(blocks="this would block the loop that makes the run: use `async for`")
        with self._live.reader(background_loop()) as more:
            while found := run_sync(more()):
                yield from found

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Yield each outcome when it comes, on any event loop."""
        with self._live.reader(asyncio.get_running_loop()) as more:
            while found := await more():
                for outcome in found:
                    yield outcome
        await until_terminated()


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
        return f"{status} ({because}): {self._how_to_go_on}"

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
                lines.append(f"{p.balance:,} characters are left on the key")
        return "\n".join(filter(None, [*lines, self._warned(), *self._advice(s)]))

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
        parts = [f"{self.operation}, {self.state_in_words()}", plan, warned]
        return f"<Run {self.short_path!r}: {'; '.join(filter(None, parts))}>"

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
