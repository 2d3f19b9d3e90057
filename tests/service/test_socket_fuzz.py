"""Whatever is sent to a socket, it answers in the document's frames, stays open, and harms no other."""

import asyncio
import base64
import contextlib
import json
from urllib.parse import urlsplit

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from socket_lab import FALCON, PATH, THREE, Talk, own_bytes

from speechframe.spec import chosen
from speechframe.spec.codes import ErrorCode, HttpErrorCode, WarningCode
from speechframe.spec.limits import BUFFER_SIZE

KINDS = ("audio", "final", "error", "warning")
CODES = {*ErrorCode, HttpErrorCode.QUOTA_EXHAUSTED, HttpErrorCode.INVALID_REQUEST}
WARNINGS = {*WarningCode, chosen.TEXT_WARNING_CODE, chosen.VOICE_WARNING_CODE}

TEXT = st.text(st.characters(), max_size=20)
"""Halves of surrogate pairs are among them: JSON can spell them."""
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
IDS = st.sampled_from(["a", "b", "", None])
LIKELY = {
    "voice_config": st.sampled_from(
        [FALCON, {"voiceId": "nobody"}, {}, {**FALCON, "rate": 50, "style": "None"}]
    ),
    "text": st.sampled_from(["Hello. ", "How are", " you? ", "[pause 0.1s]", " ", "...", "Привет. "]),
    "context_id": IDS,
    "end": st.booleans(),
    "clear": st.booleans(),
    "min_buffer_size": st.integers(-1, BUFFER_SIZE.high + 1) | st.sampled_from(["0", "7"]),
    "max_buffer_delay_in_ms": st.integers(0, 40),
    "predictive_chunking": st.sampled_from(["strict", "lenient", "wild"]),
}
FRAMES = st.fixed_dictionaries({}, optional=LIKELY) | st.fixed_dictionaries(
    {}, optional={**{name: likely | ANYTHING for name, likely in LIKELY.items()}, "else": ANYTHING}
)
MESSAGES = FRAMES.map(json.dumps) | st.text(max_size=30) | st.binary(max_size=30)
ANY_TIME = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


async def play(service, messages):
    async with aiohttp.ClientSession(headers={chosen.API_KEY_HEADER: "main"}) as session:
        async with session.ws_connect(service.url + PATH + "?format=PCM", max_msg_size=0) as socket:
            talk = Talk(socket)
            for message in messages:
                await (socket.send_bytes if isinstance(message, bytes) else socket.send_str)(message)
            await talk.say(THREE, "the good one")
            await talk.until(lambda one: one.get("context_id") == "the good one" and one.get("final"))
        check_frames(talk.frames)
        assert talk.audio("the good one") == own_bytes()


def check_frames(frames):
    over = set()
    for frame in frames:
        (kind,) = [kind for kind in KINDS if kind in frame]
        assert set(frame) <= {kind, f"{kind}_code", "fatal", "context_id", "trace_id"}
        if kind == "error":
            assert frame["error_code"] in CODES
            assert isinstance(frame["fatal"], bool)
        elif kind == "warning":
            assert frame["warning_code"] in WARNINGS
        # Each turn of a context has a trace id of its own: nothing comes behind its end.
        assert frame["trace_id"] not in over
        if kind == "final" or frame.get("fatal"):
            over.add(frame["trace_id"])


@settings(ANY_TIME, max_examples=15, derandomize=True)
@given(messages=st.lists(MESSAGES, max_size=12))
def test_whatever_is_sent_the_socket_answers_and_serves(service, messages):
    asyncio.run(play(service, messages))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(ANY_TIME, max_examples=1000)
@given(messages=st.lists(MESSAGES, max_size=40))
def test_whatever_is_sent_at_length_the_socket_answers_and_serves(service, messages):
    asyncio.run(play(service, messages))


@st.composite
def raw_frames(draw):
    """Bytes as a broken client writes them: any opcode, reserved bits, no mask, a length that is a lie."""
    payload = draw(st.binary(max_size=40))
    head = draw(st.integers(0, 255))
    length = draw(st.just(len(payload)) | st.integers(0, 127))
    masked = draw(st.booleans())
    return bytes([head, (0x80 if masked else 0) | length]) + (bytes(4) if masked else b"") + payload


async def break_and_listen(service, data):
    address = urlsplit(service.url)
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession(headers={chosen.API_KEY_HEADER: "main"}) as session,
        session.ws_connect(service.url + PATH + "?format=PCM") as socket,
    ):
        other = Talk(socket)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(
            f"GET {PATH} HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
            f"{chosen.API_KEY_HEADER}: main\r\n\r\n".encode()
        )
        assert b" 101 " in await reader.readline()
        writer.write(data)
        await other.say(THREE, "other")
        await other.finals(1)
        assert other.audio("other") == own_bytes()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@settings(ANY_TIME, max_examples=8, derandomize=True)
@given(frames=st.lists(raw_frames(), max_size=6))
def test_whatever_bytes_come_behind_the_upgrade_other_sockets_serve(service, frames):
    asyncio.run(break_and_listen(service, b"".join(frames)))


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(ANY_TIME, max_examples=300)
@given(frames=st.lists(raw_frames(), max_size=20))
def test_whatever_bytes_come_at_length_other_sockets_serve(service, frames):
    asyncio.run(break_and_listen(service, b"".join(frames)))
