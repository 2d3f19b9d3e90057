"""What the bytes of foreign services hold: bodies that are packed, JSON, Base64.

Fast when they are right, forgiving where a paid answer can still be read, and within a bound: a few kilobytes
can stand for gigabytes.
"""

import binascii
import json
import zlib
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

orjson: Any
pybase64: Any
try:  # the extra [speed]
    import orjson
    import pybase64
except ModuleNotFoundError:
    orjson = pybase64 = None

MOST_VALUES = 1_000_000
"""In one body. A value takes two bytes there and up to two hundred in memory; nothing else runs meanwhile."""
_BETWEEN_VALUES = (b",", b"[", b"{")
_KINDS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_DEFLATE_WITHOUT_HEADER = -zlib.MAX_WBITS
_GROUP = 4
_STRING = TypeAdapter(bytes, config=ConfigDict(val_json_bytes="base64"))
"""Reads bytes out of a string of JSON that holds them in Base64."""
# It takes letters of the other alphabet too, and what an escape stands for.
_NOT_MEANT = (b"-", b"_", b"\\")


class TooLargeError(ValueError):
    """The body passes the bound when unpacked."""


class BadEncodingError(ValueError):
    """The body is not what its Content-Encoding says, or in an encoding nobody asked for."""


def unpack(body: bytes, content_encoding: str, *, max_bytes: int) -> bytes:
    """Return `body` without its Content-Encoding.

    Parameters
    ----------
    body
        The bytes as they came.
    content_encoding
        The header's value; empty and ``identity`` leave the body as it is.
    max_bytes
        The most that may come out.

    Raises
    ------
    TooLargeError
        More than `max_bytes` would come out; no more than that is ever in memory.
    BadEncodingError
        Unknown, doubled or broken encoding.

    Examples
    --------
    >>> unpack(zlib.compress(b"hello"), "deflate", max_bytes=100)
    b'hello'
    """
    if not content_encoding:
        return body
    name = content_encoding.strip().lower()
    if name in {"", "identity"}:
        return body
    if name not in _KINDS:
        raise BadEncodingError("the body has a Content-Encoding that was not asked for")
    try:
        return _inflated(body, _KINDS[name], max_bytes)
    except zlib.error:
        if name == "deflate":
            # Old servers send deflate without the zlib header that the standard asks for.
            return _inflated_bare(body, max_bytes)
        raise BadEncodingError(f"the body is not {name}, as its Content-Encoding says") from None


def _inflated_bare(body: bytes, max_bytes: int) -> bytes:
    try:
        return _inflated(body, _DEFLATE_WITHOUT_HEADER, max_bytes)
    except zlib.error:
        raise BadEncodingError("the body is not deflate, as its Content-Encoding says") from None


def _inflated(body: bytes, wbits: int, max_bytes: int) -> bytes:
    stream = zlib.decompressobj(wbits)
    data = stream.decompress(body, max_bytes + 1)
    if len(data) > max_bytes:
        raise TooLargeError(f"the answer is too large: it unpacks to more than {max_bytes:,} bytes")
    if not stream.eof:
        raise BadEncodingError("the compressed body is truncated")
    if stream.unused_data:
        raise BadEncodingError("bytes follow the compressed body")
    return data


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
