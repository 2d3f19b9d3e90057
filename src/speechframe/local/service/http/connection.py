"""The body of errors that aiohttp finds before a handler runs. It is that of all other errors."""

import logging
from http import HTTPStatus

from aiohttp import web

from speechframe.local.service.http.answers import Refusal, error_response, make_trace_id
from speechframe.network.connections import RETRY_S
from speechframe.spec.codes import HttpErrorCode

log = logging.getLogger("speechframe.service")

_CODES = {
    HTTPStatus.BAD_REQUEST: HttpErrorCode.INVALID_REQUEST,
    HTTPStatus.REQUEST_TIMEOUT: HttpErrorCode.REQUEST_TIMEOUT,
    HTTPStatus.INTERNAL_SERVER_ERROR: HttpErrorCode.INTERNAL_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE: HttpErrorCode.UNAVAILABLE,
}


def refusal(status: HTTPStatus, words: str) -> web.Response:
    """Return the answer to what has not become a request of the application."""
    trace_id = make_trace_id()
    log.info("(no request) %d, trace %s", status, trace_id)
    retry_s = RETRY_S if status is HTTPStatus.SERVICE_UNAVAILABLE else None
    return error_response(Refusal(_CODES[status], words, retry_after_s=retry_s, close=True), trace_id)
