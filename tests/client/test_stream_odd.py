"""Streams over HTTP that go wrong: tried again before the first byte, never after it, and what came is kept."""

import asyncio
import gzip

import pytest
from aiohttp import web

from speechframe.client import Bounds, Client, Timeouts
from speechframe.errors import BadAnswer, ConnectionFailed, StreamBroken, TimedOut

PATH = "/v1/speech/stream"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Trace-Id: t-1\r\n\r\n"
ASKED = {"voice": "ivy", "sample_rate": 44100}


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def speaking(odd, headers=None):
    async def step(request):
        response = web.StreamResponse(headers={"X-Trace-Id": "t-1", **(headers or {})})
        await response.prepare(request)
        for start in range(0, len(odd.audio), 9000):
            await response.write(odd.audio[start : start + 9000])
        return response

    return step


@pytest.fixture(autouse=True)
def _speaks(odd):
    odd.script(speaking(odd), path=PATH)


@pytest.fixture
async def hasty(settings, quick):
    """A client that waits for nothing."""
    async with Client(settings, patience=quick, timeouts=Timeouts(base_s=0.3, per_character_s=0)) as made:
        yield made


async def test_what_is_sent_and_what_comes(odd, client, key):
    odd.script(speaking(odd, {"X-Speech-Warning": "a%20word"}), path=PATH)
    stream = await client.stream("Hello", **ASKED, take=2, idempotency_key="once", rate=3)
    assert await stream.read() == odd.audio
    (seen,) = odd.posts()
    assert seen.headers["api-key"] == key
    assert (seen.headers["X-Take"], seen.headers["Idempotency-Key"]) == ("2", "once")
    summary = stream.summary
    assert (summary.trace_id, summary.warnings, summary.attempts) == ("t-1", ("a word",), 1)
    assert summary.audio_seconds == pytest.approx(0.5, abs=0.01)


async def test_it_is_tried_again_before_the_first_byte_where_it_was_refused(odd, client):
    for status in (429, 500, 503):
        odd.script(odd.answer(status), odd.answer(status), speaking(odd), path=PATH)
        stream = await client.stream("Hello", **ASKED)
        assert await stream.read() == odd.audio
        assert stream.summary.attempts == 3


async def test_it_is_never_tried_again_once_it_was_asked_and_not_refused(odd, client):
    for step, kind in [
        (odd.reset(), ConnectionFailed),
        (odd.answer(200), BadAnswer),
        (odd.raw(HEAD), BadAnswer),
    ]:
        odd.seen.clear()
        odd.script(step, path=PATH)
        with pytest.raises(kind):
            await client.stream("Hello", **ASKED)
        assert len(odd.posts()) == 1


async def test_what_came_of_a_stream_that_is_cut_off_is_kept_and_is_no_file(odd, client, tmp_path):
    half = odd.audio[: len(odd.audio) // 2]
    odd.script(odd.raw(HEAD + chunk(half), pause_s=0.05), speaking(odd), path=PATH)
    stream = await client.stream("Hello", **ASKED)
    with pytest.raises(StreamBroken, match="ended within the stream") as caught:
        await stream.save(tmp_path / "said.wav")
    assert (caught.value.received_bytes, caught.value.trace_id, stream.audio) == (len(half), "t-1", half)
    assert not stream.is_complete
    assert not (tmp_path / "said.wav").exists()
    for _ in range(2):
        await (await client.stream("Hello", **ASKED)).read()
    assert len({seen.peer for seen in odd.posts()}) == 2, (
        "a broken connection was used again, or a good one was not"
    )


@pytest.mark.quiet
async def test_silence_ends_a_stream_and_a_slow_reader_does_not(odd, hasty):
    got = b""
    async for piece in await hasty.stream("Hello", **ASKED):
        got += piece
        await asyncio.sleep(0.4)
    assert got == odd.audio
    odd.script(odd.raw(HEAD + chunk(odd.audio), then="wait"), path=PATH)
    stream = await hasty.stream("Hello", **ASKED)
    with pytest.raises(StreamBroken, match=r"silent for 0\.3 s"):
        await stream.read()
    assert stream.audio == odd.audio
    for step, kind in ((odd.hang(), TimedOut), (odd.raw(HEAD, then="wait"), StreamBroken)):
        odd.script(step, path=PATH)
        with pytest.raises(kind):
            await hasty.stream("Hello", **ASKED)


async def test_a_stream_without_end_is_broken_by_size(odd, settings):
    odd.script(odd.endless(), path=PATH)
    async with Client(settings, bounds=Bounds(download_bytes=1 << 20)) as client:
        stream = await client.stream("Hello", **ASKED)
        with pytest.raises(StreamBroken, match="more than 1,048,576 bytes"):
            await stream.read()
    assert len(stream.audio) < 3 << 20


async def test_what_is_no_audio_is_a_bad_answer(odd, client):
    for body, headers, asked, words in [
        (
            b'{"error_message": "busy"}',
            {"Content-Type": "application/json"},
            {"format": "PCM"},
            "not audio but application/json",
        ),
        (gzip.compress(b"x"), {"Content-Encoding": "gzip"}, {}, "Content-Encoding"),
        (b"\xff\xfb\x90" * 100, {}, {}, "it is not WAV"),
    ]:
        odd.script(odd.answer(200, body, headers), path=PATH)
        with pytest.raises(BadAnswer, match=words):
            await (await client.stream("Hello", voice="ivy", **asked)).read()


async def test_a_stream_whose_end_looks_like_every_other_end_is_not_taken_as_complete(odd, client):
    odd.script(
        odd.raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + bytes(2000), pause_s=0.02), path=PATH
    )
    stream = await client.stream("Hello", voice="ivy", format="PCM")
    with pytest.raises(StreamBroken, match="may be truncated"):
        await stream.read()
    assert (len(stream.audio), stream.summary.complete) == (2000, False)


async def test_audio_that_is_not_as_asked_is_said_and_a_closed_client_has_no_streams(odd, settings):
    async with Client(settings) as client:
        stream = await client.stream("Hello", voice="ivy", channel_type="STEREO")
        await stream.read()
        assert stream.summary.warnings == ("expected 24000 Hz, got 44100 Hz", "expected 2 channels, got 1")
        odd.script(odd.raw(HEAD + chunk(b"RIFF"), then="wait"), path=PATH)
        left = await client.stream("Hello", **ASKED)
    with pytest.raises(StreamBroken, match="closed before its end"):
        await left.read()
    with pytest.raises(RuntimeError, match="closed"):
        await client.stream("Hello", **ASKED)
