"""A JSON body, from the wire to a checked model, with the reason for every refusal.

Our choices for points that the document leaves open:

- the bytes are UTF-8 for every ``charset``, with or without a byte order mark
- every Content-Type is accepted if the body is a JSON object, because curl sends form types
- 400 for a name twice in one object, for NaN and Infinity, for too many values or levels, and for a body
  that is not an object
- compressed bodies (gzip, deflate) are unpacked; the size limit holds before and after
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from aiohttp import web
from aiohttp.client_exceptions import ClientPayloadError
from aiohttp.http_exceptions import HttpProcessingError

from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.http.answers import Refusal, refuse
from speechframe.local.service.state import STATE
from speechframe.spec import chosen
from speechframe.spec.check import Checked, check
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.fields._json import read_json
from speechframe.spec.fields._model import DocumentModel
from speechframe.wire.encoding import BadEncodingError, TooLargeError, unpack

M = TypeVar("M", bound=DocumentModel)

_BOM = b"\xef\xbb\xbf"
_SHOWN_PROBLEMS = 10
_SHOWN_NAMES = 10
_NAME_CHARACTERS = 60
_SIZE_HINT = f"a text may have at most {chosen.MAX_TEXT_CHARACTERS:,} characters"


async def read_body(
    request: web.Request, config: ServiceConfig, *, max_bytes: int | None = None, hint: str = _SIZE_HINT
) -> dict[str, Any]:
    """Return the JSON object of a request's body.

    Parameters
    ----------
    request
        The request.
    config
        Holds the time limit and the size limit of a body.
    max_bytes
        Another size limit, for calls with larger contents.
    hint
        Words about the allowed size, for the refusal of a large body.

    Raises
    ------
    Refusal
        400 for a body that is too large or not a JSON object. 408 for a body that arrives too late.
    """
    limit_bytes = max_bytes or config.max_body_bytes
    data = await _read(request, config, limit_bytes, hint)
    await request.app[STATE].turn_to_read(len(data))
    return parse_object(unpacked(request, data, limit_bytes, hint))


async def read_body_in_time(
    request: web.Request, config: ServiceConfig, *, max_bytes: int | None = None, hint: str = _SIZE_HINT
) -> dict[str, Any]:
    """Return the JSON object of a body, as :func:`read_body`, but refuse a late body with 400.

    Section 7.2 lists no 408 for these calls.
    """
    try:
        return await read_body(request, config, max_bytes=max_bytes, hint=hint)
    except Refusal as refusal:
        if refusal.code is not HttpErrorCode.REQUEST_TIMEOUT:
            raise
        raise Refusal(HttpErrorCode.INVALID_REQUEST, refusal.message, close=True) from None


async def _read(request: web.Request, config: ServiceConfig, max_bytes: int, hint: str) -> bytes:
    if (request.content_length or 0) > max_bytes:
        _too_large(max_bytes, hint)
    data = bytearray()
    try:
        async with asyncio.timeout(config.body_timeout_s):
            async for chunk in request.content.iter_any():
                data += chunk
                if len(data) > max_bytes:
                    _too_large(max_bytes, hint)
    except TimeoutError:
        raise Refusal(
            HttpErrorCode.REQUEST_TIMEOUT,
            f"the body did not arrive within {config.body_timeout_s:g} s",
            close=True,
        ) from None
    except (web.RequestPayloadError, ClientPayloadError, HttpProcessingError) as error:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST, f"the body cannot be read: {type(error).__name__}", close=True
        ) from None
    return bytes(data)


def unpacked(request: web.Request, data: bytes, limit_bytes: int, hint: str = _SIZE_HINT) -> bytes:
    """Return a body that has arrived, without its Content-Encoding.

    Raises
    ------
    Refusal
        400 for an unknown or broken encoding, and for more than `limit_bytes`. No more than that is unpacked.
    """
    try:
        return unpack(data, request.headers.get("Content-Encoding", ""), max_bytes=limit_bytes)
    except TooLargeError:
        _too_large(limit_bytes, hint)
    except BadEncodingError as error:
        words = f"the body cannot be read: {error}; allowed as Content-Encoding: gzip, deflate, identity"
        refuse(words)


def _too_large(limit_bytes: int, hint: str) -> NoReturn:
    raise Refusal(HttpErrorCode.PAYLOAD_TOO_LARGE, f"the body is larger than {limit_bytes:,} bytes; {hint}")


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in `data`.

    Raises
    ------
    Refusal
        400, with the fault and its place.
    """
    if not data:
        refuse("the body is empty; a JSON object is expected")
    try:
        text = data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        refuse(f"the body is not UTF-8 (byte {error.start})")
    try:
        value = read_json(text, unique_names=True)
    except json.JSONDecodeError as error:
        refuse(f"the body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})")
    except ValueError as error:
        refuse(f"the JSON of the body is refused: {error}")
    if not isinstance(value, dict):
        refuse(f"the body is a JSON {_kind(value)}; an object is expected")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}[type(value)]


def _short(name: str) -> str:
    return repr(name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…")


def checked(model: type[M], fields: Mapping[str, Any]) -> tuple[M, Checked[M]]:
    """Return the fields as a model, and the result of the check.

    Raises
    ------
    Refusal
        400 naming every wrong field, its value and the allowed values.
    """
    result = check(model, fields, wire_names_only=True)
    if result.value is None:
        shown = "; ".join(str(problem) for problem in result.problems[:_SHOWN_PROBLEMS])
        more = len(result.problems) - _SHOWN_PROBLEMS
        refuse(shown + (f"; and {more} more" if more > 0 else ""))
    return result.value, result


def unknown_warning(unknown: tuple[str, ...]) -> str | None:
    """Return the warning about unknown fields, or None without any."""
    if not unknown:
        return None
    names = ", ".join(_short(name)[1:-1] for name in unknown[:_SHOWN_NAMES])
    more = len(unknown) - _SHOWN_NAMES
    return f"unknown fields were ignored: {names}" + (f" and {more} more" if more > 0 else "")
