"""The list of verbs: declared once, and the async face, the sync face and the CLI derive from it."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from speechframe.batch.operation import Operation

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Verb:
    """A declared verb.

    Parameters
    ----------
    name
        What people type.
    chapter
        The chapter of the service document it belongs to.
    function
        The async function; its signature and docstring are the verb's.
    operation
        The verb's operation; its ``on(service)`` is called, so that a resume finds it by the name in
        run.json.
    """

    name: str
    chapter: str
    function: Callable[..., Coroutine[Any, Any, Any]]
    operation: type[Operation]


VERBS: dict[str, Verb] = {}
"""Every verb by name."""


def verb(
    *, chapter: str, operation: type[Operation]
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Declare an async function as a verb.

    Parameters
    ----------
    chapter
        The chapter of the service document it belongs to.
    operation
        See :class:`Verb`.
    """

    def declare(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        VERBS[function.__name__] = Verb(function.__name__, chapter, function, operation)
        return function

    return declare
