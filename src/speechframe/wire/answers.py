"""Reading of successful answers: JSON, audio in Base64, amounts and warnings.

Valid answers are read by fast code. A paid answer with unexpected values is still read, within limits.

Headers are multidicts, which find a name in upper or lower case and may contain a name several times.
"""

import binascii
import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

from multidict import MultiMapping
from pydantic import ConfigDict, TypeAdapter, ValidationError

from speechframe.errors import BadAnswer
from speechframe.spec.billing import MAX_CALL_CREDITS
from speechframe.spec.chosen import WARNING_HEADER
from speechframe.spec.fields._model import DocumentModel

orjson: Any
pybase64: Any
try:  # the extra [speed]
    import orjson
    import pybase64
except ModuleNotFoundError:
    orjson = pybase64 = None

MAX_ANSWER_VALUES = 1_000_000
"""Largest number of JSON values in a body. Two bytes of JSON may take two hundred bytes of memory."""
REPAIRED_TEXT_NOTE = "text in the answer was not valid Unicode and was repaired"
MAX_MESSAGE_CHARACTERS = 500
"""Largest number of characters of a message or warning of a service. Longer texts are shortened."""
MAX_TRACE_CHARACTERS = 128
"""Largest number of characters of a trace id. Longer ids are shortened."""
MAX_WARNINGS = 20
"""Largest number of warnings of an answer. Further warnings are dropped."""
MAX_READ_CHARACTERS = 65_536
"""Number of characters of a text that are read before it is shortened. Some services send megabytes."""

M = TypeVar("M", bound=DocumentModel)

SecretMasker = Callable[[str], str]
"""Function that masks secrets. It gets a text before the text is shortened, so that no part of a key remains.

``str`` masks nothing.
"""

NO_END_NOTE = "the stream may be truncated: its answer has neither a length nor a last chunk"
"""Message about an answer whose end is not marked by a length or a last chunk."""

_VALUE_SEPARATORS = (b",", b"[", b"{")
"""Characters before a JSON value. Their number limits the number of values."""
_BASE64_GROUP_LETTERS = 4
"""Letters in a group of Base64."""
_BASE64_READER = TypeAdapter(bytes, config=ConfigDict(val_json_bytes="base64"))
"""Fast decoder of a JSON string with Base64."""
# The fast decoder also accepts these characters of URL-safe Base64 and escapes. They are not allowed here.
_NOT_BASE64 = (b"-", b"_", b"\\")
_NOT_AUDIO_TYPES = ("application/json", "text/")
"""Beginnings of the content types of answers that are not audio."""
_MAX_TYPE_CHARACTERS = 60
"""Largest number of characters of a content type in a message."""
_BALANCE_FIELD = re.compile(
    rb'"(?:remainingCharacterCount|remaining_character_count)"[ \t\r\n]*:[ \t\r\n]*'
    rb"([0-9]{1,19})[ \t\r\n]*[,}]"
)
_MAX_INT64 = 2**63 - 1
_MAX_SHOWN_CHARACTERS = 40
"""Largest number of characters of a text value in a message."""
_MAX_CAP = 100_000
"""Largest usable number of simultaneous calls in a page of limits. A larger number is reduced to this."""


class NotJsonError(ValueError):
    """The bytes are not JSON, or the JSON is nested too deeply."""


class TooManyValuesError(NotJsonError):
    """The bytes contain far more JSON values than a valid answer."""


def load_json(body: bytes, *, most_values: int = MAX_ANSWER_VALUES) -> tuple[Any, bool]:
    """Return the value in `body`, and whether text in it had to be repaired.

    A body that may contain more than `most_values` values is not parsed and raises TooManyValuesError. The
    check counts the characters that separate values, also inside strings. Base64 contains none of these
    characters.

    orjson parses the body first, if it is installed. It refuses NaN, half surrogate pairs, byte order marks
    and invalid UTF-8. Then the standard library parses the body. Half surrogate pairs and invalid UTF-8
    become U+FFFD, because such text could not be written to a table.

    Raises NotJsonError if the body is not JSON.
    """
    # A body with fewer bytes cannot contain so many values, so do not count.
    if len(body) > most_values and sum(map(body.count, _VALUE_SEPARATORS)) > most_values:
        raise TooManyValuesError(f"more than {most_values:,} values")
    if orjson is not None:
        try:
            return orjson.loads(body), False
        except ValueError:
            pass
    try:
        return _load_json_leniently(body)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(str(error)[:200]) from None


def _load_json_leniently(body: bytes) -> tuple[Any, bool]:
    try:
        text, broken = body.decode("utf-8-sig"), False
    except UnicodeDecodeError:
        text, broken = body.decode("utf-8-sig", "replace"), True
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer has more digits than Python accepts. Read it as a float, because its field may be unused.
        value = json.loads(text, parse_int=_read_number)
    # Decoded UTF-8 has no surrogates, so a surrogate can only come from an escape.
    if "\\ud" in text or "\\uD" in text:
        repaired = _replace_surrogates(value)
        return repaired, broken or repaired != value
    return value, broken


def _read_number(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(item) for name, item in value.items()}
    return value


def decode_base64(value: bytes | memoryview) -> bytes | None:
    """Decode strictly valid Base64. Return None if other characters occur, or the padding is wrong.

    Examples
    --------
    >>> decode_base64(b"aGk="), decode_base64(b"aGk"), decode_base64(b"aG k")
    (b'hi', None, None)
    """
    # Check the length here, because some decoders accept too much or too little padding.
    if len(value) % _BASE64_GROUP_LETTERS:
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
    if not any(letter in string for letter in _NOT_BASE64):
        try:
            return _BASE64_READER.validate_json(string)
        except ValidationError:
            pass  # nonzero bits after the last byte, which only the next decoder accepts
    return binascii.a2b_base64(value, strict_mode=True)


def find_balance(body: bytes) -> int | None:
    """Find the balance of the key in a body that cannot be parsed. Return None if there is none.

    Examples
    --------
    >>> find_balance(b'{"remainingCharacterCount": 77, "encodedAudio": "AAAA')
    77
    """
    found = _BALANCE_FIELD.search(body)
    if found is None:
        return None
    value = read_amount(int(found[1]), _MAX_INT64)
    return None if value is None else int(value)


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body, by the rules of :func:`load_object`."""
    return load_object(body)[0]


def load_object(body: bytes, *, most_values: int = MAX_ANSWER_VALUES) -> tuple[dict[str, Any], bool]:
    """Return the JSON object in a body, and whether text in it had to be repaired, as :func:`load_json`.

    Raise BadAnswer if the body is not a JSON object. The error contains the balance if the body has one.
    """
    value, repaired = decode_json(body, most_values)
    if not isinstance(value, dict):
        raise BadAnswer(f"the answer is not a JSON object but {name_kind(value)}")
    return value, repaired


def decode_list(body: bytes) -> list[Any]:
    """Return the JSON array in a body. Raise BadAnswer if the body is not a JSON array."""
    value, _ = decode_json(body)
    if not isinstance(value, list):
        raise BadAnswer(f"the listing is not an array but {name_kind(value)}")
    return value


def decode_json(body: bytes, most_values: int = MAX_ANSWER_VALUES) -> tuple[Any, bool]:
    """Return the JSON value in a body, and whether text in it had to be repaired, or raise BadAnswer."""
    try:
        return load_json(body, most_values=most_values)
    except TooManyValuesError as error:
        message = f"the answer has {error} of JSON, far more than a valid answer can have"
    except NotJsonError as error:
        message = f"the answer is not JSON: {error}"
    raise BadAnswer(message, remaining_characters=find_balance(body))


def validate_leniently(model: type[M], value: object) -> M:
    """Return a JSON value as a model. Unknown words of an enum are accepted.

    An optional field with a wrong type is left out. Raise BadAnswer if a required field is missing or has a
    wrong type.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        wrong = name_wrong_fields(error)
    if not isinstance(value, dict):
        raise BadAnswer(f"the answer is not a JSON object but {name_kind(value)}")
    try:
        return model.model_validate({name: held for name, held in value.items() if name not in wrong})
    except ValidationError:
        raise BadAnswer(f"the answer has an unusable {', '.join(wrong)}") from None


def name_wrong_fields(error: ValidationError) -> list[str]:
    """Return the names of the fields with errors, each once. No values, because they could be secrets."""
    details = error.errors(include_url=False, include_input=False, include_context=False)
    return list(dict.fromkeys(str(one["loc"][0]) for one in details if one["loc"]))


def read_amount(value: Any, most: float = MAX_CALL_CREDITS, *, least: float = 0) -> int | float | None:
    """Return `value` if it is a number from `least` to `most`, else None.

    Credits, balances, lengths and times in an answer are checked by this function before they are used or
    stored.

    Examples
    --------
    >>> [read_amount(value) for value in (12.5, -1, 2**63, float("nan"), True, "7")]
    [12.5, None, None, None, None, None]
    """
    return value if type(value) in {int, float} and least <= value <= most else None


def make_amount_warning(name: str, value: Any) -> str:
    """Return a warning about an amount of credits for which :func:`read_amount` returned None."""
    return (
        f"{name} is {describe_value(value)}, which is not a possible price. The computed price counts instead"
    )


def read_whole_number(fields: Mapping[str, Any], name: str) -> int | None:
    """Return the value of a field if it is a whole number from 0 to the largest 64-bit integer, else None."""
    value = read_amount(fields.get(name), _MAX_INT64)
    return int(value) if value is not None and value == int(value) else None


def describe_value(value: Any) -> str:
    """Return a short text for a JSON value in a message."""
    # Show only numbers and short strings, because the repr of another value may be as large as the answer.
    if value is None:
        return "missing"
    if isinstance(value, (bool, float)):
        return str(value)
    if isinstance(value, str):
        # Show a string completely or not at all, because a part of a key cannot be masked.
        return repr(value) if len(value) <= _MAX_SHOWN_CHARACTERS else f"a text of {len(value):,} characters"
    if isinstance(value, int):
        return str(value) if abs(value) <= _MAX_INT64 else "out of range"
    return name_kind(value)


def name_kind(value: Any) -> str:
    """Return the type of a JSON value in words, such as "an object"."""
    names = {dict: "an object", list: "an array", str: "text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def read_published_cap(limits: Mapping[str, Any], pool: str) -> int | None:
    """Return the number of simultaneous calls of a pool in a page of limits, or None without a valid number.

    A pool is a group of calls with a common limit.
    """
    pools = limits.get("pools")
    published = pools.get(pool) if isinstance(pools, Mapping) else None
    # A page may contain any value. `type` also excludes True, which is an int.
    return min(published, _MAX_CAP) if type(published) is int and published >= 1 else None


def read_published_paces(limits: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    """Return the simultaneous calls and the characters per second of a service, by kind of work.

    A kind of work is a speech engine, translation or voice change. Invalid entries are left out.
    """
    page, paces = limits.get("paces"), {}
    for work, pace in page.items() if isinstance(page, Mapping) else ():
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            at_once, speed = int(pace["calls_at_once"]), float(pace["characters_per_second"])
            if at_once >= 1 and 0 < speed < math.inf:
                paces[str(work)] = min(at_once, _MAX_CAP), speed
    return paces


def collect_warnings(
    headers: MultiMapping[str], *further: str | None, clean: SecretMasker = str
) -> tuple[str, ...]:
    """Return at most `MAX_WARNINGS` different warnings of an answer, each shortened and on one line.

    Parameters
    ----------
    headers
        Headers of the answer. Warnings in headers are percent-encoded UTF-8.
    further
        Warnings from the body. A warning that only repeats the headers is left out.
    clean
        Function that masks secrets.
    """
    values = headers.getall(WARNING_HEADER, ())
    if not values and not any(further):
        return ()
    header_warnings = [unquote(value) for value in values]
    new = [text for text in further if text and not _is_only_repeats(text, header_warnings)]
    found = [*new, *header_warnings]
    lines = (shorten_to_line(warning, MAX_MESSAGE_CHARACTERS, clean) for warning in found if warning)
    return tuple(dict.fromkeys(line for line in lines if line))[:MAX_WARNINGS]


def _is_only_repeats(text: str, header_warnings: list[str]) -> bool:
    for one in header_warnings:
        if one not in text:
            return False
        text = text.replace(one, "", 1)
    return bool(header_warnings) and not text.strip(" ;,.|\n")


def shorten_to_line(text: str, max_characters: int, clean: SecretMasker = str) -> str:
    """Return a text with masked secrets, on one line, shortened, and without control characters."""
    text = clean(text[:MAX_READ_CHARACTERS])
    if len(text) <= max_characters and " " not in text and text.isprintable():
        return text
    line = " ".join(text[: 4 * max_characters].split())
    line = line if line.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in line)
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"


def has_marked_end(headers: MultiMapping[str]) -> bool:
    """Return whether the headers mark the end of the body. Otherwise nobody notices a truncated body.

    Examples
    --------
    >>> from multidict import CIMultiDict
    >>> has_marked_end(CIMultiDict({"Transfer-Encoding": "chunked"})), has_marked_end(CIMultiDict())
    (True, False)
    """
    # The last coding decides. Only "chunked" marks the end of the body. With another coding, the body ends
    # when the connection is closed.
    coding = ",".join(headers.getall("Transfer-Encoding", ())).rpartition(",")[2].strip().lower()
    return coding == "chunked" if coding else "Content-Length" in headers


def describe_wrong_content(headers: Mapping[str, str], clean: SecretMasker = str) -> str | None:
    """Return a message if the content type of a successful answer is not audio, else None.

    Without this check, any bytes would be accepted as audio in a raw format such as PCM.

    Examples
    --------
    >>> [describe_wrong_content({"Content-Type": kind}) for kind in ("text/html", "audio/wav")]
    ['the answer is not audio but text/html', None]
    """
    content_type = headers.get("Content-Type", "").strip().lower()
    if not content_type.startswith(_NOT_AUDIO_TYPES):
        return None
    return f"the answer is not audio but {shorten_to_line(content_type, _MAX_TYPE_CHARACTERS, clean)}"
