"""The class of docs/scale.md makes runs with the workers of Ray."""

import os
import re
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from accounts import billed, check_audio, statuses, times_billed

from speechframe.testing.knobs import DEFAULT_KEY

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def executor():
    """Return two workers of Ray through the class of the page."""
    import ray  # of the group ray, which only make test-all installs

    (block,) = [
        each for each in re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL) if "class RayExecutor" in each
    ]
    assert len(block.splitlines()) <= 20
    names = {}
    exec(block, names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEECHFRAME_API_KEY", str(DEFAULT_KEY))
        start = partial(ray.init, num_cpus=2, include_dashboard=False, logging_level="error")
        try:
            start()
        except Exception:  # noqa: BLE001 - a busy machine does not start Ray within its 30 s
            ray.shutdown()
            start()
    yield names["RayExecutor"](2)
    ray.shutdown()


def test_two_workers_share_one_cap_and_make_every_row_once(
    executor, services, lines, speak, monkeypatch, tmp_path
):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    service, texts = services(cap=8, publish_cap=True, latency=0.02), lines(200)
    run = speak(service, texts, executor=executor)
    assert statuses(run) == ["done"] * len(texts)
    check_audio(run)
    assert (service.books().refused, {times_billed(service, text) for text in texts}) == (0, {1})
    assert service.books().most_in_flight <= 8
    assert round(run.ledger["credits"].sum()) == billed(service, texts)


def test_a_killed_worker_costs_no_row(executor, services, lines, speak, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    service, texts = services(cap=8, publish_cap=True, latency=0.1), lines(200)
    pid = executor.submit(os.getpid).result()

    def kill():
        while service.books().answered < 20:
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)

    threading.Thread(target=kill).start()
    run = speak(service, texts, executor=executor)
    assert statuses(run) == ["done"] * len(texts)
    assert {times_billed(service, text) for text in texts} == {1}
