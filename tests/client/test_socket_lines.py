"""Who is waited for, and for how long: slots, listeners, writers, and sockets that are dead or nearly so."""

import asyncio
import json

import pytest
from socket_desk import audio, frame, speak, until

from speechframe.client import _line
from speechframe.errors import BadAnswer, ConnectionFailed, InvalidRows, StreamBroken


async def said(session, text, *, ends=True):
    """Return a turn with a text, and what reads its audio."""
    context = await session.open()
    await context.send(text)
    if ends:
        await context.end()
    return context, asyncio.create_task(context.audio().read())


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
