"""What a stream makes of a service that breaks off, never ends, says nothing, or sends something else."""

import asyncio
import gzip
import json
import socket

import pytest
from aiohttp import web

from speechframe.audio import codec
from speechframe.errors import BadAnswer, ConnectionFailed, ServiceError, StreamBroken, TimedOut
from speechframe.old_client import Bounds, Client, SyncClient, Timeouts, limits
from speechframe.settings import Settings
from speechframe.spec.speech import Format, StreamRequest
from speechframe.wire.stream import encode_stream

PATH = "/v1/speech/stream"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Trace-Id: t-1\r\n\r\n"
ASKED = {"voice": "ivy", "sample_rate": 44100}


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def pieces(odd, count=5):
    size = len(odd.audio) // count + 1
    return [odd.audio[start : start + size] for start in range(0, len(odd.audio), size)]


def speaking(odd, pause_s=0.0, headers=None):
    async def step(request):
        response = web.StreamResponse(headers={"X-Trace-Id": "t-1", **(headers or {})})
        await response.prepare(request)
        for piece in pieces(odd):
            await response.write(piece)
            await asyncio.sleep(pause_s)
        return response

    return step


@pytest.fixture(autouse=True)
def _speaks(odd):
    odd.script(speaking(odd), path=PATH)


@pytest.fixture
async def hasty(settings, quick):
    """A client that waits for nothing."""
    async with Client(settings, patience=quick, timeouts=Timeouts(base_s=0.2, per_character_s=0)) as made:
        yield made


async def test_what_is_sent_and_what_comes(odd, client, key):
    odd.script(speaking(odd, 0.01, {"X-Speech-Warning": "a%20word"}), path=PATH)
    stream = await client.stream("Hello", **ASKED, take=2, idempotency_key="once", rate=3)
    assert await stream.read() == odd.audio
    (seen,) = odd.posts()
    assert seen.body == encode_stream(StreamRequest(text="Hello", voice_id="ivy", sample_rate=44100, rate=3))
    assert seen.headers["api-key"] == key
    assert (seen.headers["X-Take"], seen.headers["Idempotency-Key"]) == ("2", "once")
    assert seen.headers["Accept-Encoding"] == "identity"
    summary = stream.summary
    assert (summary.trace_id, summary.warnings, summary.attempts) == ("t-1", ("a word",), 1)
    assert summary.audio_seconds == pytest.approx(0.5, abs=0.01)
    assert stream.samples().shape == (22050,)


async def test_the_connection_is_used_again_after_a_stream_and_not_after_a_broken_one(odd, client):
    for _ in range(3):
        await (await client.stream("Hello", **ASKED)).read()
    assert len({seen.peer for seen in odd.posts()}) == 1
    async for _ in await client.stream("Hello", **ASKED):
        break
    await (await client.stream("Hello", **ASKED)).read()
    assert len({seen.peer for seen in odd.posts()}) == 2


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_it_is_tried_again_before_the_first_byte(odd, client, status):
    odd.script(odd.answer(status), odd.answer(status), speaking(odd), path=PATH)
    stream = await client.stream("Hello", **ASKED)
    assert await stream.read() == odd.audio
    assert stream.summary.attempts == 3


async def test_it_is_never_tried_again_once_it_was_asked_and_not_refused(odd, client):
    for step, kind in [
        (odd.reset(), ConnectionFailed),
        (odd.answer(200), BadAnswer),
        (odd.raw(HEAD), BadAnswer),
        (odd.raw(HEAD + chunk(b"RIFF")), None),
    ]:
        odd.seen.clear()
        odd.script(step, path=PATH)
        if kind is None:
            with pytest.raises(StreamBroken) as caught:
                await (await client.stream("Hello", **ASKED)).read()
            assert (caught.value.received_bytes, caught.value.trace_id) == (4, "t-1")
        else:
            with pytest.raises(kind):
                await client.stream("Hello", **ASKED)
        assert len(odd.posts()) == 1


async def test_what_was_refused_for_good_is_not_tried_again(odd, client, key):
    body = {"error_message": f"no {key} here", "error_code": "INVALID_REQUEST", "trace_id": "t-2"}
    odd.script(odd.answer(400, body), path=PATH)
    with pytest.raises(ServiceError) as caught:
        await client.stream("Hello", **ASKED)
    assert (caught.value.status, caught.value.code, caught.value.trace_id) == (400, "INVALID_REQUEST", "t-2")
    assert key not in str(caught.value)
    assert len(odd.posts()) == 1


async def test_an_address_where_nobody_is_was_not_sent_to(settings, quick):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with Client(settings, base_url=f"http://127.0.0.1:{port}", patience=quick) as client:
        with pytest.raises(ConnectionFailed) as caught:
            await client.stream("Hello", **ASKED)
    assert not caught.value.sent


async def test_a_region_that_is_down_is_left_for_the_next(odd, settings, quick):
    two = Settings(
        api_key=settings.api_key,
        regions=("us-west", "eu-central"),
        region_urls={"us-west": odd.url, "eu-central": odd.other_url},
    )
    odd.script(odd.answer(503), speaking(odd), path=PATH)
    async with Client(two, patience=quick) as client:
        stream = await client.stream("Hello", **ASKED)
        await stream.read()
    assert stream.summary.region == "eu-central"
    assert [seen.host for seen in odd.posts()] == [f"127.0.0.1:{odd.port}", f"127.0.0.2:{odd.port}"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed_and_no_key_goes_along(odd, client, status):
    odd.script(odd.redirect(odd.other_url + "/elsewhere", status), path=PATH)
    with pytest.raises(ServiceError, match=r"redirects to 127\.0\.0\.2; that is not followed"):
        await client.stream("Hello", **ASKED)
    assert len(odd.seen) == 1


async def test_what_came_of_a_stream_that_is_cut_off_is_kept(odd, client, tmp_path):
    half = odd.audio[: len(odd.audio) // 2]
    odd.script(odd.raw(HEAD + chunk(half), pause_s=0.05), path=PATH)
    stream = await client.stream("Hello", **ASKED)
    with pytest.raises(StreamBroken, match="ended within the stream") as caught:
        await stream.save(tmp_path / "said.wav")
    assert caught.value.received_bytes == len(half)
    assert stream.audio == half
    assert not stream.is_complete
    assert not (tmp_path / "said.wav").exists()
    # It stays broken.
    with pytest.raises(StreamBroken):
        await stream.next()


@pytest.mark.quiet
async def test_a_stream_that_falls_silent_is_broken(odd, hasty):
    odd.script(odd.raw(HEAD + chunk(odd.audio), then="wait"), path=PATH)
    stream = await hasty.stream("Hello", **ASKED)
    with pytest.raises(StreamBroken, match=r"silent for 0\.2 s"):
        await stream.read()
    assert stream.audio == odd.audio


@pytest.mark.quiet
async def test_an_answer_that_does_not_begin_is_a_time_limit(odd, hasty):
    odd.script(odd.hang(), path=PATH)
    with pytest.raises(TimedOut) as caught:
        await hasty.stream("Hello", **ASKED)
    assert caught.value.sent


@pytest.mark.quiet
async def test_a_head_without_audio_is_a_time_limit_too(odd, hasty):
    odd.script(odd.raw(HEAD, then="wait"), path=PATH)
    with pytest.raises(StreamBroken, match="silent") as caught:
        await hasty.stream("Hello", **ASKED)
    assert caught.value.received_bytes == 0


@pytest.mark.quiet
async def test_a_slow_reader_breaks_no_time_limit(odd, hasty):
    got = b""
    async for piece in await hasty.stream("Hello", **ASKED):
        got += piece
        await asyncio.sleep(0.3)
    assert got == odd.audio


async def test_a_stream_without_end_is_broken_by_size(odd, settings):
    odd.script(odd.endless(), path=PATH)
    async with Client(settings, bounds=Bounds(download_bytes=1 << 20)) as client:
        stream = await client.stream("Hello", **ASKED)
        with pytest.raises(StreamBroken, match="more than 1,048,576 bytes"):
            await stream.read()
    assert len(stream.audio) < 3 << 20


@pytest.mark.quiet
async def test_a_stream_without_end_is_broken_by_time(odd, hasty, monkeypatch):
    monkeypatch.setattr(limits, "_GRACE_S", 0)
    monkeypatch.setattr(limits, "_SECONDS_A_CHARACTER", 0.02)
    odd.script(odd.dribble(), path=PATH)
    with pytest.raises(StreamBroken, match="longer than any speech"):
        await (await hasty.stream("Hello", **ASKED)).read()


@pytest.mark.parametrize("text", ["", "a", "word " * 1000])
def test_no_stream_may_be_larger_or_longer_than_its_text(text):
    request = StreamRequest.model_construct(text=text, sample_rate=48000)
    seconds = len(text) * 0.6
    assert Timeouts().stream_s(request) > seconds
    assert Bounds().stream_bytes_for(request) > min(seconds * 48000 * 4, Bounds().download_bytes - 1)


@pytest.mark.parametrize("body", [json.dumps({"audio": "elsewhere"}).encode(), b"\xff\xfb\x90" * 100])
async def test_what_is_no_audio_is_a_bad_answer_at_the_end(odd, client, body):
    odd.script(odd.answer(200, body), path=PATH)
    stream = await client.stream("Hello", **ASKED)
    with pytest.raises(BadAnswer, match="it is no WAV"):
        await stream.read()
    assert stream.audio == body


@pytest.mark.slow
@pytest.mark.parametrize("format", ["PCM", "WAV"])
async def test_words_are_no_audio_though_any_bytes_would_pass_as_raw_samples(odd, client, format):
    odd.script(odd.answer(200, b'{"error_message": "busy"}', {"Content-Type": "application/json"}), path=PATH)
    with pytest.raises(BadAnswer, match="no audio but application/json"):
        await client.stream("Hello", voice="ivy", format=format)


async def test_a_stream_whose_end_looks_like_every_other_end_is_not_taken_as_complete(odd, client):
    odd.script(
        odd.raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + bytes(2000), pause_s=0.02), path=PATH
    )
    stream = await client.stream("Hello", voice="ivy", format="PCM")
    with pytest.raises(StreamBroken, match="may be truncated"):
        await stream.read()
    assert (len(stream.audio), stream.summary.complete) == (2000, False)


async def test_a_packed_stream_is_refused(odd, client):
    odd.script(odd.answer(200, gzip.compress(b"x"), {"Content-Encoding": "gzip"}), path=PATH)
    with pytest.raises(BadAnswer, match="Content-Encoding"):
        await client.stream("Hello", **ASKED)


async def test_audio_that_is_not_as_asked_is_said(odd, client):
    stream = await client.stream("Hello", voice="ivy", channel_type="STEREO")
    await stream.read()
    assert stream.summary.warnings == ("expected 24000 Hz, got 44100 Hz", "expected 2 channels, got 1")


async def test_raw_audio_may_end_within_a_sample(odd, client):
    odd.script(odd.answer(200, bytes(2001)), path=PATH)
    stream = await client.stream("Hello", voice="ivy", format="PCM", sample_rate=8000)
    await stream.read()
    assert stream.summary.audio_seconds == 0.125
    assert len(stream.samples()) == 1000


async def test_the_model_of_the_region_says_the_rate_of_raw_audio(odd, settings, quick):
    odd.script(odd.answer(200, bytes(2000)), path=PATH)
    east = Settings(api_key=settings.api_key, regions=("us-east",), region_urls={"us-east": odd.url})
    async with Client(east, patience=quick) as client:
        stream = await client.stream("Hello", voice="ivy", format="PCM")
        assert stream.sample_rate_hz == 44100
        falcon = await client.stream("Hello", voice="ivy", format="PCM", model="falcon-2")
        assert falcon.sample_rate_hz == 24000


async def test_a_client_that_is_closed_closes_its_streams(odd, settings):
    odd.script(odd.raw(HEAD + chunk(b"RIFF"), then="wait"), path=PATH)
    async with Client(settings) as client:
        stream = await client.stream("Hello", **ASKED)
    with pytest.raises(StreamBroken, match="closed before its end"):
        await stream.read()


def test_a_deprecated_field_names_the_callers_line(odd, settings):
    with SyncClient(settings) as client, pytest.warns(DeprecationWarning, match="locale") as caught:
        client.stream("Hello", **ASKED, multi_native_locale="en-US").close()
    assert caught[0].filename == __file__


def test_a_stream_outlives_its_client_and_a_closed_client_has_none(odd, settings, tmp_path):
    client = SyncClient(settings)
    stream = client.stream("Hello", **ASKED)
    assert stream.read() == odd.audio
    client.close()
    assert codec.inspect(stream.save(tmp_path / "said.flac").read_bytes()).format is Format.FLAC
    with pytest.raises(RuntimeError, match="closed"):
        client.stream("Hello", **ASKED)


@pytest.mark.parametrize(("published", "cap"), [(7, 7), (True, 2), (0, 2), ("9", 2), (None, 2)])
async def test_a_cap_is_what_a_service_publishes_where_that_is_one(odd, settings, published, cap):
    page = {"service": "speechframe", "pools": {"streaming": published}}
    odd.script(odd.answer(200, page), path="/v1/limits")
    async with Client(settings) as client:
        await client._slots.learn(client._reach)
        assert client._slots.cap == cap
