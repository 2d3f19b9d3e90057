"""Webhooks: delivered at least once with one id, signed, tried again, and never to where they may not go."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import time

import pytest
from dub_lab import Receiver, create, listening, ready

from speechframe.local.service.books.database import FILE_NAME, SCHEMA, Database, connect
from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.dubbing import webhooks
from speechframe.spec import chosen

SECONDS = 1.0
BODY = b'{"eventName": "DUB_JOB"}'
WEBHOOKS_BEFORE = """
CREATE TABLE webhooks (
    id TEXT PRIMARY KEY, url TEXT NOT NULL, secret TEXT, body BLOB NOT NULL,
    tries INTEGER NOT NULL, due_at REAL NOT NULL
) WITHOUT ROWID
"""
"""As the release before made it."""


class Deliveries:
    """What a service has to deliver, within a second each by default."""

    def __init__(self, folder, *, allow_private_urls, seconds=SECONDS):
        config = ServiceConfig(data=folder, webhook_s=seconds, allow_private_urls=allow_private_urls)
        self._database = Database(folder / FILE_NAME)
        self._webhooks = webhooks.Webhooks(config, self._database)
        self._connection = connect(folder / FILE_NAME)

    async def add(self, url, secret=None, key_hash=b"key"):
        await self._database.run(lambda c: webhooks.add_webhook(c, key_hash, url, secret, BODY))
        self._webhooks.wake()

    def are_over(self):
        return not waiting(self._connection)

    @contextlib.asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self._webhooks.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._connection.close()
            self._database.close()


def waiting(connection):
    return connection.execute("SELECT id FROM webhooks").fetchall()


@pytest.fixture
async def deliveries(tmp_path):
    async with Deliveries(tmp_path, allow_private_urls=True).running() as made:
        yield made


async def test_one_that_fails_four_times_is_delivered_the_fifth_with_the_same_id(deliveries, tools):
    elsewhere = Receiver(200)
    async with listening(elsewhere.receive) as other:
        receiver = Receiver(500, 500, 404, 307, 204, location=other)
        async with listening(receiver.receive) as url:
            started = time.monotonic()
            await deliveries.add(url, "geheim ü")
            await tools.until(deliveries.are_over)
            assert time.monotonic() - started >= SECONDS
    assert len(receiver.received) == chosen.MAX_WEBHOOK_TRIES
    assert len(set(receiver.ids)) == 1
    assert all(receiver.is_signed("geheim ü"))
    assert len({headers[chosen.WEBHOOK_TIMESTAMP_HEADER] for headers, _ in receiver.received}) == 5
    # A redirect is a failure, and not followed.
    assert not elsewhere.received


async def test_one_that_hangs_or_is_refused_is_given_up(deliveries, tools):
    slow = Receiver("hang")
    async with listening(slow.receive) as hanging:
        await deliveries.add(hanging)
        await deliveries.add("http://127.0.0.1:1/")
        await tools.until(deliveries.are_over)
    assert len(slow.received) == chosen.MAX_WEBHOOK_TRIES


async def test_one_that_hangs_keeps_no_other_from_its_own(tmp_path, tools):
    slow, quick = Receiver("hang"), Receiver(200)
    # A try may take a fifth of that: four times as long as the other one is waited for.
    patient = Deliveries(tmp_path, allow_private_urls=True, seconds=40.0)
    async with listening(slow.receive) as hanging, listening(quick.receive) as url, patient.running():
        await patient.add(hanging)
        await tools.until(lambda: slow.received)
        await patient.add(url)
        await tools.until(lambda: quick.received, limit_s=2.0)


async def test_dead_receivers_of_a_key_delay_no_webhook_of_another(dubbing, http_to, tools):
    # Their jobs have no credits: they fail when they are taken, and their webhooks are due then.
    dead, alive = http_to(dubbing, "dead"), http_to(dubbing, "alive")
    slow, quick, count = Receiver("hang"), Receiver(200), 24
    async with listening(slow.receive) as hanging, listening(quick.receive) as url:
        await asyncio.gather(*[create(dead, webhook_url=hanging) for _ in range(count)])
        await tools.until(lambda: slow.received)
        await create(alive, webhook_url=url)
        await tools.until(lambda: quick.received)
        assert len(slow.received) < count, "it did not wait until each of the others was tried"


async def test_a_folder_of_the_release_before_opens_and_its_webhooks_are_delivered(tmp_path, tools):
    receiver = Receiver(200)
    async with listening(receiver.receive) as url:
        with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as before:
            before.executescript(f"{SCHEMA}; {WEBHOOKS_BEFORE}; PRAGMA user_version = 1")
            before.execute("INSERT INTO webhooks VALUES ('old', ?, NULL, ?, 0, 0.0)", (url, BODY))
            before.commit()
        async with Deliveries(tmp_path, allow_private_urls=True).running() as deliveries:
            await deliveries.add(url)
            await tools.until(deliveries.are_over)
    assert "old" in receiver.ids
    assert [body for _, body in receiver.received] == [BODY, BODY]


PRIVATE = (
    "http://127.0.0.1:9/", "http://localhost/", "http://2130706433/", "http://[::ffff:10.0.0.1]/", "https://192.168.0.1/",
)  # fmt: skip


@pytest.mark.parametrize("url", PRIVATE)
async def test_a_private_address_is_refused_when_the_job_is_created(service, http_to, url):
    answer = await create(http_to(service, "spare"), webhook_url=url)
    assert answer.status == 400
    assert answer.message.startswith("webhook_url cannot be called: its host is not on the public Internet")


async def test_a_name_that_does_not_resolve_now_is_accepted(dubbing, http_to):
    assert (await create(http_to(dubbing, "dead"), webhook_url="http://nothing.invalid/hook")).status == 200


async def test_a_private_address_is_not_visited_unless_that_is_allowed(tmp_path, tools):
    secret = Receiver(200)
    strict = Deliveries(tmp_path, allow_private_urls=False, seconds=0.3)
    async with listening(secret.receive) as private, strict.running() as deliveries:
        await deliveries.add(private)
        await tools.until(deliveries.are_over)
    assert not secret.received


@pytest.mark.slow
async def test_one_is_delivered_after_a_kill(start, http_to, tmp_path, tools):
    options = ["--dub-key", "dub:0", "--webhook-s", "1.5"]
    how = {"keys": ["speech"], "workers": 1, "options": options, "data": tmp_path, "allow_private_urls": True}
    receiver = Receiver("hang", 200)
    async with listening(receiver.receive) as url:
        with start(**how) as service:
            http = http_to(service, "dub")
            await ready(http, (await create(http, webhook_url=url)).json["job_id"])
            await tools.until(lambda: receiver.received)
            os.kill(service.pid, signal.SIGKILL)
        with start(**how) as service:
            connection = connect(service.data / FILE_NAME)
            await tools.until(lambda: not waiting(connection))
            connection.close()
    assert len(receiver.received) == 2
    assert len(set(receiver.ids)) == 1
