"""However a process ends, nothing is lost: kills at random moments, Ctrl-C, SIGTERM; one writer, any readers."""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from accounts import billed, check_audio, price, statuses

import speechframe as spf
from forked import Program
from speechframe.testing import Lognormal

PROGRAM = Program("""
import json, sys
import speechframe as spf
order = json.loads(sys.stdin.readline())
service = spf.Settings(base_url=order["url"], api_key=order["key"], profile=order["profile"])
try:
    run = spf.generate(order["lines"], voice="en-US-nora", sample_rate=8000, run_dir=order["folder"],
                       progress=False, max_concurrency=4, service=service)
except KeyboardInterrupt:
    print(json.dumps("KeyboardInterrupt"))
    raise SystemExit(130)
print(json.dumps([run.status, run.stopped_because]))
""")


@pytest.fixture
def program():
    """Start programs that make a run, as a person does in a terminal; none outlives the test."""
    started = []

    def start(service, lines, folder):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        order = {
            "url": service.url, "key": service.api_key.get_secret_value(), "profile": service.settings.profile,
            "lines": lines, "folder": str(folder),
        }  # fmt: skip
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(60)
        process.stdin.close()
        process.stdout.close()


def until(condition, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("honours", [False, True], ids=["plain", "idempotent"])
@pytest.mark.sampled(2)
def test_kills_at_random_moments(services, speak, lines, program, tmp_path, seed, honours):
    draw = random.Random(f"{seed} {honours}")
    service = services(
        seed=seed, idempotent=honours, limits_page=honours, latency=Lognormal(0.03), cap=8, retry_after=None,
        faults=dict.fromkeys(("500", "429", "503", "reset_after"), 0.02),
    )  # fmt: skip
    texts = lines(150)
    kills = 0
    for _ in range(6):
        process = program(service, texts, tmp_path / "run")
        before = service.books().answered
        goal = before + draw.randrange(1, 30)
        until(
            lambda goal=goal, process=process: service.books().answered >= goal or process.poll() is not None
        )
        time.sleep(draw.random() * 0.1)
        if draw.random() < 0.25:
            service.kill()
            time.sleep(draw.random() * 0.3)
            service.restart()
        process.kill()
        kills += process.wait(60) == -signal.SIGKILL
    assert kills >= 3
    service.set(faults={})
    until(lambda: not service.books().in_flight)
    run = speak(service, texts)
    check_audio(run)
    found = statuses(run)
    assert set(found) <= ({"done"} if honours else {"done", "charged_unknown"})
    unknown = [text for text, status in zip(texts, found, strict=True) if status == "charged_unknown"]
    spent, paid = run.ledger["credits"].sum(), billed(service, texts)
    assert paid <= price(texts), "a row was paid twice"
    assert paid - price(unknown) <= spent <= paid + price(unknown)
    if honours:
        assert spent == paid == price(texts)


def test_ctrl_c_lets_calls_in_flight_finish_and_returns_the_partial_run(
    services, speak, lines, program, tmp_path
):
    service = services(latency=0.5, idempotent=False, limits_page=False)
    texts = lines(40)
    process = program(service, texts, tmp_path / "run")
    until(lambda: service.books().in_flight >= 4)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert json.loads(out) == ["stopped", "interrupted"]
    run = spf.open_run(tmp_path / "run")
    found = statuses(run)
    assert set(found) == {"done", "pending"}
    done = [text for text, status in zip(texts, found, strict=True) if status == "done"]
    assert billed(service, texts) == price(done), "a call in flight was not waited for"
    service.set(latency=0)
    assert statuses(speak(service, texts)) == ["done"] * 40
    assert billed(service, texts) == price(texts)


def test_a_second_ctrl_c_cancels_calls_in_flight(services, speak, lines, program, tmp_path):
    service = services(latency=30)
    texts = lines(8)
    process = program(service, texts, tmp_path / "run")
    until(lambda: service.books().in_flight >= 4)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None, "calls in flight were not waited for"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=25)
    service.set(latency=0)
    assert statuses(speak(service, texts)) == ["done"] * 8
    assert billed(service, texts) == price(texts)


def test_sigterm_gives_calls_in_flight_time_to_finish_and_ends_the_process(
    services, speak, lines, program, tmp_path
):
    service = services(latency=0.5, idempotent=False, limits_page=False)
    texts = lines(40)
    process = program(service, texts, tmp_path / "run")
    until(lambda: service.books().in_flight >= 4)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    found = statuses(spf.open_run(tmp_path / "run"))
    assert set(found) == {"done", "pending"}
    service.set(latency=0)
    assert statuses(speak(service, texts)) == ["done"] * 40
    assert billed(service, texts) == price(texts)


def test_a_run_that_is_cancelled_while_it_takes_up_its_journal_keeps_its_lock_until_that_is_done(
    services, speak, lines, monkeypatch
):
    service = services(idempotent=False, limits_page=False)
    texts = lines(3)
    options = {"service": service.settings, "progress": False}
    folder = speak(service, texts).path
    writes, may_write, fsync = threading.Event(), threading.Event(), os.fsync

    def slow(file):
        writes.set()
        assert may_write.wait(20)
        fsync(file)

    async def cancelled_twice():
        run = asyncio.ensure_future(spf.aio.resume(folder, **options))
        assert await asyncio.to_thread(writes.wait, 20)
        for _ in range(2):
            run.cancel()
            await asyncio.wait({run}, timeout=0.2)
        with pytest.raises(spf.RunLocked):
            await spf.aio.resume(folder, **options)
        may_write.set()
        await asyncio.wait({run}, timeout=20)
        return run.cancelled()

    monkeypatch.setattr(os, "fsync", slow)
    assert asyncio.run(cancelled_twice())
    still_open = [file.resolve() for file in Path("/proc/self/fd").iterdir()]
    assert not [file for file in still_open if file.is_relative_to(folder)]
    assert statuses(spf.resume(folder, **options)) == ["done"] * 3
    assert billed(service, texts) == price(texts)


def test_a_run_that_was_killed_while_a_part_was_made_says_what_its_budget_leaves(
    services, speak, lines, program, tmp_path
):
    service = services(latency=0.05)
    texts = lines(40)
    process = program(service, texts, tmp_path / "run")
    until(lambda: service.books().answered >= 12)
    process.kill()
    process.wait(60)
    killed = shutil.copytree(tmp_path / "run", tmp_path / "killed")
    run = speak(service, texts)
    # A part has its name before the ledger of its calls has.
    (killed / "parts").mkdir()
    shutil.copy(run.part_files[0], killed / "parts")
    before = billed(service, texts)
    options = {"max_credits": price(texts), "service": service.settings, "progress": False}
    planned = spf.resume(killed, dry_run=True, **options).estimate
    assert 8 <= planned.finished < len(texts)
    assert planned.budget == price(texts) - spf.open_run(killed).ledger["credits"].sum()
    assert billed(service, texts) == before


def test_a_run_has_one_writer_and_any_readers_while_it_grows(services, speak, lines, program, tmp_path):
    service = services(latency=0.05)
    texts = lines(120)
    process = program(service, texts, tmp_path / "run")
    until(lambda: service.books().answered >= 12)
    with pytest.raises(spf.RunLocked):
        speak(service, texts)
    seen = []
    while process.poll() is None:
        run = spf.open_run(tmp_path / "run")
        check_audio(run)
        seen.append(statuses(run).count("done"))
    assert seen == sorted(seen)
    assert len(set(seen)) >= 3, "readers saw nothing of what was under way"
    assert statuses(spf.open_run(tmp_path / "run")) == ["done"] * 120


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_free(services, speak, lines, program, tmp_path):
    service = services(latency=0.2)
    texts = lines(12)
    process = program(service, texts, tmp_path / "run")
    until(lambda: service.books().answered >= 2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    assert statuses(speak(service, texts)) == ["done"] * 12
    assert billed(service, texts) == price(texts)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_wait_that_the_service_asked_of_a_row_outlives_the_process(
    services, speak, lines, program, tmp_path, end
):
    service = services(idempotent=False, limits_page=False, latency=0.02)
    texts = lines(60)
    service.set(scripts={text: ["429:2"] for text in texts[:24:3]})
    process = program(service, texts, tmp_path / "run")
    until(lambda: service.books().statuses.get(429, 0) >= 8)
    process.send_signal(end)
    process.wait(60)
    run = speak(service, texts)
    assert {*statuses(run)} <= {"done", "charged_unknown"}
    assert "done" in statuses(run)[:24:3]
    assert service.books().early_retries == 0


def test_a_row_that_is_to_wait_for_longer_than_its_patience_is_not_sent(services, speak, lines):
    service = services(limits_page=False)
    texts = lines(4)
    service.set(scripts={texts[1]: ["429:600", "..."]})
    assert statuses(speak(service, texts, patience_s=5)) == ["done", "failed", "done", "done"]
    before = service.books().requests
    run = speak(service, texts, patience_s=5)
    assert service.books().requests == before
    assert (run.status, run.stopped_because) == ("stopped", "unreachable")
    assert "the service accepts 1 row only from" in run.describe_state()
