"""The face without ``await``: methods that run their twin on the package's one background loop."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from speechframe._loop import run_sync

__all__ = ["blocking"]

P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a coroutine method as a method that waits, of a class that holds the other object as ``_inner``.

    Parameters and result are typed from `method`, so that they stand once. A method that takes any field
    (``**fields``) cannot be typed so, and its twin is written out.

    Examples
    --------
    >>> class Slow:
    ...     async def double(self, number: int) -> int:
    ...         "Return twice `number`."
    ...         return 2 * number
    >>> class Plain:
    ...     _inner = Slow()
    ...     double = blocking(Slow.double)
    >>> Plain().double(4)
    8
    """

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_sync(method(self._inner, *args, **kwargs))

    first_line = (method.__doc__ or "").partition("\n")[0]
    twin.__doc__ = f"{first_line}\n\nSee :meth:`{method.__qualname__}`."
    return twin
