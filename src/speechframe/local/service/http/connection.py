"""Answers to bytes that aiohttp refuses before a handler runs. Their error body is the usual one."""

import logging
from http import HTTPStatus

from aiohttp import web

from speechframe.local.service.http.answers import Refusal, build_error_response, make_trace_id
from speechframe.network.connections import RETRY_AFTER_S
from speechframe.spec.codes import HttpErrorCode

log = logging.getLogger("speechframe.service")

# Error code of each status that a connection may answer by itself.
_ERROR_CODES = {
    HTTPStatus.BAD_REQUEST: HttpErrorCode.INVALID_REQUEST,
    HTTPStatus.REQUEST_TIMEOUT: HttpErrorCode.REQUEST_TIMEOUT,
    HTTPStatus.INTERNAL_SERVER_ERROR: HttpErrorCode.INTERNAL_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE: HttpErrorCode.UNAVAILABLE,
}


def build_refusal(status: HTTPStatus, message: str) -> web.Response:
    """Return an error answer that closes the connection, for bytes that are not a valid request."""
    trace_id = make_trace_id()
    log.info("(no request) %d, trace %s", status, trace_id)
    retry_s = RETRY_AFTER_S if status is HTTPStatus.SERVICE_UNAVAILABLE else None
    return build_error_response(
        Refusal(_ERROR_CODES[status], message, retry_after_s=retry_s, close=True), trace_id
    )
