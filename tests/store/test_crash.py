"""kill -9 at any instant: what was acknowledged is there, what was in flight is known, nothing twice."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest
from store_cases import MOMENT, check_whole, done, key_of, manifest, sent, tried

from speechframe.old_store import LEDGER_SCHEMA, Record, Recovered, RunFolder
from speechframe.old_store.ledger import read_attempts
from speechframe.old_store.schema import FINISHED

SIGKILLED = -9


class Lab:
    """Starts processes that live and die in a run folder."""

    def __init__(self):
        script = Path(__file__).parent / "crash_lab.py"
        self.server = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, **request):
        self.server.stdin.write(
            json.dumps({k: str(v) if isinstance(v, Path) else v for k, v in request.items()}) + "\n"
        )
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def end(self):
        return int(self.server.stdout.readline())

    def run(self, **request):
        self.start(**request)
        return self.end()


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """What the kernel has survives a SIGKILL: not waiting for the disk, hundreds of deaths take seconds."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def lab():
    lab = Lab()
    yield lab
    lab.server.stdin.close()
    lab.server.stdout.close()
    lab.server.wait(60)


def fresh(tmp_path, name="run"):
    RunFolder.create(tmp_path / name, manifest())
    return tmp_path / name, tmp_path / f"{name}.acks"


def recovered(folder):
    run = RunFolder.open(folder)
    foreseen = standing_of(run)
    with run.lock():
        first = run.recover()
        assert foreseen == standing_of(run), "who only looked saw it as the recovery left it"
        again = run.recover()
    assert again == Recovered(unknown=first.unknown), "a second recovery finds nothing to do"
    assert list((folder / "log").iterdir()) == []
    return run, first


def standing_of(run):
    """Calls in doubt and attempts, as a planner reads them."""
    standing = run.standing()
    columns = ["request_key", "attempt", "status", "credits"]
    none = pa.schema([LEDGER_SCHEMA.field(name) for name in columns]).empty_table()
    told = pa.concat_tables([none, *read_attempts(standing.files, columns, others=standing.others)])
    finished = {key for key, status in run.keys().items() if status in FINISHED}
    unknown = {key: sent for key, sent in standing.unknown.items() if key not in finished}
    return unknown, told.sort_by([(name, "ascending") for name in columns]).to_pylist()


class Book:
    """What the folder must hold, by the diary of the processes that wrote to it."""

    def __init__(self, path):
        self.may_be = defaultdict(lambda: {(None, None)})  # key -> possible (status, attempt in flight)
        self.sent = defaultdict(set)  # key -> attempts acknowledged as sent
        self.perhaps_sent = defaultdict(set)
        self.ended = {}  # (key, attempt) -> status of its ledger row, where that was acknowledged
        lines = path.read_text().splitlines() if path.exists() else []
        for i, line in enumerate(lines):
            mark, *words = line.split()
            if mark == "!":
                self.apply(words, surely=True)
            elif mark == "?" and (i + 1 == len(lines) or not lines[i + 1].startswith("!")):
                self.apply(words, surely=False)
                self.died()
        self.died()

    def apply(self, words, *, surely):
        kind, key, attempt, *rest = words
        before = self.may_be[key]
        if kind == "sent":
            after = {(status, attempt) for status, _ in before}
            (self.sent if surely else self.perhaps_sent)[key].add(int(attempt))
        elif kind == "attempt":
            after = (
                before if rest[0] in {"done", "charged_unknown"} else {(status, None) for status, _ in before}
            )
            self.note(key, attempt, rest[0], surely=surely)
        else:
            after = {(rest[0], None)}
            if rest[1] != "-":
                self.note(key, attempt, rest[1], surely=surely)
        self.may_be[key] = after if surely else before | after

    def note(self, key, attempt, status, *, surely):
        self.ended[key, int(attempt)] = {status} if surely else {status, "charged_unknown"}

    def died(self):
        for key, states in self.may_be.items():
            self.may_be[key] = {("charged_unknown" if flying else status, None) for status, flying in states}

    def check(self, run, found):
        rows = check_whole(run)
        for key, states in self.may_be.items():
            status = rows[key]["status"] if key in rows else None
            assert status in {status for status, _ in states}, (key, states)
        assert set(rows) <= set(self.may_be)
        unknown = {key for key, row in rows.items() if row["status"] == "charged_unknown"}
        assert set(found.unknown) == unknown
        for key in unknown:
            assert found.unknown[key].idempotency_key == f"idem-{key[:4]}"
        ledger = defaultdict(dict)
        for row in run.ledger().to_pylist():
            ledger[row["request_key"]][row["attempt"]] = row["status"]
        for key in self.may_be:
            assert self.sent[key] <= set(ledger[key]) <= self.sent[key] | self.perhaps_sent[key]
            for attempt, status in ledger[key].items():
                assert status in self.ended.get((key, attempt), {"charged_unknown"}), (key, attempt)
        return rows


def test_an_undisturbed_life_agrees_with_its_diary(lab, tmp_path):
    folder, acks = fresh(tmp_path)
    assert lab.run(do="live", folder=folder, acks=acks, seed=1, calls=200, keys=60) == 0
    rows = Book(acks).check(*recovered(folder))
    assert {row["status"] for row in rows.values()} == {"done", "failed", "charged_unknown"}


def until_written(acks, pid):
    """Wait until a process writes to its diary: before, it recovers what the last one left."""
    before = acks.stat().st_size if acks.exists() else 0
    while Path(f"/proc/{pid}").exists() and not (acks.exists() and acks.stat().st_size > before):
        time.sleep(0.001)


@pytest.mark.slow
def test_killed_again_and_again_at_random_moments(lab, tmp_path):
    chance = random.Random(20300102)
    folder, acks = fresh(tmp_path)
    deaths = 0
    for life in range(1, 13):
        pid = lab.start(do="live", folder=folder, acks=acks, seed=life, calls=100_000, keys=5_000)
        if life % 3:
            until_written(acks, pid)
        time.sleep(chance.uniform(0.01, 0.25))
        subprocess.run(["kill", "-9", str(pid)], check=False)
        deaths += lab.end() == SIGKILLED
        if life % 3 == 0:
            Book(acks).check(*recovered(folder))
    assert deaths > 6
    rows = Book(acks).check(*recovered(folder))
    assert len(rows) > 10


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_each_call_into_the_system(lab, tmp_path, step):
    deaths = 0
    for die_at in range(1, 10_000, step):
        folder, acks = fresh(tmp_path, f"run{die_at}")
        ended = lab.run(do="live", folder=folder, acks=acks, seed=7, calls=16, keys=30, die_at=die_at)
        Book(acks).check(*recovered(folder))
        shutil.rmtree(folder)
        if ended == 0:
            break
        assert ended == SIGKILLED
        deaths += 1
    assert deaths > 60 // step


@pytest.mark.parametrize("seeds", [(1,), pytest.param((2, 3), marks=pytest.mark.slow)])
def test_recovery_killed_before_each_of_its_calls_into_the_system(lab, tmp_path, seeds):
    chance = random.Random(1)
    for seed in seeds:
        folder, acks = fresh(tmp_path, f"run{seed}")
        # Until the log has more than one segment, so that a death finds parts of different age.
        for life in range(20):
            lab.run(
                do="live",
                folder=folder,
                acks=acks,
                seed=seed * 100 + life,
                calls=60,
                keys=30,
                die_at=chance.randint(40, 160),
            )
            if len(list(folder.glob("log/*/*.log"))) > 1:
                break
        else:
            pytest.fail("no life left two segments")
        deaths = 0
        for die_at in range(1, 100):
            copy = tmp_path / f"copy{seed}-{die_at}"
            shutil.copytree(folder, copy)
            ended = lab.run(do="recover", folder=copy, die_at=die_at)
            # Dies once more, elsewhere, before it is let to finish.
            lab.run(do="recover", folder=copy, die_at=1 + die_at % 5)
            Book(acks).check(*recovered(copy))
            shutil.rmtree(copy)
            if ended == 0:
                break
            deaths += 1
        assert deaths > 5


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_a_log_torn_anywhere_in_its_last_entry_recovers_to_what_was_before(tmp_path, step):
    folder, _ = fresh(tmp_path)
    run = RunFolder.open(folder)
    with run.lock(), run.writer() as out:
        out.answer(done(key_of(0)), tried(key_of(0)))
        out.sent(sent(key_of(1)))
        before = out._log.segment.size
        out.answer(Record(key_of(1), "done", b"RIFF", finished_at=MOMENT), tried(key_of(1), time=MOMENT))
        shutil.copytree(folder, tmp_path / "killed")
    (segment,) = tmp_path.glob("killed/log/*/*.log")
    whole = segment.stat().st_size
    for length in [*range(before, whole, step), whole - 1, whole]:
        copy = tmp_path / f"copy{length}"
        shutil.copytree(tmp_path / "killed", copy)
        os.truncate(copy / segment.relative_to(tmp_path / "killed"), length)
        run = RunFolder.open(copy)
        with run.lock():
            found = run.recover()
        assert run.keys() == {key_of(0): "done", key_of(1): "done" if length == whole else "charged_unknown"}
        assert set(found.unknown) == ({key_of(1)} if length < whole else set())
        assert found.torn_bytes == (length - before if length < whole else 0)
        shutil.rmtree(copy)
