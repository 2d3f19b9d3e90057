"""The bench is code that nothing else runs: here every row of it runs once, as small as it can be."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]

FIGURES = {
    "U15": 2, "U2": 2, "U100": 2, "W1": 3, "W2": 2, "W3": 2, "W4": 1, "W5": 2, "E60": 6, "M1": 2, "M2": 1,
    "R1": 3, "Q1": 2, "X1": 9, "X2": 1, "QF": 2, "Q2": 1, "N1": 5, "N2": 2, "V1": 1, "D1": 2, "T1": 1,
    "S1": 1, "S2": 1, "S3": 1, "S4": 1, "S5": 1, "L1": 1,
}  # fmt: skip


def test_the_page_shows_the_rows_of_the_bench():
    # Imported here, because every process that collects tests would wait for it.
    from benchmarks.__main__ import ROWS

    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert re.findall(r"^\| ([A-Z][A-Z0-9]+) \|", page, re.MULTILINE) == list(ROWS) == list(FIGURES)


@pytest.mark.slow
@pytest.mark.parametrize("row", FIGURES)
def test_every_row_of_the_bench_ends_with_its_figures(row):
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--only", row]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = [line.split(" | ") for line in ran.stdout.splitlines() if line.startswith(f"| {row} | ")]
    assert len(lines) == FIGURES[row]
    assert all(len(cells) == 6 and cells[2] and cells[5] for cells in lines)


def test_a_resume_that_did_not_end_is_no_figure(monkeypatch):
    from benchmarks.lab import BrokenRowError, JobResult, Lab

    from benchmarks import memory

    service = SimpleNamespace(books=lambda: SimpleNamespace(requests=100))

    def measure(*, ended):
        found = JobResult(1.0, 1.0, 50.0, 60.0, 0.0, 0.0, 100, {"ended": ended})
        monkeypatch.setattr(memory, "make_long_run", lambda _lab: (service, "", found))
        monkeypatch.setattr(Lab, "run_child", lambda *_job, **_arguments: found)
        return list(memory.measure_r1(Lab(rounds=1)))

    assert len(measure(ended=True)) == FIGURES["R1"]
    with pytest.raises(BrokenRowError, match="did not end"):
        measure(ended=False)


def test_a_row_that_does_not_exist_is_named(monkeypatch, capsys):
    from benchmarks.__main__ import main

    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "U15,X9"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "the row X9 is unknown" in capsys.readouterr().err
