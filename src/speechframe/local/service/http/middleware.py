"""Steps before and after every handler: trace id, error body, log line, and 503 while the service stops."""

import asyncio
import logging
import sqlite3
import time

from aiohttp import web
from aiohttp.typedefs import Handler

from speechframe.local.service.books.unreadable import UnreadableRecord
from speechframe.local.service.http.answers import (
    Refusal,
    build_error_response,
    make_stopping_refusal,
    make_trace_id,
)
from speechframe.local.service.state import STATE
from speechframe.spec import chosen
from speechframe.spec.codes import HttpErrorCode, Status
from speechframe.spec.endpoints import get_endpoint

log = logging.getLogger("speechframe.service")

TRACE_ID_KEY = "trace_id"
"""Key of the request's trace id, in the aiohttp request."""
LOG_NOTE_KEY = "note"
"""Key of a text that a handler adds to the log line. It has figures and fingerprints, no texts or keys."""

_LOCKED_RETRY_S = 1.0
"""Seconds after which a client should retry when the database is locked."""


@web.middleware
async def handle_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give a request a trace id, call its handler, turn errors into answers, and log one line."""
    trace_id = request[TRACE_ID_KEY] = make_trace_id()
    started = time.perf_counter()
    status: int | str = "gone"
    try:
        response = await _answer(request, handler, trace_id)
        status = response.status
        return response
    finally:
        if log.isEnabledFor(logging.INFO):
            log.info(
                "%s %s %s %.1f ms%s trace %s",
                request.method if request.method.isalpha() else "?",
                _format_route(request),
                status,
                (time.perf_counter() - started) * 1000,
                f" {request[LOG_NOTE_KEY]}" if LOG_NOTE_KEY in request else "",
                trace_id,
            )


async def _answer(request: web.Request, handler: Handler, trace_id: str) -> web.StreamResponse:
    try:
        return await _call_handler(request, handler, trace_id)
    except Refusal as refusal:
        if (
            refusal.code is HttpErrorCode.INTERNAL_ERROR
            and _format_route(request) == get_endpoint("token").path
        ):
            # Section 7.2 lists no status 500 for the token call.
            refusal = Refusal(HttpErrorCode.UNAVAILABLE, refusal.message, retry_after_s=_LOCKED_RETRY_S)
        return build_error_response(refusal, trace_id)


async def _call_handler(request: web.Request, handler: Handler, trace_id: str) -> web.StreamResponse:
    state = request.app[STATE]
    if state.stopping:
        raise make_stopping_refusal()
    try:
        with state.progress.follow(request):
            return await handler(request)
    except (Refusal, asyncio.CancelledError, ConnectionError):
        raise
    except web.HTTPException as answer:
        raise _translate_http_error(answer, request) from None
    except sqlite3.OperationalError as error:
        raise _translate_database_error(error, trace_id) from None
    except UnreadableRecord as record:
        log.error("%s", record)  # noqa: TRY400 - the message is enough
        raise Refusal(HttpErrorCode.INTERNAL_ERROR, str(record)) from None
    except Exception:
        log.exception("a handler failed, trace %s", trace_id)
        raise Refusal(HttpErrorCode.INTERNAL_ERROR, "the service failed") from None


def _translate_http_error(answer: web.HTTPException, request: web.Request) -> Refusal:
    if isinstance(answer, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(answer.allowed_methods))
        return Refusal(
            HttpErrorCode.METHOD_NOT_ALLOWED,
            f"this address accepts only {allowed}",
            headers={"Allow": allowed},
        )
    if answer.status == Status.NOT_FOUND:
        return Refusal(HttpErrorCode.NOT_FOUND, "there is no such address; /v1/openapi.json lists them")
    if answer.status < HttpErrorCode.INTERNAL_ERROR.status:
        return Refusal(HttpErrorCode.INVALID_REQUEST, answer.reason)
    log.error("%s answered %d by itself", _format_route(request), answer.status)
    return Refusal(HttpErrorCode.INTERNAL_ERROR, "the service failed")


def _translate_database_error(error: sqlite3.OperationalError, trace_id: str) -> Refusal:
    # Usually another service process with the same data folder has locked the database for too long.
    log.error("the database failed: %s, trace %s", error, trace_id)
    if error.sqlite_errorcode in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        message = "the service's database is locked; try again later"
        return Refusal(HttpErrorCode.UNAVAILABLE, message, retry_after_s=_LOCKED_RETRY_S)
    return Refusal(HttpErrorCode.INTERNAL_ERROR, "the service's data folder cannot be used")


def _format_route(request: web.Request) -> str:
    # The log gets the route, such as /v1/audio/{name}, because a path from a client may contain secrets.
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "(unknown)"


async def add_common_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the trace id and other headers to an answer that is about to be sent.

    If the answer needs memory above the limit, clients with the most unread bytes are dropped.
    """
    request.app[STATE].progress.end(request)
    if isinstance(response, web.Response) and isinstance(response.body, bytes):
        request.app[STATE].readers.make_room(len(response.body))
    if chosen.TRACE_HEADER not in response.headers:
        response.headers[chosen.TRACE_HEADER] = request.get(TRACE_ID_KEY) or make_trace_id()
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers["Server"] = "speechframe"
