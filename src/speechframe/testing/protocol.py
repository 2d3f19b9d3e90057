"""Read HTTP/1.1 requests and write answers, as far as our clients need HTTP.

A connection passes each complete request to one function. The function answers at once or later. Until the
answer, further requests of the connection wait in the buffer. Instead of an answer, the function may choose a
network failure, such as a reset. Connections stay open after an answer unless the client wants them closed.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

from speechframe.spec.chosen import API_KEY_HEADER, IDEMPOTENCY_HEADER, TAKE_HEADER
from speechframe.testing import answers

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 16 * 1024 * 1024

_HEAD_END = b"\r\n\r\n"
"""End of the head of a request."""
_NO_LINGER = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with a linger time of 0 s. If such a socket is closed, it sends a TCP reset."""
_SLOW_PIECES = 20
"""Number of pieces of a slow answer."""


def _make_header_prefix(name: str) -> bytes:
    return f"\r\n{name.lower()}:".encode()


API_KEY_PREFIX = _make_header_prefix(API_KEY_HEADER)
IDEMPOTENCY_PREFIX = _make_header_prefix(IDEMPOTENCY_HEADER)
TAKE_PREFIX = _make_header_prefix(TAKE_HEADER)
_CONTENT_LENGTH_PREFIX = _make_header_prefix("Content-Length")
_TRANSFER_ENCODING_PREFIX = _make_header_prefix("Transfer-Encoding")
_CONNECTION_CLOSE = b"\r\nconnection: close"


class HttpRequest(NamedTuple):
    """A complete request.

    `head` contains the request line and the headers. `lowered` is `head` in lower case, for the search of
    headers.
    """

    method: str
    path: str
    query: str
    head: bytes
    lowered: bytes
    body: bytes

    def find_header(self, line: bytes) -> str | None:
        """Return the value of a header, or None if the header is missing.

        `line` is a constant of this module, such as `API_KEY_PREFIX`.
        """
        return _find_header_value(self.head, self.lowered, line)


class Connection(asyncio.Protocol):
    """One connection of a client.

    The connection calls `handle` with each request and itself. `handle` must call exactly one of
    :meth:`reply`, :meth:`reset`, :meth:`send_and_close`, :meth:`send_slowly` and
    :meth:`hold`, at once or later.
    """

    def __init__(self, handle: Callable[[HttpRequest, "Connection"], None]) -> None:
        self._handle = handle
        self._transport: asyncio.Transport
        self._buffer = b""
        self._is_busy = False
        self._is_reading = False
        self._closes_after_reply = False
        self._on_loss: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - true for TCP sockets
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Call the function `done` of :meth:`hold`, if the connection is held."""
        del exc
        gone, self._on_loss = self._on_loss, None
        if gone is not None:
            gone()

    def data_received(self, data: bytes) -> None:
        """Add bytes to the buffer, and handle complete requests."""
        self._buffer = self._buffer + data if self._buffer else data
        self._handle_buffered_requests()

    def reply(self, answer: bytes) -> None:
        """Write an answer and continue with the next request."""
        if not self._transport.is_closing():
            self._transport.write(answer)
            if self._closes_after_reply:
                self._transport.close()
        self._is_busy = False
        self._handle_buffered_requests()

    def reset(self) -> None:
        """Reset the connection. Data that was not read or written yet is lost."""
        found = self._transport.get_extra_info("socket")
        if found is not None and not self._transport.is_closing():
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def send_and_close(self, answer: bytes) -> None:
        """Write an answer, which may be incomplete, and close the connection."""
        if not self._transport.is_closing():
            self._transport.write(answer)
            self._transport.close()

    def hold(self, seconds: float, done: Callable[[], None]) -> None:
        """Send nothing until the client disconnects, or `seconds` are over. Then call `done`."""
        if self._transport.is_closing():
            done()
            return
        self._on_loss = done
        asyncio.get_running_loop().call_later(seconds, self._transport.close)

    def send_slowly(self, answer: bytes, seconds: float, done: Callable[[bool], None]) -> None:
        """Write an answer in pieces over `seconds`. Then call `done`.

        The argument of `done` is False if the client disconnected before the last piece, else True.
        """
        size = max(1, -(-len(answer) // _SLOW_PIECES))
        loop = asyncio.get_running_loop()

        def send_piece(start: int) -> None:
            if self._transport.is_closing():
                done(False)
                return
            end = start + size
            if end < len(answer):
                self._transport.write(answer[start:end])
                loop.call_later(seconds / _SLOW_PIECES, send_piece, end)
            else:
                done(True)
                self.reply(answer[start:])

        send_piece(0)

    def _handle_buffered_requests(self) -> None:
        # If `handle` answers at once, `reply` calls this method again. Return, because the loop continues.
        if self._is_reading:
            return
        self._is_reading = True
        while not self._is_busy and not self._transport.is_closing():
            request = self._take_request()
            if request is None:
                break
            self._is_busy = True
            self._handle(request, self)
        self._is_reading = False

    def _take_request(self) -> HttpRequest | None:
        """Remove the next request from the buffer and return it.

        Return None if the request is incomplete or was refused.
        """
        buffer = self._buffer
        end = buffer.find(_HEAD_END)
        if end < 0:
            if len(buffer) > MAX_HEAD_BYTES:
                self._refuse(431)
            return None
        head = buffer[:end]
        lowered = head.lower()
        length = _find_header_value(head, lowered, _CONTENT_LENGTH_PREFIX) or "0"
        parts = head[: head.find(b"\r\n")].decode("latin-1").split(" ")
        if len(parts) != 3 or not (length.isascii() and length.isdecimal()):  # noqa: PLR2004 - method path version
            self._refuse(400)
            return None
        if lowered.find(_TRANSFER_ENCODING_PREFIX) >= 0:
            self._refuse(411)
            return None
        start = end + len(_HEAD_END)
        stop = start + int(length)
        if stop - start > MAX_BODY_BYTES:
            self._refuse(413)
            return None
        if len(buffer) < stop:
            return None
        self._buffer = buffer[stop:]
        self._closes_after_reply = lowered.find(_CONNECTION_CLOSE) >= 0
        path, _, query = parts[1].partition("?")
        return HttpRequest(parts[0], path, query, head, lowered, buffer[start:stop])

    def _refuse(self, status: int) -> None:
        self._buffer = b""
        self.send_and_close(answers.make_error_answer(status, "the request cannot be read", trace="-"))


def _find_header_value(head: bytes, lowered: bytes, line: bytes) -> str | None:
    start = lowered.find(line)
    if start < 0:
        return None
    start += len(line)
    end = lowered.find(b"\r\n", start)
    return (head[start:] if end < 0 else head[start:end]).decode("latin-1").strip()
