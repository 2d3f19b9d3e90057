"""Turns over sockets that fail: what is sent again, what is not, and that neighbours and memory are left alone."""

import asyncio
import threading

import pytest
from socket_desk import HALF, PATH, audio, closing, frame, speak, until

from speechframe.client import Bounds, Client, Timeouts
from speechframe.errors import (
    BadAnswer,
    ConnectionFailed,
    PermissionDenied,
    RateLimited,
    ServerError,
    ServiceError,
    StreamBroken,
)
from speechframe.wire.client_contexts import (
    TurnAudio,
    TurnEnded,
    TurnRetried,
    UnexpectedMessage,
    WarningReceived,
)


async def vanish(desk, socket):
    """Leave without a word, when the first frames are there."""
    await desk.next(socket)
    await desk.next(socket)
    socket._req.transport.abort()


def failing(code, *, times=1, heard=b""):
    """Fail turns with a code, after some audio; then speak."""

    async def act(desk, socket):
        for _ in range(times):
            wire_id, _ = await desk.ended(socket)
            if wire_id is None:
                return
            if heard:
                await socket.send_str(audio(heard, wire_id))
            await socket.send_str(frame(error="it failed", error_code=code, fatal=True, context_id=wire_id))
            # The end of what was given up.
            await desk.ended(socket)
        await speak(desk, socket)

    return act


@pytest.fixture
async def hasty(settings, quick):
    """A client that waits for little: a healthy turn may take it too long, beside other tests."""
    async with Client(settings, patience=quick, timeouts=Timeouts(base_s=0.5, per_character_s=0)) as made:
        yield made


async def test_what_goes_over_the_wire(odd, desk, session, key):
    stream = session.speak(["Hello ", "there."], voice="cole", rate=3, min_buffer_size=0)
    assert await stream.read() == b"Hello there."
    assert desk.frames == [
        [
            {"voice_config": {"voiceId": "cole", "rate": 3}, "context_id": "1.1", "min_buffer_size": 0},
            {"text": "Hello ", "context_id": "1.1"},
            {"text": "there.", "context_id": "1.1"},
            {"end": True, "context_id": "1.1"},
        ]
    ]
    (upgrade,) = odd.gets(PATH)
    assert upgrade.headers["api-key"] == key
    assert stream.summary.trace_id == "t-1"


async def test_1008_is_a_denial_that_does_not_show_the_key(desk, session, key):
    desk.acts = [closing(1008, f"the plan of {key} has ended".encode())]
    with pytest.raises(PermissionDenied, match=r"the plan of \*\*\* has ended") as caught:
        await session.speak("Hello.").read()
    assert key not in str(caught.value)
    assert desk.sockets == 1


@pytest.mark.rule("socket.error-internal", "socket.decide-by-code")
async def test_a_turn_that_fails_before_it_is_heard_is_sent_again_from_its_beginning(desk, session):
    desk.acts = [failing("INTERNAL_ERROR")]
    context = await session.open()
    for text in ("Hello ", "there."):
        await context.send(text)
    await context.end()
    events = [event async for event in context]
    assert events == [
        TurnRetried(1, "INTERNAL_ERROR"),
        TurnAudio(1, b"Hello there.", "t-1"),
        TurnEnded(1, "t-1"),
    ]
    assert desk.texts() == ["Hello ", "there."] * 2
    assert context.audio().summary.attempts == 2


@pytest.mark.rule("socket.error-context-limit")
async def test_a_turn_that_is_refused_for_its_number_waits_and_is_sent_again(desk, session):
    desk.acts = [failing("ACTIVE_CONTEXT_LIMIT_EXCEEDED")]
    assert await session.speak("Hello.").read() == b"Hello."


@pytest.mark.parametrize(
    ("act", "times", "heard"),
    [(failing("INTERNAL_ERROR", times=9), 2, b""), (failing("INTERNAL_ERROR", heard=b"heard"), 1, b"heard"),
     (failing("NEW_THING"), 1, b"")],
)  # fmt: skip
async def test_a_turn_that_always_fails_or_was_heard_fails_with_the_services_code(
    desk, session, act, times, heard
):
    desk.acts = [act]
    stream = session.speak("Hello.")
    with pytest.raises(ServiceError) as caught:
        await stream.read()
    assert caught.value.code in {"INTERNAL_ERROR", "NEW_THING"}
    assert (stream.audio, desk.texts()) == (heard, ["Hello."] * times)


async def test_what_nobody_knows_survives(desk, session):
    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        for message in (
            "no json", "[]", frame(audio="%%%", context_id="of nobody"), frame(progress=1, context_id=wire_id),
            frame(warning="a new word", warning_code="NEW_WARNING", context_id=wire_id),
            frame(error="hm", error_code="NEW_ERROR", fatal=False, context_id=wire_id),
        ):  # fmt: skip
            await socket.send_str(message)
        await socket.send_bytes(b"\0\1")
        await socket.send_str(audio(b"heard", wire_id))
        await socket.send_str(frame(final=True, context_id=wire_id))
        await desk.next(socket)

    desk.acts = [act]
    context = await session.open()
    await context.send("Hello.")
    await context.end()
    assert [type(event) async for event in context] == [
        UnexpectedMessage,
        WarningReceived,
        UnexpectedMessage,
        TurnAudio,
        TurnEnded,
    ]
    assert context.audio().summary.warnings == ("NEW_WARNING: a new word",)


async def test_a_turn_that_lacks_a_piece_or_all_of_its_audio_has_failed(desk, session):
    messages = [(b"heard", {"audio": "AAA@"}), (b"", {"audio": "AAA"}), (b"", {"final": True})]

    async def act(desk, socket):
        for heard, message in messages:
            wire_id, _ = await desk.ended(socket)
            if heard:
                await socket.send_str(audio(heard, wire_id))
            await socket.send_str(frame(**message, context_id=wire_id))
            # Too late: it was given up.
            await socket.send_str(frame(final=True, context_id=wire_id))
            if "audio" in message:
                await desk.ended(socket)
        await speak(desk, socket)

    desk.acts = [act]
    for heard, _ in messages:
        stream = session.speak("Hello.")
        with pytest.raises(BadAnswer, match=r"not Base64|no audio"):
            await stream.read()
        assert (stream.audio, stream.is_complete) == (heard, False)
    assert await session.speak("Next.").read() == b"Next."


@pytest.mark.parametrize("act", [vanish, closing(1000, after=2), closing(1011)])
async def test_a_socket_that_is_lost_before_anything_was_heard_is_made_again_a_few_times(desk, session, act):
    desk.acts = [act, speak]
    assert await session.speak("Hello.").read() == b"Hello."
    assert (desk.sockets, desk.texts(1)) == (2, ["Hello."])
    desk.acts, desk.sockets = [act], 0
    with pytest.raises((ConnectionFailed, ServerError)):
        async with asyncio.timeout(60):
            # The socket that spoke lives on; it is left, and each new one is lost.
            await session.speak("Hello.", format="MP3").read()
    assert desk.sockets <= 5


@pytest.mark.parametrize("code", [None, 1013])
async def test_a_socket_that_is_lost_after_something_was_heard_breaks_the_turn_alone(desk, session, code):
    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        await socket.send_str(audio(b"heard", wire_id))
        await asyncio.sleep(0.05)
        if code is None:
            socket._req.transport.abort()
        else:
            await socket.close(code=code)

    desk.acts = [act, speak]
    stream = session.speak("Hello.")
    with pytest.raises(StreamBroken) as caught:
        await stream.read()
    assert (caught.value.received_bytes, stream.audio) == (5, b"heard")
    assert await session.speak("Next.").read() == b"Next."


@pytest.mark.parametrize(("status", "kind"), [(403, PermissionDenied), (429, RateLimited)])
async def test_an_upgrade_that_is_refused_is_the_error_of_its_status(odd, desk, session, status, kind):
    odd.script(odd.answer(status, {"error_message": "no"}), path=PATH)
    with pytest.raises(kind):
        await session.speak("Hello.").read()
    assert len(odd.gets(PATH)) == (1 if status == 403 else 5)
    odd.script(odd.answer(503), odd.answer(429), desk.step, path=PATH)
    assert await session.speak("Hello.").read() == b"Hello."


@pytest.mark.quiet
async def test_a_service_that_says_nothing_is_not_waited_for_but_a_writer_is(desk, hasty):
    async def silent(desk, socket):
        while (await desk.ended(socket))[0] is not None:
            pass

    async with hasty.stream_session(**HALF) as session:
        context = await session.open()
        await context.send("Hello")
        reading = asyncio.create_task(context.audio().read())
        await asyncio.sleep(0.8)
        assert not reading.done()
        await context.end()
        assert await reading == b"Hello"
    desk.acts = [silent]
    async with hasty.stream_session(**HALF) as session:
        with pytest.raises(StreamBroken, match=r"nothing came for 0\.5 s"):
            await session.speak("Hello.").read()


async def test_a_turn_takes_no_more_audio_than_its_text_can_fill(settings, quick, desk):
    failed = threading.Event()

    async def never_stop(desk, socket):
        # Either may end first.
        turns = {text: wire_id for wire_id, text in [await desk.ended(socket) for _ in range(2)]}
        wire_id, other = turns["Endless."], turns["Other."]
        while not socket.closed:
            await socket.send_str(audio(bytes(10_000), wire_id))
            if failed.is_set() and other:
                await socket.send_str(audio(b"other", other))
                await socket.send_str(frame(final=True, context_id=other))
                other = None

    desk.acts = [never_stop, speak]
    client = Client(settings, patience=quick, bounds=Bounds(download_bytes=95_000))
    async with asyncio.timeout(60), client, client.stream_session(**HALF) as session:
        endless, other = (asyncio.create_task(session.speak(text).read()) for text in ("Endless.", "Other."))
        with pytest.raises(StreamBroken, match="too large for its text: more than 95,000 bytes"):
            await endless
        failed.set()
        # The socket is left when the turn that still needs it is over.
        assert await other == b"other"
        assert session.sockets == 0
        assert await session.speak("Next.").read() == b"Next."


async def test_text_comes_from_whoever_writes_it_and_its_mistakes_come_out_of_the_stream(desk, session):
    async def written(*texts):
        for text in texts:
            yield text

    for pieces in (
        "ab",
        ["a", "", "b"],
        ("a", "b"),
        iter("ab"),
        written("a", "", "b"),
        (one for one in "ab"),
    ):
        assert await session.speak(pieces).read() == b"ab"
    for pieces, words in (
        (["Hello", 3], "a str, not int"),
        (None, "not NoneType"),
        (written("a", None), "not NoneType"),
    ):
        with pytest.raises(TypeError, match=words):
            await session.speak(pieces).read()


async def test_the_cap_is_what_the_service_publishes_over_all_sessions(odd, client, desk):
    odd.script(odd.answer(200, {"service": "speechframe", "pools": {"streaming": 3}}), path="/v1/limits")
    async with client.stream_session(**HALF) as session:
        contexts = [await session.open() for _ in range(5)]
        for number, context in enumerate(contexts):
            await context.send(f"{number}.")
        await until(lambda: desk.frames and len(desk.texts()) == 3)
        await asyncio.sleep(0.1)
        assert desk.texts() == ["0.", "1.", "2."]
        for context in contexts:
            await context.end()
        assert [await context.audio().read() for context in contexts] == [b"0.", b"1.", b"2.", b"3.", b"4."]
    with pytest.raises(ValueError, match="max_contexts is 0; allowed: 1 or more"):
        client.stream_session(voice="ivy", max_contexts=0)
