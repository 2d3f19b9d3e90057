"""What no client should send, at the real port: the documented code, and the other contexts unharmed."""

import contextlib
import json
import os
import signal

import aiohttp
import pytest
from aiohttp import WSMsgType
from socket_lab import FALCON, LONG, MOODY, THREE, all_free, own_bytes, replaced, talking

from speechframe.spec import chosen

KEPT = 256
FRENCH_E = "e\u0301"


@pytest.mark.rule("socket.error-frame")
@pytest.mark.parametrize(
    "bad",
    [
        "",
        "[1]",
        "[" * 5000,
        b'{"text": "hi"}',
        '{"text": "' + "x" * 10_000_000 + '"}',
    ],
    ids=lambda bad: repr(bad[:12]),
)
async def test_a_bad_frame_is_invalid_json_and_the_socket_stays_open(http, bad):
    async with talking(http) as talk:
        await talk.say(THREE, "before")
        await talk.send(context_id="a", voice_config=FALCON)
        await (talk.socket.send_bytes(bad) if isinstance(bad, bytes) else talk.socket.send_str(bad))
        frame = await talk.until(lambda one: "error" in one)
        assert (frame["error_code"], frame["fatal"]) == ("INVALID_JSON", False)
        assert frame["error"]
        assert "context_id" not in frame
        await talk.send(context_id="a", text=THREE, end=True)
        await talk.finals(2)
        assert talk.audio("a") == talk.audio("before") == own_bytes()
        assert talk.codes() == ["INVALID_JSON"]


async def test_a_frame_that_is_not_even_read_ends_its_own_connection_alone(http):
    async with talking(http, key="second") as other, talking(http, key="second") as talk:
        await other.say(LONG[:400], "other")
        await talk.send(context_id="a", voice_config=FALCON)
        # The connection may be gone before all of it is sent.
        with contextlib.suppress(ConnectionError):
            await talk.socket.send_str("x" * (chosen.MAX_READ_FRAME_BYTES + 1))
        message = await talk.socket.receive(timeout=60)
        assert message.type in {WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR}
        assert message.type is not WSMsgType.CLOSE or message.data == 1009
        await other.finals(1)
        assert other.audio("other") == own_bytes(LONG[:400])
        await all_free(http, "second", 3)


async def test_a_context_may_have_any_text_of_up_to_256_characters_as_its_id(http):
    odd = ["", " ", "0", "null", "__proto__", "a\nb", "名前", FRENCH_E, "\u202eabc", "'\"\\", "x" * KEPT]
    async with talking(http) as talk:
        for name in odd:
            await talk.say("Hello there.", name)
        await talk.finals(len(odd))
        assert {name: talk.audio(name) for name in odd} == dict.fromkeys(odd, own_bytes("Hello there."))
        assert talk.codes() == []


@pytest.mark.parametrize(
    "wrong",
    [True, ["a"], "x" * (KEPT + 1), "\ud800"],
    ids=lambda value: repr(value)[:12],
)
async def test_an_id_that_is_none_is_ignored_with_a_warning_and_the_frame_is_the_default_contexts(
    http, wrong
):
    async with talking(http) as talk:
        await talk.say(THREE, "other")
        await talk.say("Hello there.", wrong)
        await talk.finals(2)
        assert talk.codes() == ["INVALID_FIELD_TYPE"]
        assert talk.audio() == own_bytes("Hello there.")
        assert talk.audio("other") == own_bytes()


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        (" 0 ", False), ("0.0", False), (None, False), ("0x10", True), ("٣", True), (True, True), (1001, True),
    ],
    ids=lambda value: repr(value)[:12],
)  # fmt: skip
async def test_a_number_may_be_text_and_what_is_none_leaves_the_value_before_it(http, given, warned):
    async with talking(http) as talk:
        await talk.send(context_id="a", voice_config=FALCON, min_buffer_size=0, max_buffer_delay_in_ms=1000)
        await talk.send(context_id="a", min_buffer_size=given)
        # Shorter than the default buffer: it is spoken at once, as the value before has it.
        await talk.send(context_id="a", text="Hello there. ")
        await talk.until(lambda one: "audio" in one)
        assert talk.codes() == (["INVALID_BUFFER_SIZE"] if warned else [])


@pytest.mark.rule("socket.config-before-text")
async def test_a_voice_that_comes_behind_text_holds_for_what_follows_it(http):
    async with talking(http) as talk:
        await talk.send(context_id="alone", text="Hello there. ", end=True)
        await talk.send(context_id="a", text="Hello there. ")
        await talk.send(
            context_id="a", voice_config={"voiceId": "en-US-cole"}, text="Hello there. ", end=True
        )
        await talk.finals(2)
        assert talk.codes() == ["NO_VOICE_CONFIG"] * 2
        alone, both = talk.audio("alone"), talk.audio("a")
        # The resampler looks ahead by some samples, and finds another voice there.
        assert both[: len(alone) - 1000] == alone[:-1000]
        assert len(both) > 1.5 * len(alone)
        assert alone[:10_000] not in both[1000:]


async def test_clients_that_go_away_in_every_manner_or_never_read_harm_no_other(http):
    path = "/v1/speech/stream-input?format=WAV&sample_rate=48000&channel_type=STEREO"
    sent = {"voice_config": FALCON, "text": LONG, "context_id": "gone"}
    async with contextlib.AsyncExitStack() as stack:
        sockets, transports = [], []
        for _ in range(4):
            session = await stack.enter_async_context(aiohttp.ClientSession())
            headers = {chosen.API_KEY_HEADER: "spare"}
            sockets.append(await session.ws_connect(http.url + path, headers=headers))
            transports.append(sockets[-1]._response.connection.transport)
            stack.callback(transports[-1].abort)
            await sockets[-1].send_str(json.dumps(sent))
        async with talking(http) as talk:
            await talk.say(LONG[:400], "a")
            await sockets[0].close()
            transports[1].abort()
            transports[2].get_extra_info("socket").shutdown(1)
            # The fourth takes nothing of its megabytes.
            await talk.finals(1)
            assert talk.audio("a") == own_bytes(LONG[:400])


async def test_a_worker_killed_in_the_middle_of_a_sentence_costs_the_context_it_speaks_for_alone(
    http, service, tools, hold
):
    gen2 = "model=gen2&format=PCM"
    async with talking(http, gen2) as talk, talking(http) as elsewhere:
        frames = [("Hello there. ", {}), ("Well done.", {"end": True})]

        async def speak(name, text, more):
            await talk.send(context_id=name, voice_config=MOODY, text=text, min_buffer_size=0, **more)

        for text, more in frames:
            await speak("alone", text, more)
        await talk.finals(1)
        await speak("before", *frames[0])
        await talk.until(lambda one: "audio" in one and one["context_id"] == "before")
        await elsewhere.send(context_id="open", voice_config=FALCON)
        await talk.say(f"{hold.text} long.", "killed", MOODY)
        await tools.until(hold.begun)
        for pid in (killed := tools.worker_pids(service.pid)):
            os.kill(pid, signal.SIGKILL)
        await talk.finals(2)
        assert talk.frames[-1]["context_id"] == "killed"
        assert talk.codes() == ["INTERNAL_ERROR"]
        # A job given to the other one before its end was noticed would be lost with it.
        await replaced(http, tools, service, killed)
        await speak("before", *frames[1])
        await elsewhere.send(context_id="open", text=THREE, end=True)
        await talk.finals(3)
        await elsewhere.finals(1)
        assert talk.audio("before") == talk.audio("alone")
        assert elsewhere.audio("open") == own_bytes()


async def test_pings_are_answered_and_fragments_are_one_frame(http):
    async with talking(http, autoping=False) as talk:
        await talk.socket.ping(b"there?")
        message = await talk.socket.receive(timeout=60)
        assert (message.type, message.data) == (WSMsgType.PONG, b"there?")
        text = json.dumps({"voice_config": FALCON, "text": "Hello there.", "end": True}).encode()
        writer = talk.socket._writer
        for start in range(0, len(text), 20):
            last = start + 20 >= len(text)
            opcode = WSMsgType.TEXT if start == 0 else WSMsgType.CONTINUATION
            fragment(writer.transport, text[start : start + 20], opcode, last=last)
        await talk.finals(1)
        assert talk.audio() == own_bytes("Hello there.")


def fragment(transport, payload, opcode, *, last):
    """Write a masked frame of a message by hand; the mask changes nothing."""
    transport.write(bytes([(0x80 if last else 0) | opcode, 0x80 | len(payload)]) + bytes(4) + payload)
