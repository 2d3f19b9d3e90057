"""Webhooks: delivered at least once with one id, signed, tried again, and never to where they may not go."""

import os
import signal
import sqlite3
import time

import pytest
from dub_lab import Receiver, create, listening, ready, status

from speechframe.service.database import FILE_NAME
from speechframe.spec import chosen

SECONDS = 1.5
# Without credits a job ends, and has its webhook sent, as soon as it is taken.
OPTIONS = ["--dub-key", "dub:0", "--webhook-s", str(SECONDS)]


@pytest.fixture(scope="module")
def dubbing(start):
    with start(keys=["speech"], workers=1, options=OPTIONS, allow_private_urls=True) as running:
        yield running


@pytest.fixture
def http(dubbing, http_to):
    return http_to(dubbing, "dub")


def waiting(service):
    connection = sqlite3.connect(service.data / FILE_NAME)
    try:
        return connection.execute("SELECT id FROM webhooks").fetchall()
    finally:
        connection.close()


async def failed(http, url, **fields):
    job_id = (await create(http, webhook_url=url, **fields)).json["job_id"]
    assert (await ready(http, job_id))["status"] == "FAILED"
    return job_id


async def test_one_that_fails_four_times_is_delivered_the_fifth_with_the_same_id(http, dubbing, tools):
    receiver = Receiver(500, 500, 404, 302, 204)
    async with listening(receiver.receive) as url:
        started = time.monotonic()
        job_id = await failed(http, url, webhook_secret="geheim ü")
        await tools.until(lambda: not waiting(dubbing))
        assert time.monotonic() - started >= SECONDS
    assert len(receiver.received) == chosen.WEBHOOK_TRIES
    assert len(set(receiver.ids)) == 1
    assert all(receiver.is_signed("geheim ü"))
    assert len({headers[chosen.WEBHOOK_TIMESTAMP_HEADER] for headers, _ in receiver.received}) == 5
    assert receiver.events[0]["data"] == await status(http, job_id)


@pytest.mark.parametrize("answers", [[500], ["hang"]])
async def test_one_that_is_never_taken_is_given_up_and_the_job_is_as_it_was(http, dubbing, tools, answers):
    receiver = Receiver(*answers)
    async with listening(receiver.receive) as url:
        job_id = await failed(http, url)
        await tools.until(lambda: not waiting(dubbing))
    assert len(receiver.received) == chosen.WEBHOOK_TRIES
    assert (await status(http, job_id))["failure_code"] == "INSUFFICIENT_CREDITS"


async def test_a_receiver_that_hangs_or_refuses_keeps_no_other_from_its_own(http, dubbing, tools):
    slow, quick = Receiver("hang"), Receiver(200)
    async with listening(slow.receive) as hanging, listening(quick.receive) as url:
        await failed(http, hanging)
        await failed(http, "http://127.0.0.1:1/")
        await tools.until(lambda: slow.received)
        await failed(http, url)
        await tools.until(lambda: quick.received, limit_s=SECONDS)
    await tools.until(lambda: not waiting(dubbing))


async def test_a_redirect_is_not_followed_and_a_private_address_not_visited(
    start, http, http_to, dubbing, tools
):
    secret = Receiver(200)
    async with listening(secret.receive) as private:
        redirecting = Receiver(307, location=private)
        async with listening(redirecting.receive) as url:
            await failed(http, url)
            await tools.until(lambda: not waiting(dubbing))
        assert len(redirecting.received) == chosen.WEBHOOK_TRIES
        with start(keys=["speech"], workers=1, options=OPTIONS) as strict:
            await failed(http_to(strict, "dub"), private)
            await tools.until(lambda: not waiting(strict))
    assert not secret.received


@pytest.mark.slow
async def test_one_is_delivered_after_a_kill(start, http_to, tmp_path, tools):
    how = {"keys": ["speech"], "workers": 1, "options": OPTIONS, "data": tmp_path, "allow_private_urls": True}
    receiver = Receiver("hang", 200)
    async with listening(receiver.receive) as url:
        with start(**how) as service:
            await failed(http_to(service, "dub"), url)
            await tools.until(lambda: receiver.received)
            os.kill(service.pid, signal.SIGKILL)
        with start(**how) as service:
            await tools.until(lambda: not waiting(service))
    assert len(receiver.received) == 2
    assert len(set(receiver.ids)) == 1
