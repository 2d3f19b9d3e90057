"""Open ``WebSocket /v1/speech/stream-input``: key, query and upgrade.

Sections 3, 6 and 7.3 to 7.5 of the service document describe the socket.
"""

import asyncio
import contextlib

from aiohttp import web

from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import Refusal, add_warnings
from speechframe.local.service.http.body import check_fields
from speechframe.local.service.http.middleware import LOG_NOTE_KEY, TRACE_ID_KEY
from speechframe.local.service.speech.live import TooManySockets
from speechframe.local.service.speech.session import Session
from speechframe.local.service.speech.stream import get_default_model
from speechframe.local.service.state import STATE, State
from speechframe.local.service.workers.speech import AudioFormat
from speechframe.settings.hidden import Hidden
from speechframe.spec import billing, chosen
from speechframe.spec.codes import INVALID_KEY_REASON, CloseCode, HttpErrorCode
from speechframe.spec.deprecation import GEN2_STREAMING_NOTICE
from speechframe.spec.limits import Pool
from speechframe.spec.socket import SocketQuery
from speechframe.spec.speech import Model

# Seconds to wait for the client's part of the closing handshake.
_CLOSE_TIMEOUT_S = 2.0
# Name of the query parameter for the API key, for clients that cannot send headers.
_KEY_PARAMETER = SocketQuery.get_wire_names()["api_key"]


async def stream_input(request: web.Request) -> web.StreamResponse:
    """Upgrade the request to a WebSocket, and serve it until it is closed."""
    state = request.app[STATE]
    # A frame above MAX_FRAME_BYTES gets an error frame (chosen: socket-faults). A frame above max_msg_size is
    # not even read, and ends the socket.
    socket = web.WebSocketResponse(
        timeout=_CLOSE_TIMEOUT_S, compress=False, heartbeat=None, max_msg_size=chosen.MAX_READ_FRAME_BYTES
    )
    if not socket.can_prepare(request).ok:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            "this address accepts only WebSockets: send a GET with Upgrade: websocket",
            headers={"Upgrade": "websocket"},
        )
    secret = Hidden(request.headers.get(chosen.API_KEY_HEADER) or request.query.get(_KEY_PARAMETER, ""))
    key = state.ring.find(secret) if secret else None
    if key is None:
        # Section 5, rule 6: the upgrade succeeds, and then the socket is closed.
        await socket.prepare(request)
        await socket.close(code=CloseCode.POLICY_VIOLATION, message=INVALID_KEY_REASON.encode())
        return socket
    model, shape = _read_query(request, state)
    max_sockets = chosen.SOCKETS_PER_CONCURRENCY * state.slots.get_cap(key, Pool.STREAMING)
    try:
        with state.live.count_socket(key, max_sockets):
            return await _serve_socket(request, state, key, socket, model, shape)
    except TooManySockets:
        raise Refusal(
            HttpErrorCode.CONCURRENCY_LIMIT,
            f"this key has {max_sockets} sockets open, which is its limit; one socket carries many contexts",
            retry_after_s=1.0,
        ) from None


def _read_query(request: web.Request, state: State) -> tuple[Model, AudioFormat]:
    given = {name: value for name, value in request.query.items() if value and name != _KEY_PARAMETER}
    query, _ = check_fields(SocketQuery, given)
    model = query.model or get_default_model(state)
    asked = query.channel_type, query.sample_rate
    return model, AudioFormat.from_request(query.format, asked, model, names=("channel_type", "sample_rate"))


async def _serve_socket(
    request: web.Request,
    state: State,
    key: Key,
    socket: web.WebSocketResponse,
    model: Model,
    shape: AudioFormat,
) -> web.StreamResponse:
    warnings = [*shape.warnings]
    if model is Model.GEN2:
        socket.headers[chosen.DEPRECATION_HEADER] = "true"
        warnings.append(GEN2_STREAMING_NOTICE)
    add_warnings(socket, warnings)
    await socket.prepare(request)
    reader = state.readers.get_reader(request.protocol)
    session = Session(
        state, key, socket, reader=reader, model=model, shape=shape, trace_id=request[TRACE_ID_KEY]
    )
    try:
        await session.run()
    finally:
        characters = session.billed_millis // billing.MILLICREDITS_PER_CREDIT
        request[LOG_NOTE_KEY] = f"key {key.fingerprint} characters {characters}"
        if not socket.closed and request.transport is not None:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                request.transport.abort()
    return socket
