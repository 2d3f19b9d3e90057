"""Calls of the voice changer: clips of every kind, large ones piece by piece, and answers of every kind."""

import asyncio
import base64
import hashlib
import tracemalloc

import numpy as np
import pytest
from aiohttp import web

from speechframe.audio import codec
from speechframe.errors import AudioError, BadAnswer, BadRequest, ConnectionFailed, InvalidRows, TimedOut
from speechframe.old_client import Client, Patience, SyncClient, upload
from speechframe.settings import Settings
from speechframe.spec.speech import Format

KEY = "sk-changer-secret"
PATH = "/v1/voice-changer/convert"


def clip(seconds=0.5, rate_hz=8000):
    frames = np.arange(round(seconds * rate_hz))
    return codec.encode((0.4 * np.sin(frames / 9)).astype(np.float32), rate_hz, format=Format.WAV)


class Server:
    """Answers what a test says; keeps size, hash and headers of what it was sent, never the bytes."""

    def __init__(self):
        self.seen, self.steps, self.files = [], [], {}

    async def convert(self, request):
        step = self.steps.pop(0) if self.steps else {}
        if callable(step):
            return await step(request)
        digest, size, clip_digest = hashlib.sha256(), 0, hashlib.sha256()
        async for part in await request.multipart():
            while piece := await part.read_chunk(2**16):
                digest.update(piece)
                size += len(piece)
                if part.filename is not None:
                    clip_digest.update(piece)
        self.seen.append((size, clip_digest.hexdigest(), dict(request.headers)))
        return web.json_response(self.answer(**step))

    def answer(self, **changes):
        audio = codec.encode(codec.decode(clip()).samples, 8000, format=Format.WAV, output_rate_hz=44100)
        fields = {"audio_file": "", "encoded_audio": base64.b64encode(audio).decode(),
                  "audio_length_in_seconds": 0.5, "remaining_character_count": 70, **changes}  # fmt: skip
        return {name: value for name, value in fields.items() if value is not ...}

    async def file(self, request):
        assert KEY not in str(request.headers)
        return web.Response(body=self.files[request.match_info["name"]])

    @property
    def settings(self):
        return Settings(api_key=KEY, base_url=f"http://127.0.0.1:{self.port}")


@pytest.fixture
async def server():
    made = Server()
    app = web.Application(client_max_size=2**33)
    app.router.add_post(PATH, made.convert)
    app.router.add_get("/files/{name}", made.file)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = site._server.sockets[0].getsockname()[1]
    yield made
    await runner.cleanup()


@pytest.fixture
async def client(server):
    async with Client(server.settings, patience=Patience(first_wait_s=0.01)) as made:
        yield made


async def test_a_transcription_far_longer_than_the_clip_is_left_out(client, server):
    server.steps = [{"transcription": "Hello" * 1100}]
    spoken = await client.change_voice(clip(), voice="nora", return_transcription=True)
    assert spoken.transcription is None
    assert "too long for a clip of 0.5 s" in spoken.warnings[0]


async def test_a_clip_comes_back_with_what_was_said_of_it(client, server):
    server.steps = [{"transcription": "Hello", "warning": "slow"}]
    spoken = await client.change_voice(clip(), voice="nora", return_transcription=True)
    assert codec.inspect(spoken.audio).audio_seconds == spoken.audio_seconds == 0.5
    assert (spoken.transcription, spoken.warnings, spoken.words) == ("Hello", ("slow",), [])
    assert (spoken.billed_characters, spoken.remaining_characters) == (8, 70)
    ((_, digest, headers),) = server.seen
    assert digest == hashlib.sha256(clip()).hexdigest()
    assert headers["api-key"] == KEY
    assert headers["Content-Type"].startswith("multipart/form-data; boundary=speechframe-")


@pytest.mark.parametrize("kind", ["bytes", "path", "text", "array", "integers"])
async def test_a_clip_is_bytes_a_path_or_an_array(client, server, tmp_path, kind):
    path = tmp_path / "clip.wav"
    path.write_bytes(clip())
    samples = codec.decode(clip()).samples
    integers = np.frombuffer(clip()[44:], "<i2")
    given = {
        "bytes": clip(),
        "path": path,
        "text": str(path),
        "array": (samples, 8000),
        "integers": (integers, 8000),
    }
    assert (await client.change_voice(given[kind], voice="nora")).audio_seconds == 0.5
    size = server.seen[0][0]
    assert size > len(clip())


async def test_idempotency_key_and_take_go_along(client, server):
    await client.change_voice(clip(), voice="nora", take=2, idempotency_key="k1")
    headers = server.seen[0][2]
    assert (headers["Idempotency-Key"], headers["X-Take"]) == ("k1", "2")


@pytest.mark.parametrize(
    ("audio", "fields", "field"),
    [
        (b"no audio", {}, "audio"), ("/no/such.wav", {}, "audio"), ((np.zeros((2, 2, 2)), 8000), {}, "audio"),
        (clip(), {"format": "OGG"}, "format"), (clip(), {"colour": 1}, "colour"), (clip(), {"voice": ""}, "voice_id"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_said_before_anything_is_sent(client, server, audio, fields, field):
    with pytest.raises(InvalidRows) as caught:
        await client.change_voice(audio, **{"voice": "nora", **fields})
    assert [line["field"] for line in caught.value.problems] == [field]
    assert server.seen == []


async def test_something_else_than_a_clip_is_a_type_error(client):
    with pytest.raises(TypeError, match="not int"):
        await client.change_voice(5, voice="nora")


@pytest.mark.parametrize("place", ["/files/a.wav", "http://127.0.0.1:{port}/files/a.wav"])
async def test_audio_behind_a_url_or_a_path_is_fetched(client, server, place):
    server.files["a.wav"] = base64.b64decode(server.answer()["encoded_audio"])
    server.steps = [{"encoded_audio": ..., "audio_file": place.format(port=server.port)}]
    assert (await client.change_voice(clip(), voice="nora")).audio == server.files["a.wav"]


@pytest.mark.parametrize(
    "step",
    [{"encoded_audio": "AAAA"}, {"encoded_audio": ..., "audio_file": ""}, {"audio_length_in_seconds": None}],
)
async def test_an_answer_that_cannot_be_used_carries_the_balance(client, server, step):
    server.steps = [step]
    with pytest.raises(BadAnswer) as caught:
        await client.change_voice(clip(), voice="nora")
    assert caught.value.remaining_characters == 70


async def test_what_differs_from_the_request_is_a_warning(client, server):
    server.steps = [{"audio_length_in_seconds": 3.0}]
    spoken = await client.change_voice(clip(), voice="nora", format="FLAC", channel_type="STEREO")
    assert [
        words for words in spoken.warnings if "FLAC" in words or "STEREO" in words or "3.00 s" in words
    ] == list(spoken.warnings)
    assert len(spoken.warnings) == 3


async def test_a_busy_service_is_asked_again(client, server):
    async def busy(request):
        return web.json_response({}, status=503, headers={"Retry-After": "0"})

    server.steps = [busy, busy]
    assert (await client.change_voice(clip(), voice="nora")).attempts == 3


async def test_a_refusal_before_the_end_of_an_upload_is_heard(client, server, tmp_path):
    """A service may say 400 while most of a file is still to come; the caller must not wait for the end."""
    path = tmp_path / "large.wav"
    path.write_bytes(clip(120.0, 96_000))

    async def refuse(request):
        await request.content.readany()
        return web.json_response({"error_message": "too large"}, status=400)

    server.steps = [refuse]
    with pytest.raises((BadRequest, ConnectionFailed)) as caught:
        await client.change_voice(path, voice="nora")
    assert isinstance(caught.value, BadRequest), caught.value
    assert "too large" in str(caught.value)
    # And the connection was not used again.
    assert (await client.change_voice(clip(), voice="nora")).audio_seconds == 0.5


async def test_an_answer_is_heard_though_the_service_reads_no_more(tmp_path):
    path = tmp_path / "large.wav"
    path.write_bytes(clip(120.0, 96_000))
    ended = asyncio.Event()

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"error_message": "too large"}'
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await ended.wait()
        writer.close()

    deaf = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{deaf.sockets[0].getsockname()[1]}"
    async with Client(api_key=KEY, base_url=url) as client:
        call = await asyncio.to_thread(_call_of, path)
        with pytest.raises(BadRequest, match="too large"):
            await client.send_once(call, timeout_s=20)
    ended.set()
    deaf.close()
    await deaf.wait_closed()


async def test_a_large_file_is_sent_piece_by_piece(client, server, tmp_path):
    path = tmp_path / "large.wav"
    path.write_bytes(clip(200.0, 96_000))
    call = await asyncio.to_thread(_call_of, path)
    size = path.stat().st_size
    tracemalloc.start()
    try:
        spoken = await client.send_once(call)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert spoken.audio_seconds == 0.5
    assert server.seen[0][1] == hashlib.sha256(path.read_bytes()).hexdigest()
    # Client and server share this process.
    assert peak < size / 3, f"{peak:,} of {size:,} bytes"


def _call_of(path):
    from speechframe.old_client.changer import make_change

    return make_change(path, voice="nora")


@pytest.mark.parametrize("seconds", [0.5, 60.0])
async def test_a_file_that_changes_is_not_carried_out(client, server, tmp_path, seconds):
    path = tmp_path / "clip.wav"
    path.write_bytes(clip(seconds, 48_000))
    call = await asyncio.to_thread(_call_of, path)
    with path.open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"\x55\x55")
    with pytest.raises(AudioError, match="has changed"):
        await client.send_once(call)
    path.unlink()
    with pytest.raises(AudioError, match="cannot be read"):
        await client.send_once(call)
    assert server.seen == []


async def test_a_file_that_grows_is_not_carried_out(client, server, tmp_path):
    path = tmp_path / "clip.wav"
    path.write_bytes(clip())
    call = await asyncio.to_thread(_call_of, path)
    path.write_bytes(clip() + bytes(upload.PIECE_BYTES * 3))
    with pytest.raises(AudioError, match="has changed"):
        await client.send_once(call)
    assert server.seen == []


@pytest.mark.quiet
async def test_a_service_that_stops_reading_ends_in_a_time_limit(client, server, tmp_path):
    path = tmp_path / "large.wav"
    path.write_bytes(clip(120.0, 96_000))

    async def stall(request):
        await asyncio.sleep(30)

    server.steps = [stall]
    call = await asyncio.to_thread(_call_of, path)
    with pytest.raises(TimedOut) as caught:
        await client.send_once(call, timeout_s=0.5)
    assert caught.value.sent


async def test_the_key_is_in_no_error(client, server):
    async def echo(request):
        return web.json_response({"error_message": str(dict(request.headers))}, status=400)

    server.steps = [echo]
    with pytest.raises(BadRequest) as caught:
        await client.change_voice(clip(), voice="nora")
    assert KEY not in str(caught.value) + repr(caught.value) + caught.value.body


async def test_the_sync_client_does_the_same(server):
    def change():
        with SyncClient(server.settings) as plain:
            return plain.change_voice(clip(), voice="nora", locale="en-US")

    spoken = await asyncio.to_thread(change)
    assert spoken.audio_seconds == 0.5


def test_a_call_shows_neither_clip_nor_form():
    from speechframe.old_client.changer import make_change

    shown = repr(make_change(clip(), voice="nora"))
    assert "RIFF" not in shown
    assert "form-data" not in shown
