"""What is known when a connection fails, how often a request goes out, and which connections are kept."""

import asyncio
import contextlib
import gc
import json
import socket
import threading

import pytest
from yarl import URL

from speechframe._version import __version__
from speechframe.errors import BadAnswer, ConnectionFailed, TimedOut
from speechframe.old_client import Client, Patience, Timeouts, _exchange
from speechframe.old_client.transport import AiohttpTransport
from speechframe.settings import Settings


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _failure(settings, call, **options):
    async with Client(settings) as client:
        with pytest.raises(ConnectionFailed) as caught:
            await client.send_once(call, **options)
    return caught.value


# Certainly not sent.


async def test_refused_is_not_sent(settings, call):
    port = _free_port()
    error = await _failure(Settings(api_key=settings.api_key, base_url=f"http://127.0.0.1:{port}"), call)
    assert not error.sent
    assert str(error) == f"127.0.0.1:{port} cannot be reached: Connect call failed ('127.0.0.1', {port})"


async def test_an_unknown_name_is_not_sent(settings, call):
    settings = Settings(api_key=settings.api_key, base_url="https://speech.invalid", trust_env=False)
    error = await _failure(settings, call)
    assert not error.sent
    assert str(error).startswith("speech.invalid:443 cannot be reached: ")


async def test_no_trust_is_not_sent(odd, settings, call):
    error = await _failure(Settings(api_key=settings.api_key, base_url=odd.tls_url), call)
    assert not error.sent
    assert "no trusted TLS connection" in str(error)
    assert odd.seen == []


async def test_plain_text_where_tls_is_expected_is_not_sent(odd, settings, call):
    address = f"https://127.0.0.1:{odd.port}"
    error = await _failure(Settings(api_key=settings.api_key, base_url=address), call)
    assert not error.sent


async def test_a_machine_that_never_accepts_is_not_sent(settings, call):
    # A full queue of connections: the kernel leaves further ones without an answer.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        port = silent.getsockname()[1]
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            fillers.append(filler)
        local = Settings(api_key=settings.api_key, base_url=f"http://127.0.0.1:{port}")
        error = await _failure(local, call, timeout_s=0.5)
        for filler in fillers:
            filler.close()
    assert isinstance(error, TimedOut)
    assert not error.sent
    assert "no connection to" in str(error)


async def test_a_handshake_that_never_comes_is_not_sent(settings, call):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        local = Settings(api_key=settings.api_key, base_url=f"https://127.0.0.1:{silent.getsockname()[1]}")
        async with Client(local, timeouts=Timeouts(connect_s=0.3)) as client:
            with pytest.raises(TimedOut, match=r"no connection to .* within 0\.3 s") as caught:
                await client.send_once(call)
    assert not caught.value.sent


async def test_waiting_for_a_free_connection_is_not_sent(odd, settings, call):
    odd.script(odd.hang())
    async with Client(settings, max_connections=1) as client:
        holder = asyncio.create_task(client.send_once(call))
        await odd.until_seen()
        with pytest.raises(TimedOut) as caught:
            await client.send_once(call, timeout_s=0.2)
        holder.cancel()
    assert not caught.value.sent
    assert len(odd.seen) == 1


async def test_a_connection_lost_before_the_first_byte_is_not_sent(odd, call, key):
    transport = AiohttpTransport()
    url = URL(odd.url + "/v1/speech/generate")
    send = {
        "headers": {"api-key": key},
        "body": call.body,
        "timeout_s": 60,
        "max_bytes": 1 << 20,
        "max_error_bytes": 1000,
    }
    await transport.exchange("POST", url, **send)
    connector = transport._session.connector
    connect = connector.connect

    async def connect_and_lose(*args, **options):
        connection = await connect(*args, **options)
        connection.transport.close()
        return connection

    connector.connect = connect_and_lose
    with pytest.raises(ConnectionFailed, match="lost before the request was sent") as caught:
        await transport.exchange("POST", url, **send)
    await transport.close()
    assert not caught.value.sent
    assert len(odd.seen) == 1


# May have been billed.


async def test_a_reset_after_the_body_counts_as_sent(odd, client, call):
    odd.script(odd.reset())
    with pytest.raises(ConnectionFailed, match="before it answered") as caught:
        await client.send_once(call)
    assert caught.value.sent


async def test_a_reset_before_the_body_is_read_counts_as_sent(odd, client, call):
    step = odd.reset()
    step.unread = True
    odd.script(step)
    with pytest.raises(ConnectionFailed) as caught:
        await client.send_once(call)
    assert caught.value.sent


async def test_a_reset_of_a_kept_connection_counts_as_sent_and_is_not_repeated(odd, client, call):
    odd.script(odd.spoken(), odd.reset(), odd.spoken())
    await client.send_once(call)
    with pytest.raises(ConnectionFailed) as caught:
        await client.send_once(call)
    assert caught.value.sent
    assert len(odd.posts()) == 2
    assert odd.seen[0].peer == odd.seen[1].peer, "the connection was not kept, so this test shows nothing"


async def test_a_dropped_get_is_counted_not_hidden(odd, settings):
    # aiohttp by itself would send a dropped GET twice.
    odd.script(odd.answer(200, b"[]"), odd.reset(), path="/v1/speech/voices")
    async with Client(settings, patience=Patience(attempts=1)) as client:
        await client.voices()
        with pytest.raises(ConnectionFailed):
            await client.voices()
    assert len(odd.seen) == 2


# Which connections are kept.


async def test_a_good_answer_keeps_its_connection(odd, client, call):
    for _ in range(3):
        await client.send_once(call)
    assert len({seen.peer for seen in odd.seen}) == 1


@pytest.mark.parametrize("status", [400, 402, 403, 429, 503])
async def test_a_refusal_keeps_its_connection(odd, client, call, status):
    odd.script(odd.answer(status, b"{}"), odd.spoken())
    with pytest.raises(Exception, match=str(status)):
        await client.send_once(call)
    await client.send_once(call)
    assert odd.seen[0].peer == odd.seen[1].peer


@pytest.mark.parametrize("status", [408, 500, 502, 504])
@pytest.mark.parametrize("pause_s", [0, 0.05], ids=["at once", "body later"])
async def test_a_doubtful_answer_does_not(odd, client, call, status, pause_s):
    async def answer(request):
        request.transport.write(b"HTTP/1.1 %d Odd\r\nContent-Length: 4\r\n\r\n" % status)
        await asyncio.sleep(pause_s)
        request.transport.write(b"oops")
        await asyncio.sleep(5)

    odd.script(answer, odd.spoken())
    with pytest.raises(Exception, match=f"{status}.*oops"):
        await client.send_once(call)
    await client.send_once(call)
    assert odd.seen[0].peer != odd.seen[1].peer


@pytest.mark.quiet
async def test_a_timed_out_connection_is_not_used_again(odd, client, call):
    body = json.dumps(odd.fields(remainingCharacterCount=1)).encode()
    late = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def answer_late(request):
        await asyncio.sleep(0.3)
        request.transport.write(late)
        await asyncio.sleep(5)

    odd.script(answer_late, odd.spoken())
    with pytest.raises(TimedOut):
        await client.send_once(call, timeout_s=0.1)
    assert (await client.send_once(call)).remaining_characters == 990


@pytest.mark.parametrize("pause_s", [0.0, 0.1], ids=["at once", "while idle"])
async def test_a_stray_second_answer_is_never_the_next_calls(odd, client, call, pause_s):
    first, stray = (json.dumps(odd.fields(remainingCharacterCount=n)).encode() for n in (1, 2))

    written = threading.Event()

    async def answer_twice(request):
        for body in (first, stray):
            request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await asyncio.sleep(pause_s)
        written.set()
        await asyncio.sleep(5)

    odd.script(answer_twice, odd.spoken())
    assert (await client.send_once(call)).remaining_characters == 1
    assert await asyncio.to_thread(written.wait, 60)
    assert (await client.send_once(call)).remaining_characters == 990


async def test_an_answer_before_the_question_is_refused(settings, call):
    over = asyncio.Event()

    async def speak_first(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        over.set()

    server = await asyncio.start_server(speak_first, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    local = Settings(api_key=settings.api_key, base_url=f"http://127.0.0.1:{port}")
    async with Client(local) as client:
        with pytest.raises((ConnectionFailed, BadAnswer)):
            await client.send_once(call)
    server.close()
    await asyncio.wait_for(over.wait(), 30)


async def test_dropping_does_not_hit_a_connection_that_serves_another(odd, call, key):
    """An answer found odd late is dropped when its connection may serve another call already."""

    dropped = threading.Event()

    async def answer_late(request):
        await asyncio.to_thread(dropped.wait, 60)
        return await odd.spoken()(request)

    odd.script(odd.spoken(), answer_late)
    transport = AiohttpTransport()
    send = {"headers": {}, "body": call.body, "timeout_s": 60, "max_bytes": 1 << 20, "max_error_bytes": 1000}
    url = URL(odd.url + "/v1/speech/generate")
    first = await transport.exchange("POST", url, **send)
    second = asyncio.create_task(transport.exchange("POST", url, **send))
    while len(odd.seen) < 2:  # noqa: ASYNC110 - the server runs in another thread
        await asyncio.sleep(0.01)
    assert odd.seen[0].peer == odd.seen[1].peer
    first.drop()
    dropped.set()
    assert (await second).ok
    (await second).drop()
    assert (await transport.exchange("POST", url, **send)).ok
    assert odd.seen[2].peer != odd.seen[1].peer
    await transport.close()


@pytest.mark.slow
async def test_a_connection_that_is_closed_is_not_kept_in_memory(odd, settings, call):
    gc.collect()
    kept = len(_exchange._USED)
    for _ in range(3):
        async with Client(settings) as client:
            await client.send_once(call)
    # The loop ends a closed connection in its next round.
    await asyncio.sleep(0.01)
    gc.collect()
    assert len(_exchange._USED) <= kept


# What is written.


@pytest.mark.parametrize(
    "header",
    [
        {"X-Team": "a\r\nX-Evil: 1"},
        {"X-Team": "a\nb"},
        {"X-Team": "a\0"},
        {"X-Team\r\nX-Evil": "1"},
        {"X Team": "1"},
        {"": "1"},
        {"Content-Length": "5"},
        {"transfer-encoding": "chunked"},
        {"Host": "elsewhere.example.com"},
        {"Connection": "close"},
    ],
)
async def test_no_header_of_a_caller_is_more_than_one(odd, client, call, header):
    with pytest.raises(ValueError, match="cannot be sent"):
        await client.send_once(call, headers=header)
    await client.send_once(call)
    assert len(odd.seen) == 1


async def test_a_request_says_who_sends_it_and_nothing_twice(odd, client, call):
    await client.send_once(call)
    assert odd.seen[0].headers["User-Agent"] == f"speechframe/{__version__}"
    assert odd.seen[0].headers["Host"] == f"127.0.0.1:{odd.port}"
    assert odd.seen[0].headers["Content-Length"] == str(len(call.body))


async def test_a_truncated_answer_still_tells_its_trace_id(odd, client, call):
    body = json.dumps(odd.fields()).encode()
    head = b"HTTP/1.1 200 OK\r\nX-Trace-Id: trace-7\r\nContent-Length: %d\r\n\r\n" % len(body)
    odd.script(odd.raw(head + body[:-30]))
    with pytest.raises(BadAnswer, match="truncated") as caught:
        await client.send_once(call)
    assert caught.value.trace_id == "trace-7"


async def test_origins_are_remembered_in_bounded_number(odd, key):
    transport = AiohttpTransport()
    for number in range(300):
        url = URL(f"http://127.0.{number // 250}.{number % 250 + 3}:9/")
        with pytest.raises(ConnectionFailed):
            await transport.exchange("GET", url, headers={}, timeout_s=60, max_bytes=9, max_error_bytes=9)
    assert len(transport._targets) <= 256
    await transport.close()
