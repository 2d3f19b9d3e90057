"""Runs over the workers of an executor keep the promises of a run in one process, whoever dies."""

import json
import os
import signal
import subprocess
import sys
import time
import types
from concurrent.futures import ProcessPoolExecutor

import distributed
import fsspec
import pandas as pd
import pytest
from accounts import billed, check_audio, price, statuses, times_billed
from machines import Machines
from tones import Tones

import speechframe as spf
from forked import Program
from speechframe.testing.knobs import DEFAULT_KEY


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_API_KEY", str(DEFAULT_KEY))
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))


@pytest.fixture(scope="module")
def client():
    """Return a client of Dask with three worker processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEECHFRAME_API_KEY", str(DEFAULT_KEY))
        with (
            distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


def check_books(run, service, texts):
    """See that the ledger equals the service's books."""
    assert round(run.ledger["credits"].sum()) == billed(service, texts)


def test_three_workers_share_one_cap_and_make_every_row_once(client, services, lines, speak):
    service, texts = services(cap=8, publish_cap=True, latency=0.02), lines(300)
    run = speak(service, texts, executor=client)
    assert statuses(run) == ["done"] * len(texts)
    check_audio(run)
    books = service.books()
    assert (books.refused, {times_billed(service, text) for text in texts}) == (0, {1})
    assert 6 <= books.most_in_flight <= 8
    check_books(run, service, texts)
    assert run.progress.done == len(texts)


def test_a_killed_worker_costs_no_row_and_no_second_bill(client, services, lines, speak):
    service, texts = services(latency=0.05, cap=6, publish_cap=True, idempotent=False), lines(200)
    run = speak(service, texts, executor=client, wait=False)
    while service.books().answered < 60:
        time.sleep(0.02)
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    run.wait(60)
    found = statuses(run)
    assert set(found) <= {"done", "charged_unknown"}
    assert found.count("charged_unknown") <= 4  # two calls in flight, and two answers not written yet
    assert max(times_billed(service, text) for text in texts) == 1
    unknown = run.ledger.query("status == 'charged_unknown'")["credits"].sum()
    assert billed(service, texts) <= run.ledger["credits"].sum() <= billed(service, texts) + unknown


def test_a_pool_with_a_dead_worker_stops_the_run_and_a_new_pool_goes_on(services, lines, speak):
    service, texts = services(latency=0.05, cap=4, publish_cap=True), lines(120)
    with ProcessPoolExecutor(2) as pool:
        run = speak(service, texts, executor=pool, wait=False)
        while service.books().answered < 20:
            time.sleep(0.02)
        os.kill(next(iter(pool._processes)), signal.SIGKILL)
        with pytest.raises(spf.SpeechframeError, match=r"the executor failed .*resume\(run, executor=...\)"):
            run.wait(60)
    with ProcessPoolExecutor(2) as pool:
        run = spf.resume(run, executor=pool, service=service.settings, progress=False)
    assert statuses(run) == ["done"] * len(texts)
    assert {times_billed(service, text) for text in texts} == {1}
    check_books(run, service, texts)
    assert price(texts) == billed(service, texts)


def test_the_budget_holds_over_all_workers(client, services, lines, speak):
    service, texts = services(latency=0.01, cap=12, publish_cap=True), lines(150)
    limit = price(texts) * 2 // 3
    run = speak(service, texts, executor=client, max_credits=limit)
    assert run.stopped_because == "budget"
    assert limit - 3 * price(texts[:1]) < billed(service, texts) <= limit
    check_books(run, service, texts)
    assert run.stopped_by.needed_credits == price(texts) - billed(service, texts)


@pytest.mark.parametrize(
    "pattern",
    [
        ["ann"] + ["bob"] * 6 + ["cyd"],
        ["bob"] * 8 + ["ann"] * 2 + ["cyd"] * 6,
        ["ann"] * 20 + ["bob"] * 10 + ["cyd"] * 5 + ["dan"] * 5,
    ],
)
def test_a_budget_by_tags_holds_whatever_the_order_of_the_rows(
    client, services, lines, speak, tmp_path, pattern
):
    service, texts = services(latency=0.005, cap=12, publish_cap=True), lines(80)
    speakers = (pattern * 80)[:80]
    texts_of_ann = [text for text, speaker in zip(texts, speakers, strict=True) if speaker == "ann"]
    limit = price(texts_of_ann[:4]) + 5
    budgets = tmp_path / "budgets.toml"
    budgets.write_text(
        f'[[budget]]\nname = "of ann"\nmax_credits = {limit}\nmatch = {{who = "ann"}}\nperiod = "total"\n'
    )
    spf.configure(budgets=str(budgets))
    table = {"text": texts, "who": speakers}
    run = speak(service, pd.DataFrame(table), executor=client, tags={"who": spf.col("who")})
    spf.configure(budgets=None)
    assert run.stopped_because == "budget"
    assert limit - price(texts_of_ann[-1:]) <= billed(service, texts_of_ann) <= limit
    check_books(run, service, texts)


PROGRAM = Program("""
import json, sys
import distributed
import fsspec
import speechframe as spf
order = json.loads(sys.stdin.readline())
spf.configure(**order["settings"])
client = distributed.Client(order["scheduler"])
spf.generate(order["lines"], voice="en-US-nora", sample_rate=8000, progress=False, executor=client, **order["options"])
""")


@pytest.mark.parametrize("idempotent", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_driver_that_dies_leaves_a_run_that_goes_on_here(client, services, lines, tmp_path, idempotent):
    service, texts = services(latency=0.05, cap=6, publish_cap=True, idempotent=idempotent), lines(150)
    order = {
        "lines": texts, "scheduler": client.scheduler.address, "options": {"run_dir": str(tmp_path / "run")},
        "settings": {"base_url": service.url, "profile": service.settings.profile},
    }  # fmt: skip
    driver = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, text=True)
    driver.stdin.write(json.dumps(order) + "\n")
    driver.stdin.flush()
    while service.books().answered < 40:
        assert driver.poll() is None
        time.sleep(0.02)
    driver.kill()
    driver.wait(60)
    driver.stdin.close()
    run = spf.resume(tmp_path / "run", service=service.settings, progress=False)
    assert set(statuses(run)) == {"done"}
    assert {times_billed(service, text) for text in texts} == {1}
    check_books(run, service, texts)


@pytest.mark.parametrize("idempotent", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_machine_that_is_lost_with_its_disk_leaves_no_silent_bill(
    services, lines, speak, tmp_path, address, idempotent
):
    service, texts = services(latency=0.05, cap=6, publish_cap=True, idempotent=idempotent), lines(250)
    with Machines(tmp_path, 3) as machines:
        run = speak(service, texts, executor=machines, run_dir=address, wait=False)
        while machines.machines[0].count_unread_answers() < 4:
            time.sleep(0.01)
        machines.machines[0].kill(with_disk=True)
        run.wait(120)
    found = statuses(run)
    assert set(found) == ({"done"} if idempotent else {"done", "charged_unknown"})
    assert max(times_billed(service, text) for text in texts) == 1
    unknown = run.ledger.query("status == 'charged_unknown'")["credits"].sum()
    assert billed(service, texts) <= run.ledger["credits"].sum() <= billed(service, texts) + unknown
    files = fsspec.filesystem("s3").find(address)
    assert not [name for name in files if "/intents/" in name or "/shards/" in name]
    assert len([name for name in files if "/claims/" in name]) <= 1


def test_workers_that_cannot_make_the_run_are_named_before_anything_is_sent(
    services, lines, speak, tmp_path, monkeypatch
):
    service, texts = services(), lines(4)
    with ProcessPoolExecutor(1) as pool:
        pool.submit(os.getpid).result()
        name = "tones_of_this_process"
        module = types.ModuleType(name)
        sys.modules[name] = module
        module.LocalTones = type("LocalTones", (Tones,), {"__module__": name})
        bills = tmp_path / "bills"
        bills.touch()
        with pytest.raises(
            spf.SettingsError, match=r"a worker cannot import the backend .*tones_of_this_process"
        ):
            spf.run(
                module.LocalTones(bills), texts, run_dir=tmp_path / "tones", executor=pool, progress=False
            )
        assert bills.read_text() == ""
        with monkeypatch.context() as patch:
            patch.setattr("speechframe.scale.driver.__version__", "9.9")
            with pytest.raises(spf.RunMismatch, match=r"the run has 9\.9: install the same version"):
                speak(service, texts, executor=pool)
        other = services(keys=("another key",))
        with pytest.raises(spf.SpeechframeError, match="key"):
            speak(other, texts, executor=pool, run_dir=tmp_path / "other")
    with pytest.raises(spf.SettingsError, match="allowed: an executor"):
        speak(service, texts, executor=3)
    assert service.books().requests == other.books().requests == 0


@pytest.mark.slow
def test_every_verb_runs_over_a_pool(tmp_path, monkeypatch):
    monkeypatch.delenv("SPEECHFRAME_API_KEY")
    fixed = {"executor": ProcessPoolExecutor(2), "progress": False}
    texts = ["Good morning.", "See you soon.", "Where is the station?"]
    with fixed["executor"]:
        spoken = spf.generate(texts, voice="en-US-nora", run_dir=tmp_path / "spoken", **fixed)
        spoken = spf.resume(spoken, redo=[0], **fixed)
        made = [
            spoken,
            spf.translate(texts, targets=["pt-BR"], run_dir=tmp_path / "translated", **fixed),
            spf.change_voice(spoken, voice="en-US-miles", run_dir=tmp_path / "changed", **fixed),
            spf.transcribe(spoken, run_dir=tmp_path / "transcribed", **fixed),
        ]
    assert [statuses(run) for run in made] == [["done"] * 3] * 4
    assert [run.progress.done for run in made] == [1, 3, 3, 3]
