"""A run that goes on in this process: its outcomes as they come, waiting for its end, and stopping it."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from speechframe import _ending
from speechframe._ending import Terminated, end_in_order, gentle_termination, until_terminated
from speechframe._loop import INTERRUPT
from speechframe.batch.options import Options
from speechframe.batch.progress import Outcome, Progress
from speechframe.store.schema import StopReason

if TYPE_CHECKING:
    from speechframe.errors import SpeechframeError

MOST_KEPT = 100_000
"""Outcomes kept for readers that are slow or come late; all of them are in the run's folder."""

_WAKE_S = 0.1


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
