"""Turns over a WebSocket whose service does what a test scripts: what is sent again, broken, bounded or waited for."""

import asyncio
import threading

import pytest
from socket_desk import audio, frame, speak, until

from speechframe.client import Timeouts
from speechframe.errors import StreamBroken


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
    monkeypatch.setattr(Timeouts, "compute_attempt_limit_s", lambda self, characters: 0.05 * characters)
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


async def test_a_turn_that_waits_for_a_slot_has_no_time_limit(odd, desk, session, monkeypatch):
    odd.script(odd.answer(200, {"service": "speechframe", "pools": {"streaming": 1}}), path="/v1/limits")
    monkeypatch.setattr(Timeouts, "compute_attempt_limit_s", lambda self, characters: 0.5)
    async with asyncio.timeout(60):
        writing = await session.open()
        await writing.send("Written.")
        await until(lambda: desk.frames and desk.texts())
        waiting = asyncio.create_task(session.speak("Waiting.").read())
        await asyncio.sleep(1)
        assert not waiting.done()
        await writing.end()
        assert await waiting == b"Waiting."
        assert await writing.audio().read() == b"Written."


async def test_a_socket_that_brings_nothing_is_left_for_another(desk, session, monkeypatch):
    async def deaf(desk, socket):
        while await desk.next(socket) is not None:
            pass

    desk.acts = [deaf, speak]
    monkeypatch.setattr(Timeouts, "compute_attempt_limit_s", lambda self, characters: 0.2)
    async with asyncio.timeout(60):
        with pytest.raises(StreamBroken, match="nothing came"):
            await session.speak("Hello.").read()
        assert await session.speak("Next.").read() == b"Next."


async def test_a_turn_that_goes_on_for_ever_is_broken_off(desk, session, monkeypatch):
    async def dribble(desk, socket):
        wire_id, _ = await desk.ended(socket)
        while not socket.closed:
            await socket.send_str(audio(b"a", wire_id))
            await asyncio.sleep(0.01)

    desk.acts = [dribble]
    monkeypatch.setattr(Timeouts, "compute_stream_wait_limit_s", lambda self, text: 0.4)
    stream = session.speak("Hello.")
    async with asyncio.timeout(30):
        with pytest.raises(StreamBroken, match="longer than any speech of its text"):
            await stream.read()
    assert stream.audio


async def test_a_turn_that_nobody_hears_keeps_no_other_waiting(desk, session):

    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        for _ in range(1800):
            await socket.send_str(audio(bytes(10_000), wire_id))
        await socket.send_str(frame(final=True, context_id=wire_id))
        await speak(desk, socket)

    desk.acts = [act]
    async with asyncio.timeout(60):
        async with await session.open() as unheard:
            await unheard.send("Hello. " * 200)
        await until(lambda: desk.frames and desk.ends())
        assert await session.speak("Next.").read() == b"Next."
        assert len(await unheard.audio().read()) == 18_000_000
