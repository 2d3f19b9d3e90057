"""HTTP as it comes over the socket: broken, slow, stalled, cut off."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from socket_lab import at_work

from speechframe.spec import chosen

GOOD = b'{"text": "hello", "voiceId": "moody"}'
LENGTH = len(GOOD)


class Raw:
    """A socket and what is read from it."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, limit_s=60):
        async with asyncio.timeout(limit_s):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status = int(head.split()[1])
            headers = {
                name.lower(): value
                for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:] if line)
            }
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        assert headers[chosen.TRACE_HEADER.lower()]
        return status, headers, body

    async def closed(self, limit_s=60):
        async with asyncio.timeout(limit_s):
            return await self.reader.read() == b""


@contextlib.asynccontextmanager
async def connected(service):
    host, _, port = service.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def head(path="/v1/speech/generate", *, key="main", length=LENGTH, extra=""):
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\napi-key: {key}\r\nContent-Length: {length}\r\n{extra}\r\n"
    ).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
        b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["words", "TLS", "a long header", "two lengths"],
)
async def test_broken_http_is_400_with_our_body_and_a_trace_id(service, data):
    async with connected(service) as raw:
        await raw.send(data)
        status, headers, body = await raw.answer()
        assert status == 400
        assert headers["content-type"].startswith("application/json")
        assert set(json.loads(body)) == {"error_message", "error_code", "trace_id"}
        assert json.loads(body)["error_code"] == "INVALID_REQUEST"
        assert await raw.closed()


@pytest.mark.quiet
async def test_a_header_section_that_stalls_is_408(hasty):
    async with connected(hasty) as raw:
        await raw.send(b"POST /v1/speech/generate HTTP/1.1\r\nHost: x\r\napi-")
        started = time.monotonic()
        status, headers, body = await raw.answer()
        assert status == 408
        assert 0.5 < time.monotonic() - started < 3
        assert json.loads(body)["error_code"] == "REQUEST_TIMEOUT"
        assert headers["connection"] == "close"
        assert await raw.closed()


async def test_the_clock_starts_again_with_the_next_request_and_an_idle_connection_may_wait(hasty):
    async with connected(hasty) as raw:
        await asyncio.sleep(1.3)
        await raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await raw.answer())[0] == 200
        await raw.send(b"GET /healthz HTTP/1.1\r\n")
        # Nor does it help to let it drip.
        while not raw.reader._buffer:
            with contextlib.suppress(ConnectionError):
                await raw.send(b"X")
            await asyncio.sleep(0.1)
        assert (await raw.answer())[0] == 408


@pytest.mark.quiet
async def test_the_clock_of_the_headers_stops_when_they_are_there(hasty):
    async with connected(hasty) as raw:
        body = b'{"text": "sleep 1.3", "voiceId": "moody"}'
        start = head(length=len(body))
        await raw.send(start[:30])
        await asyncio.sleep(0.2)
        await raw.send(start[30:] + body)
        assert (await raw.answer())[0] == 200


@pytest.mark.quiet
@pytest.mark.rule("status.408-stalled-body")
async def test_a_body_that_stalls_is_408_and_costs_nothing(hasty, http_to):
    http = http_to(hasty)
    before = await http.remaining()
    async with connected(hasty) as raw:
        await raw.send(head(length=1000) + GOOD[:10])
        started = time.monotonic()
        status, headers, body = await raw.answer()
        assert status == 408
        assert 0.5 < time.monotonic() - started < 3
        assert "1 s" in json.loads(body)["error_message"]
        assert headers["connection"] == "close"
    assert await http.remaining() == before


async def test_stalled_bodies_hold_no_slot(service, http):
    # The key has two slots, and five requests of it hang in their bodies.
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(5):
            raw = await stack.enter_async_context(connected(service))
            await raw.send(head(key="slow", length=1000) + GOOD[:10])
        assert (await http.generate(key="slow")).status == 200


@pytest.mark.quiet
async def test_a_bad_key_is_told_before_the_body_is_waited_for(service):
    async with connected(service) as raw:
        await raw.send(head(key="wrong", length=1000))
        started = time.monotonic()
        assert (await raw.answer())[0] == 403
        assert time.monotonic() - started < 0.5


async def test_an_expected_100_continue_is_given(service):
    async with connected(service) as raw:
        await raw.send(head(extra="Expect: 100-continue\r\n"))
        async with asyncio.timeout(60):
            assert await raw.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await raw.send(GOOD)
        assert (await raw.answer())[0] == 200


async def test_http_1_0_and_a_missing_host_are_served(service):
    async with connected(service) as raw:
        await raw.send(head().replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host: x\r\n", b"") + GOOD)
        status, _, body = await raw.answer()
        assert status == 200
        assert json.loads(body)["audioFile"].startswith(service.url)


async def test_requests_sent_ahead_are_answered_in_order(service):
    async with connected(service) as raw:
        bodies = [json.dumps({"text": "x" * n, "voiceId": "moody"}).encode() for n in (3, 1, 2)]
        await raw.send(b"".join(head(length=len(body)) + body for body in bodies))
        lengths = [json.loads((await raw.answer())[2])["audioLengthInSeconds"] for _ in bodies]
        assert [round(length * 22050 / 220) for length in lengths] == [3, 1, 2]


async def test_a_broken_chunked_body_is_400(service):
    async with connected(service) as raw:
        chunked = head().replace(b"Content-Length: %d" % len(GOOD), b"Transfer-Encoding: chunked")
        await raw.send(chunked + b"zz\r\n")
        assert (await raw.answer())[0] == 400


async def gone_in_the_middle(service, text, sleep_s):
    async with connected(service) as raw:
        body = json.dumps({"text": text, "voiceId": "moody"}).encode()
        await raw.send(head(key="slow", length=len(body)) + body)
        await asyncio.sleep(sleep_s)


@pytest.mark.quiet
async def test_a_client_that_goes_away_frees_its_slots_within_a_second_and_is_billed_nothing(service, http):
    before = await http.remaining("slow")
    for _ in range(2):
        await asyncio.gather(*[gone_in_the_middle(service, "sleep 1.5", 0.3) for _ in range(2)])
        await asyncio.sleep(0.2)
        # Both slots of the key are free, and what was reserved is given back; the workers still sleep.
        assert (await http.generate("a" * 200, key="slow")).status == 200
        before -= 200
        assert await http.remaining("slow") == before


@pytest.mark.quiet
async def test_a_client_that_goes_away_while_it_waits_is_never_worked_for(service, http):
    # Two workers sleep; what waits behind them belongs to nobody any more.
    busy = [asyncio.ensure_future(http.generate("sleep 0.8")) for _ in range(2)]
    await at_work(http, 2)
    await asyncio.gather(*[gone_in_the_middle(service, "sleep 2.5", 0.2) for _ in range(2)])
    await asyncio.gather(*busy)
    started = time.monotonic()
    assert (await http.generate("hello")).status == 200
    assert time.monotonic() - started < 1


# Crowds: a service that may have few descriptors, so that few sockets are a crowd.

DESCRIPTORS, MOST = 256, 128
IDLE = b""
BUSY = b"GET /healthz HTTP/1.1\r\n"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """Give a service that may open `DESCRIPTORS` files, with a log."""
    folder = tmp_path_factory.mktemp("crowded")
    command = [sys.executable, "-m", "speechframe.local.service", "--json", "--port", "0", "--key", "main"]
    command += ["--workers", "1", "--data", str(folder / "data"), "--body-timeout-s", "8"]
    limited = f'ulimit -n {DESCRIPTORS}; exec "$@"'
    with (folder / "log").open("w") as log:  # noqa: SIM117 - closed behind the process
        with subprocess.Popen(
            ["sh", "-c", limited, "sh", *command], stdout=subprocess.PIPE, stderr=log
        ) as service:
            try:
                yield SimpleNamespace(url=json.loads(service.stdout.readline())["url"], log=folder / "log")
            finally:
                service.terminate()


@contextlib.asynccontextmanager
async def crowd(service, count, data):
    """Open so many connections and send `data` over each; one that is closed again is one, too."""
    async with contextlib.AsyncExitStack() as stack:
        opened = []
        for _ in range(count):
            raw = await stack.enter_async_context(connected(service))
            with contextlib.suppress(ConnectionError):
                await raw.send(data)
            opened.append(raw)
        yield opened


async def asked(service):
    async with connected(service) as raw:
        await raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        return await raw.answer()


@contextlib.asynccontextmanager
async def full(service):
    """Fill a service with connections that are busy; give them and what a further one is told."""
    async with contextlib.AsyncExitStack() as stack:
        busy = await stack.enter_async_context(crowd(service, MOST, BUSY))
        # Until what was sent over a connection is read, it is idle and gives way.
        while (told := await asked(service))[0] == 200:
            busy += await stack.enter_async_context(crowd(service, 1, BUSY))
        yield busy, told


@pytest.mark.slow
async def test_more_idle_connections_than_descriptors_keep_nobody_out(crowded):
    async with crowd(crowded, 2 * DESCRIPTORS, IDLE) as idle:
        assert (await asked(crowded))[0] == 200
        # The youngest are there, and are served.
        await idle[-1].send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await idle[-1].answer())[0] == 200
        # Kept alive: again idle, and again not the one that has been so for longest.
        async with crowd(crowded, MOST // 2, IDLE):
            await idle[-1].send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await idle[-1].answer())[0] == 200
    assert len(crowded.log.read_text().splitlines()) < 10


@pytest.mark.slow
async def test_a_crowd_that_is_busy_is_told_so_until_it_is_late(crowded):
    async with full(crowded) as (busy, _):
        async with crowd(crowded, 300, BUSY) as more:
            # Those that find no room are told so, or closed where even of them there are too many.
            assert (await more[0].answer())[0] == 503
            assert await more[0].closed()
        # Header sections that do not come end, and there is room again.
        assert (await busy[-1].answer())[0] == 408
        assert (await asked(crowded))[0] == 200
    assert len(crowded.log.read_text().splitlines()) < 10


async def test_where_all_connections_are_busy_a_further_one_is_503_with_retry_after(crowded):
    async with full(crowded) as (_, (status, headers, body)), connected(crowded) as raw:
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert json.loads(body)["error_code"] == "UNAVAILABLE"
        assert "128 connections are in use" in json.loads(body)["error_message"]
        # Of a long request the rest is read past: it hears it, too.
        await raw.send(head(length=200_000) + b" " * 200_000)
        assert (await raw.answer())[0] == 503
        assert await raw.closed()
