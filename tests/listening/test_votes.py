"""Votes on disk: there when the page is told, whatever happens to the process, and never twice."""

import itertools
import json
import math
import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from votes_lab import frame_of, vote_of

from speechframe.errors import VoteRefused
from speechframe.listening import votes
from speechframe.listening.making import make_test
from speechframe.listening.test import open_test
from speechframe.listening.votes import VoteBook, make_votes_frame
from speechframe.statistics.votes import VOTE_SCHEMA

GIVEN = {
    "ab": {"choice": "A"},
    "abx": {"answer": "B"},
    "mos": {"scores": {"A": 4}},
    "multi": {"scores": {"A": 0, "B": 100}},
}
VOTER = """
import sys
from votes_lab import vote_of
from speechframe.listening.test import open_test
test = open_test(sys.argv[1])
plan = test.plan(1)
test.reply(1, {"kind": "begin", "consent": True})
for trial in range(len(plan["trials"])):
    said = test.reply(1, vote_of(plan, trial, {"scores": {"A": 1 + trial % 5}}))
    print(said["trial"], flush=True)
    # It is killed on its way, however late.
    if trial == 60:
        sys.stdin.read()
"""


def made(folder, method="mos", **options):
    options = {"training": 1, "trials_per_listener": 4, "listeners": 2, **options}
    test = make_test(frame_of(), method, folder=folder, **options)
    assert test.reply(1, {"kind": "begin"}) == {"kind": "begun"}
    return test


@pytest.mark.parametrize("method", sorted(GIVEN))
def test_votes_have_exactly_the_columns_of_their_method(tmp_path, method):
    test = made(tmp_path / "t", method)
    for trial in (0, 1):
        said = test.reply(1, vote_of(test.plan(1), trial, GIVEN[method]))
        assert said == {"kind": "stored", "trial": trial, "reveal": None}
    found = test.votes
    assert pa.Schema.from_pandas(found, preserve_index=False).names == VOTE_SCHEMA[method].names
    assert found["training"].tolist() == [trial == 0 for trial in found["trial"]]
    assert set(found["test_id"]) == {test.test_id}
    # The votes are what the design said would be asked.
    asked = test.design.query("listener == 'listener-01' and trial < 2")
    shared = [name for name in asked.columns if name in found.columns]
    assert found[shared].to_dict("records") == asked[shared].to_dict("records")
    assert (found["voted_utc"] - found["first_play_utc"]).dt.total_seconds().unique().tolist() == [5.0]


def test_what_was_confirmed_survives_a_kill(tmp_path):
    make_test(
        frame_of(items=[f"s{k}" for k in range(40)]), "mos", folder=tmp_path / "t",
        trials_per_listener=80, training=0, listeners=1,
    )  # fmt: skip
    code = [sys.executable, "-c", VOTER, str(tmp_path / "t")]
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        code,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as voter:
        confirmed = [int(voter.stdout.readline()) for _ in range(5)]
        voter.send_signal(signal.SIGKILL)
        confirmed += [int(line) for line in voter.stdout if line.endswith("\n")]
    assert voter.returncode == -signal.SIGKILL
    test = open_test(tmp_path / "t")
    there = test.votes
    assert there["trial"].tolist()[: len(confirmed)] == confirmed
    assert len(there) - len(confirmed) in {0, 1}, "one more may be written than was said"
    assert len(there) < 80, "it was killed on its way"
    assert test.plan(1)["done"] == there["trial"].tolist()
    assert test.plan(1)["begun"]
    following = len(there)
    assert test.reply(1, vote_of(test.plan(1), following, GIVEN["mos"]))["kind"] == "stored"
    assert len(test.votes) == following + 1


def test_a_line_that_was_torn_is_left_out_and_cut_off(tmp_path):
    test = made(tmp_path / "t")
    plan = test.plan(1)
    for trial in (0, 1):
        test.reply(1, vote_of(plan, trial, GIVEN["mos"]))
    file = tmp_path / "t" / "votes" / "listener-01.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert test.votes["trial"].tolist() == [0]
    assert test.plan(1)["done"] == [0]
    assert test.reply(1, vote_of(plan, 1, {"scores": {"A": 2}}))["kind"] == "stored"
    assert test.votes["score"].tolist() == [4, 2]


DAMAGE = {
    "no JSON": lambda _: b"hello",
    "of nothing": lambda _: b'{"kind": "vote"}',
    "too many plays": lambda vote: {**vote, "plays": {"A": 2**31}},
    "more plays than any column holds": lambda vote: {**vote, "plays": {"A": 2**63}},
    "no score": lambda vote: {**vote, "scores": {}},
    "no time": lambda vote: {**vote, "voted_ms": "noon"},
    "no score of the scale": lambda vote: {**vote, "scores": {"A": 9}},
    "not a number": lambda vote: {**vote, "scores": {"A": math.nan}},
    "of another page": lambda vote: {**vote, "scores": {"B": 4}},
    "of no trial": lambda vote: {**vote, "trial": 77},
    "without a field": lambda vote: {name: value for name, value in vote.items() if name != "plays"},
    "half a character": lambda vote: {**vote, "first_play_ms": "\ud83c"},
    "a second one": lambda vote: {**vote, "trial": 0},
}


def test_a_stored_vote_that_cannot_be_read_is_set_aside_by_name_and_all_others_count(tmp_path, caplog):
    test = made(tmp_path / "t", training=0)
    test.reply(2, {"kind": "begin"})
    for listener, trial in itertools.product((1, 2), (0, 1, 2)):
        test.reply(listener, vote_of(test.plan(listener), trial, GIVEN["mos"]))
    before = test.votes
    assert (len(before), caplog.text) == (6, "")
    path = tmp_path / "t" / "votes" / "listener-01.jsonl"
    lines = path.read_bytes().splitlines()
    for name, damage in DAMAGE.items():
        damaged = damage(json.loads(lines[2]))
        line = damaged if isinstance(damaged, bytes) else json.dumps(damaged).encode()
        path.write_bytes(b"\n".join([*lines[:2], line, lines[3], b""]))
        caplog.clear()
        assert test.votes.equals(before.drop(index=1).reset_index(drop=True)), name
        assert "listener-01.jsonl, line 3 (" in caplog.text, name
        assert "5 votes" in repr(test.results)
        assert len(test.answers) == 2
    path.write_bytes(b"\n".join([*lines, b""]))
    # A file that cannot be read at all is no reason to count nobody.
    (path.parent / "listener-02.jsonl").rename(path.parent / "kept")
    (path.parent / "listener-02.jsonl").mkdir()
    assert set(test.votes["listener"]) == {"listener-01"}
    assert "listener-02.jsonl (" in caplog.text
    (path.parent / "listener-02.jsonl").rmdir()
    (path.parent / "kept").rename(path.parent / "listener-02.jsonl")
    # Who voted goes on.
    path.write_bytes(b"\n".join([*lines[:2], b"hello", lines[3], b""]))
    assert test.reply(1, vote_of(test.plan(1), 3, GIVEN["mos"]))["kind"] == "stored"
    assert len(test.votes) == 6


def test_of_votes_at_once_one_counts(tmp_path, monkeypatch):
    write = votes._write_all

    def slowly(*line):
        time.sleep(0.02)
        write(*line)

    # Between looking and writing there is time for another one.
    monkeypatch.setattr(votes, "_write_all", slowly)
    books = [VoteBook(tmp_path / "votes" / "l.jsonl") for _ in range(8)]

    def add(book):
        try:
            book.add_line({"kind": "vote", "trial": 3})
        except VoteRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(add, books)) == 1
    assert [book.read_progress() for book in books] == [(False, [3])] * 8


def test_what_could_not_be_written_is_not_confirmed_and_tells_no_path(tmp_path, monkeypatch, caplog):
    test = made(tmp_path / "t")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("speechframe.listening.votes.os.fsync", full)
    said = test.reply(1, vote_of(test.plan(1), 0, GIVEN["mos"]))
    monkeypatch.undo()
    assert said["kind"] == "refused"
    assert said["done"] is False
    assert str(tmp_path) not in json.dumps(said)
    assert "No space left" in caplog.text
    assert len(test.votes) == 0, "the file is as it was before"


def test_where_the_folder_is_gone_no_vote_is_confirmed_and_no_folder_is_made(tmp_path):
    test = made(tmp_path / "t")
    plan = test.plan(1)
    (tmp_path / "t").rename(tmp_path / "away")
    for said in (
        test.reply(1, vote_of(plan, 0, GIVEN["mos"])),
        test.reply(2, {"kind": "begin"}),
    ):
        assert (said["kind"], said["try_again"]) == ("refused", True)
    assert list(tmp_path.iterdir()) == [tmp_path / "away"]
    (tmp_path / "away").rename(tmp_path / "t")
    assert test.reply(1, vote_of(plan, 0, GIVEN["mos"]))["kind"] == "stored"


def test_what_a_test_keeps_is_for_its_owner_only(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine").chmod(0o755)
    before = os.umask(0)
    try:
        for name in ("new", "mine"):
            test = made(tmp_path / name)
            test.reply(1, vote_of(test.plan(1), 0, GIVEN["mos"]))
            test.invite(5)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o755, "a folder that was there keeps its mode"
    there = [tmp_path / "new", *(tmp_path / "new").rglob("*"), *(tmp_path / "mine").rglob("*")]
    names = {path.name for path in there}
    assert names >= {
        "test.json",
        "design.parquet",
        "secret",
        "stimuli",
        "votes",
        "listener-01.jsonl",
        "00001.wav",
    }
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in there}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_no_votes_are_a_frame_of_no_rows(tmp_path):
    test = make_test(frame_of(), "ab", folder=tmp_path / "t")
    assert list(test.votes.columns) == VOTE_SCHEMA["ab"].names
    assert len(test.votes) == 0
    assert make_votes_frame([], "mos")["score"].dtype == "float64"
