"""Read JSON of callers quickly, and refuse JSON that would take long to parse.

The time to parse JSON depends on the number of values. A megabyte of empty lists has half a million values.
So `read_json` first counts the values, and refuses a text with more values than any valid request. The
service parses JSON on its event loop, so a slow parse would delay all other calls.
"""

import json
from collections import Counter
from typing import Any, NoReturn

from speechframe.spec.chosen import MAX_JSON_DEPTH, MAX_JSON_VALUES

_MAX_SHOWN_NAME_CHARACTERS = 60
"""Largest number of characters of a field name in a message."""
_MAX_DIGITS = 400
"""Largest number of digits of an integer. The time of `int` grows with the square of the digits."""


def read_json(text: str, *, unique_names: bool = False) -> Any:
    """Return the value of a JSON text from a caller.

    Parameters
    ----------
    text
        JSON text.
    unique_names
        True refuses an object with two equal names. Otherwise the last value of the name counts.

    Raises
    ------
    ValueError
        The text is not JSON, has too many values or is nested too deeply. The message states the fault.

    Examples
    --------
    >>> read_json('{"text": "[[[["}')
    {'text': '[[[['}
    >>> read_json("[" * 100 + "]" * 100)
    Traceback (most recent call last):
        ...
    ValueError: nested too deeply; allowed: 32 levels
    """
    lists_and_objects = _count_lists_and_objects(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_refuse_equal_names if unique_names else None,
            parse_constant=_refuse_constant,
            parse_int=_read_integer,
        )
    except RecursionError:
        _refuse_depth()
    # A text with few lists and objects cannot be nested too deeply.
    if lists_and_objects > MAX_JSON_DEPTH and _is_deep(value):
        _refuse_depth()
    return value


def _count_lists_and_objects(text: str) -> int:
    """Return the number of lists and objects in a text. Raise ValueError if the text has too many values."""
    # Use only methods of str, because they are fast. After the escapes are removed, quotes divide the text
    # into strings and the text between strings. Between strings, each value except the first follows a comma
    # or a bracket. A value has at most two strings: its name and itself.
    bare = text.replace("\\\\", "").replace('\\"', "") if "\\" in text else text
    if bare.count('"') <= 4 * MAX_JSON_VALUES:
        between = "".join(bare.split('"')[::2])
        lists_and_objects = between.count("[") + between.count("{")
        if lists_and_objects + between.count(",") < MAX_JSON_VALUES:
            return lists_and_objects
    raise ValueError(f"too many values; allowed: {MAX_JSON_VALUES:,}")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, list | dict)
        ]
    return bool(level)


def _refuse_depth() -> NoReturn:
    raise ValueError(f"nested too deeply; allowed: {MAX_JSON_DEPTH} levels") from None


def _refuse_equal_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        name = (
            twice
            if len(twice) <= _MAX_SHOWN_NAME_CHARACTERS
            else twice[: _MAX_SHOWN_NAME_CHARACTERS - 1] + "…"
        )
        raise ValueError(f"the name {name!r} stands twice in one object")
    return found


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _read_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a whole number has {len(digits):,} digits; allowed: {_MAX_DIGITS}")
    return int(digits)
