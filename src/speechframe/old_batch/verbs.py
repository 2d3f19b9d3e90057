"""The list of verbs: declared once, and the async face, the sync face and the CLI derive from it."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from speechframe.old_batch.operation import Operation
from speechframe.spec.speech import Model

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
    by_model
        Operations of models that need another one; a run is of one model.
    """

    name: str
    chapter: str
    function: Callable[..., Coroutine[Any, Any, Any]]
    operation: type[Operation]
    by_model: Mapping[Model, type[Operation]] = field(default_factory=dict)

    def operation_of(self, model: Model) -> type[Operation]:
        """Return the operation of a model."""
        return self.by_model.get(model, self.operation)


VERBS: dict[str, Verb] = {}
"""Every verb by name."""


def verb(
    *,
    chapter: str,
    operation: type[Operation],
    by_model: Mapping[Model, type[Operation]] = MappingProxyType({}),
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Declare an async function as a verb.

    Parameters
    ----------
    chapter
        The chapter of the service document it belongs to.
    operation, by_model
        See :class:`Verb`.
    """

    def declare(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        VERBS[function.__name__] = Verb(function.__name__, chapter, function, operation, by_model)
        return function

    return declare


def model_of(asked: Any) -> Model:
    """Return the model a run is of; gen2 where that is no single model, and then every row is told so.

    Parameters
    ----------
    asked
        The argument ``model`` as the caller gave it, None where it was not given.

    Examples
    --------
    >>> model_of("falcon-2"), model_of(None)
    (<Model.FALCON_2: 'falcon-2'>, <Model.GEN2: 'gen2'>)
    """
    try:
        return Model(asked) if isinstance(asked, str) else Model.GEN2
    except ValueError:
        return Model.GEN2
