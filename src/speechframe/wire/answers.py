"""Reading of good answers: JSON, audio in Base64, amounts, a length, warnings and unexpected values.

Valid answers take a fast path. A paid answer with unexpected values is still read, up to limits.

Headers are multidicts. They find a name in any case, and may have a name several times.
"""

import binascii
import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from multidict import MultiMapping
from pydantic import ConfigDict, TypeAdapter, ValidationError

from speechframe.errors import BadAnswer
from speechframe.spec.billing import MOST_CALL_CREDITS
from speechframe.spec.chosen import WARNING_HEADER

orjson: Any
pybase64: Any
try:  # the extra [speed]
    import orjson
    import pybase64
except ModuleNotFoundError:
    orjson = pybase64 = None

MOST_VALUES = 1_000_000
"""Largest number of JSON values in one body. Two bytes of JSON take up to two hundred bytes in memory."""
REPAIRED = "text in the answer was not valid Unicode and was repaired"
MAX_MESSAGE_CHARACTERS = 500
MAX_TRACE_CHARACTERS = 128
MAX_WARNINGS = 20
MAX_LOOKED_AT = 65_536
"""Characters of a text that are read, even if only a few are shown. Some services send megabytes."""

SecretMasker = Callable[[str], str]
"""Function that masks secrets. It gets the whole text, before it is shortened, so half a key never remains.

``str`` returns a text unchanged, if there are no secrets to mask.
"""

NO_END = "the stream may be truncated: its answer has neither a length nor a last chunk"
"""Message about an answer without a mark of its end."""

_BETWEEN_VALUES = (b",", b"[", b"{")
_GROUP = 4
_STRING = TypeAdapter(bytes, config=ConfigDict(val_json_bytes="base64"))
"""Reader of bytes from a JSON string with Base64."""
# The reader also accepts letters of the URL-safe alphabet, and escapes. These must not occur.
_NOT_MEANT = (b"-", b"_", b"\\")
_NO_AUDIO = ("application/json", "text/")
_MAX_KIND_CHARACTERS = 60
_BALANCE = re.compile(
    rb'"(?:remainingCharacterCount|remaining_character_count)"[ \t\r\n]*:[ \t\r\n]*'
    rb"([0-9]{1,19})[ \t\r\n]*[,}]"
)
_MAX_INT64 = 2**63 - 1
_MAX_SHOWN = 40
_LARGEST_CAP = 100_000


class NotJsonError(ValueError):
    """The bytes are not JSON, or the JSON is nested too deeply."""


class TooManyValuesError(NotJsonError):
    """The bytes contain far more JSON values than a real answer."""


def loads(body: bytes, *, most_values: int = MOST_VALUES) -> tuple[Any, bool]:
    """Return the value in `body`, and whether text in it had to be repaired.

    A body that may contain more than `most_values` values is not parsed. The check counts the characters that
    separate values, also inside text. Base64 has none of them.

    The fast parser runs first. It refuses NaN, lone surrogates, byte order marks and bytes outside UTF-8. The
    standard library reads these, so both parsers give the same value. Lone surrogates and broken UTF-8 become
    U+FFFD, because one of them would break a whole table later.
    """
    # A shorter body cannot contain so many values.
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
        # An integer has more digits than Python reads. Its field may be unused, so read it as a float.
        value = json.loads(text, parse_int=_number)
    # Decoded UTF-8 has no surrogates. So a surrogate can only come from an escape.
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
    """Return the bytes of strictly valid Base64, or None. Only its letters in groups of four are valid.

    Examples
    --------
    >>> decode_base64(b"aGk="), decode_base64(b"aGk"), decode_base64(b"aG k")
    (b'hi', None, None)
    """
    # Some decoders accept too much or too little padding.
    if len(value) % _GROUP:
        return None
    try:
        if pybase64 is not None:
            decoded: bytes = pybase64.b64decode(value, validate=True)
            return decoded
        return _decode_slowly(value)
    except ValueError:
        return None


def _decode_slowly(value: bytes | memoryview) -> bytes:
    string = b"".join((b'"', value, b'"'))
    if not any(letter in string for letter in _NOT_MEANT):
        try:
            return _STRING.validate_json(string)
        except ValidationError:
            pass  # this reader refuses nonzero bits after the last byte, and the next one accepts them
    return binascii.a2b_base64(value, strict_mode=True)


def balance_in(body: bytes) -> int | None:
    """Return the balance in a body that cannot be parsed, or None.

    Examples
    --------
    >>> balance_in(b'{"remainingCharacterCount": 77, "encodedAudio": "AAAA')
    77
    """
    found = _BALANCE.search(body)
    if found is None:
        return None
    value = amount(int(found[1]), _MAX_INT64)
    return None if value is None else int(value)


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body, or raise BadAnswer."""
    value = loaded(body)
    if not isinstance(value, dict):
        raise BadAnswer(f"the answer is not a JSON object but {kind_of(value)}")
    return value


def loaded(body: bytes) -> Any:
    """Return the JSON value in a body, or raise BadAnswer."""
    try:
        return loads(body)[0]
    except NotJsonError as error:
        raise BadAnswer(f"the answer is not JSON: {error}") from None


def amount(value: Any, most: float = MOST_CALL_CREDITS, *, least: float = 0) -> int | float | None:
    """Return a number from a service, or None if it is not a number from `least` to `most`.

    Every credit, balance, length and time in an answer goes through this function before it is used or
    stored.

    Examples
    --------
    >>> amount(12.5), amount(-1), amount(2**63), amount(float("nan")), amount(True), amount("7")
    (12.5, None, None, None, None, None)
    """
    return value if type(value) in {int, float} and least <= value <= most else None


def odd_amount(name: str, value: Any) -> str:
    """Return the warning about an amount of credits that :func:`amount` refused."""
    return f"{name} is {shown_value(value)}, which is not a possible price. The computed price counts instead"


def whole_number(fields: Mapping[str, Any], name: str) -> int | None:
    """Return a field with a whole number of at least 0 that fits in 64 bits, or None."""
    value = amount(fields.get(name), _MAX_INT64)
    return int(value) if value is not None and value == int(value) else None


def shown_value(value: Any) -> str:
    """Return a JSON value in words, for a message."""
    # Show only numbers and short text, because the repr of another value may be as large as the answer.
    if value is None:
        return "missing"
    if isinstance(value, (bool, float)):
        return str(value)
    if isinstance(value, str):
        # Show a text completely or not at all, because half a key cannot be masked.
        return repr(value) if len(value) <= _MAX_SHOWN else f"a text of {len(value):,} characters"
    if isinstance(value, int):
        return str(value) if abs(value) <= _MAX_INT64 else "out of range"
    return kind_of(value)


def kind_of(value: Any) -> str:
    """Return the kind of a JSON value in words."""
    names = {dict: "an object", list: "an array", str: "text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def published_cap(limits: Mapping[str, Any], pool: str) -> int | None:
    """Return the number of simultaneous calls that a page of limits allows a pool, or None."""
    pools = limits.get("pools")
    said = pools.get(pool) if isinstance(pools, Mapping) else None
    # A page may contain any value, and True is an int.
    return min(said, _LARGEST_CAP) if type(said) is int and said >= 1 else None


def published_paces(limits: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    """Return, by kind of work, the simultaneous calls of a service and its usual characters per second."""
    page, paces = limits.get("paces"), {}
    for work, pace in page.items() if isinstance(page, Mapping) else ():
        # Skip invalid entries, because a page may contain any value.
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            at_once, speed = int(pace["calls_at_once"]), float(pace["characters_per_second"])
            if at_once >= 1 and 0 < speed < math.inf:
                paces[str(work)] = min(at_once, _LARGEST_CAP), speed
    return paces


def warnings_of(
    headers: MultiMapping[str], *further: str | None, clean: SecretMasker = str
) -> tuple[str, ...]:
    """Return `further` and each warning header once, on one line, shortened, up to a limit of warnings.

    Headers are percent-encoded UTF-8. A body warning that only repeats the headers is left out.
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


def one_line(text: str, max_characters: int, clean: SecretMasker = str) -> str:
    """Return `text` masked, on one line, without control characters, with at most `max_characters`."""
    text = clean(text[:MAX_LOOKED_AT])
    if len(text) <= max_characters and " " not in text and text.isprintable():
        return text
    words = " ".join(text[: 4 * max_characters].split())
    line = words if words.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in words)
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"


def tells_its_end(headers: MultiMapping[str]) -> bool:
    """Return whether an early end would be noticed. It is not noticed if only closing ends the answer.

    Examples
    --------
    >>> from multidict import CIMultiDict
    >>> tells_its_end(CIMultiDict({"Transfer-Encoding": "chunked"})), tells_its_end(CIMultiDict())
    (True, False)
    """
    # The last coding sets the end of the body. With codings other than chunked, the connection's end does.
    coding = ",".join(headers.getall("Transfer-Encoding", ())).rpartition(",")[2].strip().lower()
    return coding == "chunked" if coding else "Content-Length" in headers


def words_instead(headers: Mapping[str, str], clean: SecretMasker = str) -> str | None:
    """Return a message if a good answer cannot be audio, by its content type. Else None.

    This check exists because any bytes would pass as a raw format.

    Examples
    --------
    >>> words_instead({"Content-Type": "text/html"}), words_instead({"Content-Type": "audio/wav"})
    ('the answer is not audio but text/html', None)
    """
    kind = headers.get("Content-Type", "").strip().lower()
    if not kind.startswith(_NO_AUDIO):
        return None
    return f"the answer is not audio but {one_line(kind, _MAX_KIND_CHARACTERS, clean)}"
