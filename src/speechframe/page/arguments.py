"""Check arguments of public functions. Each error contains the name, the allowed values and the value."""

import operator
from os import PathLike
from pathlib import Path
from typing import Any


def check_whole_number(
    name: str, value: Any, *, low: int = 1, high: int | None = None, error: type[Exception] = ValueError
) -> int:
    """Return `value` as an int, or raise an error if it is not a whole number within the range.

    Parameters
    ----------
    name
        Name of the argument.
    value
        Value of the argument. Integers of numpy are also accepted.
    low, high
        Smallest and largest allowed number. None allows any large number.
    error
        Class of the error.

    Raises
    ------
    ValueError
        The value is not a whole number (such as ``2.5``, ``True`` or ``"3"``), or is out of range. `error` is
        raised instead if it is given.

    Examples
    --------
    >>> check_whole_number("port", 8080, low=0, high=65535)
    8080
    >>> check_whole_number("training", 2.5, low=0)
    Traceback (most recent call last):
        ...
    ValueError: training must be a whole number, 0 or more, not 2.5
    """
    span = f"{low:,} or more" if high is None else f"{low:,} to {high:,}"
    refused = error(f"{name} must be a whole number, {span}, not {value!r}")
    if isinstance(value, bool):
        raise refused
    try:
        number = operator.index(value)
    except TypeError:
        raise refused from None
    if number < low or (high is not None and number > high):
        raise refused
    return number


def check_text(name: str, value: Any, *, error: type[Exception] = ValueError) -> str:
    """Return `value`, or raise an error if it is not a text or is blank.

    Raises
    ------
    ValueError
        The value is not a string, or has only white space. `error` is raised instead if it is given.

    Examples
    --------
    >>> check_text("title", "  ")
    Traceback (most recent call last):
        ...
    ValueError: title must be a text, not '  '
    """
    if not isinstance(value, str) or not value.strip():
        raise error(f"{name} must be a text, not {value!r}")
    return value


def check_flag(name: str, value: Any, *, error: type[Exception] = ValueError) -> bool:
    """Return `value`, or raise an error if it is neither True nor False.

    Raises
    ------
    ValueError
        The value is not a bool. `error` is raised instead if it is given.

    Examples
    --------
    >>> check_flag("reveal", "no")
    Traceback (most recent call last):
        ...
    ValueError: reveal must be True or False, not 'no'
    """
    if not isinstance(value, bool):
        raise error(f"{name} must be True or False, not {value!r}")
    return value


def check_path(name: str, value: Any, *, error: type[Exception] = ValueError) -> Path:
    """Return `value` as a path, or raise an error if it is not a path or is empty.

    Raises
    ------
    ValueError
        The value is neither a string nor a path, or is empty. `error` is raised instead if it is given.

    Examples
    --------
    >>> check_path("folder", 3)
    Traceback (most recent call last):
        ...
    ValueError: folder must be a path, not 3
    """
    if not isinstance(value, (str, PathLike)) or value == "":
        raise error(f"{name} must be a path, not {value!r}")
    return Path(value)
