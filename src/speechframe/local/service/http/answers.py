"""Parts that all answers share: the error body, the trace id, and warnings in headers."""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from math import ceil
from typing import NoReturn
from urllib.parse import quote

from aiohttp import web
from pydantic import BaseModel

from speechframe.spec import chosen
from speechframe.spec.codes import HttpErrorCode

JSON_TYPE = "application/json"
"""Content-Type of JSON."""

_STOPPING_RETRY_S = 2.0
"""Seconds after which a client should retry when the service stops."""
_SHOWN_WARNINGS = 20
"""Largest number of warnings in one answer."""
_MAX_WARNING_BYTES = 1000
"""Bytes to which an encoded warning is cut."""

# Characters that stay unchanged in a warning: printable ASCII without the percent sign, which marks escapes.
_UNESCAPED_CHARACTERS = frozenset(map(chr, range(0x20, 0x7F))) - {"%"}


@dataclass(eq=False)
class Refusal(Exception):
    """An error that the middleware turns into an answer to the caller.

    Parameters
    ----------
    code
        Error code. It determines the HTTP status.
    message
        The fault, what is allowed, and what to do.
    retry_after_s
        Seconds after which the caller should retry, with 429 and 503.
    close
        Whether the connection must be closed, for example after a body that was not read.
    headers
        Further headers of the answer.
    """

    code: HttpErrorCode
    message: str
    _: KW_ONLY
    retry_after_s: float | None = None
    close: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


def make_trace_id() -> str:
    """Return a new trace id: 32 hex digits."""
    return secrets.token_hex(16)


def encode_error(code: HttpErrorCode, message: str, trace_id: str) -> bytes:
    """Return the JSON body of an error (``spec.chosen``: http-error-body)."""
    fields = {"error_message": message, "error_code": code.value, "trace_id": trace_id}
    return json.dumps(fields, ensure_ascii=False).encode(errors="backslashreplace")


def refuse(message: str) -> NoReturn:
    """Raise a :class:`Refusal` with status 400."""
    raise Refusal(HttpErrorCode.INVALID_REQUEST, message)


def make_stopping_refusal() -> Refusal:
    """Return the refusal of a call while the service stops."""
    return Refusal(
        HttpErrorCode.UNAVAILABLE, "the service is stopping", retry_after_s=_STOPPING_RETRY_S, close=True
    )


def build_error_response(refusal: Refusal, trace_id: str) -> web.Response:
    """Return the answer for a refusal."""
    response = web.Response(
        status=refusal.code.status,
        body=encode_error(refusal.code, refusal.message, trace_id),
        content_type=JSON_TYPE,
        headers={chosen.TRACE_HEADER: trace_id, **refusal.headers},
    )
    if refusal.retry_after_s is not None:
        # Retry-After allows only whole seconds. The second header gives the time in milliseconds.
        response.headers[chosen.RETRY_AFTER_HEADER] = str(max(1, ceil(refusal.retry_after_s)))
        response.headers["retry-after-ms"] = str(max(1, ceil(refusal.retry_after_s * 1000)))
    if refusal.close:
        response.force_close()
    return response


def build_json_response(model: BaseModel, warnings: Iterable[str | None] = ()) -> web.Response:
    """Return a model as a JSON answer that caches must not store, with `warnings` in headers."""
    body = model.model_dump_json(by_alias=True, exclude_none=True).encode()
    response = web.Response(body=body, content_type=JSON_TYPE, headers={"Cache-Control": "no-store"})
    add_warnings(response, filter(None, warnings))
    return response


def escape_warning(message: str) -> str:
    """Return a warning in a form that a header can contain: as UTF-8, with percent escapes.

    Printable ASCII except ``%`` stays unchanged. Long warnings are cut. ``urllib.parse.unquote`` decodes the
    result.

    Examples
    --------
    >>> escape_warning("100% für Café")
    '100%25 f%C3%BCr Caf%C3%A9'
    """
    pieces, left_bytes = [], _MAX_WARNING_BYTES
    for character in message:
        piece = character if character in _UNESCAPED_CHARACTERS else quote(character, errors="replace")
        left_bytes -= len(piece)
        if left_bytes < 0:
            break
        pieces.append(piece)
    return "".join(pieces)


def add_warnings(response: web.StreamResponse, warnings: Iterable[str]) -> None:
    """Add each warning as a separate header, at most twenty of them."""
    for message in list(warnings)[:_SHOWN_WARNINGS]:
        response.headers.add(chosen.WARNING_HEADER, escape_warning(message))
