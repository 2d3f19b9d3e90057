"""local_service(regions=[...]): an address and caps for each, one balance and one memory of what was billed."""

import asyncio
import contextlib
import os
import signal
import sqlite3
from http import HTTPStatus
from types import SimpleNamespace

import aiohttp
import pytest
from socket_lab import at_work

from speechframe.errors import SettingsError
from speechframe.local.service.books.database import FILE_NAME
from speechframe.local.start import local_service
from speechframe.spec import chosen
from speechframe.spec.limits import REGIONS

PAIR = ["us-east", "eu-central"]


@pytest.fixture(scope="module")
def pair(start):
    """Two regions that most tests share; the first key has one place in each."""
    with start(regions=PAIR, keys=["main::1", "wide:100000:8", "poor:100"], workers=2) as running:
        yield running


@pytest.fixture
def ask(http_to, pair):
    """Give a client of each region."""

    def make(key="main", service=pair):
        return [http_to(SimpleNamespace(url=url), key) for url in service.region_urls.values()]

    return make


@pytest.mark.slow
def test_settings_name_the_regions_in_order_and_url_is_the_first(pair):
    assert pair.settings.regions == pair.regions == tuple(PAIR)
    assert list(pair.settings.addresses()) == PAIR
    assert pair.settings.addresses() == pair.region_urls
    assert pair.url == pair.region_urls["us-east"] != pair.region_urls["eu-central"]
    assert pair.pid == pair.pids["us-east"] != pair.pids["eu-central"]
    assert pair.settings.api_key.get_secret_value() == "main"
    assert all(f"{name} {url}" in repr(pair) for name, url in pair.region_urls.items())
    assert "main" not in repr(pair)


async def test_each_region_says_its_name_and_its_cap(ask):
    said = [(await client.get("/v1/limits")).json for client in ask("main")]
    assert [limits["region"] for limits in said] == PAIR
    assert [limits["concurrency"] for limits in said] == [1, 1]
    assert len({limits["identity"] for limits in said}) == 1, "regions are one service"


@pytest.mark.rule("limit.concurrency-429")
async def test_caps_count_in_each_region_alone(ask, hold, tools):
    first, second = ask("main")
    sends = [asyncio.ensure_future(one.generate(hold.text)) for one in (first, second)]
    for one in (first, second):
        await at_work(one, 1)
    sends.append(asyncio.ensure_future(first.generate(hold.text)))
    await tools.until(sends[-1].done)
    hold.let_go()
    assert [answer.status for answer in await asyncio.gather(*sends)] == [200, 200, 429]


async def test_one_balance_for_all_regions(ask):
    clients = ask("wide")
    before = await clients[0].remaining("wide")
    answers = await asyncio.gather(*[clients[n % 2].generate("x" * 10) for n in range(16)])
    assert {answer.status for answer in answers} == {200}
    left = sorted((answer.json["remainingCharacterCount"] for answer in answers), reverse=True)
    assert left == [before - 10 * n for n in range(1, 17)]
    assert [await client.remaining() for client in clients] == [before - 160] * 2


async def test_a_repeat_in_another_region_is_not_billed_again(ask):
    first, second = ask("wide")
    before = await first.remaining()
    headers = {chosen.IDEMPOTENCY_HEADER: "one after the other"}
    one, two = [await client.generate("hello again", headers=headers) for client in (first, second)]
    assert [one.status, two.status] == [200, 200]
    # What one of them made, the other hands out.
    there = one.json["audioFile"].replace(first.url, second.url)
    assert (await second.get(there, key=None)).body == (await first.get(one.json["audioFile"], key=None)).body
    assert await second.remaining() == before - len("hello again")
    other = await second.generate("another text", headers=headers)
    assert other.status == 400
    assert await first.remaining() == before - len("hello again")


async def test_one_region_killed_the_other_goes_on_with_what_was_reserved_given_back(start, ask, tools):
    with start(regions=PAIR, quota=20, workers=2) as service:
        key = service.api_key.get_secret_value()
        first, second = ask(key, service)
        lost = asyncio.ensure_future(first.generate("sleep 30 " + "x" * 6))
        with contextlib.closing(sqlite3.connect(service.data / FILE_NAME)) as books:
            await tools.until(lambda: books.execute("SELECT SUM(millis) FROM reservations").fetchone()[0])
        assert (await second.generate("x" * 6)).status == 402, "what is in flight there counts here"
        os.kill(service.pids["us-east"], signal.SIGKILL)
        with pytest.raises(aiohttp.ClientError):
            await lost
        # Its connections end a moment before its locks do.
        async with asyncio.timeout(60):
            while (answer := await second.generate("x" * 20)).status == HTTPStatus.PAYMENT_REQUIRED:  # noqa: ASYNC110 - the service runs elsewhere
                await asyncio.sleep(0.05)
        assert answer.status == HTTPStatus.OK
        assert service.is_running
        os.kill(service.pids["eu-central"], signal.SIGKILL)
        await tools.until(lambda: not service.is_running)


@pytest.mark.slow
async def test_after_the_block_no_process_of_any_region_is_left(start, tools):
    with start(regions=PAIR, workers=3) as service:
        workers = [tools.worker_pids(pid) for pid in service.pids.values()]
        assert all(workers)
        pids = [*service.pids.values(), *workers[0], *workers[1]]
    assert not any(map(tools.alive, pids))
    assert not service.is_running


def test_when_a_region_cannot_start_the_others_end_too(start, tools, tmp_path):
    before = set(tools.psutil.Process().children())
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="data folder"), start(regions=PAIR, data=tmp_path / "file"):
        pass
    assert set(tools.psutil.Process().children()) <= before


@pytest.mark.parametrize(
    ("regions", "wrong"),
    [
        (["us-east", "mars"], "mars"),
        ("us-east,venus", "venus"),
        (["us-east", "us-east"], "us-east twice"),
        ([], "none at all"),
    ],
)
def test_a_wrong_region_is_refused_before_anything_starts(tools, regions, wrong):
    before = tools.psutil.Process().children()
    with pytest.raises(SettingsError, match=wrong) as refused:
        local_service(regions=regions)
    assert all(name in str(refused.value) for name in REGIONS)
    assert tools.psutil.Process().children() == before
