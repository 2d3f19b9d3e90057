"""When a call is sent again and where to: what was sent is known, waits are kept, regions stand in for each other."""

import asyncio
import json
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic import SecretStr

from speechframe.client import Client, Patience, PreparedCall, Timeouts
from speechframe.errors import (
    BadAnswer,
    ConnectionFailed,
    RateLimited,
    ServerError,
    ServiceError,
    TimedOut,
    Unavailable,
)
from speechframe.settings import Settings

GENERATE = "/v1/speech/generate"


async def test_a_request_carries_the_body_the_key_and_what_was_asked_for(odd, client, call, key):
    await client.send_once(PreparedCall.from_request(call.request, idempotency_key="once", take=2))
    (seen,) = odd.seen
    assert seen.headers["api-key"] == key
    assert (seen.headers["Idempotency-Key"], seen.headers["X-Take"]) == ("once", "2")
    assert seen.headers["User-Agent"].startswith("speechframe/")
    assert json.loads(seen.body) == json.loads(call.body)


@pytest.mark.parametrize("status", [408, 503])
async def test_what_may_pass_is_tried_again(odd, client, call, status):
    odd.script(odd.answer(status), odd.answer(status), odd.spoken())
    assert (await client.call(call)).attempts == 3
    assert [seen.body for seen in odd.posts()] == [call.body] * 3


@pytest.mark.parametrize("status", [302, 403])
async def test_what_cannot_pass_is_not(odd, client, call, status):
    odd.script(odd.answer(status))
    with pytest.raises(ServiceError) as caught:
        await client.call(call)
    assert (caught.value.attempts, len(odd.posts())) == (1, 1)


@pytest.mark.parametrize("again", [False, True])
async def test_what_may_have_been_billed_is_repeated_only_where_that_is_allowed(odd, settings, call, again):
    odd.script(odd.reset(), odd.answer(200, b"?"), odd.spoken())
    patience = Patience(first_wait_s=0.001, repeat_unknown=again)
    async with Client(settings, patience=patience) as client:
        if again:
            assert (await client.call(call)).attempts == 3
        else:
            for kind in (ConnectionFailed, BadAnswer):
                with pytest.raises(kind):
                    await client.call(call)
    assert len(odd.posts()) == (3 if again else 2)


async def test_a_dropped_connection_is_no_second_attempt_that_nobody_counts(odd, client, call):
    odd.script(odd.spoken(), odd.reset(), odd.spoken())
    await client.send_once(call)
    with pytest.raises(ConnectionFailed) as caught:
        await client.send_once(call)
    assert caught.value.sent
    assert odd.seen[0].peer == odd.seen[1].peer, "the connection was not kept, so this test shows nothing"
    assert len(odd.posts()) == 2


@pytest.mark.parametrize("form", ["seconds", "milliseconds", "date"])
async def test_a_wait_the_service_asks_for_is_kept(odd, client, call, form):
    now = datetime.now(UTC)
    header = {
        "seconds": {"Retry-After": "0.5"},
        "milliseconds": {"retry-after-ms": "500", "Retry-After": "60"},
        "date": {"Retry-After": format_datetime(now + timedelta(seconds=1), usegmt=True),
                 "Date": format_datetime(now, usegmt=True)},
    }[form]  # fmt: skip
    odd.script(odd.answer(429, b"", header), odd.spoken())
    started = time.monotonic()
    await client.call(call)
    assert 0.5 <= time.monotonic() - started < 10


@pytest.mark.parametrize("value", ["junk", "inf"])
async def test_a_wait_that_makes_no_sense_is_not(odd, client, call, value):
    odd.script(odd.answer(429, b"", {"Retry-After": value}), odd.spoken())
    async with asyncio.timeout(30):
        assert (await client.call(call)).attempts == 2


async def test_a_wait_beyond_ones_patience_is_refused_at_once(odd, client, call):
    odd.script(odd.answer(429, b"", {"Retry-After": "999999999999"}))
    async with asyncio.timeout(30):
        with pytest.raises(RateLimited) as caught:
            await client.call(call)
    assert caught.value.retry_after_s == 999999999999.0


@pytest.mark.quiet
async def test_attempts_and_time_are_both_capped(odd, settings, call):
    odd.script(odd.answer(500))
    for patience, most_s in [
        (Patience(attempts=3, first_wait_s=0.001), 10),
        (Patience(attempts=10_000, patience_s=0.5, first_wait_s=0.05, longest_wait_s=0.05), 5),
    ]:
        odd.seen.clear()
        started = time.monotonic()
        async with Client(settings, patience=patience) as client:
            with pytest.raises(ServerError) as caught:
                await client.call(call)
        assert time.monotonic() - started < most_s
        assert caught.value.attempts == len(odd.posts()) >= 3
        assert len(odd.posts()) <= patience.attempts


# What was certainly not sent.


async def test_where_nobody_listens_nothing_was_sent(odd, settings, call):
    with socket.socket() as silent, socket.socket() as nobody:
        for one in (silent, nobody):
            one.bind(("127.0.0.1", 0))
        silent.listen()
        handshake, free = (f"{one.getsockname()[1]}" for one in (silent, nobody))
        for address, kind in [
            (f"http://127.0.0.1:{free}", ConnectionFailed),
            ("https://speech.invalid", ConnectionFailed),
            (odd.tls_url, ConnectionFailed),  # its authority is not trusted
            (f"https://127.0.0.1:{odd.port}", ConnectionFailed),  # it speaks no TLS
            (f"https://127.0.0.1:{handshake}", TimedOut),
        ]:
            there = Settings(api_key=settings.api_key, base_url=address, trust_env=False)
            async with Client(there, timeouts=Timeouts(connect_s=1)) as client:
                with pytest.raises(kind) as caught:
                    await client.send_once(call)
            assert not caught.value.sent, address
    assert odd.seen == []


async def test_a_call_that_waits_for_a_connection_was_not_sent(odd, settings, call):
    odd.script(odd.hang())
    async with Client(settings, max_connections=1) as client:
        holder = asyncio.create_task(client.send_once(call))
        await odd.until_seen()
        with pytest.raises(TimedOut) as caught:
            await client.send_once(call, timeout_s=0.2)
        holder.cancel()
    assert not caught.value.sent
    assert len(odd.seen) == 1


# Regions.


@pytest.fixture
def by_region(odd, key, quick):
    """A client of three regions, whose addresses differ by a prefix of the path."""

    def made(patience=quick, **scripts):
        urls = {"us-east": f"{odd.url}/east", "uk": f"{odd.url}/uk"}
        for name, prefix in (("east", "/east"), ("uk", "/uk"), ("world", "")):
            odd.script(*scripts.get(name, [odd.spoken()]), path=prefix + GENERATE)
        settings = Settings(
            api_key=SecretStr(key), base_url=odd.url, regions=("us-east", "uk"), region_urls=urls
        )
        return Client(settings, patience=patience)

    return made


def visited(odd):
    return [seen.path.removesuffix(GENERATE) or "/" for seen in odd.seen]


async def test_a_region_that_is_down_hands_on_at_once(odd, by_region, call):
    down = [odd.answer(503, b"", {"Retry-After": "30"})]
    async with by_region(east=down, uk=down) as client:
        assert client.regions == ("us-east", "uk", "global")
        spoken = await client.call(call)
        assert (spoken.region, spoken.attempts) == ("global", 3)
        assert (await client.call(call)).region == "global"
        assert visited(odd) == ["/east", "/uk", "/", "/"], "a region that is down was the first choice again"
        with pytest.raises(Unavailable):
            await client.send_once(call, region="uk")


async def test_moving_on_costs_no_attempt_and_other_refusals_stay(odd, by_region, call):
    down = [odd.answer(503)]
    async with by_region(Patience(attempts=1), east=down, uk=down, world=down) as client:
        with pytest.raises(Unavailable):
            await client.call(call)
    assert visited(odd) == ["/east", "/uk", "/"]
    odd.seen.clear()
    async with by_region(east=[odd.answer(429), odd.spoken()]) as client:
        assert (await client.call(call)).region == "us-east"
    assert visited(odd) == ["/east", "/east"]


async def test_a_region_that_cannot_be_reached_hands_on(odd, key, call, quick):
    urls = {"us-east": "http://127.0.0.1:9"}
    settings = Settings(api_key=SecretStr(key), base_url=odd.url, regions=("us-east",), region_urls=urls)
    async with Client(settings, patience=quick) as client:
        assert (await client.call(call)).region == "global"
