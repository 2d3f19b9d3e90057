"""Tasks that may finish what they do although the loop they are in is being ended."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T_co = TypeVar("T_co", covariant=True)


def _nobody() -> None:
    """Tell nobody."""


class LastingTask(asyncio.Task[T_co]):
    """A task that the end of its loop does not cut off.

    Whoever ends a loop (``asyncio.run`` at Ctrl-C, or when its program returns) cancels every task that is
    left, once, and waits for all of them. That comes from outside of the loop, which stands still then: this
    task goes on, and somebody is told instead. Any other cancellation (of a time limit, of another task, or
    the second from outside) is one as ever.

    Parameters
    ----------
    coroutine, name
        What it does, and its name.
    told
        Called at the end of the loop; it must see to it that this task ends before long.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, T_co], *, name: str, told: Callable[[], None] = _nobody
    ) -> None:
        self._told = told
        self._was_told = False
        super().__init__(coroutine, loop=asyncio.get_running_loop(), name=name)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel it, unless this is the end of its loop."""
        if self._was_told or self.done() or self.get_loop().is_running():
            return super().cancel(msg)
        self._was_told = True
        self._told()
        return True
