"""What good answers hold: JSON, audio in Base64, a balance, a length, warnings, odd values.

Fast where they are right, forgiving where a paid answer can still be read, and within a bound.

Headers are multidicts, which find a name in any case and may have it several times.
"""

import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from multidict import MultiMapping
from pydantic import ConfigDict, TypeAdapter, ValidationError

from speechframe.errors import BadAnswer
from speechframe.spec.chosen import WARNING_HEADER

orjson: Any
pybase64: Any
try:  # the extra [speed]
    import orjson
    import pybase64
except ModuleNotFoundError:
    orjson = pybase64 = None

MOST_VALUES = 1_000_000
"""Of JSON in one body: two bytes of it take up to two hundred in memory, and nothing else runs meanwhile."""
REPAIRED = "text in the answer was no valid Unicode and was repaired"
MAX_MESSAGE_CHARACTERS = 500
MAX_TRACE_CHARACTERS = 128
MAX_WARNINGS = 20
MAX_LOOKED_AT = 65_536
"""Characters of a text that are looked at to show a few of them: some services say megabytes."""

Clean = Callable[[str], str]
"""Masks what must not be shown; it is given whole texts, before they are shortened, to find no half key.

``str`` leaves a text as it is, where there is nothing to hide.
"""

NO_END = "the stream may be truncated: its answer has neither a length nor a last chunk"
"""What is wrong with an answer that does not tell its end."""

_BETWEEN_VALUES = (b",", b"[", b"{")
_GROUP = 4
_STRING = TypeAdapter(bytes, config=ConfigDict(val_json_bytes="base64"))
"""Reads bytes out of a string of JSON that holds them in Base64."""
# It takes letters of the other alphabet too, and what an escape stands for.
_NOT_MEANT = (b"-", b"_", b"\\")
_NO_AUDIO = ("application/json", "text/")
_MAX_KIND_CHARACTERS = 60
_BALANCE = re.compile(
    rb'"(?:remainingCharacterCount|remaining_character_count)"[ \t\r\n]*:[ \t\r\n]*'
    rb"(-?[0-9]{1,19})[ \t\r\n]*[,}]"
)
_MAX_INT64 = 2**63 - 1
_LARGEST_CAP = 100_000


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


def decode_base64(value: bytes | memoryview) -> bytes | None:
    """Return the bytes of strictly right Base64: its letters alone, in whole groups, padded; else None.

    Examples
    --------
    >>> decode_base64(b"aGk="), decode_base64(b"aGk"), decode_base64(b"aG k")
    (b'hi', None, None)
    """
    # Some of the decoders take a fourth character that is padding too many, or too little padding.
    if len(value) % _GROUP:
        return None
    try:
        if pybase64 is not None:
            decoded: bytes = pybase64.b64decode(value, validate=True)
            return decoded
        return _decoded(value)
    except ValueError:
        return None


def _decoded(value: bytes | memoryview) -> bytes:
    string = b"".join((b'"', value, b'"'))
    if not any(letter in string for letter in _NOT_MEANT):
        try:
            return _STRING.validate_json(string)
        except ValidationError:
            pass  # bits behind the last byte that are not zero are refused there, and taken by the others
    return binascii.a2b_base64(value, strict_mode=True)


def balance_in(body: bytes) -> int | None:
    """Return the balance in a body that cannot be read as a whole; None where none is found.

    Examples
    --------
    >>> balance_in(b'{"remainingCharacterCount": 77, "encodedAudio": "AAAA')
    77
    """
    found = _BALANCE.search(body)
    if found is None:
        return None
    value = int(found[1])
    return value if -_MAX_INT64 <= value <= _MAX_INT64 else None


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body.

    Raises
    ------
    BadAnswer
        The body holds anything else.
    """
    value = loaded(body)
    if not isinstance(value, dict):
        raise BadAnswer(f"the answer is no JSON object but {kind_of(value)}")
    return value


def loaded(body: bytes) -> Any:
    """Return the JSON value in a body.

    Raises
    ------
    BadAnswer
        The body holds none.
    """
    try:
        return loads(body)[0]
    except NotJsonError as error:
        raise BadAnswer(f"the answer is no JSON: {error}") from None


def whole_number(fields: Mapping[str, Any], name: str) -> int | None:
    """Return a field that holds a whole number of 64 bits; None where it holds anything else."""
    value = fields.get(name)
    if type(value) is float and value.is_integer() and abs(value) <= _MAX_INT64:
        value = int(value)
    return value if type(value) is int and -_MAX_INT64 <= value <= _MAX_INT64 else None


def kind_of(value: Any) -> str:
    """Return what kind of JSON value it is, in words."""
    names = {dict: "an object", list: "an array", str: "text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def published_cap(limits: Mapping[str, Any], pool: str) -> int | None:
    """Return how many calls of a pool a page of limits allows at once; None where it does not say."""
    pools = limits.get("pools")
    said = pools.get(pool) if isinstance(pools, Mapping) else None
    # A page may hold anything; True is an int.
    return min(said, _LARGEST_CAP) if type(said) is int and said >= 1 else None


def warnings_of(headers: MultiMapping[str], *further: str | None, clean: Clean = str) -> tuple[str, ...]:
    """Return `further` and every warning header, each once, on one line, shortened and bounded in number.

    Headers are percent-encoded UTF-8. A body that only says them all again, joined, is left out.
    """
    values = headers.getall(WARNING_HEADER, ())
    if not values and not any(further):
        return ()
    said = [unquote(value) for value in values]
    new = [text for text in further if text and not _only_repeats(text, said)]
    found = [*new, *said]
    lines = (one_line(warning, MAX_MESSAGE_CHARACTERS, clean) for warning in found if warning)
    return tuple(dict.fromkeys(line for line in lines if line))[:MAX_WARNINGS]


def _only_repeats(text: str, said: list[str]) -> bool:
    for one in said:
        if one not in text:
            return False
        text = text.replace(one, "", 1)
    return bool(said) and not text.strip(" ;,.|\n")


def one_line(text: str, max_characters: int, clean: Clean = str) -> str:
    """Return `text` masked, on one line, without control characters, at most `max_characters` long."""
    text = clean(text[:MAX_LOOKED_AT])
    if len(text) <= max_characters and " " not in text and text.isprintable():
        return text
    words = " ".join(text[: 4 * max_characters].split())
    line = words if words.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in words)
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"


def tells_its_end(headers: MultiMapping[str]) -> bool:
    """Return whether an early end would be noticed; what lasts until the connection ends is whole or not.

    Examples
    --------
    >>> from multidict import CIMultiDict
    >>> tells_its_end(CIMultiDict({"Transfer-Encoding": "chunked"})), tells_its_end(CIMultiDict())
    (True, False)
    """
    # The last coding is what frames the body; with another one the connection's end does.
    coding = ",".join(headers.getall("Transfer-Encoding", ())).rpartition(",")[2].strip().lower()
    return coding == "chunked" if coding else "Content-Length" in headers


def words_instead(headers: Mapping[str, str], clean: Clean = str) -> str | None:
    """Return in words what a good answer holds that cannot be audio: of raw formats any bytes would pass.

    Parameters
    ----------
    headers
        Of the answer.
    clean
        Masks what must not be shown.

    Examples
    --------
    >>> words_instead({"Content-Type": "text/html"}), words_instead({"Content-Type": "audio/wav"})
    ('the answer is no audio but text/html', None)
    """
    kind = headers.get("Content-Type", "").strip().lower()
    if not kind.startswith(_NO_AUDIO):
        return None
    return f"the answer is no audio but {one_line(kind, _MAX_KIND_CHARACTERS, clean)}"
