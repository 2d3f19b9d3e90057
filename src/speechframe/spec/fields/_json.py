"""Read JSON from callers, in a time that only its length bounds.

What JSON costs is its values, not its bytes: a megabyte of empty lists is half a million objects. So values
are counted first, and a text with more of them than any request has is not parsed. The service reads bodies,
JSON fields of forms and frames of sockets with this, on the event loop that serves everybody else too.
"""

import json
from collections import Counter
from typing import Any, NoReturn

from speechframe.spec.chosen import MAX_JSON_DEPTH, MAX_JSON_VALUES

_NAME_CHARACTERS = 60
_MOST_DIGITS = 400
"""Of a whole number. The time that Python takes grows with their square, and no field takes as many."""


def read_json(text: str, *, unique_names: bool = False) -> Any:
    """Return the value of a caller's JSON text.

    Parameters
    ----------
    text
        The text.
    unique_names
        Whether a name that stands twice in one object is refused; without it, the last one counts.

    Raises
    ------
    ValueError
        For text that is not JSON, has too many values or is nested too deeply, with words that say which.

    Examples
    --------
    >>> read_json('{"text": "[[[["}')
    {'text': '[[[['}
    >>> read_json("[" * 100 + "]" * 100)
    Traceback (most recent call last):
        ...
    ValueError: nested too deeply; allowed: 32 levels
    """
    lists_and_objects = _checked_count(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique if unique_names else None,
            parse_constant=_no_constant,
            parse_int=_whole,
        )
    except RecursionError:
        _too_deep()
    # More than one of them make a list or an object.
    if lists_and_objects > MAX_JSON_DEPTH and _is_deep(value):
        _too_deep()
    return value


def _checked_count(text: str) -> int:
    """Return how many lists and objects a text has, after a look at how many values that makes."""
    # Methods of str only, each of which goes through the text once at the speed of C. Without its escapes, a
    # text is cut by its quotes into strings and what stands between them. There, each value but the first
    # follows a comma or a bracket; of strings, a value has at most two: its name and itself.
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


def _too_deep() -> NoReturn:
    raise ValueError(f"nested too deeply; allowed: {MAX_JSON_DEPTH} levels") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        name = twice if len(twice) <= _NAME_CHARACTERS else twice[: _NAME_CHARACTERS - 1] + "…"
        raise ValueError(f"the name {name!r} stands twice in one object")
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a whole number has {len(digits):,} digits; allowed: {_MOST_DIGITS}")
    return int(digits)
