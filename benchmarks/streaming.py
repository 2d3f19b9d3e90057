"""Measure rows about streams: first audio (S1, S2), fair turns (S3), processor time (S4) and memory (S5)."""

import asyncio
import base64
import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import aiohttp
import psutil

from benchmarks.changing import read_service_cpu_s
from benchmarks.child import MB, Clock
from benchmarks.lab import BrokenRowError, JobResult, Lab
from benchmarks.report import Figure, at_least, at_most
from speechframe.local.start import local_service

HTTP_PATH = "/v1/speech/stream"
SOCKET_PATH = "/v1/speech/stream-input?format=PCM&sample_rate=24000"
VOICE = "en-US-ivy"
CONTEXT_COUNT = 15
"""Number of concurrent contexts in S3. A context is one text on a WebSocket that many texts share."""

_WARM_UP_TEXTS = 5
"""Number of texts that are spoken before the clock starts."""

_ALLOWED_FACTOR, _ALLOWED_MS = 2.0, 5.0
"""In S1 and S2, first audio may take this many times the time of the engine, plus this many milliseconds."""

_FRAMES_PER_TEXT = 4
"""Number of frames in which S3 sends a text."""


def make_text(number: int, sentences: int) -> str:
    """Return a text of `sentences` sentences of usual length. Each `number` gives another text."""
    numbers = range(sentences * number, sentences * (number + 1))
    return " ".join(f"In line {n} the quick brown fox jumps over the lazy dog near a river." for n in numbers)


def measure_engine_first_audio(clock: Clock, rows: int, sentences: int):
    """Measure the median time of the engine to its first audio, in this process and without the service."""
    from speechframe.engines.base import Utterance
    from speechframe.local.engines.espeak.speaker import EspeakSpeaker

    speaker, first_ms = EspeakSpeaker(), []

    def time_first_audio(number: int) -> None:
        started = time.perf_counter()
        next(speaker.stream(Utterance(make_text(number, sentences), VOICE, "en-US")))
        first_ms.append((time.perf_counter() - started) * 1000)

    for number in range(_WARM_UP_TEXTS):
        time_first_audio(rows + number)
    first_ms.clear()
    with clock:
        for number in range(rows):
            time_first_audio(number)
    return {"rows": rows, "first_ms": statistics.median(first_ms)}


@dataclass(frozen=True)
class Caller:
    """Reads streams of a service over connections that stay open."""

    session: aiohttp.ClientSession
    socket: aiohttp.ClientWebSocketResponse

    def stream(self, way: str, text: str) -> AsyncIterator[bytes]:
        """Yield the audio of a text as it arrives. `way` is ``http`` or ``socket``."""
        return self._stream_over_http(text) if way == "http" else stream_over_socket(self.socket, text)

    async def _stream_over_http(self, text: str) -> AsyncIterator[bytes]:
        body = {"text": text, "voiceId": VOICE, "format": "PCM", "sampleRate": 24000}
        async with self.session.post(HTTP_PATH, json=body) as answer:
            answer.raise_for_status()
            async for data in answer.content.iter_any():
                yield data


async def stream_over_socket(
    socket: aiohttp.ClientWebSocketResponse, text: str, name: str = "one", frames: int = 1
) -> AsyncIterator[bytes]:
    """Send a text in `frames` frames, and yield its audio as it arrives. No other context may be open."""
    await send_text(socket, text, name, frames)
    async for given, data in receive_audio(socket):
        if given != name:
            raise BrokenRowError(f"audio of {given!r} came for {name!r}")
        if data is None:
            return
        yield data


async def send_text(socket: aiohttp.ClientWebSocketResponse, text: str, name: str, frames: int = 1) -> None:
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


async def receive_audio(socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[tuple[str, bytes | None]]:
    """Yield the name of a context and a piece of its audio as it arrives. At its end, None replaces the audio."""
    async for message in socket:
        frame = json.loads(message.data)
        if "error" in frame:
            raise BrokenRowError(f"the service sent the error {frame['error']}")
        if "audio" in frame:
            yield frame["context_id"], base64.b64decode(frame["audio"])
        elif frame.get("final"):
            yield frame["context_id"], None


def measure_first_audio(clock: Clock, to: dict[str, str], rows: int, sentences: int, way: str):
    """Measure the median time from sending a text to its first audio, one text after the other."""
    return asyncio.run(_run_with_caller(_measure_first_audio, clock, to, rows, sentences, way))


def measure_stream_cost(clock: Clock, to: dict[str, str], rows: int, sentences: int, way: str, pid: int):
    """Stream texts one after the other, and measure also the processor time of the service."""
    return asyncio.run(_run_with_caller(_measure_stream_cost, clock, to, rows, sentences, way, pid))


async def _run_with_caller(job, clock, to, *arguments):
    """Run a job with a caller whose connections to the service are open."""
    async with (
        aiohttp.ClientSession(to["url"], headers={"api-key": to["key"]}) as session,
        session.ws_connect(SOCKET_PATH, max_msg_size=0) as socket,
    ):
        return await job(clock, Caller(session, socket), *arguments)


async def _measure_first_audio(clock, caller, rows, sentences, way):
    first_ms = []

    async def call(number: int) -> None:
        started, count = time.perf_counter(), 0
        async for _ in caller.stream(way, make_text(number, sentences)):
            if not count:
                first_ms.append((time.perf_counter() - started) * 1000)
            count += 1

    for number in range(_WARM_UP_TEXTS):
        await call(rows + number)
    first_ms.clear()
    with clock:
        for number in range(rows):
            await call(number)
    return {"rows": len(first_ms), "first_ms": statistics.median(first_ms)}


async def _measure_stream_cost(clock, caller, rows, sentences, way, pid):
    audio_bytes = 0

    async def call(number: int) -> None:
        nonlocal audio_bytes
        async for data in caller.stream(way, make_text(number, sentences)):
            audio_bytes += len(data)

    for number in range(_WARM_UP_TEXTS):
        await call(rows + number)
    audio_bytes, before_s = 0, read_service_cpu_s(pid)
    with clock:
        for number in range(rows):
            await call(number)
    return {"rows": rows, "audio_s": audio_bytes / 48000, "service_cpu_s": read_service_cpu_s(pid) - before_s}


def measure_s1(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row S1, the first audio of an HTTP stream."""
    return _compare_first_audio(lab, "S1", "http", "HTTP stream")


def measure_s2(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row S2, the first audio of a context on a WebSocket."""
    return _compare_first_audio(lab, "S2", "socket", "context of a socket")


def _compare_first_audio(lab: Lab, id: str, way: str, name: str) -> Iterator[Figure]:
    job = {"rows": lab.limit_rows(60, tiny=3), "sentences": 3}
    own, ours = [], []
    with local_service(workers=1, quota=10**9) as service:
        for _ in range(lab.rounds):
            own.append(lab.run_child("streaming.measure_engine_first_audio", **job))
            ours.append(lab.run_child("streaming.measure_first_audio", service, way=way, **job))
    allowed = [_ALLOWED_FACTOR * one.more["first_ms"] + _ALLOWED_MS for one in own]
    shares = [one.more["first_ms"] / most for one, most in zip(ours, allowed, strict=True)]
    what = f"first audio byte of the {name}, {_compute_median_ms(ours):.1f} ms, against what is allowed"
    peer = f"2 x the engine's own first audio, {_compute_median_ms(own):.1f} ms, + 5 ms"
    yield Figure.from_rounds(id, what, shares, "x", at_most(1.0), peer, _list_service_shares(ours))


def _compute_median_ms(found: list[JobResult]) -> float:
    return statistics.median(one.more["first_ms"] for one in found)


def compare_concurrent_audio(clock: Clock, to: dict[str, str], rows: int, sentences: int):
    """Stream texts one after the other, then all at once, and count texts whose audio is equal both times."""
    return asyncio.run(_run_with_caller(_compare_concurrent_audio, clock, to, rows, sentences))


async def _compare_concurrent_audio(clock, caller, rows, sentences):
    texts = {f"c{number}": make_text(number, sentences) for number in range(rows)}
    alone = {
        name: b"".join(
            [data async for data in stream_over_socket(caller.socket, text, name, _FRAMES_PER_TEXT)]
        )
        for name, text in texts.items()
    }
    many: dict[str, bytearray] = {name: bytearray() for name in texts}
    with clock:
        for name, text in texts.items():
            await send_text(caller.socket, text, name, _FRAMES_PER_TEXT)
        ended: list[str] = []
        # `turns` is the number of contexts that had audio before the first context ended.
        turns = 0
        async for name, data in receive_audio(caller.socket):
            if data is None:
                turns = turns or sum(map(bool, many.values()))
                ended.append(name)
                if len(ended) == rows:
                    break
            else:
                many[name] += data
    same = sum(bool(alone[name]) and many[name] == alone[name] for name in texts)
    return {"rows": len(ended), "same": same, "turns": turns}


def measure_s3(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row S3, with concurrent contexts on one WebSocket."""
    with local_service(concurrency=CONTEXT_COUNT, quota=10**9) as service:
        found = [
            lab.run_child(
                "streaming.compare_concurrent_audio",
                service,
                rows=CONTEXT_COUNT,
                sentences=2 if lab.tiny else 6,
            )
            for _ in range(lab.rounds)
        ]
    what = f"number of {CONTEXT_COUNT} concurrent contexts with the same bytes as alone"
    same = [float(one.more["same"]) for one in found]
    reference = f"each alone, espeak, strict, {_FRAMES_PER_TEXT} frames"
    yield Figure.from_rounds(
        "S3", what, same, "count", at_least(CONTEXT_COUNT), reference, _list_service_shares(found)
    )
    turns = [float(one.more["turns"]) for one in found]
    what = "the same: contexts with audio before the first context ended"
    target = None if lab.tiny else at_least(CONTEXT_COUNT)
    yield Figure.from_rounds(
        "S3", what, turns, "count", target, "all of them, when turns are fair", _list_service_shares(found)
    )


def measure_s4(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row S4, the processor time of WebSockets compared with HTTP streams."""
    job = {"rows": lab.limit_rows(50, tiny=2), "sentences": 6}
    ours, peer = [], []
    with local_service(workers=1, quota=10**9) as service:
        for _ in range(lab.rounds):
            for way, found in (("http", peer), ("socket", ours)):
                found.append(
                    lab.run_child("streaming.measure_stream_cost", service, way=way, pid=service.pid, **job)
                )
    ratios = [_compute_cost_ms(one) / _compute_cost_ms(other) for one, other in zip(ours, peer, strict=True)]
    own_ms, peer_ms = (statistics.median(map(_compute_cost_ms, found)) for found in (ours, peer))
    what = f"CPU of service, worker and reader for a second of audio over the socket, {own_ms:.2f} ms"
    yield Figure.from_rounds(
        "S4", what, ratios, "x", at_most(1.3), f"HTTP stream, {peer_ms:.2f} ms", _list_service_shares(ours)
    )


def _compute_cost_ms(ran: JobResult) -> float:
    """Return the processor time of caller and service for a second of audio, in milliseconds."""
    return 1000 * (ran.cpu_s + ran.more["service_cpu_s"]) / ran.more["audio_s"]


def open_contexts(clock: Clock, to: dict[str, str], rows: int, warm: int, pid: int):
    """Open contexts one after the other on one WebSocket, and measure the service's memory before and after."""
    return asyncio.run(_run_with_caller(_open_contexts, clock, to, rows, warm, pid))


async def _open_contexts(clock, caller, rows, warm, pid):
    async def speak(time_first_audio: int, count: int) -> None:
        for number in range(time_first_audio, time_first_audio + count):
            async for _ in stream_over_socket(caller.socket, make_text(number, 1), f"context {number}"):
                pass

    await speak(0, warm)
    before_mb = _read_service_mb(pid)
    with clock:
        await speak(warm, rows)
    return {"rows": rows, "service_mb": before_mb, "growth_mb": _read_service_mb(pid) - before_mb}


def _read_service_mb(pid: int) -> float:
    return sum(one.memory_info().rss for one in _list_processes(pid)) / MB


def _list_processes(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def measure_s5(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row S5, the growth of the service's memory over many contexts."""
    rows, warm = lab.limit_rows(1000, tiny=10), lab.limit_rows(300, tiny=5)
    with local_service(workers=1, quota=10**9) as service:
        found = [
            lab.run_child("streaming.open_contexts", service, rows=rows, warm=warm, pid=service.pid)
            for _ in range(lab.limit_rounds(2))
        ]
    mb = statistics.median(one.more["service_mb"] for one in found)
    what = f"growth of the memory of service and worker over {rows:,} contexts of a socket"
    growths = [one.more["growth_mb"] for one in found]
    yield Figure.from_rounds(
        "S5", what, growths, "MB", at_most(5), f"after {warm}, {mb:.0f} MB", _list_service_shares(found)
    )


def _list_service_shares(found: list[JobResult]) -> list[float]:
    return [one.service_share for one in found]


ROWS = {"S1": measure_s1, "S2": measure_s2, "S3": measure_s3, "S4": measure_s4, "S5": measure_s5}
