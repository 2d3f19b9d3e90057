"""Runs over the workers of an executor keep the promises of a run in one process, whoever dies."""

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
from accounts import billed, check_audio, price, statuses, times_billed

import speechframe as spf
from speechframe.testing.knobs import DEFAULT_KEY

distributed = pytest.importorskip("distributed", reason="never skipped: the group dev has it")


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
            distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


def find_pids(client):
    return [worker["id"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()], client.run(
        os.getpid
    )


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
    assert found.count("charged_unknown") <= 2
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
