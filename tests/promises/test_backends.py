"""The seam: a backend of one's own, in few lines, gets runs with all that they promise."""

import io
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import soundfile as sf
from accounts import statuses

import speechframe as spf
from forked import Program

IN_FLIGHT = 3
PROGRAM = Program("""
import sys
here, folder, bills = sys.argv[1:]
sys.path.insert(0, here)
import speechframe as spf
from tones import Tones
lines = [f"line {number}" for number in range(150)]
spf.run(Tones(bills), lines, run_dir=folder, progress=False)
""")


@pytest.fixture
def whistle(tmp_path):
    """Make a run of tones; ``whistle.backend()`` makes another backend of the same service."""
    bills = tmp_path / "bills"
    bills.touch()

    def run(table, **options):
        return spf.run(run.backend(), table, run_dir=tmp_path / "run", progress=False, **options)

    def backend():
        from tones import Tones

        return Tones(bills)

    run.backend, run.bills = backend, lambda: Counter(bills.read_text().splitlines())
    return run


def heard_hz(audio):
    samples, rate_hz = sf.read(io.BytesIO(audio))
    return np.argmax(np.abs(np.fft.rfft(samples))) * rate_hz / len(samples)


def test_it_takes_sixty_lines():
    assert issubclass(__import__("tones").Tones, spf.Backend)
    assert len(Path(__file__).with_name("tones.py").read_text().splitlines()) <= 60


def test_its_answers_are_a_run_with_clips_and_a_ledger(whistle):
    table = pd.DataFrame(
        {"id": list("abc"), "text": ["one line", "another", "one line"], "pitch_hz": [300, 500, 300]}
    )
    run = whistle(table, id="id")
    assert statuses(run) == ["done"] * 3
    assert whistle.bills() == {"one line": 1, "another": 1}
    assert sorted(run.ledger["credits"]) == [7, 8]
    assert [round(heard_hz(run.clip(name).audio), -1) for name in "abc"] == [300, 500, 300]
    assert spf.open_run(run.path).clip("b").audio == run.clip("b").audio
    assert whistle(table, id="id").estimate.calls == 0
    assert len(spf.play(run).results) == 3
    assert spf.changes(run, table, backend=whistle.backend()).credits == 0


def test_its_bad_rows_are_rows(whistle):
    with pytest.raises(
        spf.InvalidRows, match=r"row '1', pitch_hz: cannot be heard.*\n  row '2': has nothing"
    ):
        whistle(pd.DataFrame({"text": ["one", "two", None], "pitch_hz": [440, 9, 440]}))
    assert not whistle.bills()
    run = whistle(["one", "silence", "two"])
    assert statuses(run) == ["done", "failed", "done"]
    assert "nobody whistles that" in run.failed["error_message"].iloc[0]


def test_its_budget_is_kept_and_a_resume_goes_on(whistle):
    lines = [f"line {number}" for number in range(10)]
    run = whistle(lines, max_credits=25)
    assert run.stopped_because == "budget"
    assert len(whistle.bills()) == 4
    run = spf.resume(run, backend=whistle.backend(), max_credits=60, progress=False)
    assert statuses(run) == ["done"] * 10
    assert set(whistle.bills().values()) == {1}
    run = spf.resume(run, redo=[0], backend=whistle.backend(), max_credits=70, progress=False)
    assert whistle.bills()["line 0"] == 2
    assert run.ledger["credits"].sum() == 66
    backend = whistle.backend()
    spf.resume(run, backend=backend, max_answer_mb=3, progress=False)
    assert backend.max_answer_bytes == 3_000_000


def test_who_is_locked_out_of_a_folder_takes_nothing_from_the_run_that_is_planned_in_it(whistle):
    def table():
        yield from ["one"] * 10_000
        with pytest.raises(spf.RunLocked):
            whistle(["another"])
        yield "two"

    run = whistle(table())
    assert statuses(run) == ["done"] * 10_001
    assert whistle.bills() == {"one": 1, "two": 1}


def test_its_killed_run_goes_on_and_pays_nothing_twice(whistle, tmp_path):
    lines = [f"line {number}" for number in range(150)]
    here = Path(__file__).parent
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, here, tmp_path / "run", tmp_path / "bills"])
    end = time.monotonic() + 60
    while len(whistle.bills()) < 40 and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.005)
    process.kill()
    assert process.wait(60) == -9
    run = spf.resume(tmp_path / "run", backend=whistle.backend(), progress=False)
    found = statuses(run)
    assert set(found) <= {"done", "charged_unknown"}
    assert found.count("charged_unknown") <= 2 * IN_FLIGHT
    assert set(whistle.bills().values()) == {1}
    assert list(run.to_pandas()["text"]) == lines


class Scale(spf.Backend):
    """Weighs what a row holds; every column is an argument, and `load` may hold anything."""

    operation, service, columns = "weigh", "weigh/1", pa.schema([("weight", pa.int64())])
    carried = frozenset({"load"})

    def __init__(self):
        self.rows = []

    async def open(self):
        return spf.Opened((spf.LaneSpec("here", "weigh"),))

    async def close(self):
        pass

    def check(self, values):
        self.rows.append(values)
        body = values["name"].encode()
        return spf.Request(body, body, price=0)

    async def send(self, request, attempt):
        return spf.Answer(request.body)

    def records(self, request, answer):
        return [spf.Record({"weight": len(answer.data)})]

    def judge(self, request, record, learned):
        return [spf.Finding("odd", "nobody weighs that")] if request.body == b"odd" else []


def test_what_it_finds_in_an_answer_makes_its_row_suspect(tmp_path):
    run = spf.run(Scale(), {"name": ["one", "odd"]}, run_dir=tmp_path, progress=False)
    assert statuses(run) == ["done", "suspect"]
    assert list(run.to_pandas()["error_message"])[1] == "nobody weighs that"
    browser = spf.browse(run)  # its rows have no column of texts
    browser.on_open(browser.rows[1])
    assert browser.opened["fields"]["weight"] == "3"
    assert "nobody weighs that" in browser.to_html()


@pytest.mark.parametrize("loads", [[b"1", b"2"], [{"kg": 3}, 7], ["one.wav", "two.wav"]])
def test_a_column_that_it_carries_is_handed_over_with_whatever_it_holds(tmp_path, loads):
    backend = Scale()
    frame = pd.DataFrame({"name": ["one", "two"], "load": loads})
    assert statuses(spf.run(backend, frame, run_dir=tmp_path, progress=False)) == ["done", "done"]
    assert [row["load"] for row in backend.rows] == loads


def test_a_column_of_bytes_that_it_does_not_carry_only_comes_back_with_the_table(tmp_path):
    backend, frame = Scale(), pd.DataFrame({"name": ["one"], "photo": [b"\x00"]})
    run = spf.run(backend, frame, run_dir=tmp_path, progress=False)
    assert list(run.to_pandas()["photo"]) == [b"\x00"]
    assert backend.rows == [{"name": "one"}]
    assert spf.resume(run, frame, backend=Scale(), progress=False).estimate.calls == 0
