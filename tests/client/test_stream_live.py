"""Streams and turns on a real service: what is heard, what is freed, and what is kept when it dies."""

import asyncio
import gc
import time

import numpy as np
import pytest
import soundfile

import speechframe as spf
from speechframe.client import Client, Patience, SyncClient
from speechframe.errors import (
    BadRequest,
    InvalidRows,
    PaymentRequired,
    PermissionDenied,
    RateLimited,
    StreamBroken,
)
from speechframe.local.start import local_service
from speechframe.settings import Settings
from speechframe.spec.speech import Format
from speechframe.wire.client_contexts import TurnAudio, TurnEnded

KEYS = ["main:100000000:4", "narrow:100000000:1", "poor:20:4"]
VOICE = "en-US-ivy"
THREE = "The boat is small. It went through the harbour! Nobody saw it."
LONG = " ".join(f"This is sentence number {number} of a text that takes its time." for number in range(70))
LARGE = {"sample_rate": 48000, "channel_type": "STEREO"}
"""Of a long text it is more than connections hold: it goes on until it is read or left."""
ONCE = Patience(attempts=1)


@pytest.fixture(scope="module")
def service():
    with local_service(keys=KEYS, workers=1) as running:
        yield running


def settings(service, key="main"):
    return Settings(base_url=service.url, api_key=key)


@pytest.fixture
async def client(service):
    async with Client(settings(service)) as made:
        yield made


@pytest.fixture
async def narrow(service):
    """A client that does not try again, of a key with a single slot."""
    async with Client(settings(service, "narrow"), patience=ONCE) as made:
        yield made


async def is_free_within_a_second(narrow):
    began_s = time.monotonic()
    while True:
        try:
            return await (await narrow.stream("Free.", voice=VOICE)).read()
        except RateLimited:
            assert time.monotonic() - began_s < 1, "the slot was not freed"
            await asyncio.sleep(0.02)


async def words_of(text, pause_s=0.0):
    for word in text.split():
        yield word + " "
        await asyncio.sleep(pause_s)


# HTTP.


@pytest.mark.sampled(2)
@pytest.mark.parametrize("audio_format", list(Format))
async def test_a_stream_is_one_file_and_says_at_the_end_what_it_was(client, audio_format, tmp_path):
    stream = await client.stream(THREE, voice="ivy", format=audio_format.value, sample_rate=16000)
    assert stream.first_byte_ms > 0
    chunks = [chunk async for chunk in stream]
    # How many there are is a matter of who is quicker, service or reader.
    assert all(chunks)
    assert stream.audio == b"".join(chunks)
    summary = stream.summary
    g711 = audio_format in {Format.ALAW, Format.ULAW}
    assert summary.complete
    assert (summary.format, summary.bytes) == (audio_format, len(stream.audio))
    assert (summary.sample_rate_hz, summary.channels) == (8000 if g711 else 16000, 1)
    assert summary.billed_characters == len(THREE)
    assert summary.first_byte_ms <= summary.latency_ms
    assert summary.trace_id
    assert (summary.region, summary.attempts) == ("global", 1)
    assert any("8000" in words for words in summary.warnings) is g711
    samples = stream.samples()
    assert samples.dtype == np.float32
    assert len(samples) / summary.sample_rate_hz == pytest.approx(summary.audio_seconds, abs=0.01)
    # All of it, and as a file that says how long it is.
    assert np.abs(samples[-len(samples) // 4 :]).max() > 0.05
    path = await stream.save(tmp_path / "said.wav")
    assert soundfile.info(path).duration == pytest.approx(summary.audio_seconds, abs=0.05)


async def test_mistakes_are_found_before_anything_is_sent(client):
    with pytest.raises(InvalidRows) as caught:
        await client.stream("Hello", voice="ivy", sample_rate=22050, rate=99, audio_duration=3)
    assert {problem["field"] for problem in caught.value.problems} == {"sampleRate", "rate"} | {
        "audio_duration"
    }
    with pytest.raises(InvalidRows) as caught:
        client.stream_session(voice="ivy", min_buffer_size=2000, pitch=99, format="AIFF", speed=2)
    assert len(caught.value.problems) == 4


async def test_refusals_are_the_errors_of_every_other_call(service, client):
    with pytest.raises(BadRequest, match="nobody"):
        await client.stream("Hello", voice="nobody")
    async with Client(settings(service, "wrong")) as wrong:
        with pytest.raises(PermissionDenied):
            await wrong.stream("Hello", voice="ivy")
    async with Client(settings(service, "poor")) as poor:
        with pytest.raises(PaymentRequired):
            await poor.stream(THREE, voice="ivy")


async def _break(stream):
    async for _ in stream:
        break


async def _cancel(stream):
    async def slowly():
        async for _ in stream:
            await asyncio.sleep(30)

    task = asyncio.create_task(slowly())
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _fail_within(stream):
    with pytest.raises(ZeroDivisionError):
        async with stream:
            raise ZeroDivisionError


@pytest.mark.parametrize("leave", [_break, _cancel, _fail_within])
@pytest.mark.quiet
async def test_whoever_leaves_a_stream_frees_its_slot(narrow, leave):
    stream = await narrow.stream(LONG, voice="ivy")
    await leave(stream)
    assert await is_free_within_a_second(narrow)
    assert not stream.summary.complete
    with pytest.raises(StreamBroken, match="closed before its end") as caught:
        await stream.read()
    assert caught.value.received_bytes == len(stream.audio) > 0


@pytest.mark.quiet
async def test_a_forgotten_stream_frees_its_slot(narrow):
    stream = await narrow.stream(LONG, voice="ivy")
    del stream
    gc.collect()
    assert await is_free_within_a_second(narrow)


# WebSocket.


async def test_turns_share_a_socket_and_each_hears_itself(client):
    texts = [f"Turn number {number} says this. And then that." for number in range(9)]
    async with client.stream_session(voice="ivy", format="PCM") as session:
        alone = {text: await session.speak(text).read() for text in texts}
        heard = await asyncio.gather(*(session.speak(text).read() for text in texts))
        assert session.sockets == 1
        # Another shape is another socket.
        assert (await session.speak("Hello.", format="MP3").read())[:1] == b"\xff"
        assert session.sockets == 2
    assert heard == list(alone.values())
    assert session.sockets == 0


async def test_a_turn_with_nothing_to_pronounce_is_complete_without_audio(client):
    async with client.stream_session(voice="ivy") as session:
        for text in ("👍", "…", "?!", "[pause 1s]", "-- ", "***"):
            stream = session.speak(text)
            assert (await stream.read(), stream.is_complete) == (b"", True)
        # What the voice has no letters for is refused, as over HTTP.
        with pytest.raises(BadRequest, match="Д а"):
            await session.speak("Да.").read()
    with pytest.raises(BadRequest):
        await client.stream("Да.", voice="ivy")


# Within the second for which a text waits for more, at the most.
@pytest.mark.quiet
async def test_clear_drops_what_is_not_spoken_yet(client):
    async with client.stream_session(
        voice="ivy", min_buffer_size=1000, max_buffer_delay_in_ms=1000
    ) as session:
        context = await session.open()
        await context.send("Nobody hears this.")
        await asyncio.sleep(0.1)
        await context.clear()
        await context.send("Hi.")
        await context.end()
        short = await context.audio().read()
        both = await session.speak("Nobody hears this. Hi.").read()
    assert len(short) < len(both) / 2


async def _leave_turn_by_break(session):
    async for _ in session.speak(LONG):
        break


async def _leave_turn_by_cancelling(session):
    async def endless():
        while True:
            yield "This goes on. "
            await asyncio.sleep(0.01)

    task = asyncio.create_task(session.speak(endless()).read())
    await asyncio.sleep(0.3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _leave_turn_by_error(session):
    async def fail():
        async with await session.open() as context:
            await context.send(LONG)
            await asyncio.sleep(0.2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


async def _leave_turn_by_writers_error(session):
    def tokens():
        yield LONG
        time.sleep(0.2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await session.speak(tokens()).read()


async def test_a_writer_that_was_cancelled_is_not_waited_for(client):
    async def tokens():
        yield "Hello. "
        task = asyncio.create_task(asyncio.sleep(9))
        task.cancel()
        await task

    async with client.stream_session(voice="ivy") as session, asyncio.timeout(60):
        with pytest.raises(StreamBroken):
            await session.speak(tokens()).read()


async def test_a_stream_that_is_closed_while_it_begins_speaks_nothing(client):
    asked = []
    async with client.stream_session(voice="ivy") as session:
        stream = session.speak(asked.append(one) or one for one in ["Hello."])
        reading = asyncio.create_task(stream.next())
        # The service is asked how many contexts there may be.
        await asyncio.sleep(0)
        await stream.close()
        with pytest.raises(StreamBroken, match="closed before its end"):
            await reading
        assert (asked, stream.audio) == ([], b"")


@pytest.mark.parametrize(
    "leave",
    [_leave_turn_by_break, _leave_turn_by_cancelling, _leave_turn_by_error, _leave_turn_by_writers_error],
)
@pytest.mark.quiet
async def test_whoever_leaves_a_turn_frees_its_slot(narrow, leave):
    async with narrow.stream_session(voice="ivy") as session:
        await leave(session)
        assert await is_free_within_a_second(narrow)


@pytest.mark.quiet
async def test_whoever_leaves_a_session_frees_its_slots(narrow):
    async with narrow.stream_session(voice="ivy") as session:
        context = await session.open()
        await context.send(LONG)
        await asyncio.sleep(0.2)
    with pytest.raises(StreamBroken, match="session was closed"):
        await context.audio().read()
    assert await is_free_within_a_second(narrow)


# Without await, and the verbs.


def test_a_sync_stream_is_iterated_left_and_saved(service, tmp_path):
    patient = Patience(attempts=1000, first_wait_s=0.05, longest_wait_s=0.05)
    with SyncClient(settings(service, "narrow"), patience=patient) as client:
        held = client.stream(LONG, voice="ivy", **LARGE)
        for _ in held:
            break
        # When its slot is free.
        with client.stream(THREE, voice="ivy", format="MP3") as stream:
            first = next(stream)
            assert stream.audio == first
            assert stream.read().startswith(first)
        assert stream.is_complete
        assert stream.save(tmp_path / "said.mp3").read_bytes() == stream.audio
        assert "SyncStream complete" in repr(stream)


def test_a_sync_session_speaks_tokens_and_holds_turns(service):
    with SyncClient(settings(service)) as client, client.stream_session(voice="ivy") as session:
        assert len(session.speak(word + " " for word in THREE.split()).samples()) == 0
        chunks = list(session.speak(word + " " for word in THREE.split()))
        assert chunks[0][:4] == b"RIFF"
        with session.open() as context:
            context.send("Hello.")
        kinds = {type(event) for event in context}
        assert kinds == {TurnAudio, TurnEnded}
        assert context.audio().read()[:4] == b"RIFF"


async def test_the_async_verb_closes_what_it_opened(service):
    stream = await spf.aio.stream(words_of(THREE), voice="ivy", service=service)
    async for _ in stream:
        break
    async with asyncio.timeout(60):
        while "closed" not in repr(stream):  # noqa: ASYNC110 - nothing else tells of it
            await asyncio.sleep(0.01)
        # It says so before all that it had opened is closed, too.
        if closing := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(closing)
