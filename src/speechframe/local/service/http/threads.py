"""Threads for work that blocks, such as a slow disk or a name server that does not answer.

A thread cannot be cancelled. So each key has its own threads, up to a bound. If the work of a key hangs, only
this key waits. The threads of ``asyncio.to_thread`` are few, and all keys share them. So the service uses
those only for its own files.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(eq=False)
class NoFreeThread(Exception):
    """All threads of a key, `at_once` of them, are busy, and none became free in time."""

    at_once: int


@dataclass(frozen=True)
class FairThreads:
    """The threads of all keys, a bounded number for each key.

    Parameters
    ----------
    at_once
        Largest number of threads of a key.
    limit_s
        Seconds that a call waits for a thread of its key, and again for the result. None waits without end.
    is_left_at_end
        Whether the process may end while threads still run.
    """

    at_once: int
    limit_s: float | None = None
    is_left_at_end: bool = False
    # The operator sets the keys, so this dict stays small.
    _keys: dict[bytes, "KeyThreads"] = field(default_factory=dict, init=False, repr=False)

    def get_threads(self, key_hash: bytes) -> "KeyThreads":
        """Return the threads of a key."""
        if key_hash not in self._keys:
            self._keys[key_hash] = KeyThreads(self)
        return self._keys[key_hash]


class KeyThreads:
    """The threads of one key. :meth:`FairThreads.get_threads` makes them."""

    def __init__(self, threads: FairThreads) -> None:
        self._threads = threads
        self._free = asyncio.Semaphore(threads.at_once)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `function`, called in a thread of this key.

        If the caller is cancelled, or the time is over, the thread goes on. It counts as busy until the
        function has returned.

        Raises
        ------
        NoTurn
            No thread of the key became free in time.
        TimeoutError
            The function did not return in time.
        """
        try:
            async with asyncio.timeout(self._threads.limit_s):
                await self._free.acquire()
        except TimeoutError:
            raise NoFreeThread(self._threads.at_once) from None
        loop, result = asyncio.get_running_loop(), Future[T]()
        result.set_running_or_notify_cancel()

        def call_function() -> None:
            """Call the function, pass on its result or error, and free the thread's place."""
            try:
                result.set_result(function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                result.set_exception(error)
            # The event loop may be closed, because the process may end before its threads.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._free.release)

        try:
            threading.Thread(
                target=call_function, name="speechframe-key", daemon=self._threads.is_left_at_end
            ).start()
        except RuntimeError:
            self._free.release()
            raise
        async with asyncio.timeout(self._threads.limit_s):
            return await asyncio.wrap_future(result)
