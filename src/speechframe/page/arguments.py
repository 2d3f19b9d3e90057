"""What people type, looked at before anything is done with it: what is wrong and what is allowed."""

import operator
from os import PathLike
from pathlib import Path
from typing import Any

__all__ = ["flag", "place", "text", "whole"]


def whole(
    name: str, value: Any, *, low: int = 1, high: int | None = None, error: type[Exception] = ValueError
) -> int:
    """Return a whole number within its range.

    Parameters
    ----------
    name
        Of the argument.
    value
        What was given: an int, or numpy's kind of one.
    low, high
        What it is at least and at the most.
    error
        What is raised.

    Raises
    ------
    ValueError
        It is none (``2.5``, ``True``, ``"3"``), or out of range. Or `error`, where one is given.

    Examples
    --------
    >>> whole("port", 8080, low=0, high=65535)
    8080
    >>> whole("training", 2.5, low=0)
    Traceback (most recent call last):
        ...
    ValueError: training is a whole number, 0 or more, not 2.5
    """
    span = f"{low:,} or more" if high is None else f"{low:,} to {high:,}"
    refused = error(f"{name} is a whole number, {span}, not {value!r}")
    if isinstance(value, bool):
        raise refused
    try:
        number = operator.index(value)
    except TypeError:
        raise refused from None
    if number < low or (high is not None and number > high):
        raise refused
    return number


def text(name: str, value: Any, *, error: type[Exception] = ValueError) -> str:
    """Return a text that holds something.

    Raises
    ------
    ValueError
        It is no text, or an empty one. Or `error`, where one is given.

    Examples
    --------
    >>> text("title", "  ")
    Traceback (most recent call last):
        ...
    ValueError: title is a text, not '  '
    """
    if not isinstance(value, str) or not value.strip():
        raise error(f"{name} is a text, not {value!r}")
    return value


def flag(name: str, value: Any, *, error: type[Exception] = ValueError) -> bool:
    """Return True or False.

    Raises
    ------
    ValueError
        It is neither. Or `error`, where one is given.

    Examples
    --------
    >>> flag("reveal", "no")
    Traceback (most recent call last):
        ...
    ValueError: reveal is True or False, not 'no'
    """
    if not isinstance(value, bool):
        raise error(f"{name} is True or False, not {value!r}")
    return value


def place(name: str, value: Any, *, error: type[Exception] = ValueError) -> Path:
    """Return where a file or folder is.

    Raises
    ------
    ValueError
        It is no path, or an empty one. Or `error`, where one is given.

    Examples
    --------
    >>> place("folder", 3)
    Traceback (most recent call last):
        ...
    ValueError: folder is a path, not 3
    """
    if not isinstance(value, (str, PathLike)) or value == "":
        raise error(f"{name} is a path, not {value!r}")
    return Path(value)
