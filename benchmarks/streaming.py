"""Measure rows about streams: first audio (S1, S2), concurrent contexts (S3), processor time (S4) and memory (S5)."""

import asyncio
import base64
import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial

import aiohttp

from benchmarks.child import Clock
from benchmarks.lab import BrokenRowError, JobResult, Lab
from benchmarks.report import Figure, at_least, at_most
from speechframe.local.start import local_service

HTTP_PATH = "/v1/speech/stream"
SOCKET_PATH = "/v1/speech/stream-input?format=PCM&sample_rate=24000"
BYTES_PER_S = 48_000
VOICE = "en-US-ivy"
CONTEXT_COUNT = 15
"""Number of concurrent contexts in S3. A context is one text on a WebSocket that many texts share."""

_WARM_TEXTS = 5
"""Number of texts that are spoken before the clock starts."""

_ALLOWED_FACTOR, _ALLOWED_MS = 2.0, 5.0
"""In S1 and S2, first audio may take this many times the time of the engine, plus this many milliseconds."""

_FRAMES_PER_TEXT = 4
"""Number of frames in which S3 sends a text."""


def measure_first_audio(lab: Lab, *, way: str) -> Iterator[Figure]:
    """Yield the figure of the row S1 or S2, the first audio of an HTTP stream or of a context on a WebSocket."""
    job = {"rows": lab.limit_rows(60, tiny=3), "sentences": 3}
    with local_service(workers=1, quota=10**9) as service:
        own, ours = lab.run_in_turns(
            partial(lab.run_child, "streaming.time_engine", **job),
            partial(lab.run_child, "streaming.stream_texts", service, way=way, **job),
        )
    own_ms, ours_ms = ([one.more["first_ms"] for one in found] for found in (own, ours))
    shares = [ms / (_ALLOWED_FACTOR * alone + _ALLOWED_MS) for ms, alone in zip(ours_ms, own_ms, strict=True)]
    what = f"first audio over {way}, {statistics.median(ours_ms):.1f} ms, against what is allowed"
    peer = f"2 x the engine's own first audio, {statistics.median(own_ms):.1f} ms, + 5 ms"
    yield Figure(what, shares, "x", at_most(1.0), peer)


def measure_s3(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row S3, with concurrent contexts on one WebSocket."""
    job = {"rows": CONTEXT_COUNT, "sentences": 2 if lab.tiny else 6}
    with local_service(concurrency=CONTEXT_COUNT, quota=10**9) as service:
        (found,) = lab.run_in_turns(
            partial(lab.run_child, "streaming.compare_concurrent_audio", service, **job)
        )
    what = f"number of {CONTEXT_COUNT} concurrent contexts with the same bytes as alone"
    same, reference = [one.more["same"] for one in found], f"each alone, strict, {_FRAMES_PER_TEXT} frames"
    yield Figure(what, same, "count", at_least(CONTEXT_COUNT), reference)


def measure_s4(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row S4, the processor time of WebSockets compared with HTTP streams."""
    job = {"rows": lab.limit_rows(50, tiny=2), "sentences": 6}
    with local_service(workers=1, quota=10**9) as service:
        run = partial(lab.run_child, "streaming.stream_texts", service, **job)
        peer_ms, ours_ms = map(
            _compute_costs_ms, lab.run_in_turns(partial(run, way="http"), partial(run, way="socket"))
        )
    ratios = [one / other for one, other in zip(ours_ms, peer_ms, strict=True)]
    what = f"CPU of service, worker and reader for a second of audio over the socket, {statistics.median(ours_ms):.2f} ms"
    yield Figure(what, ratios, "x", at_most(1.3), f"HTTP stream, {statistics.median(peer_ms):.2f} ms")


def _compute_costs_ms(found: Sequence[JobResult]) -> list[float]:
    """Return the processor time of caller and service for a second of audio in each round, in milliseconds."""
    return [1000 * (one.cpu_s + one.service_cpu_s) / one.more["audio_s"] for one in found]


def measure_s5(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row S5, the growth of the service's memory over many contexts."""
    rows, warm = lab.limit_rows(1000, tiny=10), lab.limit_rows(300, tiny=5)
    job = {"rows": rows, "warm": warm, "sentences": 1, "way": "socket"}
    with local_service(workers=1, quota=10**9) as service:
        (found,) = lab.run_in_turns(partial(lab.run_child, "streaming.stream_texts", service, **job))
    what = f"growth of the memory of service and worker over {rows:,} contexts of a socket"
    growths_mb = [one.service_growth_mb for one in found]
    yield Figure(what, growths_mb, "MB", at_most(5), f"after {warm} contexts")


def make_text(number: int, sentences: int) -> str:
    """Return a text of `sentences` sentences of usual length. Each `number` gives another text."""
    numbers = range(sentences * number, sentences * (number + 1))
    return " ".join(f"In line {n} the quick brown fox jumps over the lazy dog near a river." for n in numbers)


def time_engine(clock: Clock, rows: int, sentences: int):
    """Measure the median time of the engine to its first audio, in this process and without the service."""
    from speechframe.engines.base import Utterance
    from speechframe.local.engines.espeak.speaker import EspeakSpeaker

    speaker = EspeakSpeaker()

    def time_first_audio(number: int) -> float:
        started = time.perf_counter()
        next(speaker.stream(Utterance(make_text(number, sentences), VOICE, "en-US")))
        return (time.perf_counter() - started) * 1000

    for number in range(_WARM_TEXTS):
        time_first_audio(rows + number)
    with clock:
        first_ms = [time_first_audio(number) for number in range(rows)]
    return {"rows": rows, "first_ms": statistics.median(first_ms)}


def stream_texts(
    clock: Clock, to: dict[str, str], rows: int, sentences: int, way: str, warm: int = _WARM_TEXTS
):
    """Stream texts one after the other. Measure the median time to the first audio, and the length of the audio.

    `way` is ``http`` or ``socket``.
    """
    return asyncio.run(_run_connected(_stream_texts, clock, to, rows, sentences, way, warm))


def compare_concurrent_audio(clock: Clock, to: dict[str, str], rows: int, sentences: int):
    """Stream texts one after the other, then all at once, and count texts whose audio is equal both times."""
    return asyncio.run(_run_connected(_compare_concurrent_audio, clock, to, rows, sentences))


async def _run_connected(job, clock, to, *arguments):
    """Run a job with connections to the service that are open."""
    async with (
        aiohttp.ClientSession(to["url"], headers={"api-key": to["key"]}) as session,
        session.ws_connect(SOCKET_PATH, max_msg_size=0) as socket,
    ):
        return await job(clock, session, socket, *arguments)


async def _stream_texts(clock, session, socket, rows, sentences, way, warm):
    async def stream(number: int) -> tuple[float, int]:
        """Return the time to the first audio in milliseconds, and the number of bytes."""
        text, first_ms, count = make_text(number, sentences), 0.0, 0
        audio = (
            _stream_over_http(session, text)
            if way == "http"
            else _stream_over_socket(socket, text, f"{number}", 1)
        )
        started = time.perf_counter()
        async for data in audio:
            first_ms = first_ms or (time.perf_counter() - started) * 1000
            count += len(data)
        return first_ms, count

    for number in range(warm):
        await stream(rows + number)
    with clock:
        found = [await stream(number) for number in range(rows)]
    first_ms, counts = zip(*found, strict=True)
    return {"rows": len(found), "first_ms": statistics.median(first_ms), "audio_s": sum(counts) / BYTES_PER_S}


async def _compare_concurrent_audio(clock, _session, socket, rows, sentences):
    texts = {f"c{number}": make_text(number, sentences) for number in range(rows)}
    alone = {
        name: b"".join([data async for data in _stream_over_socket(socket, text, name, _FRAMES_PER_TEXT)])
        for name, text in texts.items()
    }
    together, ended = {name: bytearray() for name in texts}, 0
    with clock:
        for name, text in texts.items():
            await _send_text(socket, text, name, _FRAMES_PER_TEXT)
        async for name, data in _receive_audio(socket):
            if data is not None:
                together[name] += data
                continue
            ended += 1
            if ended == rows:
                break
    same = sum(bool(alone[name]) and together[name] == alone[name] for name in texts)
    return {"rows": ended, "same": same}


async def _stream_over_http(session: aiohttp.ClientSession, text: str) -> AsyncIterator[bytes]:
    """Yield the audio of a text as it arrives."""
    body = {"text": text, "voiceId": VOICE, "format": "PCM", "sampleRate": 24000}
    async with session.post(HTTP_PATH, json=body) as answer:
        answer.raise_for_status()
        async for data in answer.content.iter_any():
            yield data


async def _stream_over_socket(
    socket: aiohttp.ClientWebSocketResponse, text: str, name: str, frames: int
) -> AsyncIterator[bytes]:
    """Send a text in `frames` frames, and yield its audio as it arrives. No other context may be open."""
    await _send_text(socket, text, name, frames)
    async for given, data in _receive_audio(socket):
        if given != name:
            raise BrokenRowError(f"audio of {given!r} came for {name!r}")
        if data is None:
            return
        yield data


async def _send_text(socket: aiohttp.ClientWebSocketResponse, text: str, name: str, frames: int) -> None:
    """Send a text in `frames` frames. The last frame ends the context."""
    size = -(-len(text) // frames)
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    for number, part in enumerate(parts):
        frame = {"context_id": name, "text": part}
        if number == 0:
            # With strict chunking the service waits for whole sentences, so slow frames do not change the audio.
            frame |= {"voice_config": {"voiceId": VOICE}, "max_buffer_delay_in_ms": 1000}
            frame |= {"predictive_chunking": "strict"}
        if number == len(parts) - 1:
            frame["end"] = True
        await socket.send_str(json.dumps(frame))


async def _receive_audio(socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[tuple[str, bytes | None]]:
    """Yield the name of a context and a piece of its audio as it arrives. At its end, None replaces the audio."""
    async for message in socket:
        frame = json.loads(message.data)
        if "error" in frame:
            raise BrokenRowError(f"the service sent the error {frame['error']}")
        if "audio" in frame:
            yield frame["context_id"], base64.b64decode(frame["audio"])
        elif frame.get("final"):
            yield frame["context_id"], None
