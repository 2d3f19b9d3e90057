"""A run in motion: the task that makes it, who follows it, and how it is ended in good order."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from speechframe import _ending
from speechframe._ending import Terminated, end_in_order, gentle_termination, until_terminated
from speechframe.errors import SpeechframeError
from speechframe.old_batch.feed import Outcomes
from speechframe.old_batch.options import Options
from speechframe.old_batch.progress import Progress
from speechframe.old_store.run_state import StopReason


@dataclass(eq=False)
class Live:
    """A run in motion: the task that makes it, and how to stop it.

    Attributes
    ----------
    path
        The run's folder.
    task, loop
        What makes it, and where.
    stop
        Stops it, in its loop: told whether to drain, and why.
    ended
        Done when it has ended, with its error.
    stopped_by
        What ended it early.
    """

    path: Path
    task: "asyncio.Task[None]"
    loop: asyncio.AbstractEventLoop
    stop: Callable[[bool, StopReason], None]
    progress: Progress
    outcomes: Outcomes
    options: Options = field(default_factory=Options)
    ended: "Future[None]" = field(default_factory=Future)
    stopped_by: SpeechframeError | None = None

    def __post_init__(self) -> None:
        self.outcomes.in_order = self.in_order
        self.outcomes.given_up = self._given_up
        self._awaited: set[object] = set()
        _ending.hold(self)

    def __str__(self) -> str:
        return str(self.path)

    def close(self, error: BaseException | None) -> None:
        """Note the end of the run; in its loop."""
        _ending.release(self)
        if self.ended.done():
            return
        if error is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)

    def end(self, *, drain: bool, because: StopReason = StopReason.INTERRUPTED) -> None:
        """Start no further call; those in flight finish, or (no `drain`) are cancelled. From any thread."""
        if not self.ended.done():
            # The loop may have ended without a word.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.stop, drain, because)

    def end_with_loop(self, *, is_news: bool) -> None:
        """End the run, for its loop is being ended: calls in flight have as long as after SIGTERM.

        Parameters
        ----------
        is_news
            Nobody has asked for its end before, so that people are told what is waited for.
        """
        self.stop(True, StopReason.INTERRUPTED)
        self.loop.call_later(_ending.TERM_DRAIN_S, self.task.cancel)
        _ending.heed_ctrl_c()
        if is_news:
            _ending.say_live([self])

    def check_loop(self) -> None:
        """Raise RuntimeError when the loop that made the run was closed under it: it never ends."""
        if self.loop.is_closed() and not self.ended.done():
            _ending.release(self)
            raise RuntimeError(
                f"the event loop of the run {self.path} was closed before the run had ended; resume() makes "
                "the rest. Let the loop run until `await run` returns"
            )

    @contextlib.contextmanager
    def in_order(self) -> Iterator[None]:
        """End the run in good order, before they go on, at Ctrl-C and SIGTERM in the block."""
        self.check_loop()
        with gentle_termination():
            try:
                yield
            except (KeyboardInterrupt, Terminated) as order:
                end_in_order([self], _ending.TERM_DRAIN_S if isinstance(order, Terminated) else None)
                raise

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Note that somebody waits for the end of the run."""
        somebody = object()
        self._awaited.add(somebody)
        try:
            yield
        finally:
            self._awaited.discard(somebody)

    async def _given_up(self, order: asyncio.CancelledError) -> None:
        """End the run with the last one that follows it, cancelled while it waits; then raise `order`."""
        if not self._awaited:
            await self.until_ended(order)

    async def until_ended(self, cancelled: asyncio.CancelledError | None = None) -> None:
        """Wait for the end, in any loop; cancelled, stop with drain, and cancelled again, without.

        Parameters
        ----------
        cancelled
            The first cancellation, where it came before.
        """
        with self.awaited():
            await self._until_ended(cancelled)

    async def _until_ended(self, cancelled: asyncio.CancelledError | None) -> None:
        self.check_loop()
        ended = asyncio.wrap_future(self.ended)
        if cancelled is not None:
            self.end(drain=True)
        while not ended.done():
            try:
                await asyncio.wait({ended})
            except asyncio.CancelledError as order:
                self.end(drain=cancelled is None)
                cancelled = order
        await until_terminated()
        error = ended.exception()
        if cancelled is not None:
            raise cancelled
        if error is not None:
            raise error
