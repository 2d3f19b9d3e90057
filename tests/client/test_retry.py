"""A call that keeps trying: what is repeated, when it goes elsewhere, and when it gives up."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from pydantic import SecretStr

from speechframe.errors import (
    BadAnswer,
    BadRequest,
    ConnectionFailed,
    PaymentRequired,
    PermissionDenied,
    RateLimited,
    ServerError,
    ServiceError,
    TimedOut,
    Unavailable,
    service_error,
)
from speechframe.old_client import Call, Client, Patience
from speechframe.old_client.regions import Regions
from speechframe.old_client.retry import persist
from speechframe.settings import Settings

GENERATE = "/v1/speech/generate"


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_what_may_pass_is_tried_again(odd, client, call, status):
    odd.script(odd.answer(status), odd.answer(status), odd.spoken())
    spoken = await client.call(call)
    assert (spoken.attempts, len(odd.posts())) == (3, 3)
    assert [seen.body for seen in odd.posts()] == [call.body] * 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (402, PaymentRequired),
        (403, PermissionDenied),
        (404, ServiceError),
        (302, ServiceError),
    ],
)
async def test_what_cannot_pass_is_not(odd, client, call, status, kind):
    odd.script(odd.answer(status))
    with pytest.raises(kind) as caught:
        await client.call(call)
    assert (caught.value.attempts, len(odd.posts())) == (1, 1)


async def test_attempts_are_capped_and_counted(odd, settings, call):
    odd.script(odd.answer(500))
    patience = Patience(attempts=3, first_wait_s=0.001, longest_wait_s=0.002)
    async with Client(settings, patience=patience) as client:
        with pytest.raises(ServerError) as caught:
            await client.call(call)
    assert (caught.value.attempts, len(odd.posts())) == (3, 3)


@pytest.mark.parametrize("odd_answer", ["reset", "no JSON"])
async def test_what_may_have_been_billed_is_not_repeated(odd, client, call, odd_answer):
    odd.script(odd.reset() if odd_answer == "reset" else odd.answer(200, b"?"), odd.spoken())
    with pytest.raises((ConnectionFailed, BadAnswer)):
        await client.call(call)
    assert len(odd.posts()) == 1


async def test_unless_a_repeat_is_free(odd, settings, call):
    odd.script(odd.reset(), odd.answer(200, b"?"), odd.spoken())
    patience = Patience(first_wait_s=0.001, repeat_unknown=True)
    async with Client(settings, patience=patience) as client:
        spoken = await client.call(Call.of(call.request, idempotency_key="k"))
    assert (spoken.attempts, len(odd.posts())) == (3, 3)
    assert {seen.headers["Idempotency-Key"] for seen in odd.posts()} == {"k"}


@pytest.mark.quiet
@pytest.mark.parametrize(
    "header",
    [
        {"Retry-After": "0.3"},
        {"retry-after-ms": "300"},
        {"retry-after-ms": "300", "Retry-After": "60"},
    ],
)
async def test_a_wait_the_service_asks_for_is_kept(odd, client, call, header):
    odd.script(odd.answer(429, b"", header), odd.spoken())
    started = time.monotonic()
    await client.call(call)
    assert 0.3 <= time.monotonic() - started < 0.8


@pytest.mark.quiet
async def test_a_date_to_wait_for_is_kept(odd, client, call):
    now = datetime.now(UTC)
    date = format_datetime(now + timedelta(seconds=1), usegmt=True)
    odd.script(
        odd.answer(503, b"", {"Retry-After": date, "Date": format_datetime(now, usegmt=True)}), odd.spoken()
    )
    started = time.monotonic()
    await client.call(call)
    assert 0.9 <= time.monotonic() - started < 2


@pytest.mark.sampled(2)
@pytest.mark.quiet
@pytest.mark.parametrize("value", ["junk", "-5", "nan", "inf", "1e400", ""])
async def test_a_wait_that_makes_no_sense_is_not(odd, client, call, value):
    odd.script(odd.answer(429, b"", {"Retry-After": value}), odd.spoken())
    started = time.monotonic()
    await client.call(call)
    assert time.monotonic() - started < 0.5


@pytest.mark.quiet
async def test_a_wait_beyond_ones_patience_is_refused_at_once(odd, client, call):
    odd.script(odd.answer(429, b"", {"Retry-After": "999999999999"}), odd.spoken())
    started = time.monotonic()
    with pytest.raises(RateLimited) as caught:
        await client.call(call)
    assert caught.value.retry_after_s == 999999999999.0
    assert time.monotonic() - started < 0.5


@pytest.mark.quiet
async def test_patience_ends_in_time(odd, settings, call):
    odd.script(odd.answer(500))
    patience = Patience(attempts=10_000, patience_s=0.5, first_wait_s=0.05, longest_wait_s=0.05)
    started = time.monotonic()
    async with Client(settings, patience=patience) as client:
        with pytest.raises(ServerError) as caught:
            await client.call(call)
    assert 0.3 < time.monotonic() - started < 1
    assert caught.value.attempts == len(odd.posts()) > 5


def test_waits_grow_spread_and_stay_capped():
    patience = Patience(first_wait_s=1, longest_wait_s=8)
    waits = [[patience.wait_s(None, attempt) for _ in range(200)] for attempt in (1, 2, 3, 4, 9, 10_000)]
    for drawn, bound in zip(waits, [1, 2, 4, 8, 8, 8], strict=True):
        assert 0 <= min(drawn) < 0.2 * bound
        assert 0.8 * bound < max(drawn) <= bound


def test_a_wait_that_was_asked_for_is_a_lower_bound_and_still_spreads():
    busy = service_error("busy", status=429, retry_after_s=3)
    waits = [Patience(first_wait_s=0.5).wait_s(busy, 1) for _ in range(200)]
    assert min(waits) >= 3
    assert max(waits) <= 3.5
    assert len(set(waits)) > 100


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


def _visited(odd):
    return [seen.path.removesuffix(GENERATE) or "/" for seen in odd.seen]


async def test_regions_are_names_and_the_global_address_stands_last(by_region):
    async with by_region() as client:
        assert client.regions == ("us-east", "uk", "global")


@pytest.mark.quiet
async def test_a_region_that_is_down_hands_on_at_once(odd, by_region, call):
    wait = {"Retry-After": "30"}
    down = [odd.answer(503, b"", wait)]
    async with by_region(east=down, uk=down) as client:
        started = time.monotonic()
        spoken = await client.call(call)
        assert (spoken.region, spoken.attempts) == ("global", 3)
        assert time.monotonic() - started < 1
        assert _visited(odd) == ["/east", "/uk", "/"]
        odd.seen.clear()
        assert (await client.call(call)).region == "global"
        assert _visited(odd) == ["/"], "a region that is down was the first choice again"


# A region is down for as long as it says: the wait goes by while all of them are asked.
@pytest.mark.quiet
async def test_all_down_is_waited_for_and_then_begun_anew(odd, by_region, call):
    down, wait = odd.answer(503), odd.answer(503, b"", {"Retry-After": "0.3"})
    async with by_region(east=[wait, odd.spoken()], uk=[wait], world=[wait, down]) as client:
        started = time.monotonic()
        spoken = await client.call(call)
    assert time.monotonic() - started >= 0.3
    assert spoken.region == "us-east"
    assert _visited(odd) == ["/east", "/uk", "/", "/east"]


async def test_moving_on_costs_no_attempt(odd, by_region, call):
    down = [odd.answer(503)]
    async with by_region(Patience(attempts=1), east=down, uk=down, world=down) as client:
        with pytest.raises(Unavailable) as caught:
            await client.call(call)
    assert _visited(odd) == ["/east", "/uk", "/"]
    assert caught.value.attempts == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("status", [429, 500, 408])
async def test_other_refusals_stay_in_the_region(odd, by_region, call, status):
    async with by_region(east=[odd.answer(status), odd.spoken()]) as client:
        assert (await client.call(call)).region == "us-east"
    assert _visited(odd) == ["/east", "/east"]


async def test_a_region_that_cannot_be_reached_hands_on(odd, key, call, quick):
    urls = {"us-east": "http://127.0.0.1:9"}
    settings = Settings(api_key=SecretStr(key), base_url=odd.url, regions=("us-east",), region_urls=urls)
    async with Client(settings, patience=quick) as client:
        assert (await client.call(call)).region == "global"


async def test_send_once_goes_where_it_is_told(odd, by_region, call):
    async with by_region() as client:
        assert (await client.send_once(call, region="uk")).region == "uk"
        assert (await client.send_once(call)).region == "us-east"
    assert _visited(odd) == ["/uk", "/east"]


def test_a_region_is_back_after_the_time_it_asked_for(monkeypatch):
    now_s = 1000.0
    monkeypatch.setattr("speechframe.old_client.regions.time", SimpleNamespace(monotonic=lambda: now_s))
    regions = Regions({"a": "https://a", "b": "https://b"})
    regions.down("a", 0.05)
    assert regions.order() == ("b", "a")
    now_s += 0.04
    assert regions.order() == ("b", "a")
    now_s += 0.02
    assert regions.order() == ("a", "b")
    regions.down("a")
    regions.up("a")
    assert regions.order() == ("a", "b")


async def test_a_good_first_attempt_never_meets_tenacity(monkeypatch):
    monkeypatch.setattr("speechframe.old_client.retry.AsyncRetrying", None)

    async def send(region):
        return region

    assert await persist(send, Regions({"global": "https://x"}), Patience()) == ("global", 1)


async def test_time_outs_of_unsent_calls_are_tried_again():
    tries = []

    async def send(region):
        tries.append(region)
        if len(tries) < 3:
            raise TimedOut("no connection", sent=False)
        return "spoken"

    patience = Patience(first_wait_s=0.001, longest_wait_s=0.001)
    assert await persist(send, Regions({"global": "https://x"}), patience) == ("spoken", 3)


# Calls that cost nothing.


async def test_a_listing_is_repeated_whatever_happened(odd, client):
    odd.script(
        odd.reset(),
        odd.answer(200, b"<html>"),
        path="/v1/speech/voices",
    )
    with pytest.raises(BadAnswer):
        await client.voices()
    assert len(odd.gets("/v1/speech/voices")) == 2
