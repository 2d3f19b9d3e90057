"""The bench is code that nothing else runs: here every row of it runs once, as small as it can be."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.__main__ import main
from benchmarks.lab import BrokenRowError, JobResult
from benchmarks.memory import measure_r1

ROOT = Path(__file__).parents[2]

FIGURES = {
    "U15": 4, "U2": 4, "U100": 4, "E60": 12, "M1": 2, "M2": 1, "W1": 3, "W2": 2, "W3": 2, "W4": 1, "W5": 2,
    "R1": 3, "T1": 1, "V1": 1, "D1": 2, "S1": 1, "S2": 1, "S3": 2, "S4": 1, "S5": 1, "L1": 1, "Q1": 2,
    "Q2": 2, "QF": 7, "X1": 9, "X2": 1, "N1": 5, "N2": 3,
}  # fmt: skip


def bench(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("row", FIGURES)
def test_every_row_of_the_bench_ends_with_its_figures(row, tmp_path):
    path = tmp_path / "out.json"
    ran = bench("--tiny", "--only", row, "--json", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    figures = json.loads(path.read_text("utf-8"))["figures"]
    printed = [line.split(" | ") for line in ran.stdout.splitlines() if line.startswith(f"| {row} | ")]
    assert len(printed) == len(figures) == FIGURES[row]
    for cells, figure in zip(printed, figures, strict=True):
        assert figure["id"] == row
        assert figure["value"] is not None
        assert figure["reference"]
        assert cells[2]
        assert cells[5] == figure["reference"]


class Broken:
    """A lab whose children find every row, but whose resume ended as `ended` says."""

    rounds = 1

    def __init__(self, ended):
        self.more = {"path": "", "ended": ended}

    def limit_rows(self, full, tiny):
        return tiny

    def write_table(self, rows, characters, folder):
        return ""

    def run_service(self, **knobs):
        return nullcontext(SimpleNamespace(books=lambda: SimpleNamespace(requests=0)))

    def make_folder(self):
        return nullcontext("")

    long = False

    def run_child(self, job, service=None, **arguments):
        return JobResult(1.0, 1.0, 50.0, 60.0, 100, 0.0, self.more)


def test_a_resume_that_did_not_end_is_no_figure():
    assert len(list(measure_r1(Broken(ended=True)))) == FIGURES["R1"]
    with pytest.raises(BrokenRowError, match="did not end"):
        list(measure_r1(Broken(ended=False)))


def test_a_row_that_does_not_exist_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "U15,X9"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "the row X9 is unknown" in capsys.readouterr().err
