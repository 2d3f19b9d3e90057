"""What every answer has in common: the error body, the trace id, warnings in a header."""

import json
import secrets
from collections.abc import Iterable, Mapping
from math import ceil
from typing import NoReturn
from urllib.parse import quote

from aiohttp import web
from pydantic import BaseModel

from speechframe.spec import chosen
from speechframe.spec.codes import HttpErrorCode

JSON = "application/json"

_SHOWN_WARNINGS = 20
_WARNING_BYTES = 1000

# Everything printable in ASCII stays as it is, but for the percent sign that marks what does not.
_PLAIN = frozenset(map(chr, range(0x20, 0x7F))) - {"%"}


class Refusal(Exception):
    """An error status on its way to the caller.

    Parameters
    ----------
    code
        What went wrong; brings its status along.
    message
        What was wrong, what is allowed, what to do.
    retry_after_s
        When to come back, with 429 and 503.
    close
        Whether the connection cannot be used any more.
    headers
        What else the answer needs.
    """

    def __init__(
        self,
        code: HttpErrorCode,
        message: str,
        *,
        retry_after_s: float | None = None,
        close: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.close = close
        self.headers = dict(headers or {})


def make_trace_id() -> str:
    """Return a new trace id: 32 hex digits."""
    return secrets.token_hex(16)


def error_body(code: HttpErrorCode, message: str, trace_id: str) -> bytes:
    """Return the one error body (``spec.chosen``: http-error-body)."""
    fields = {"error_message": message, "error_code": code.value, "trace_id": trace_id}
    return json.dumps(fields, ensure_ascii=False).encode(errors="backslashreplace")


def refuse(message: str) -> NoReturn:
    """Refuse a request that is wrong with 400."""
    raise Refusal(HttpErrorCode.INVALID_REQUEST, message)


def error_response(refusal: Refusal, trace_id: str) -> web.Response:
    """Return the answer to a request that is refused."""
    response = web.Response(
        status=refusal.code.status,
        body=error_body(refusal.code, refusal.message, trace_id),
        content_type=JSON,
        headers={chosen.TRACE_HEADER: trace_id, **refusal.headers},
    )
    if refusal.retry_after_s is not None:
        # Whole seconds are all that Retry-After can say; the header beside it tells the rest.
        response.headers[chosen.RETRY_AFTER_HEADER] = str(max(1, ceil(refusal.retry_after_s)))
        response.headers["retry-after-ms"] = str(max(1, ceil(refusal.retry_after_s * 1000)))
    if refusal.close:
        response.force_close()
    return response


def json_response(model: BaseModel, warnings: Iterable[str | None] = ()) -> web.Response:
    """Return a model as an answer that nobody keeps, with its warnings in headers."""
    body = model.model_dump_json(by_alias=True, exclude_none=True).encode()
    response = web.Response(body=body, content_type=JSON, headers={"Cache-Control": "no-store"})
    add_warnings(response, filter(None, warnings))
    return response


def header_safe(words: str) -> str:
    """Return a warning as a header can carry it: UTF-8, percent-encoded where it is not printable ASCII.

    Readers undo it with ``urllib.parse.unquote``.

    Examples
    --------
    >>> header_safe("100% für Café")
    '100%25 f%C3%BCr Caf%C3%A9'
    """
    pieces, room = [], _WARNING_BYTES
    for character in words:
        piece = character if character in _PLAIN else quote(character, errors="replace")
        room -= len(piece)
        if room < 0:
            break
        pieces.append(piece)
    return "".join(pieces)


def add_warnings(response: web.StreamResponse, warnings: Iterable[str]) -> None:
    """Put each warning in a header of its own."""
    for words in list(warnings)[:_SHOWN_WARNINGS]:
        response.headers.add(chosen.WARNING_HEADER, header_safe(words))
