"""One WebSocket of the client: text out, messages in, and how it was closed.

Asked of aiohttp with what bites a client kept out: no redirect is followed (the key would go along), messages
are bounded, and nothing is compressed (Base64 audio does not shrink). There are no pings: a service that
waits for its slow reader answers none.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from types import SimpleNamespace

import aiohttp
from aiohttp import WSMsgType
from yarl import URL

CLOSE_S = 2.0
"""Longest wait for the other end's half of a close."""

_DATA = frozenset({WSMsgType.TEXT, WSMsgType.BINARY})


class RedirectedError(Exception):
    """The upgrade was answered with a redirect."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers


def refusing_redirects() -> aiohttp.TraceConfig:
    """Return what makes a session refuse redirects where a caller cannot say so, as of WebSockets."""

    async def refuse(
        session: aiohttp.ClientSession,  # noqa: ARG001 - aiohttp's protocol
        context: SimpleNamespace,  # noqa: ARG001 - same
        params: aiohttp.TraceRequestRedirectParams,
    ) -> None:
        raise RedirectedError(params.response.status, params.response.headers)

    config = aiohttp.TraceConfig()
    config.on_request_redirect.append(refuse)
    return config


async def opened(
    session: aiohttp.ClientSession,
    url: URL,
    headers: Mapping[str, str],
    *,
    proxy: URL | None,
    max_message_bytes: int,
) -> "Socket":
    """Return an open socket.

    Raises
    ------
    RedirectedError, aiohttp.WSServerHandshakeError
        Another answer than the upgrade.
    aiohttp.ClientError, OSError
        No answer.
    """
    socket = await session.ws_connect(
        url,
        headers=headers,
        proxy=proxy,
        compress=0,
        max_msg_size=max_message_bytes,
        timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
    )
    return Socket(socket)


class Socket:
    """An open WebSocket.

    Parameters
    ----------
    socket
        aiohttp's.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.close_code: int | None = None
        """The code the other end closed it with; None while it is open, and where the connection just ended
        (aiohttp would call that 1000)."""
        self.reason = ""
        """What the other end said when it closed."""

    async def send(self, text: str) -> bool:
        """Send a message, waiting while the other end takes nothing; False when the connection is gone."""
        try:
            await self._socket.send_str(text)
        except (ConnectionError, aiohttp.ClientError):
            return False
        return True

    async def receive(self) -> str | bytes | None:
        """Return the next message; None when the connection is closed."""
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            message = await self._socket.receive()
            if message.type in _DATA:
                data: str | bytes = message.data
                return data
            if message.type is WSMsgType.CLOSE:
                self.close_code, self.reason = message.data or None, message.extra or ""
        return None

    def abort(self) -> None:
        """End the connection at once, without a word: nothing more is sent, and nobody waits for it."""
        response = self._socket._response  # noqa: SLF001 - aiohttp only closes in order, which may take for ever
        connection = response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        response.close()

    async def close(self) -> None:
        """Close it, with 1000."""
        with contextlib.suppress(ConnectionError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(2 * CLOSE_S):
                await self._socket.close()
