"""Worker processes: a crash or a hang costs one request, never the service."""

import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
from socket_lab import at_work, healthy

from speechframe.engines.base import Utterance
from speechframe.local.service.config import MEBIBYTE, WorkerLimits
from speechframe.local.service.workers.pool import PoolClosed, Saturated, WorkerLost, WorkerPool
from speechframe.local.service.workers.speech import AudioFormat, SpeakJob
from speechframe.spec import chosen
from speechframe.spec.speech import ChannelType, Format


@pytest.mark.rule("status.500-internal")
@pytest.mark.parametrize("text", ["crash now", "vanish now", "raise now"])
async def test_a_crash_is_one_500_that_bills_nothing_and_says_nothing_of_the_text(http, text):
    await healthy(http)
    before = await http.remaining("crash")
    # All that the key has: what was reserved can be used again.
    answer = await http.generate(text.ljust(before), key="crash")
    assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
    assert text not in answer.body.decode()
    assert "secret" not in answer.body.decode()
    assert "nothing was billed" in answer.message
    assert (await http.generate("well", key="crash")).status == 200
    assert await http.remaining("crash") == before - 4
    await healthy(http)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_a_worker_killed_in_the_middle_of_a_job_costs_that_job(start, http_to, tools, number, hold):
    # A service of its own has no other workers than the two.
    with start(workers=2) as service:
        http = http_to(service)
        both = [asyncio.ensure_future(http.generate(hold.text)) for _ in range(2)]
        await at_work(http, 2)
        first, second = tools.worker_pids(service.pid)
        os.kill(first, number)
        await tools.until(lambda: any(one.done() for one in both))
        hold.let_go()
        assert sorted(answer.status for answer in await asyncio.gather(*both)) == [200, 500]
        await healthy(http)
        assert first not in tools.worker_pids(service.pid)
        assert second in tools.worker_pids(service.pid)


@pytest.mark.slow
async def test_idle_workers_that_die_cost_nobody_anything(http, service, tools):
    await healthy(http)
    before = tools.worker_pids(service.pid)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    for _ in range(500):
        if len(set(tools.worker_pids(service.pid)) - set(before)) == len(before):
            break  # others are on their way: the service has noticed
        await asyncio.sleep(0.01)
    assert (await http.generate("hello")).status == 200
    await healthy(http)


@pytest.mark.quiet
async def test_a_worker_that_hangs_is_replaced_after_its_time(start, http_to, tools):
    with start(workers=1, options=["--job-timeout-s", "60", "--idle-timeout-s", "1"]) as service:
        http = http_to(service)
        before = await http.remaining()
        first = tools.worker_pids(service.pid)
        started = time.monotonic()
        answer = await http.generate("hang on")
        assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
        assert 0.9 < time.monotonic() - started < 10
        # A real stop of the process, not only a sleep: nothing in it runs any more.
        await tools.until(lambda: not set(first) & set(tools.worker_pids(service.pid)))
        hung = asyncio.ensure_future(http.generate("sleep 0.8"))
        await at_work(http, 1)
        (pid,) = tools.worker_pids(service.pid)
        os.kill(pid, signal.SIGSTOP)
        assert (await hung).status == 500
        assert (await http.generate("hello")).status == 200
        assert not tools.alive(pid)
        assert await http.remaining() == before - 5


async def test_a_worker_that_works_has_its_cpu_time_however_busy_the_machine_is(start, http_to):
    # More CPU time than a hung worker has of the clock, and less than the limit.
    with start(workers=1, options=["--job-timeout-s", "1.5", "--idle-timeout-s", "1"]) as service:
        http = http_to(service)
        started = time.monotonic()
        answer = await http.generate("spin")
        assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
        assert time.monotonic() - started > 1.5
        assert (await http.generate("hello")).status == 200


async def test_workers_that_nobody_waits_for_are_replaced_one_after_the_other(start, http_to, tools):
    with start(workers=2) as service:
        http = http_to(service)
        left = [asyncio.ensure_future(http.generate("hang on")) for _ in range(4)]
        await at_work(http, 2, waiting=2)
        before = tools.worker_pids(service.pid)
        for task in left:
            task.cancel()
        statuses = set()
        async with asyncio.timeout(60):
            while set(before) & set(tools.worker_pids(service.pid)):
                statuses.add((await http.get("/healthz")).status)
                await asyncio.sleep(0.01)
        assert statuses == {200}
        assert (await http.generate("hello")).status == 200


def test_time_limits_grow_with_text_and_length():
    limits = WorkerLimits()
    assert (
        limits.compute_job_limit_s(10, 0)
        < limits.compute_job_limit_s(5000, 0)
        < limits.compute_job_limit_s(5000, 600)
    )
    assert limits.compute_change_limit_s(0, 1, 0) < limits.compute_change_limit_s(0, 60, 0)


FOLDER = tempfile.TemporaryDirectory(prefix="jobs")


def job(text):
    shape = AudioFormat(Format.WAV, ChannelType.MONO, 8000, ())
    path = Path(FOLDER.name) / secrets.token_hex(8)
    utterance = Utterance(text, "en-US-moody", "en-US", pronunciations={})
    return SpeakJob("moody", utterance, shape, path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(plugins):
    made = WorkerPool(1, 3, WorkerLimits(memory_bytes=500 * MEBIBYTE))
    await made.start()
    yield made
    await made.close()


with_pool = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.slow
async def test_a_worker_that_is_worn_out_is_replaced_between_jobs(plugins):
    pool = WorkerPool(1, 2, WorkerLimits(jobs=3))
    await pool.start()
    (first,) = pool.list_pids()
    for n in range(7):
        reply = await pool.run(job("hello"), limit_s=60)
        assert reply.facts.audio_seconds > 0
        if n < 2:
            assert pool.list_pids() == [first]
    assert pool.replaced == 2
    assert first not in pool.list_pids()
    await pool.close()


@with_pool
async def test_a_worker_that_grew_too_large_is_replaced_after_its_answer(pool, tools):
    (first,) = pool.list_pids()
    reply = await pool.run(job("grow 600"), limit_s=60)
    assert reply.facts.memory_bytes > 600 * MEBIBYTE
    await pool.run(job("hello"), limit_s=60)
    assert not tools.alive(first)


@with_pool
async def test_a_full_queue_says_so_before_anything_is_done(pool, hold, tools):
    running = [asyncio.ensure_future(pool.run(job(hold.text), limit_s=60)) for _ in range(4)]
    await tools.until(lambda: hold.begun() and pool.count_workers()["waiting"] == 3)
    with pytest.raises(Saturated):
        pool.check_room()
    with pytest.raises(Saturated):
        await pool.run(job("hello"), limit_s=60)
    assert 0 < pool.wait_s < 10
    hold.let_go()
    await asyncio.gather(*running)
    pool.check_room()


@with_pool
async def test_a_cancelled_job_leaves_the_queue(pool, hold, tools):
    running = asyncio.ensure_future(pool.run(job(hold.text), limit_s=60))
    await tools.until(hold.begun)
    waiting = [asyncio.ensure_future(pool.run(job("hang"), limit_s=600)) for _ in range(2)]
    await tools.until(lambda: pool.count_workers()["waiting"] == 2)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert pool.count_workers()["waiting"] == 0
    hold.let_go()
    await running
    await asyncio.wait_for(pool.run(job("hello"), limit_s=60), 60)


async def test_closing_ends_the_processes_and_fails_what_is_left(plugins, tools):
    pool = WorkerPool(1, 5, WorkerLimits())
    await pool.start()
    pids = pool.list_pids()
    jobs = [asyncio.ensure_future(pool.run(job("hang"), limit_s=600)) for _ in range(3)]
    await tools.until(lambda: pool.count_workers()["waiting"] == 2)
    await pool.close()
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert all(isinstance(result, PoolClosed) for result in results)
    assert not any(map(tools.alive, pids))
    with pytest.raises(PoolClosed):
        pool.check_room()


@with_pool
async def test_the_file_of_a_job_nobody_waits_for_is_removed(pool, tmp_path, hold, tools):
    path = tmp_path / "x.wav"
    slow = replace(job(hold.text), path=path)
    task = asyncio.ensure_future(pool.run(slow, limit_s=60))
    await tools.until(hold.begun)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    hold.let_go()
    await pool.run(job("hello"), limit_s=60)
    assert not path.exists()


@with_pool
async def test_a_lost_worker_is_an_error_of_its_job(pool):
    with pytest.raises(WorkerLost):
        await pool.run(job("crash"), limit_s=60)
    assert (await pool.run(job("hello"), limit_s=60)).facts.failed is None


@with_pool
async def test_what_cannot_be_written_is_a_failure_that_says_why(pool, tmp_path):
    nowhere = replace(job("hello"), path=tmp_path / "missing" / "x.wav")
    reply = await pool.run(nowhere, limit_s=60)
    assert reply.facts.failed == "No such file or directory (FileNotFoundError)"


def test_a_worker_without_its_parent_ends_at_once(plugins, tools):
    command = [sys.executable, "-m", "speechframe.local.service.workers.main", "1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


async def test_the_log_has_a_line_a_request_without_text_or_keys(plugins, http_to, tmp_path):
    command = [
        sys.executable, "-m", "speechframe.local.service", "--port", "0", "--data", str(tmp_path), "--json",
        "--key", "secret-key:1000", "--log-level", "info", "--workers", "1", "--die-with-parent",
    ]  # fmt: skip
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    said = json.loads(await child.stdout.readline())
    http = http_to(SimpleNamespace(url=said["url"]), "secret-key")
    answer = await http.generate("text of the caller")
    await http.get("/unknown?api-key=secret-key", key="other-secret")
    _, errors = await child.communicate(b"")
    log = errors.decode()
    lines = [line for line in log.splitlines() if " trace " in line]
    assert len(lines) == 2
    assert re.search(
        r"POST /v1/speech/generate 200 [\d.]+ ms key [0-9a-f]{12} voice en-US-moody characters 18 .* trace "
        + answer.headers[chosen.TRACE_HEADER],
        lines[0],
    )
    assert "GET (unknown) 404" in lines[1]
    for secret in ("secret-key", "other-secret", "text of the caller"):
        assert secret not in log


@with_pool
async def test_keys_take_turns_and_a_full_queue_gives_up_the_last_of_who_has_most(pool, hold, tools):
    begun = []

    async def run(name, **options):
        await pool.run(job("hello"), limit_s=60, key_hash=name[:1].encode(), **options)
        begun.append(name)

    first = asyncio.ensure_future(pool.run(job(hold.text), limit_s=60, key_hash=b"a"))
    await tools.until(hold.begun)
    *long, last = [asyncio.ensure_future(run(f"a{n}")) for n in range(3)]
    await asyncio.sleep(0)
    # What belongs to a call that has begun finds a place in a full queue, too.
    stream = [asyncio.ensure_future(run(f"a{n}", under_way=True)) for n in range(3, 5)]
    await asyncio.sleep(0)
    other = asyncio.ensure_future(run("b0"))
    with pytest.raises(Saturated):
        await last
    with pytest.raises(Saturated):
        pool.check_room(b"c")
    hold.let_go()
    await asyncio.gather(first, *long, *stream, other)
    assert begun == ["b0", "a0", "a1", "a3", "a4"]
