"""kill -9 of the service at any moment: balances stay exact, repeats are billed once, nothing stays reserved."""

import asyncio
import contextlib
import os
import random
import signal
import sqlite3

import aiohttp
import pytest

from speechframe.local.service.books.database import FILE_NAME
from speechframe.local.service.books.owners import FOLDER_NAME
from speechframe.spec import chosen

QUOTA = 50_000


def kill(service):
    os.kill(service.pid, signal.SIGKILL)


def stored(service, query):
    connection = sqlite3.connect(service.data / FILE_NAME)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


async def test_a_kill_in_the_middle_of_synthesis_bills_nothing_and_frees_what_was_reserved(
    start, http_to, tmp_path, tools
):
    with start(keys=["k:100"], data=tmp_path, workers=1) as service:
        flying = asyncio.ensure_future(http_to(service).generate("sleep 30".ljust(90)))
        await tools.until(lambda: stored(service, "SELECT * FROM reservations"))
        kill(service)
        with pytest.raises(aiohttp.ClientError):
            await flying
    assert stored(service, "SELECT millis FROM reservations") == [(90_000,)], "a dead one cannot tidy up"
    with start(keys=["k:100"], data=tmp_path, workers=1) as service:
        assert stored(service, "SELECT * FROM reservations") == []
        assert await http_to(service).remaining() == 100
        answer = await http_to(service).generate("x" * 100)
        assert answer.json["remainingCharacterCount"] == 0
        assert stored(service, "SELECT * FROM reservations") == []
        assert len(stored(service, "SELECT * FROM owners")) == 1
        assert len(list((tmp_path / FOLDER_NAME).iterdir())) == 1


@pytest.mark.slow
async def test_a_start_does_not_take_from_a_neighbour_that_lives(start, http_to, tmp_path, tools):
    both = {"keys": ["k:100"], "data": tmp_path, "workers": 1}
    with start(**both) as first:
        flying = asyncio.ensure_future(http_to(first).generate("sleep 30".ljust(90)))
        await tools.until(lambda: stored(first, "SELECT * FROM reservations"))
        with start(**both) as second:
            assert (await http_to(second).generate("x" * 50)).status == 402
            assert len(stored(first, "SELECT * FROM reservations")) == 1
            # The caller goes away: what the first had reserved is free for the second.
            flying.cancel()
            await tools.until(lambda: not stored(first, "SELECT * FROM reservations"))
            assert (await http_to(second).generate("x" * 50)).status == 200


class Caller:
    """A caller that asks again with the same idempotency key until it has an answer."""

    def __init__(self, name, text):
        self.headers = {chosen.IDEMPOTENCY_HEADER: name}
        self.text = text
        self.answers = []

    async def ask(self, http):
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            answer = await http.generate(self.text, encodeAsBase64=True, headers=self.headers)
            if answer.status == 200:
                self.answers.append(answer)


@pytest.mark.slow
async def test_killed_at_random_moments_every_request_is_billed_exactly_once(start, http_to, tmp_path):
    """The keys are repeated after each kill: some were billed without an answer, some never, none twice."""
    rng = random.Random(11)
    callers = [Caller(f"key-{n}", "x" * rng.randint(1, 80)) for n in range(120)]
    unanswered_but_billed = 0
    for round_ in range(8):
        with start(keys=[f"k:{QUOTA}:30"], data=tmp_path, workers=2) as service:
            http = http_to(service)
            billed = stored(service, "SELECT COUNT(*) FROM idempotency")[0][0]
            answered = sum(bool(caller.answers) for caller in callers)
            assert billed >= answered, "what was answered is known after any kill"
            unanswered_but_billed += billed - answered
            assert await http.remaining() == QUOTA - billed_characters(service)
            left = [caller for caller in callers if not caller.answers] + rng.sample(callers, 5)
            tasks = [asyncio.ensure_future(caller.ask(http)) for caller in left[:45]]
            if round_ < 7:
                await asyncio.sleep(rng.uniform(0.02, 0.15))
                kill(service)
            await asyncio.gather(*tasks)
    with start(keys=[f"k:{QUOTA}:40"], data=tmp_path, workers=2) as service:
        http = http_to(service)
        while missing := [caller for caller in callers if not caller.answers]:
            await asyncio.gather(*[caller.ask(http) for caller in missing[:40]])
        assert await http.remaining() == QUOTA - sum(len(caller.text) for caller in callers)
        await asyncio.gather(*[caller.ask(http) for caller in callers[:40]])
        assert await http.remaining() == QUOTA - sum(len(caller.text) for caller in callers)
    for caller in callers:
        assert len({answer.audio for answer in caller.answers}) == 1


def billed_characters(service):
    return stored(service, "SELECT COALESCE(SUM(billed_millis), 0) / 1000 FROM idempotency")[0][0]


@pytest.mark.slow
async def test_a_kill_between_settling_and_answering_is_a_repeat_that_bills_nothing(
    start, http_to, tmp_path, tools
):
    """The service is stopped like a clock right when the record is written, and killed there."""
    headers = {chosen.IDEMPOTENCY_HEADER: "cut-off"}
    with start(keys=["k:100"], data=tmp_path, workers=1) as service:
        http = http_to(service)
        # A reader that holds nothing: it only watches for the record.
        flying = asyncio.ensure_future(http.generate("sleep 0.2", encodeAsBase64=True, headers=headers))
        watcher = asyncio.to_thread(watch_and_kill, service)
        assert await watcher
        cut_off = (await asyncio.gather(flying, return_exceptions=True))[0]
    with start(keys=["k:100"], data=tmp_path, workers=1) as service:
        http = http_to(service)
        assert await http.remaining() == 91, "it was billed"
        again = await http.generate("sleep 0.2", encodeAsBase64=True, headers=headers)
        assert again.json["remainingCharacterCount"] == 91
        if not isinstance(cut_off, BaseException):
            assert again.audio == cut_off.audio


def watch_and_kill(service):
    connection = sqlite3.connect(service.data / FILE_NAME, timeout=30)
    try:
        while not connection.execute("SELECT 1 FROM idempotency").fetchone():
            pass
    finally:
        kill(service)
        connection.close()
    return True
