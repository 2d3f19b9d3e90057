"""Read a JSON body into a checked model. Each refusal contains its reason.

The document (the service's specification) leaves some points open. The service follows these rules:

- A body is UTF-8, with or without a byte order mark. A ``charset`` is ignored.
- Every Content-Type is accepted if the body is a JSON object, because curl sends form types.
- A body gets 400 if it is not an object, contains a name twice in one object, contains NaN or Infinity, or
  has too many values or levels.
- Compressed bodies (gzip, deflate) are unpacked. The size limit holds before and after unpacking.
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
from speechframe.spec.check import CheckResult, check
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.fields._json import read_json
from speechframe.spec.fields._model import DocumentModel
from speechframe.wire.encoding import BadEncodingError, TooLargeError, decompress

M = TypeVar("M", bound=DocumentModel)

_BOM = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8."""
_SHOWN_PROBLEMS = 10
"""Largest number of wrong fields that one refusal lists."""
_SHOWN_NAMES = 10
"""Largest number of unknown fields that one warning lists."""
_NAME_CHARACTERS = 60
"""Characters to which a name in a warning is shortened."""
_SIZE_HINT = f"a text may have at most {chosen.MAX_TEXT_CHARACTERS:,} characters"
"""End of the message that refuses a large body of a speech call."""


async def read_body(
    request: web.Request,
    *,
    max_bytes: int | None = None,
    hint: str = _SIZE_HINT,
    late_code: HttpErrorCode = HttpErrorCode.INVALID_REQUEST,
) -> dict[str, Any]:
    """Return the JSON object of a request's body.

    Parameters
    ----------
    max_bytes
        Size limit. None selects ``max_body_bytes`` of the configuration.
    hint
        End of the message that refuses a large body. It explains the allowed size.
    late_code
        Error code for a body that arrives too late. Most calls have no 408 in section 7.2 of the document.

    Raises
    ------
    Refusal
        400 for a body that is too large or not a JSON object, or `late_code`.
    """
    state = request.app[STATE]
    limit_bytes = max_bytes or state.config.max_body_bytes
    data = await _read_bytes(request, state.config, limit_bytes, hint, late_code)
    await state.wait_for_turn(len(data))
    return parse_object(decompress_body(request, data, limit_bytes, hint))


async def _read_bytes(
    request: web.Request, config: ServiceConfig, max_bytes: int, hint: str, late_code: HttpErrorCode
) -> bytes:
    if (request.content_length or 0) > max_bytes:
        _refuse_too_large(max_bytes, hint)
    data = bytearray()
    try:
        async with asyncio.timeout(config.body_timeout_s):
            async for chunk in request.content.iter_any():
                data += chunk
                if len(data) > max_bytes:
                    _refuse_too_large(max_bytes, hint)
    except TimeoutError:
        message = f"the body did not arrive within {config.body_timeout_s:g} s"
        raise Refusal(late_code, message, close=True) from None
    except (web.RequestPayloadError, ClientPayloadError, HttpProcessingError) as error:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST, f"the body cannot be read: {type(error).__name__}", close=True
        ) from None
    return bytes(data)


def decompress_body(request: web.Request, data: bytes, limit_bytes: int, hint: str = _SIZE_HINT) -> bytes:
    """Return a complete body, decompressed as its Content-Encoding requires.

    Raises
    ------
    Refusal
        400 for an unknown or broken encoding, and for more than `limit_bytes` of result. Decompression stops
        at this limit.
    """
    try:
        return decompress(data, request.headers.get("Content-Encoding", ""), max_bytes=limit_bytes)
    except TooLargeError:
        _refuse_too_large(limit_bytes, hint)
    except BadEncodingError as error:
        message = f"the body cannot be read: {error}; allowed as Content-Encoding: gzip, deflate, identity"
        refuse(message)


def _refuse_too_large(limit_bytes: int, hint: str) -> NoReturn:
    raise Refusal(HttpErrorCode.PAYLOAD_TOO_LARGE, f"the body is larger than {limit_bytes:,} bytes; {hint}")


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in `data`.

    Raises
    ------
    Refusal
        400 if `data` is not a JSON object. The message contains the reason and, if possible, its place.
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
        refuse(f"the body is a JSON {_name_json_type(value)}; an object is expected")
    return value


def _name_json_type(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}[type(value)]


def _shorten_name(name: str) -> str:
    return repr(name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…")


def check_fields(model: type[M], fields: Mapping[str, Any]) -> tuple[M, CheckResult[M]]:
    """Return the fields as a model, and the whole result of the check.

    Raises
    ------
    Refusal
        400 if a field is wrong. The message lists up to ten wrong fields with the allowed values.
    """
    result = check(model, fields, wire_names_only=True)
    if result.value is None:
        shown = "; ".join(str(problem) for problem in result.problems[:_SHOWN_PROBLEMS])
        more = len(result.problems) - _SHOWN_PROBLEMS
        refuse(shown + (f"; and {more} more" if more > 0 else ""))
    return result.value, result


def describe_unknown_fields(unknown: tuple[str, ...]) -> str | None:
    """Return a warning that lists unknown fields, or None if there are none."""
    if not unknown:
        return None
    names = ", ".join(_shorten_name(name)[1:-1] for name in unknown[:_SHOWN_NAMES])
    more = len(unknown) - _SHOWN_NAMES
    return f"unknown fields were ignored: {names}" + (f" and {more} more" if more > 0 else "")
