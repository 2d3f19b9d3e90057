"""Who is waited for, and for how long: slots, listeners, writers, and sockets that are dead or nearly so."""

import asyncio
import json
import threading

import pytest
from socket_desk import HALF, audio, frame, speak, until

from speechframe.errors import BadAnswer, ConnectionFailed, InvalidRows, StreamBroken
from speechframe.old_client import Timeouts, _line, turn

LONG_S = 60.0


@pytest.fixture
def limits(monkeypatch):
    """The time limits of what is begun from now on, to be changed while a test runs."""
    names = ("attempt_s", "speech_s", "message_s")
    found = dict.fromkeys(names, LONG_S)
    for name in names:
        monkeypatch.setattr(Timeouts, name, lambda self, size, name=name: found[name], raising=False)
    return found


async def said(session, text, *, ends=True):
    """Return a turn with a text, and what reads its audio."""
    context = await session.open()
    await context.send(text)
    if ends:
        await context.end()
    return context, asyncio.create_task(context.audio().read())


async def test_silence_counts_from_when_a_turn_that_waited_for_a_slot_is_sent(client, desk, limits):
    async def act(desk, socket):
        # The second turn's first audio comes when its limit is over, had it begun with the wait for the slot.
        for pause_s in (0, 0.8):
            wire_id, text = await desk.ended(socket)
            await asyncio.sleep(pause_s)
            await socket.send_str(audio(text.encode(), wire_id))
            await socket.send_str(frame(final=True, context_id=wire_id))
        await desk.next(socket)

    desk.acts = [act]
    async with client.stream_session(**HALF, max_contexts=1) as session, asyncio.timeout(LONG_S):
        holder, _ = await said(session, "First.", ends=False)
        await until(lambda: desk.frames and desk.texts())
        limits["attempt_s"] = 0.5
        _, reading = await said(session, "Second.")
        await asyncio.sleep(0.1)
        limits["attempt_s"] = LONG_S
        await holder.end()
        assert await reading == b"Second."


async def test_a_service_that_closes_with_1000_before_any_audio_is_asked_so_many_times(
    desk, session, monkeypatch
):
    async def act(desk, socket):
        await desk.ended(socket)
        await socket.close(code=1000)

    # As if each of them had lived for long.
    monkeypatch.setattr(_line, "_FRUITFUL_S", 0.0)
    desk.acts = [*[act] * 6, speak]
    with pytest.raises(ConnectionFailed, match="the connection was lost"):
        await session.speak("Hello.").read()
    assert [desk.texts(number) for number in range(desk.sockets)] == [["Hello."]] * 3


async def test_text_on_its_way_into_a_close_with_1000_is_not_passed_over(desk, session):
    async def act(desk, socket):
        while "text" not in (found := await desk.next(socket)):
            pass
        await socket.send_str(audio(b"heard", found["context_id"]))
        await desk.next(socket)
        await socket.close(code=1000)

    desk.acts = [act, speak]
    context = await session.open()
    stream = context.audio()
    await context.send("One. ")
    assert await anext(stream) == b"heard"
    await context.send("Two. ")
    await until(lambda: session.sockets == 0)
    await context.end()
    with pytest.raises(StreamBroken, match="lost before all of the audio had come"):
        await stream.read()
    assert (stream.is_complete, stream.audio) == (False, b"heard")


async def deaf(desk, socket):
    """Read, and say nothing."""
    while await desk.next(socket) is not None:
        pass


async def beside_one_given_up(desk, session, limits, attempt_s):
    """Begin a turn, and give up another one, for which nothing comes."""
    begun = await said(session, "Other.", ends=False)
    await until(lambda: desk.frames and desk.texts())
    limits["attempt_s"] = attempt_s
    with pytest.raises(StreamBroken, match=rf"nothing came for {attempt_s:g} s"):
        await session.speak("Hello.").read()
    limits["attempt_s"] = LONG_S
    return begun


async def test_a_socket_that_brings_nothing_is_left_and_its_turns_go_on_over_another(desk, session, limits):
    desk.acts = [deaf, speak]
    async with asyncio.timeout(LONG_S):
        other, reading = await beside_one_given_up(desk, session, limits, attempt_s=0.1)
        assert await session.speak("Next.").read() == b"Next."
        await other.end()
        assert await reading == b"Other."
    assert (other.facts.attempts, desk.sockets) == (2, 2)


async def test_a_socket_that_brings_others_something_is_kept(desk, session, limits):
    spoken = threading.Event()

    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        await socket.send_str(audio(b"heard", "1.1"))
        await until(spoken.is_set)
        await socket.send_str(frame(final=True, context_id=wire_id))
        # The end of the one that was given up, and of the other.
        while (found := await desk.ended(socket))[0] is not None:
            if found[0] == "1.1":
                await socket.send_str(frame(final=True, context_id="1.1"))

    desk.acts = [act]
    async with asyncio.timeout(LONG_S):
        other, reading = await beside_one_given_up(desk, session, limits, attempt_s=0.3)
        spoken.set()
        await other.end()
        assert await reading == b"heard"
    assert desk.sockets == 1


@pytest.mark.parametrize("heard", [b"", b"half, "])
async def test_a_turn_that_is_spoken_slowly_outlives_impatient_ones_behind_it(
    desk, session, monkeypatch, heard
):
    spoken = threading.Event()

    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        if heard:
            await socket.send_str(audio(heard, wire_id))
        await until(spoken.is_set)
        await socket.send_str(audio(b"all", wire_id))
        await socket.send_str(frame(final=True, context_id=wire_id))
        await desk.next(socket)

    desk.acts = [act, speak]
    monkeypatch.setattr(Timeouts, "attempt_s", lambda self, characters: 0.05 * characters)
    async with asyncio.timeout(LONG_S):
        slow, reading = await said(session, "Long. " * 200)
        await until(lambda: desk.frames and desk.ends() and slow.received_bytes == len(heard))
        for text in ("S1.", "S2."):
            with pytest.raises(StreamBroken, match=r"nothing came for 0\.15 s"):
                await session.speak(text).read()
        spoken.set()
        assert await reading == heard + b"all"
    assert (slow.facts.attempts, desk.sockets) == (1, 1)


async def test_a_socket_that_brings_nothing_is_left_though_turns_begin_again_and_again(desk, session, limits):
    limits["attempt_s"] = 0.2
    desk.acts = [deaf, speak]
    turns = []
    async with asyncio.timeout(LONG_S):
        # Each of them ends when another one has just begun.
        for number in range(10):
            turns.append(await said(session, f"{number}."))
            await asyncio.sleep(0.1)
        found = await asyncio.gather(*[reading for _, reading in turns], return_exceptions=True)
    assert isinstance(found[0], StreamBroken)
    assert (found[-1], desk.sockets) == (b"9.", 2)


class Closed:
    """A socket that takes nothing, until it is told to; meanwhile it may speak."""

    def __init__(self, also=b"", pause_s=0.0):
        self.opens = threading.Event()
        self.also, self.pause_s = also, pause_s

    async def __call__(self, desk, socket):
        transport = socket._req.transport
        await desk.next(socket)
        transport.pause_reading()
        if self.also:
            for _ in range(50):
                await socket.send_str(audio(self.also, "1.1"))
                await asyncio.sleep(self.pause_s)
        await until(self.opens.is_set)
        transport.resume_reading()
        await speak(desk, socket)


async def fill(context):
    """Give a turn more text than connections hold."""
    for _ in range(20):
        await context.send("x" * 1_000_000)


async def test_a_socket_that_takes_nothing_is_left_for_another(desk, session, limits):
    limits["message_s"] = 0.3
    closed = Closed()
    desk.acts = [closed, speak]
    async with asyncio.timeout(10):
        large = await session.open()
        await fill(large)
        await until(lambda: desk.frames and desk.frames[0])
        await large.close()
        assert await session.speak("Next.").read() == b"Next."
    assert desk.sockets == 2
    closed.opens.set()


async def test_a_socket_whose_audio_nobody_takes_may_take_nothing(desk, session, limits, monkeypatch):
    monkeypatch.setattr(_line, "MOST_WAITING_BYTES", 10_000)
    limits["message_s"] = 0.3
    closed = Closed(also=bytes(1000))
    desk.acts = [closed]
    async with asyncio.timeout(LONG_S):
        paused = await session.open()
        await paused.send("Hello.")
        await until(lambda: paused.waiting_bytes > 10_000)
        large = await session.open()
        await fill(large)
        await asyncio.sleep(0.6)
        assert (session.sockets, desk.sockets) == (1, 1)
        limits["message_s"] = LONG_S
        closed.opens.set()
        await paused.end()
        assert (await paused.audio().read()).endswith(b"Hello.")
        await large.close()
    assert desk.sockets == 1


async def test_a_socket_that_speaks_may_take_its_time_with_more_text(desk, session, limits):
    limits["message_s"] = 1.0
    closed = Closed(also=b"a", pause_s=0.03)
    desk.acts = [closed]
    async with asyncio.timeout(LONG_S):
        large = await session.open()
        await fill(large)
        await until(lambda: large.received_bytes == 50)
        assert (session.sockets, desk.sockets) == (1, 1)
        limits["message_s"] = LONG_S
        closed.opens.set()
        await large.close()


async def long_before_short(desk, socket):
    """Speak two turns one behind the other, the first with more audio than waits for a listener."""
    first, _ = await desk.ended(socket)
    second, text = await desk.ended(socket)
    for _ in range(30):
        await socket.send_str(audio(bytes(10_000), first))
    await socket.send_str(audio(text.encode(), second))
    for wire_id in (first, second):
        await socket.send_str(frame(final=True, context_id=wire_id))
    await speak(desk, socket)


@pytest.mark.parametrize(("name", "limit_s"), [("attempt_s", 0.2), ("speech_s", 0.6)])
async def test_a_listener_who_pauses_is_no_silence_of_his_neighbours(
    desk, session, limits, monkeypatch, name, limit_s
):
    monkeypatch.setattr(_line, "MOST_WAITING_BYTES", 100_000)

    desk.acts = [long_before_short]
    async with asyncio.timeout(LONG_S):
        paused = await session.open()
        await paused.send("Long.")
        await paused.end()
        limits[name] = limit_s
        _, reading = await said(session, "Short.")
        await until(lambda: paused.waiting_bytes > 100_000)
        await asyncio.sleep(0.8)
        assert not reading.done()
        limits[name] = LONG_S
        assert len(await paused.audio().read()) == 300_000
        assert await reading == b"Short."


async def test_a_turn_behind_audio_that_nobody_takes_is_given_up_at_last(desk, session, limits, monkeypatch):
    monkeypatch.setattr(_line, "MOST_WAITING_BYTES", 100_000)
    monkeypatch.setattr(turn, "_HELD_S", 0.3)

    desk.acts = [long_before_short]
    async with asyncio.timeout(10):
        unread = await session.open()
        await unread.send("Long.")
        await unread.end()
        with pytest.raises(StreamBroken, match=r"for 0\.3 s nobody took the audio of another turn"):
            await session.speak("Short.").read()
        assert len(await unread.audio().read()) == 300_000
        assert await session.speak("Next.").read() == b"Next."
    assert desk.sockets == 1


@pytest.mark.parametrize("text", ["Half an emoji: \ud83d", "a\0b"])
async def test_text_that_cannot_be_sent_is_refused_as_over_http_and_stops_no_neighbour(
    desk, session, client, text
):
    with pytest.raises(InvalidRows) as over_http:
        await client.stream(text, voice="ivy")
    async with asyncio.timeout(10):
        context, reading = await said(session, "One. ", ends=False)
        other = await session.open()
        with pytest.raises(InvalidRows) as refused:
            await other.send(text)
        with pytest.raises(InvalidRows):
            await session.speak(["Fine. ", text]).read()
        await context.send("Two.")
        await context.end()
        assert await reading == b"One. Two."
        # The turn is as it was before.
        await other.send("Three.")
        await other.end()
        assert await other.audio().read() == b"Three."
    assert refused.value.problems == over_http.value.problems
    assert other.audio().text == "Three."
    assert other.facts.billed_characters == len("Three.")


async def test_whatever_a_frame_does_to_the_sender_the_next_turn_is_sent(desk, session, monkeypatch):
    encode, failures = _line.encode_frame, [ZeroDivisionError()]

    def encode_frame(frame):
        if frame.text and failures:
            raise failures.pop()
        return encode(frame)

    monkeypatch.setattr(_line, "encode_frame", encode_frame)
    async with asyncio.timeout(10):
        with pytest.raises(ZeroDivisionError):
            await session.speak("Hello.").read()
        assert await session.speak("Next.").read() == b"Next."


@pytest.mark.parametrize(
    ("beside", "warnings"),
    [
        ({"error": "", "error_code": "", "warning": "", "warning_code": "", "fatal": False}, ()),
        ({"warning": "slower", "warning_code": "NEW"}, ("NEW: slower",) * len("Hello.")),
    ],
)
async def test_audio_is_heard_with_whatever_rides_on_it(desk, session, beside, warnings):
    async def act(desk, socket):
        wire_id, text = await desk.ended(socket)
        for piece in text:
            fields = json.loads(audio(piece.encode(), wire_id))
            await socket.send_str(json.dumps({**fields, **beside}))
        await socket.send_str(frame(final=True, context_id=wire_id))
        await desk.next(socket)

    desk.acts = [act]
    stream = session.speak("Hello.")
    assert await stream.read() == b"Hello."
    assert stream.summary.warnings == warnings


async def test_a_turn_with_nothing_to_pronounce_needs_no_audio_and_another_does(desk, session):
    async def act(desk, socket):
        while (wire_id := (await desk.ended(socket))[0]) is not None:
            await socket.send_str(frame(final=True, context_id=wire_id))

    desk.acts = [act]
    for text in ("👍", "…", "?!", "[pause 1s]", "-- ", "***"):
        stream = session.speak(text)
        assert (await stream.read(), stream.is_complete) == (b"", True)
    with pytest.raises(BadAnswer, match="no audio"):
        await session.speak("[pause 1s] 7").read()
