"""What the answers of several chapters have in common: audio in Base64, a balance, a length, odd values."""

import re
import secrets
from collections.abc import Mapping
from typing import Any

from speechframe.errors import BadAnswer
from speechframe.wire.decoding import MOST_VALUES, NotJsonError, TooManyValuesError, decode_base64, loads

__all__ = [
    "answer_fields",
    "balance_in",
    "decode_object",
    "kind_of",
    "loaded",
    "published_cap",
    "said_seconds",
    "whole_number",
]

# Stands for the audio while the rest is parsed. Random, so that no body can hold it by design.
_PLACE = secrets.token_hex(16)
_COLON = re.compile(rb'[ \t\r\n]*:[ \t\r\n]*"')
_BALANCE = re.compile(
    rb'"(?:remainingCharacterCount|remaining_character_count)"[ \t\r\n]*:[ \t\r\n]*'
    rb"(-?[0-9]{1,19})[ \t\r\n]*[,}]"
)
_MAX_INT64 = 2**63 - 1
_MAX_SECONDS = 10**9
_LARGEST_CAP = 100_000
_MAX_SHOWN = 40
_REPAIRED = "text in the answer was no valid Unicode and was repaired"


def answer_fields(
    body: bytes, audio_field: str, balance_field: str, *, most_values: int = MOST_VALUES
) -> tuple[dict[str, Any], bytes | None, list[str]]:
    r"""Return an answer's fields, the audio that one of them holds in Base64, and what is odd in it.

    Parameters
    ----------
    body
        The answer, unpacked.
    audio_field, balance_field
        What the answer calls them.
    most_values
        How many JSON values the answer may hold; beside the audio there are only words.

    Raises
    ------
    BadAnswer
        No JSON object, one of more values, or Base64 that is not strictly right.

    Examples
    --------
    >>> body = b'{"encoded_audio": "AAA=", "warning": "slow"}'
    >>> fields, audio, _ = answer_fields(body, "encoded_audio", "remaining_character_count")
    >>> audio, fields["warning"]
    (b'\x00\x00', 'slow')
    """
    try:
        found = _cut(body, audio_field, most_values)
        fields, audio, repaired = found or _whole_answer(body, audio_field, balance_field, most_values)
    except TooManyValuesError as error:
        raise BadAnswer(
            f"the answer holds {error} of JSON, far more than words beside the audio can be",
            remaining_characters=balance_in(body),
        ) from None
    return fields, audio, [_REPAIRED] if repaired else []


def _cut(body: bytes, field: str, most_values: int) -> tuple[dict[str, Any], bytes, bool] | None:
    place = _audio_place(body, b'"%b"' % field.encode())
    if place is None:
        return None
    audio = decode_base64(memoryview(body)[place])
    if audio is None and body.find(b"\\", place.start, place.stop) >= 0:
        # Many JSON writers escape the slash, which is a letter of Base64.
        audio = decode_base64(body[place].replace(b"\\/", b"/"))
    if audio is None:
        return None
    try:
        rest = b"".join((body[: place.start], _PLACE.encode(), body[place.stop :]))
        fields, repaired = loads(rest, most_values=most_values)
    except TooManyValuesError:
        raise
    except NotJsonError:
        return None
    # Unless the placeholder is what a parser finds there, the value belonged to something else.
    found = isinstance(fields, dict) and fields.get(field) == _PLACE
    return (fields, audio, repaired) if found else None


def _audio_place(body: bytes, field: bytes) -> slice | None:
    key = body.find(field)
    colon = _COLON.match(body, key + len(field)) if key >= 0 else None
    if colon is None:
        return None
    start = colon.end()
    end = body.find(b'"', start)
    # The value itself need not be searched for a second key: it holds no quote.
    return slice(start, end) if end > start and body.find(field, end) < 0 else None


def _whole_answer(
    body: bytes, audio_field: str, balance_field: str, most_values: int = MOST_VALUES
) -> tuple[dict[str, Any], bytes | None, bool]:
    try:
        fields, repaired = loads(body, most_values=most_values)
    except TooManyValuesError:
        raise
    except NotJsonError as error:
        raise BadAnswer(f"the answer is no JSON: {error}", remaining_characters=balance_in(body)) from None
    if not isinstance(fields, dict):
        raise BadAnswer(f"the answer is no JSON object but {kind_of(fields)}")
    encoded = fields.get(audio_field)
    if encoded is None or encoded == "":
        return fields, None, repaired
    audio = decode_base64(encoded.encode()) if isinstance(encoded, str) else None
    if audio is None:
        raise BadAnswer(
            f"{audio_field} is no Base64", remaining_characters=whole_number(fields, balance_field)
        )
    return fields, audio, repaired


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


def said_seconds(fields: Mapping[str, Any], name: str, notes: list[str]) -> float | None:
    """Return the length an answer claims; None, and a note, where that is no finite number of 0 or more.

    The audio is paid for and can be measured, so an odd length does not make it useless.
    """
    seconds: Any = fields.get(name)
    if type(seconds) not in {float, int} or not 0 <= seconds <= _MAX_SECONDS:
        notes.append(f"{name} is {_shown(seconds)}; the audio was measured instead")
        return None
    return float(seconds)


def whole_number(fields: Mapping[str, Any], name: str) -> int | None:
    """Return a field that holds a whole number of 64 bits; None where it holds anything else."""
    value = fields.get(name)
    if type(value) is float and value.is_integer() and abs(value) <= _MAX_INT64:
        value = int(value)
    return value if type(value) is int and -_MAX_INT64 <= value <= _MAX_INT64 else None


def _shown(value: Any) -> str:
    # Numbers and short text only: the repr of anything else may be as large and as deep as the answer.
    if value is None:
        return "missing"
    if isinstance(value, (bool, float)):
        return str(value)
    if isinstance(value, str):
        # Whole or not at all: whoever masks the message would not find half a key.
        return repr(value) if len(value) <= _MAX_SHOWN else f"a text of {len(value):,} characters"
    return "out of range" if isinstance(value, int) else kind_of(value)


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
