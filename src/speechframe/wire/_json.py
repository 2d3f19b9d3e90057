"""JSON of foreign services: fast when it is right, forgiving where a paid answer can still be read."""

import json
from typing import Any

orjson: Any
try:
    import orjson
except ModuleNotFoundError:  # the extra [speed]
    orjson = None


MOST_VALUES = 1_000_000
"""In one body. A value takes two bytes there and up to two hundred in memory; nothing else runs meanwhile."""
_BETWEEN_VALUES = (b",", b"[", b"{")


class NotJsonError(ValueError):
    """The bytes are no JSON, or JSON nested so deeply that nobody means it."""


class TooManyValuesError(NotJsonError):
    """The bytes may be JSON, of more values than anybody means."""


def loads(body: bytes, *, most_values: int = MOST_VALUES) -> tuple[Any, bool]:
    """Return the value in `body`, and whether text in it had to be repaired.

    A body that may hold more values than `most_values` is not parsed. Counted are the signs that stand
    between values, those in text too: Base64 has none.

    The fast parser goes first. What it refuses (NaN in a field nobody reads, a lone surrogate, a byte order
    mark, bytes that are no UTF-8) is read by the standard library, so that both give the same value. Lone
    surrogates and broken UTF-8 become U+FFFD: left in, one of them breaks a whole table later.
    """
    # Shorter bodies cannot hold so many.
    if len(body) > most_values and sum(map(body.count, _BETWEEN_VALUES)) > most_values:
        raise TooManyValuesError(f"more than {most_values:,} values")
    if orjson is not None:
        try:
            return orjson.loads(body), False
        except ValueError:
            pass
    try:
        return _loads_leniently(body)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(str(error)[:200]) from None


def _loads_leniently(body: bytes) -> tuple[Any, bool]:
    try:
        text, broken = body.decode("utf-8-sig"), False
    except UnicodeDecodeError:
        text, broken = body.decode("utf-8-sig", "replace"), True
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer of more digits than Python reads, perhaps in a field nobody reads.
        value = json.loads(text, parse_int=_number)
    # Decoded UTF-8 holds no surrogates, so one can only come from an escape.
    if "\\ud" in text or "\\uD" in text:
        repaired = _without_surrogates(value)
        return repaired, broken or repaired != value
    return value, broken


def _number(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value
