"""The test that somebody means."""

from os import PathLike
from typing import Any

from speechframe.errors import ListeningError
from speechframe.listening.test import Test, open_test

__all__ = ["given_test"]


def given_test(given: Any) -> Test:
    """Return a test: as it is, of the widget that shows it, or of its folder.

    Raises
    ------
    ListeningError
        When it is none of these.
    StoreError
        When the folder holds no test.
    """
    if isinstance(given, (str, PathLike)):
        return open_test(given)
    # A widget holds its test; rooms below cannot know widgets by name.
    found = given if isinstance(given, Test) else getattr(given, "test", None)
    if not isinstance(found, Test):
        raise ListeningError(
            f"a {type(given).__name__} is no listening test; allowed: what listening_test(...) returned, or "
            "the folder of a test"
        )
    return found
