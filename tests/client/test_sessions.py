"""Turns over a WebSocket whose service does what a test scripts: what is sent again, broken, bounded or waited for."""

import asyncio
import threading

import pytest
from socket_desk import audio, closing, frame, speak, until

from speechframe.client import Timeouts
from speechframe.client import session as sessions
from speechframe.errors import ConnectionFailed, PermissionDenied, ServiceError, StreamBroken


async def hang_up(desk, socket):
    """Read a turn, and close the socket without a word of it."""
    await desk.ended(socket)
    await socket.close(code=1011)


async def speak_half(desk, socket):
    """Say half of a turn, and close the socket as for being idle."""
    wire_id, _ = await desk.ended(socket)
    await socket.send_str(audio(b"half", wire_id))
    await socket.close(code=1000)


async def test_a_turn_that_was_not_heard_is_sent_once_more(desk, session):
    desk.acts = [hang_up, speak]
    stream = session.speak("Hello.")
    assert await stream.read() == b"Hello."
    assert (stream.summary.attempts, [desk.texts(0), desk.texts(1)]) == (2, [["Hello."], ["Hello."]])


async def test_and_not_a_third_time(desk, session):
    desk.acts = [hang_up]
    with pytest.raises(ConnectionFailed, match="the connection was lost"):
        await session.speak("Hello.").read()
    assert desk.sockets == 2


async def test_a_turn_that_was_heard_is_broken_and_what_came_is_kept(desk, session):
    desk.acts = [speak_half, speak]
    stream = session.speak("Hello.")
    with pytest.raises(StreamBroken, match="before all of the audio had come"):
        await stream.read()
    assert (stream.audio, stream.is_complete) == (b"half", False)
    assert await session.speak("Next.").read() == b"Next."


async def test_a_turn_that_was_heard_does_not_outlive_a_close_for_being_idle(desk, session):
    async def act(desk, socket):
        while "text" not in (found := await desk.next(socket)):
            pass
        await socket.send_str(audio(b"half", found["context_id"]))
        await asyncio.sleep(0.7)
        await socket.close(code=1000)

    desk.acts = [act, speak]
    context = await session.open()
    await context.send("One. ")
    await until(lambda: desk.sockets and not session.sockets)
    with pytest.raises(StreamBroken, match="before all of the audio had come"):
        await context.send("Two.")
    assert (context.audio().audio, desk.sockets) == (b"half", 1)


async def test_1008_is_a_refused_key_for_every_turn(desk, session):
    desk.acts = [closing(1008, b"Invalid api key used.", after=3)]
    with pytest.raises(PermissionDenied, match="Invalid api key used"):
        await session.speak("Hello.").read()
    assert desk.sockets == 1


async def test_a_fatal_error_is_the_turns_own_with_the_services_code(desk, session):
    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        await socket.send_str(frame(error="no", error_code="INVALID_VOICE", fatal=True, context_id=wire_id))
        await speak(desk, socket)

    desk.acts = [act]
    with pytest.raises(ServiceError) as caught:
        await session.speak("Hello.").read()
    assert (caught.value.status, caught.value.code) == (400, "INVALID_VOICE")
    assert await session.speak("Next.").read() == b"Next."
    assert desk.sockets == 1


@pytest.mark.parametrize("heard", [b"", b"half, "])
async def test_a_slow_turn_outlives_impatient_ones_behind_it(desk, session, monkeypatch, heard):
    spoken = threading.Event()

    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        if heard:
            await socket.send_str(audio(heard, wire_id))
        await until(spoken.is_set)
        await socket.send_str(audio(b"all", wire_id))
        await socket.send_str(frame(final=True, context_id=wire_id))
        await desk.next(socket)

    desk.acts = [act]
    monkeypatch.setattr(Timeouts, "attempt_s", lambda self, characters: 0.05 * characters)
    async with asyncio.timeout(60):
        slow = session.speak("Long. " * 200)
        reading = asyncio.create_task(slow.read())
        await until(lambda: desk.frames and desk.ends() and len(slow.audio) == len(heard))
        for text in ("S1.", "S2."):
            with pytest.raises(StreamBroken, match=r"nothing came for 0\.15 s"):
                await session.speak(text).read()
        spoken.set()
        assert await reading == heard + b"all"
    assert (slow.summary.attempts, desk.sockets) == (1, 1)


async def test_a_socket_that_brings_nothing_is_left_for_another(desk, session, monkeypatch):
    async def deaf(desk, socket):
        while await desk.next(socket) is not None:
            pass

    desk.acts = [deaf, speak]
    monkeypatch.setattr(Timeouts, "attempt_s", lambda self, characters: 0.2)
    async with asyncio.timeout(60):
        with pytest.raises(StreamBroken, match="nothing came"):
            await session.speak("Hello.").read()
        assert await session.speak("Next.").read() == b"Next."


async def test_audio_that_nobody_takes_stays_with_the_service(desk, session, monkeypatch):
    monkeypatch.setattr(sessions, "MOST_WAITING_BYTES", 100_000)
    sent = 0

    async def act(desk, socket):
        nonlocal sent
        wire_id, _ = await desk.ended(socket)
        for _ in range(3000):
            await socket.send_str(audio(bytes(10_000), wire_id))
            sent += 1
        await socket.send_str(frame(final=True, context_id=wire_id))
        await desk.next(socket)

    desk.acts = [act]
    async with await session.open() as context:
        await context.send("Hello. " * 200)
    before = -1
    async with asyncio.timeout(60):
        # What the kernels and the libraries hold fills up first.
        while sent != before or not sent:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < 3000
        assert len(await context.audio().read()) == 30_000_000


async def test_who_keeps_other_turns_waiting_for_long_is_broken_off(desk, session, monkeypatch):
    monkeypatch.setattr(sessions, "MOST_WAITING_BYTES", 100_000)
    monkeypatch.setattr(sessions, "HELD_S", 0.3)

    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        for _ in range(30):
            await socket.send_str(audio(bytes(10_000), wire_id))
        await speak(desk, socket)

    desk.acts = [act]
    async with asyncio.timeout(60):
        async with await session.open() as unheard:
            await unheard.send("Hello. " * 20)
        await until(lambda: desk.frames and desk.ends())
        assert await session.speak("Next.").read() == b"Next."
        with pytest.raises(StreamBroken, match="nobody took this turn's audio"):
            await unheard.audio().read()
