"""Longer tests of runs over workers: stopped, lost and foreign processes, changing limits, several drivers."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import distributed
import pytest
from accounts import billed, check_audio, price, statuses, times_billed
from machines import Machines
from poison import PoisonTones, UncappedTones, UnusableTones

import speechframe as spf
from forked import Program
from speechframe.testing.knobs import DEFAULT_KEY

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_API_KEY", str(DEFAULT_KEY))
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))


def wait_for(what, timeout_s=60.0):
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, "it did not get so far"
        time.sleep(0.02)


def check(run, service, texts):
    """See that every row was made and billed once, and that the ledger equals the service's books."""
    assert set(statuses(run)) == {"done"}
    check_audio(run)
    assert {times_billed(service, text) for text in texts} == {1}
    assert round(run.ledger["credits"].sum()) == billed(service, texts) == price(texts)


def test_a_poison_row_costs_one_row(services, tmp_path):
    bills = tmp_path / "bills"
    bills.touch()
    texts = [f"line {number}" for number in range(40)]
    texts[20] = "poison"
    with Machines(tmp_path, 3, renewed=True) as machines:
        run = spf.run(PoisonTones(bills), texts, run_dir=tmp_path / "run", executor=machines, progress=False)
    found = statuses(run)
    assert found[20] == "charged_unknown"
    assert found.count("done") >= len(texts) - 4
    assert "the process that sent this call ended" in run.failed["error_message"].iloc[0]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_stopped_worker_that_is_taken_for_dead_pays_nothing_twice(
    services, lines, speak, tmp_path, idempotent
):
    service, texts = services(latency=0.05, cap=6, publish_cap=True, idempotent=idempotent), lines(200)
    with Machines(tmp_path, 3) as machines:
        first = machines.machines[0]
        run = speak(service, texts, executor=machines, wait=False)
        wait_for(lambda: service.books().answered > 40)
        os.kill(first.pid, signal.SIGSTOP)
        machines.give_up(first)
        time.sleep(3)
        os.kill(first.pid, signal.SIGCONT)
        run.wait(120)
    check(run, service, texts)


def test_a_stopped_machine_at_an_address_is_replaced(services, lines, speak, tmp_path, address):
    service, texts = services(latency=0.05, cap=6, publish_cap=True), lines(200)
    with Machines(tmp_path, 3) as machines:
        first = machines.machines[0]
        run = speak(service, texts, executor=machines, wait=False, run_dir=address)
        wait_for(lambda: first.count_unread_answers() > 4)
        os.kill(first.pid, signal.SIGSTOP)
        machines.give_up(first)
        wait_for(lambda: service.books().answered >= len(texts) - 10)
        os.kill(first.pid, signal.SIGCONT)
        run.wait(120)
        assert set(statuses(run)) == {"done"}
        assert {times_billed(service, text) for text in texts} == {1}


@pytest.mark.parametrize("seed", range(4))
def test_workers_killed_at_random_moments_cost_no_row_and_no_second_bill(
    services, lines, speak, tmp_path, seed
):
    service = services(latency=0.05, cap=12, publish_cap=True, idempotent=seed % 2 == 0, faults={"500": 0.01})
    texts, rng = lines(400), random.Random(seed)
    with Machines(tmp_path, 3, renewed=True) as machines:
        run = speak(service, texts, executor=machines, wait=False)
        for _ in range(3):
            time.sleep(rng.uniform(0.3, 1.2))
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(machines.machines).pid, signal.SIGKILL)
        run.wait(120)
    found = statuses(run)
    assert set(found) <= {"done", "charged_unknown"}
    assert max(times_billed(service, text) for text in texts) == 1
    unknown = run.ledger.query("status == 'charged_unknown'")["credits"].sum()
    assert billed(service, texts) <= run.ledger["credits"].sum() <= billed(service, texts) + unknown
    assert seed % 2 or found.count("done") == len(texts)


def test_the_number_of_workers_and_the_place_of_a_run_may_change(services, lines, speak, tmp_path):
    service, texts = services(latency=0.03, cap=6, publish_cap=True), lines(240)
    fixed = {"service": service.settings, "progress": False}
    run = speak(service, texts, wait=False)
    wait_for(lambda: service.books().answered > 40)
    run.stop()
    run.wait(60)
    for count in (2, 3):
        before = service.books().answered
        with ProcessPoolExecutor(count) as pool:
            run = spf.resume(run, executor=pool, wait=False, **fixed)
            wait_for(lambda enough=before + 40: service.books().answered > enough)
            run.stop()
            run.wait(60)
        assert run.stopped_because == "stopped"
    run = spf.resume(run, **fixed)
    check(run, service, texts)


def test_an_unknown_cap_is_learned_by_one_worker_and_handed_on(services, lines, speak, tmp_path):
    service, texts = services(latency=0.02, cap=12), lines(1500)
    with ProcessPoolExecutor(3) as pool:
        run = speak(service, texts, executor=pool)
    check(run, service, texts)
    assert service.books().refused <= 0.02 * len(texts)


def test_a_cap_that_falls_in_mid_run_is_obeyed(services, lines, speak):
    service = services(cap_plan=[(0, 12), (1.0, 4)], latency=0.03, retry_after=None, publish_cap=False)
    texts = lines(400)
    with ProcessPoolExecutor(3) as pool:
        run = speak(service, texts, executor=pool, max_concurrency=12)
    check(run, service, texts)
    assert service.books().refused <= 0.15 * len(texts)


def test_an_exhausted_quota_ends_all_shards_and_keeps_everything(services, lines, speak):
    texts = lines(300)
    service = services(latency=0.02, cap=6, publish_cap=True, quota=price(texts) // 2)
    with ProcessPoolExecutor(3) as pool:
        run = speak(service, texts, executor=pool)
    assert run.stopped_because == "quota"
    assert statuses(run).count("done") == sum(times_billed(service, text) for text in texts)
    assert round(run.ledger["credits"].sum()) == billed(service, texts)


def test_a_second_driver_is_refused_and_harms_nothing(services, lines, speak):
    service, texts = services(latency=0.05, cap=6, publish_cap=True), lines(150)
    with ProcessPoolExecutor(2) as pool, ProcessPoolExecutor(2) as other:
        run = speak(service, texts, executor=pool, wait=False)
        wait_for(lambda: service.books().answered > 20)
        with pytest.raises(spf.RunLocked):
            speak(service, texts, executor=other)
        run.wait(60)
    check(run, service, texts)


class TwiceExecutor(ProcessPoolExecutor):
    """Runs each function twice at the same time, as an engine that repeats tasks by itself may."""

    def submit(self, function, *args, **kwargs):
        super().submit(function, *args, **kwargs)
        return super().submit(function, *args, **kwargs)


def test_a_shard_that_is_made_twice_at_once_is_billed_once(services, lines, speak):
    service, texts = services(latency=0.03, cap=6, publish_cap=True, idempotent=False), lines(120)
    with TwiceExecutor(4) as pool:
        run = speak(service, texts, executor=pool, executor_workers=2)
    check(run, service, texts)


class TwiceMachines(Machines):
    """Begins each function again on another machine a second later, as Dask does after a lost connection."""

    def submit(self, function, *args):
        super().submit(function, *args)
        time.sleep(1)
        return super().submit(function, *args)


def test_a_shard_that_is_begun_again_on_another_machine_is_billed_once(
    services, lines, speak, tmp_path, address
):
    service, texts = services(latency=0.2, cap=4, publish_cap=True, idempotent=False), lines(80)
    with TwiceMachines(tmp_path, 2) as machines:
        run = speak(service, texts, executor=machines, executor_workers=1, run_dir=address)
    check(run, service, texts)


LOSING_PROGRAM = Program("""
import json, sys
from pathlib import Path
order = json.loads(sys.stdin.readline())
sys.path.insert(0, order["tests"])
from machines import Machines
import speechframe as spf
spf.configure(**order["settings"])
spf.resume(order["address"], executor=Machines(Path(order["folder"]), 1), progress=False)
""")


def test_a_machine_that_is_lost_with_its_driver_leaves_no_silent_bill(
    services, lines, speak, tmp_path, address, monkeypatch
):
    service = services(cap=8, publish_cap=True, idempotent=False, faults={"500": 1.0})
    texts = lines(40)
    run = speak(service, texts, run_dir=address, max_attempts=1)
    assert set(statuses(run)) == {"failed"}
    service.set(faults={}, latency=0.2)
    order = {
        "tests": str(Path(__file__).parent), "address": address, "folder": str(tmp_path),
        "settings": {"base_url": service.url, "profile": service.settings.profile},
    }  # fmt: skip
    driver = subprocess.Popen(
        [sys.executable, "-c", LOSING_PROGRAM], stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    driver.stdin.write(json.dumps(order) + "\n")
    driver.stdin.flush()
    wait_for(lambda: len(service.books().billed) >= 20)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(60)
    driver.stdin.close()
    shutil.rmtree(tmp_path / "machine-0")
    monkeypatch.setattr("speechframe.store.shards.SILENT_S", 4.0)
    run = spf.resume(address, service=service.settings, progress=False)
    assert set(statuses(run)) == {"done", "charged_unknown"}
    assert max(times_billed(service, text) for text in texts) == 1
    unknown = run.ledger.query("status == 'charged_unknown'")["credits"].sum()
    assert billed(service, texts) <= run.ledger["credits"].sum() <= billed(service, texts) + unknown


def test_a_lane_without_a_published_cap_uses_several_workers(tmp_path):
    bills = tmp_path / "bills"
    bills.touch()
    texts = [f"line {number}" for number in range(1200)]
    with ProcessPoolExecutor(3) as pool:
        run = spf.run(UncappedTones(bills), texts, run_dir=tmp_path / "run", executor=pool, progress=False)
    assert set(statuses(run)) == {"done"}
    calls = [line.split() for line in bills.with_suffix(".calls").read_text().splitlines()]
    calls = [(process, float(began), float(ended)) for process, began, ended in calls]
    beside_others = sum(
        any(process != other and began < end and start < ended for other, start, end in calls)
        for process, began, ended in calls
    )
    assert beside_others >= 100


def test_the_fall_back_region_gets_no_call_while_the_preferred_one_works(services, lines, tmp_path):
    service = services(latency=0.02, cap=6, regions=("global", "eu-central"))
    texts = lines(700)
    settings = replace(service.settings, regions=("eu-central",))
    with ProcessPoolExecutor(2) as pool:
        run = spf.generate(
            texts, voice="en-US-nora", sample_rate=8000, run_dir=tmp_path / "run", executor=pool,
            service=settings, progress=False,
        )  # fmt: skip
    check(run, service, texts)
    assert set(run.ledger["lane"]) == {"eu-central"}


def test_bad_rows_in_the_middle_do_not_stop_a_run_over_workers(tmp_path):
    bills = tmp_path / "bills"
    bills.touch()
    # The first shards have twelve rows. The next shards begin with bad rows.
    texts = [f"bad {number}" if 12 <= number < 90 else f"line {number}" for number in range(120)]
    with ProcessPoolExecutor(2) as pool:
        run = spf.run(UnusableTones(bills), texts, run_dir=tmp_path / "run", executor=pool, progress=False)
    found = statuses(run)
    assert run.stopped_because is None
    assert [status == "done" for status in found] == [text.startswith("line") for text in texts]


def test_outcomes_come_once_after_a_budget_was_used_up_in_parts(services, lines, speak, tmp_path):
    service, texts = services(latency=0.01, cap=12, publish_cap=True), lines(120)
    budgets = tmp_path / "budgets.toml"
    limit = price(texts) // 2 + 3
    budgets.write_text(f'[[budget]]\nname = "all"\nmax_credits = {limit}\nperiod = "total"\n')
    spf.configure(budgets=str(budgets))
    with ProcessPoolExecutor(1) as pool:  # the last shard goes to the worker again until nothing is left
        run = speak(service, texts, executor=pool, wait=False)
        times = Counter(outcome.row_id for outcome in run.outcomes())
    spf.configure(budgets=None)
    assert run.stopped_because == "budget"
    assert set(times.values()) == {1}
    assert len(times) == statuses(run).count("done") == run.progress.done


def test_audio_seconds_count_cached_rows_and_rows_of_dead_workers(services, lines, speak, tmp_path):
    service, texts = services(latency=0.05, cap=4, publish_cap=True), lines(120)
    cache = tmp_path / "cache"
    speak(service, texts[:20], cache=cache, run_dir=tmp_path / "earlier")
    with Machines(tmp_path, 2, renewed=True) as machines:
        run = speak(service, texts, cache=cache, executor=machines, wait=False)
        wait_for(lambda: service.books().answered > 70)
        os.kill(machines.machines[0].pid, signal.SIGKILL)
        run.wait(60)
    assert run.progress.cached == 20
    check_audio(run)
    assert run.progress.audio_seconds == pytest.approx(run.stats["audio_seconds"])


def test_a_put_that_fails_ends_the_run_and_nothing_is_lost(services, lines, speak, tmp_path, address, port):
    service, texts = services(latency=0.05, cap=6, publish_cap=True, idempotent=False), lines(200)
    with (
        Machines(tmp_path, 2, broken_after=20) as machines,
        pytest.raises(spf.StoreError, match="writing an intent failed"),
    ):
        speak(service, texts, executor=machines, run_dir=address)
    run = spf.resume(address, service=service.settings, progress=False)
    assert max(times_billed(service, text) for text in texts) == 1
    unknown = run.ledger.query("status == 'charged_unknown'")["credits"].sum()
    assert billed(service, texts) <= run.ledger["credits"].sum() <= billed(service, texts) + unknown


def test_ctrl_c_ends_a_run_over_a_pool_in_good_order(services, lines, tmp_path):
    service, texts = services(latency=0.05, cap=6, publish_cap=True, idempotent=False), lines(200)
    order = {
        "lines": texts, "options": {"run_dir": str(tmp_path / "run")},
        "settings": {"base_url": service.url, "profile": service.settings.profile},
    }  # fmt: skip
    driver = subprocess.Popen(
        [sys.executable, "-c", POOL_PROGRAM], stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    driver.stdin.write(json.dumps(order) + "\n")
    driver.stdin.flush()
    wait_for(lambda: service.books().answered > 40)
    os.killpg(driver.pid, signal.SIGINT)
    driver.wait(60)
    driver.stdin.close()
    run = spf.open_run(tmp_path / "run")
    assert (run.status, set(statuses(run))) == ("stopped", {"done", "pending"})
    assert round(run.ledger["credits"].sum()) == billed(service, texts)
    run = spf.resume(run, service=service.settings, progress=False)
    check(run, service, texts)


POOL_PROGRAM = Program("""
import json, sys
from concurrent.futures import ProcessPoolExecutor
import speechframe as spf
order = json.loads(sys.stdin.readline())
spf.configure(**order["settings"])
with ProcessPoolExecutor(2) as pool:
    spf.generate(order["lines"], voice="en-US-nora", sample_rate=8000, progress=False, executor=pool, **order["options"])
""")


def test_a_dead_scheduler_ends_the_run_and_a_resume_here_finishes_it(services, lines, speak):
    service, texts = services(latency=0.05, cap=6, publish_cap=True), lines(150)
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
         "--no-dashboard", "--scheduler-file", str(speak.folder / "scheduler.json")],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    file = str(speak.folder / "scheduler.json")
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", file, "--nworkers", "2",
         "--nthreads", "1", "--no-dashboard", "--death-timeout", "10"],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with distributed.Client(scheduler_file=file, timeout=60) as client:
            client.wait_for_workers(2, timeout=60)
            run = speak(service, texts, executor=client, wait=False)
            wait_for(lambda: service.books().answered > 30)
            scheduler.kill()
            with pytest.raises(spf.SpeechframeError, match="the executor failed"):
                run.wait(90)
        run = spf.resume(run, service=service.settings, progress=False)
        check(run, service, texts)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait(60)
