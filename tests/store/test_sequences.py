"""Any sequence of writing, crashing, recovering and reopening leaves what a plain dictionary says."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from store_cases import audio_of, check_whole, done, failed, key_of, manifest, sent, statuses_in, tried

from speechframe.old_store import RunFolder, log, parts, writer

KEYS = st.sampled_from([key_of(i) for i in range(12)])


class Writing(RuleBasedStateMachine):
    """A run folder beside a model of it."""

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "0"
        self.copies = 0
        RunFolder.create(self.folder, manifest())
        self.status = {}
        self.flying = {}
        self.attempts = {}  # (key, attempt) -> ledger status
        self.number = 0
        self.out = None
        self.open()

    def open(self):
        self.run = RunFolder.open(self.folder)
        self.reader = RunFolder.open(self.folder)
        self.held = self.run.lock()
        self.held.__enter__()
        found = self.run.recover()
        assert set(found.unknown) == {k for k, status in self.status.items() if status == "charged_unknown"}
        self.out = self.run.writer()

    def settle(self):
        """What recovery and close make of calls in flight."""
        for key, attempt in self.flying.items():
            self.status[key] = "charged_unknown"
            self.attempts.setdefault((key, attempt), "charged_unknown")
        self.flying = {}

    @rule(key=KEYS)
    def send(self, key):
        if self.status.get(key) in {"done", "suspect"}:
            return
        self.number += 1
        if key in self.flying:
            self.attempts.setdefault((key, self.flying[key]), "charged_unknown")
        self.out.sent(sent(key, self.number))
        self.flying[key] = self.number

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), status=st.sampled_from(["error", "refused", "done", "charged_unknown"]))
    def end_attempt(self, data, status):
        key = data.draw(st.sampled_from(sorted(self.flying)))
        if (key, self.flying[key]) in self.attempts:
            return
        self.out.attempt(tried(key, status))
        self.attempts[key, self.flying[key]] = status
        if status in {"error", "refused"}:
            del self.flying[key]

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), status=st.sampled_from(["done", "done", "suspect", "failed", "charged_unknown"]))
    def answer(self, data, status):
        key = data.draw(st.sampled_from(sorted(self.flying)))
        record = done(key, status=status) if status in {"done", "suspect"} else failed(key, status)
        row = None
        if (key, self.flying[key]) not in self.attempts:
            row = tried(key, status)
            self.attempts[key, self.flying[key]] = status
        self.out.answer(record, row)
        del self.flying[key]
        self.status[key] = status

    @rule()
    def cut(self):
        self.out.cut()

    @rule()
    def close_and_reopen(self):
        self.out.close()
        self.settle()
        self.held.__exit__(None, None, None)
        assert {key: row["status"] for key, row in check_whole(self.run).items()} == self.status
        self.open()

    @rule(torn=st.binary(max_size=40))
    def crash_and_reopen(self, torn):
        # What a SIGKILL leaves is what the files hold at that moment.
        self.out._queue.join()
        self.copies += 1
        after = self.root / str(self.copies)
        shutil.copytree(self.folder, after)
        segments = sorted(after.glob("log/*/*.log"))
        with segments[-1].open("ab") as file:
            file.write(log.MAGIC[: len(torn)] + torn)
        self.out.close()
        self.held.__exit__(None, None, None)
        shutil.rmtree(self.folder)
        self.folder = after
        self.reader = RunFolder.open(after)
        self.readers_see_what_was_acknowledged()
        self.settle()
        self.open()

    @invariant()
    def readers_see_what_was_acknowledged(self):
        # One has looked before and reads on, the other comes fresh.
        for reader in (self.reader, RunFolder.open(self.folder)):
            assert reader.keys() == self.status
            index = reader.index()
            assert len(index) == len(self.status)
            assert statuses_in(index, list(self.status)) == list(self.status.values())
            rows = reader.ledger().select(["request_key", "attempt", "status"]).to_pylist()
            assert {(r["request_key"], r["attempt"]): r["status"] for r in rows} == self.attempts
            assert len(rows) == len(self.attempts)

    @invariant()
    def clips_are_right(self):
        for key, status in self.status.items():
            found = audio_of(key) if status in {"done", "suspect"} else None
            assert self.reader.clip_bytes(key) == found

    def teardown(self):
        self.out.close()
        self.settle()
        self.held.__exit__(None, None, None)
        assert {key: row["status"] for key, row in check_whole(self.run).items()} == self.status
        ledger = {(r["request_key"], r["attempt"]): r["status"] for r in self.run.ledger().to_pylist()}
        assert ledger == self.attempts
        shutil.rmtree(self.root)


@pytest.mark.parametrize("examples", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_any_sequence_agrees_with_a_dictionary(monkeypatch, examples):
    monkeypatch.setattr(parts, "GROUP_ROWS", 2)
    monkeypatch.setattr(writer, "PART_ROWS", 4)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    run_state_machine_as_test(
        Writing,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
