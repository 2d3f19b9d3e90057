"""Commands make runs with the workers of a Dask scheduler."""

import json
import socket

import distributed
import pytest

from speechframe.testing import FaultyService


@pytest.mark.slow
def test_a_command_makes_a_run_with_the_workers_of_a_scheduler(here, table, tmp_path, monkeypatch):
    with FaultyService() as service:
        monkeypatch.setenv("SPEECHFRAME_API_KEY", service.api_key.get_secret_value())
        monkeypatch.setenv("SPEECHFRAME_BASE_URL", service.url)
        with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
            at = ["--executor", cluster.scheduler.address]
            words = ["--text", "line", "--voice", "nora", "--run-dir", "run", *at]
            planned = here("generate", table, *words, "--dry-run")
            assert f"speechframe resume run {' '.join(at)}" in planned.out
            assert service.books().answered == 0
            made = here("generate", table, *words, "--json")
    assert made.code == 0, made.err
    assert json.loads(made.out)["done"] == 3
    # Workers write the files from number 1,000 on.
    assert [int(path.stem) // 100_000 for path in (tmp_path / "run/parts").iterdir()] == [1]


def test_no_answer_of_a_scheduler_ends_the_command_before_anything_is_sent(
    here, table, tmp_path, monkeypatch
):
    monkeypatch.setattr("speechframe.processes.executors.CONNECT_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    refused = here("generate", table, "--text", "line", "--voice-col", "who", "--executor", address)
    assert refused.code == 5
    assert f"no Dask scheduler answers at {address}" in refused.err
    assert not (tmp_path / "speechframe-runs").exists()
    unclear = here("resume", "run", "--executor", "4")
    assert unclear.code == 2
    assert "'4' is not the address of a Dask scheduler, such as tcp://scheduler:8786" in unclear.err
