"""HTTP below the application: what is no request yet gets our error body, a trace id and a time limit too.

aiohttp has no time limit for a header section and answers broken HTTP in plain
text; both are decided in its connection class, so this one is made from it.
"""

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from speechframe.service.answers import JSON, Refusal, error_body, error_response, make_trace_id
from speechframe.spec import chosen
from speechframe.spec.codes import HttpErrorCode

log = logging.getLogger("speechframe.service")

LIMITS: dict[str, Any] = {"keepalive_timeout": 75.0, "lingering_time": 5.0, "access_log": None, "logger": log}
"""How aiohttp treats every connection of ours."""


class Connection(RequestHandler):
    """One client connection.

    Parameters
    ----------
    server
        aiohttp's server object, as the runner made it.
    header_timeout_s
        Seconds from the first byte of a request to the end of its header section.
    """

    __slots__ = ("_header_timeout_s", "_header_timer")

    def __init__(
        self, server: web.Server, *, header_timeout_s: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(server, loop=loop, **LIMITS)
        self._header_timeout_s = header_timeout_s
        self._header_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and watch the clock while they are no request yet."""
        before = self._request_count
        super().data_received(data)
        if self._request_count != before:
            self._stop_timer()
        elif self._header_timer is None and self._waiter is not None and not self._waiter.done():
            # Nobody handles a request, so these bytes are the beginning of a header section.
            self._header_timer = self._loop.call_later(self._header_timeout_s, self._header_late)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the clock."""
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _header_late(self) -> None:
        self._header_timer = None
        if self.transport is None:
            return
        trace_id = make_trace_id()
        code = HttpErrorCode.REQUEST_TIMEOUT
        body = error_body(
            code, f"the header section did not arrive within {self._header_timeout_s:g} s", trace_id
        )
        head = (
            f"HTTP/1.1 {code.status.value} {code.status.meaning}\r\nContent-Type: {JSON}\r\n"
            f"Content-Length: {len(body)}\r\n{chosen.TRACE_HEADER}: {trace_id}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        log.info("(no request) %d, trace %s", code.status, trace_id)
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer broken HTTP, and whatever the application let through, with the one error body."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun; it can only be cut off")
        trace_id = make_trace_id()
        if status < HttpErrorCode.INTERNAL_ERROR.status:
            words = f"the request is not valid HTTP: {type(exc).__name__}"
            refusal = Refusal(HttpErrorCode.INVALID_REQUEST, words, close=True)
            log.info("(no request) %d, trace %s", refusal.code.status, trace_id)
        else:
            refusal = Refusal(HttpErrorCode.INTERNAL_ERROR, "the service failed", close=True)
            log.error("a request failed outside of the application, trace %s", trace_id, exc_info=exc)
        return error_response(refusal, trace_id)
