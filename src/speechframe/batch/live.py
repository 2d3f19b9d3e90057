"""A run that goes on in this process: its outcomes as they come, waiting for its end, and stopping it."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import fields
from functools import partial
from itertools import islice
from typing import Any

from speechframe import _ending
from speechframe._ending import Terminated, end_in_order, gentle_termination, until_terminated
from speechframe._loop import INTERRUPT
from speechframe.batch.estimate import Estimate
from speechframe.batch.options import Options
from speechframe.batch.progress import Outcome, Progress, counted, dashboard
from speechframe.errors import SpeechframeError
from speechframe.store.folder import Folder
from speechframe.store.reader import StoredRun
from speechframe.store.schema import StopReason

__all__ = ["Live", "Outcome", "Outcomes", "Run"]

MOST_KEPT = 100_000
"""Outcomes kept for readers that are slow or come late; all of them are in the run's folder."""

_WAKE_S = 0.1
_OF_ONE_CALL = frozenset(
    {"run_dir", "id", "sep", "quoting", "take", "tags", "max_credits", "progress", "wait", "dry_run"}
)
"""Run options that say nothing of the next call, or that the run's folder keeps."""


class Live:
    """A run that goes on in this process; made in its event loop.

    Parameters
    ----------
    stop
        Called in the run's loop, to make no further call: told whether calls in flight are to finish, and
        why.
    progress, options
        The run's.

    Attributes
    ----------
    loop
        The run's event loop.
    ended
        Done when the run has ended, with its error.
    stopped_by
        The error that ended it early.
    """

    def __init__(
        self, *, stop: Callable[[bool, StopReason], None], progress: Progress, options: Options
    ) -> None:
        self.progress = progress
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.ended: Future[None] = Future()
        self.stopped_by: SpeechframeError | None = None
        self.followers: set[Callable[[], object]] = set()
        self._stop = stop
        # Nobody can follow a run whose caller waits for its end.
        self._kept: deque[Outcome] = deque(maxlen=0 if options.wait else MOST_KEPT)
        self._count = 0
        self._changed = threading.Condition()
        _ending.hold(self)

    # -- for the engine, in the run's loop -------------------------------------------------

    def outcome(self, outcome: Outcome) -> None:
        """Count the outcome of one call and hand it to everybody who follows the run."""
        self.progress.add(outcome)
        if outcome.error is not None:
            # The frames of a call hold its request and answer: many outcomes would keep many of them.
            outcome.error.__traceback__ = None
        with self._changed:
            self._kept.append(outcome)
            self._count += 1
            self._wake()

    def close(self, error: BaseException | None) -> None:
        """Note the end of the run, with what its caller is to see raised; only the first call counts."""
        _ending.release(self)
        with self._changed:
            if self.ended.done():
                return
            # Cancelled with its loop, a run is like one whose process was killed: stopped, with all kept.
            if error is None or isinstance(error, asyncio.CancelledError):
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)
            self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        for wake in self.followers:
            # The event loop of a reader may have been closed before its reader.
            with contextlib.suppress(RuntimeError):
                wake()

    # -- for whoever waits or stops, from any thread ---------------------------------------

    def end(self, *, drain: bool, because: StopReason = StopReason.INTERRUPTED) -> None:
        """Make no further call; those in flight finish, or (no `drain`) are cancelled."""
        if not self.ended.done():
            # The run's loop may have been closed before the run had ended.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._stop, drain, because)

    def read(self, position: int) -> tuple[list[Outcome], int]:
        """Return the outcomes that are kept from `position` on, and the position behind them."""
        with self._changed:
            missing = min(self._count - position, len(self._kept))
            # From the right end: the middle of a deque is slow to reach.
            return list(islice(reversed(self._kept), missing))[::-1], self._count

    def wait_for_more(self, position: int) -> None:
        """Block until there is an outcome behind `position`, or the run has ended."""
        with self.in_order(), self._changed:
            while position >= self._count and not self.ended.done():
                self.check_loop()
                # With a limit: Ctrl-C and a closed loop are to be noticed.
                self._changed.wait(_WAKE_S)

    @contextlib.contextmanager
    def followed(self, wake: Callable[[], object] = bool) -> Iterator[Callable[[], object]]:
        """Count somebody in who follows the run or waits for its end.

        Parameters
        ----------
        wake
            Called at each outcome and at the end, mostly in the run's loop.
        """
        follower = partial(wake)
        with self._changed:
            self.followers.add(follower)
        try:
            yield follower
        finally:
            with self._changed:
                self.followers.discard(follower)

    @contextlib.contextmanager
    def in_order(self) -> Iterator[None]:
        """At Ctrl-C and SIGTERM in the block, stop the run and wait for its end before they take effect."""
        self.check_loop()
        with gentle_termination():
            try:
                yield
            except (KeyboardInterrupt, Terminated) as order:
                end_in_order([self], _ending.TERM_DRAIN_S if isinstance(order, Terminated) else None)
                raise

    def check_loop(self) -> None:
        """Raise RuntimeError when the run's event loop was closed before the run had ended."""
        if self.loop.is_closed() and not self.ended.done():
            _ending.release(self)
            raise RuntimeError(
                "the event loop of this run was closed before the run had ended; resume() makes the rest. "
                "Let the loop run until `await run` returns"
            )

    def is_in_this_loop(self) -> bool:
        """Return whether this very code runs in the run's event loop, which it would block by waiting."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    async def until_ended(self, cancelled: asyncio.CancelledError | None = None) -> None:
        """Wait for the end of the run, in any event loop.

        Cancelled, the run stops and calls in flight finish; cancelled again, they are cancelled. Then the
        cancellation is raised, unless it came from Ctrl-C in a synchronous call, which gets the run.

        Parameters
        ----------
        cancelled
            The first cancellation, where there was one before.
        """
        self.check_loop()
        ended = asyncio.wrap_future(self.ended)
        if cancelled is not None:
            self.end(drain=True)
        with self.followed():
            while not ended.done():
                try:
                    await asyncio.wait({ended})
                except asyncio.CancelledError as order:
                    self.end(drain=cancelled is None)
                    cancelled = order
        error = ended.exception()
        # SIGTERM ends the program next: nobody is to go on as if the run had ended by itself.
        await until_terminated()
        if cancelled is not None and cancelled.args != (INTERRUPT,):
            raise cancelled
        if error is not None:
            raise error


class Outcomes:
    """The outcomes of a live run, from its first call on; iterate with ``for`` or ``async for``.

    Each iteration begins with the first outcome and ends with the run. The newest 100,000 outcomes are kept
    for readers that are slow or come late; who falls further behind goes on with the oldest that is kept.
    """

    def __init__(self, live: Live) -> None:
        self._live = live

    def __iter__(self) -> Iterator[Outcome]:
        """Yield each outcome when it comes, waiting for it."""
        if self._live.is_in_this_loop():
            raise RuntimeError("this would block the loop that makes the run: use `async for`")
        position, has_ended = 0, False
        with self._live.followed():
            while not has_ended:
                self._live.wait_for_more(position)
                # Asked before reading: what came between is read in the next round.
                has_ended = self._live.ended.done()
                found, position = self._live.read(position)
                yield from found

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Yield each outcome when it comes, on any event loop."""
        live, loop, arrived = self._live, asyncio.get_running_loop(), asyncio.Event()
        position, has_ended = 0, False
        # What came before this reader.
        arrived.set()
        with live.followed(lambda: loop.call_soon_threadsafe(arrived.set)) as follower:
            while not has_ended:
                live.check_loop()
                try:
                    await arrived.wait()
                except asyncio.CancelledError as order:
                    if live.followers <= {follower}:
                        await live.until_ended(order)
                    raise
                arrived.clear()
                has_ended = live.ended.done()
                found, position = live.read(position)
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
        self, folder: Folder, *, estimate: Estimate | None = None, problems: Sequence[dict[str, Any]] = ()
    ) -> None:
        super().__init__(folder)
        self.estimate = estimate
        self.problems = list(problems)
        self._live: Live | None = None
        self._task: asyncio.Task[None] | None = None

    def attach(self, live: Live, task: "asyncio.Task[None]") -> None:
        """Be the live run that `task` makes.

        Parameters
        ----------
        live
            The run.
        task
            Closes `live` when it ends; that is done here for one that is cancelled before it begins.
        """
        self._live = live
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
        if self._live is not None and not self._live.ended.done():
            return "running"
        return super().status

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
        lines = [super().summary()]
        p = self.progress
        if p is not None and p.total:
            lines.append(f"{counted(p.ended, p.unit)} in {p.seconds:,.1f} s ({p.rate:,.1f} a second)")
            if p.balance is not None:
                lines.append(f"{p.balance:,} characters are left on the key")
        return "\n".join(lines)
