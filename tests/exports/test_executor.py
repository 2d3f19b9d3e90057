"""Quality and exports over an executor: the same bytes, bounded, and nothing left of what failed."""

import asyncio
import os
import pickle
import re
import signal
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor

import pandas as pd
import pytest
from distributed import LocalCluster

import speechframe as spf
from speechframe.cli.app import main
from speechframe.errors import ExportError, SettingsError
from speechframe.exports import portions

FORMATS = ["huggingface", "files", "ljspeech", "nemo", "webdataset", "srt"]


@pytest.fixture
def pool():
    with ProcessPoolExecutor(2) as pool:
        yield pool


class Watched:
    """Passes calls on to a pool, counts those in flight, and keeps their sizes in bytes."""

    def __init__(self, pool, *, kills_at=None):
        self.pool, self.kills_at, self.calls, self.sizes, self.most = pool, kills_at, [], [], 0
        self.is_full = threading.Event()

    def submit(self, *call):
        self.calls.append(self.pool.submit(*call) if self.pool else Future())
        self.sizes.append(len(pickle.dumps(call)))
        self.most = max(self.most, sum(not call.done() for call in self.calls))
        if len(self.calls) == 6:
            self.is_full.set()
        if len(self.calls) == self.kills_at:
            os.kill(next(iter(self.pool._processes)), signal.SIGKILL)
        return self.calls[-1]


def read_tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_workers_give_the_same_bytes_as_this_process_and_read_the_audio_themselves(
    corpus, service, tmp_path, pool, monkeypatch
):
    monkeypatch.setattr(portions, "_PORTION_CLIPS", 3)
    watched = Watched(pool)
    spread = {"executor": watched, "executor_workers": 2}
    pd.testing.assert_frame_equal(
        spf.quality(corpus, progress=False), spf.quality(corpus, progress=False, **spread)
    )
    runs = [corpus[0].select([f"en/{number}" for number in range(2, 10)]), corpus[1]]
    parts = spf.split(runs, {"train": 0.7, "test": 0.3})
    options = {
        "formats": FORMATS,
        "split": parts,
        "sample_rate": 16000,
        "service": service,
        "progress": False,
    }
    for place, more in (("here", {}), ("there", spread)):
        spf.export(runs, tmp_path / place / "corpus", **options, **more)
    here, there = (read_tree(tmp_path / place / "corpus") for place in ("here", "there"))
    assert here == there
    assert len(here) > 20
    assert len(watched.calls) == 6 + 5
    assert max(watched.sizes) < 8000 < sum(map(len, here.values())) / len(watched.calls)


def test_a_killed_worker_is_an_error_with_advice_and_an_earlier_export_stays(
    corpus, service, tmp_path, pool, monkeypatch
):
    monkeypatch.setattr(portions, "_PORTION_CLIPS", 1)
    options = {"service": service, "progress": False, "formats": ["files"]}
    spf.export(corpus[1], tmp_path / "out", **options)
    before = read_tree(tmp_path)
    dying = {"executor": Watched(pool, kills_at=3), "executor_workers": 2}
    with pytest.raises(ExportError, match=r"BrokenProcessPool.*no result was kept.*new executor"):
        spf.export(corpus, tmp_path / "out", **options, **dying)
    assert read_tree(tmp_path) == before
    with pytest.raises(ExportError, match="new executor"):
        spf.quality(corpus, progress=False, executor=pool)


def test_few_portions_are_in_flight_and_a_stopped_export_ends_soon(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(portions, "_PORTION_CLIPS", 1)
    stuck = Watched(None)

    async def stop():
        options = {"progress": False, "executor": stuck, "executor_workers": 3}
        task = asyncio.create_task(spf.aio.export(corpus, tmp_path / "out", **options))
        await asyncio.to_thread(stuck.is_full.wait, 20)
        await asyncio.sleep(0.1)
        task.cancel()
        since = time.monotonic()
        await asyncio.wait({task})
        return time.monotonic() - since

    assert asyncio.run(stop()) < 1
    assert stuck.most == len(stuck.calls) == sum(call.cancelled() for call in stuck.calls) == 6
    assert not (tmp_path / "out").exists()


def test_runs_that_workers_cannot_read_are_refused_by_name(corpus, service, tmp_path, monkeypatch):
    here = spf.generate(
        ["Only here."], voice="en-US-nora", service=service, run_dir="memory://here/run", progress=False
    )
    idle = Watched(None)
    for call in (spf.quality, lambda runs, **given: spf.export(runs, tmp_path / "out", **given)):
        with pytest.raises(SettingsError, match="memory://here/run: it is in the memory of this process"):
            call([corpus[0], here], progress=False, executor=idle, executor_workers=2)
        with pytest.raises(SettingsError, match="executor_workers=2 needs executor="):
            call(corpus, executor_workers=2)
    assert idle.calls == []
    run = corpus[1]
    for change, words in (
        (
            {"folder": type(run.folder)(tmp_path / "elsewhere")},
            "cannot read the run .*elsewhere.*disk that all",
        ),
        ({"folder": corpus[0].folder}, "contains another run"),
        ({"version": "0.0"}, "install the same version"),
    ):
        given = {
            "folder": run.folder,
            "manifest": run.manifest,
            "shows_last_kept": False,
            "version": spf.__version__,
        }
        with pytest.raises(SettingsError, match=words):
            portions._open_run(**given | change)


def test_the_commands_take_the_address_of_a_dask_cluster(corpus, tmp_path, capsys):
    with LocalCluster(
        n_workers=2, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0", threads_per_worker=1
    ) as cluster:
        folder, address = str(corpus[1].path), cluster.scheduler_address
        assert main(["quality", folder, "--csv", str(tmp_path / "a.csv"), "--executor", address]) in {0, 1}
        assert main(["export", folder, "--out", str(tmp_path / "out"), "--executor", address]) == 0
    assert "4 clips" in capsys.readouterr().out
    assert main(["quality", folder, "--csv", str(tmp_path / "b.csv")]) in {0, 1}
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert main(["quality", folder, "--executor", "nowhere://x"]) == 5
    assert re.search("no Dask scheduler answers at nowhere://x .*tcp://scheduler", capsys.readouterr().err)
