"""Clients that do not read: dropped in time, bounded together, and no hindrance for those who do."""

import asyncio
import contextlib
import json
import socket
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from socket_lab import LONG, talking

from speechframe.processes.child import Child

pytestmark = pytest.mark.quiet

LAUNCH = """
import sys
from dataclasses import replace
from speechframe.local.service import serve
made = serve.build_config
serve.build_config = lambda options: replace(made(options), {changes})
sys.exit(serve.main())
"""
LARGE = {"voiceId": "nora", "format": "WAV", "sampleRate": 48000, "channelType": "STEREO"}
WORDS = "A sentence of a certain length, again. " * 40
STREAM = "/v1/speech/stream"


@pytest.fixture(scope="module")
def start_with(plugins, tmp_path_factory):
    """Start a real service process whose configuration differs in what no option sets."""
    del plugins

    @contextlib.contextmanager
    def started(*options, **changes):
        words = ", ".join(f"{name}={value!r}" for name, value in changes.items())
        child = Child(
            [sys.executable, "-c", LAUNCH.format(changes=words), "--port", "0", "--json", "--die-with-parent",
             "--data", str(tmp_path_factory.mktemp("data")), "--keys-file", "-", *options],
            ["main", "other", "single:10000000:1"],
        )  # fmt: skip
        try:
            said = child.read_announcement()
            yield SimpleNamespace(url=said["url"], pid=said["pid"])
        finally:
            child.terminate()
            child.wait()

    return started


@pytest.fixture(scope="module")
def hurried(start_with):
    """Give a service that looks for one second how fast somebody reads."""
    with start_with("--workers", "1", slow_reader_s=1.0) as service:
        yield service


def asked(service, method, path, body=b"", key="single"):
    """Return a connection with a small window that has sent a request, and reads nothing by itself."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.settimeout(60)
    raw.connect((host, int(port)))
    send(raw, method, path, body, key)
    return raw


def send(raw, method, path, body=b"", key="single"):
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\napi-key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    raw.sendall(head.encode() + body)


def read_at(raw, bytes_s, limit_s):
    """Read at a pace until the service closes; return after how many seconds it did, or None."""
    started = time.monotonic()
    while (now_s := time.monotonic() - started) < limit_s:
        try:
            if not raw.recv(bytes_s // 20):
                return now_s
        except OSError:
            return now_s
        time.sleep(0.05)
    return None


def is_open(service, raw):
    """Say whether the service still has its end of a connection."""
    port = raw.getsockname()[1]
    return any(
        one.raddr and one.raddr.port == port for one in psutil.Process(service.pid).net_connections("tcp")
    )


async def link_to(http):
    answer = await http.generate(WORDS, **LARGE)
    return answer.json["audioFile"].removeprefix(http.url)


async def test_who_reads_nothing_is_dropped_whatever_is_sent(hurried, http_to, tools):
    http = http_to(hurried, "single")
    link = await link_to(http)
    spoken = json.dumps({"text": WORDS, **LARGE}).encode()
    requests = {
        "base64": ("POST", "/v1/speech/generate", spoken[:-1] + b', "encodeAsBase64": true}'),
        "link": ("GET", link),
        "stream": ("POST", STREAM, spoken.replace(b"nora", b"ivy")),
        "listing": ("GET", "/v1/speech/voices"),
    }
    for name, request in requests.items():
        raw = await asyncio.to_thread(asked, hurried, *request)
        if name == "listing":
            for _ in range(60):
                await asyncio.to_thread(send, raw, *request)
        started = time.monotonic()
        await tools.until(lambda raw=raw: is_open(hurried, raw), limit_s=20)
        await tools.until(lambda raw=raw: not is_open(hurried, raw), limit_s=20)
        assert 0.9 < time.monotonic() - started < 15, name
        raw.close()
    # Of this key one call may be in flight: the slots are free again, and so are the workers.
    assert (await http.generate("hello")).status == 200
    assert (await http.ask("POST", STREAM, json={"text": "Hello.", "voiceId": "ivy"})).status == 200
    assert (await http.get("/healthz")).json["workers"]["busy"] == 0


async def test_who_reads_no_frames_is_dropped(hurried, http_to, tools):
    http = http_to(hurried, "single")
    async with talking(http, "format=WAV&sample_rate=48000&channel_type=STEREO") as talk:
        await talk.say(LONG, "a")
        raw = talk.socket.get_extra_info("socket")
        talk.socket._writer.transport.pause_reading()
        await tools.until(lambda: not is_open(hurried, raw), limit_s=20)
    assert (await http.get("/healthz")).status == 200


async def test_who_reads_slowly_is_served_and_who_reads_next_to_nothing_is_not(hurried, http_to, tools):
    http = http_to(hurried, "single")
    link = await link_to(http)
    raw = await asyncio.to_thread(asked, hurried, "GET", link)
    assert await asyncio.to_thread(read_at, raw, 40_000, 4.0) is None
    raw.close()
    raw = await asyncio.to_thread(asked, hurried, "GET", link)
    reading = asyncio.ensure_future(asyncio.to_thread(read_at, raw, 200, 3.0))
    await tools.until(lambda: is_open(hurried, raw), limit_s=20)
    await tools.until(lambda: not is_open(hurried, raw), limit_s=20)
    await reading
    raw.close()


async def test_an_answer_that_waits_for_its_text_is_no_slow_reader(hurried, http_to, hold):
    http = http_to(hurried, "single")
    spoken = asyncio.ensure_future(http.generate(hold.text, key="single"))
    await asyncio.sleep(3)
    hold.let_go()
    assert (await spoken).status == 200


@pytest.mark.slow
async def test_what_nobody_reads_is_bounded_over_all_connections(start_with, http_to, tools):
    # Sentences of more than a minute: each has seven megabytes of samples, and the next one is made ahead.
    text = ("a sentence that goes on and on " * 19 + ". ") * 7
    body = json.dumps({"text": text, "voiceId": "ivy", "format": "PCM", "rate": -50}).encode()
    with start_with("--workers", "2", unread_bytes=40 << 20) as service:
        http = http_to(service, "single")
        await http.ask("POST", STREAM, json={"text": "Hello.", "voiceId": "ivy"})
        process = psutil.Process(service.pid)
        before_mb = process.memory_info().rss >> 20
        unread = [
            await asyncio.to_thread(asked, service, "POST", STREAM, body, key)
            for key in ("main", "other")
            for _ in range(14)
        ]
        most_mb = 0

        def is_over():
            nonlocal most_mb
            most_mb = max(most_mb, (process.memory_info().rss >> 20) - before_mb)
            return sum(is_open(service, raw) for raw in unread) < 6

        await tools.until(is_over, limit_s=60, every_s=0.1)
        # What the dropped ones hold for a moment comes on top; all of it would be 390 MB.
        assert most_mb < 110
        assert (await http.generate("hello")).status == 200
        for raw in unread:
            raw.close()
