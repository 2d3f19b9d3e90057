"""Permits of a key that the runs of a machine share."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.rooms.scripted import Scripted, make

import speechframe as spf
from forked import Program

ALONE = Program("""
import logging, sys
sys.path.insert(0, sys.argv[1])
logging.basicConfig()
from rooms.scripted import make
print(make(sys.argv[2], ["line"]).status)
""")


class Counted(Scripted):
    """Counts its calls in flight, over all backends of one list."""

    def __init__(self, in_flight, most):
        super().__init__(spf.LaneSpec("here", f"counted {id(in_flight)}", published=2))
        self.in_flight, self.most = in_flight, most

    async def send(self, request, attempt):
        self.in_flight.append(request)
        self.most.append(len(self.in_flight))
        await asyncio.sleep(0.02)
        self.in_flight.remove(request)
        return await super().send(request, attempt)


def test_runs_of_one_process_share_too(tmp_path):
    in_flight, most = [], []
    lines = [f"line {number}" for number in range(20)]
    live = [
        make(tmp_path / str(number), lines, backend=Counted(in_flight, most), wait=False)
        for number in range(3)
    ]
    assert [run.wait().stats["done"] for run in live] == [20] * 3
    assert max(most) == 2


def test_a_folder_that_is_a_link_is_not_shared_and_the_run_goes_on_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-c", ALONE, Path(__file__).parents[1], tmp_path / "run"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("finished\n", "")
    (folder,) = tmp_path.glob("speechframe-[0-9]*")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rename(tmp_path / "another")
    folder.symlink_to(tmp_path / "another")
    command[-1] = tmp_path / "again"
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout == "finished\n"
    assert f"{folder} is a link" in said.stderr
