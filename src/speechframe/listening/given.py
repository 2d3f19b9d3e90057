"""Convert an argument to a listening test. The argument may be a test, its widget or its folder."""

from os import PathLike
from typing import Any

from speechframe.errors import ListeningError
from speechframe.listening.test import Test, open_test

__all__ = ["resolve_test"]


def resolve_test(given: Any) -> Test:
    """Return the test of an argument.

    Parameters
    ----------
    given
        A test, the widget of a test, or the folder of a test.

    Raises
    ------
    ListeningError
        `given` is something else.
    StoreError
        The folder does not contain a test.
    """
    if isinstance(given, (str, PathLike)):
        return open_test(given)
    # A widget has the attribute `test`. Its class is not checked, because widgets import this package.
    found = given if isinstance(given, Test) else getattr(given, "test", None)
    if not isinstance(found, Test):
        raise ListeningError(
            f"the type {type(given).__name__} is not a listening test; pass the result of "
            "listening_test(...), or the folder of a test"
        )
    return found
