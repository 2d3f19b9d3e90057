"""A run is read while it is written: every look shows what was acknowledged before it, each call once."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from store_cases import audio_of, done, failed, key_of, sent, tried

from speechframe.old_store import Record, RunFolder, log, look, parts, writer
from speechframe.old_store.entries import FIELDS, encode_answer, sha256_of
from speechframe.old_store.live import Segment, SegmentFile
from speechframe.old_store.log import Kind

CALLS = 300


class Diary:
    """What the writer was told is kept."""

    def __init__(self, path):
        self.path = path

    def read(self):
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        statuses, attempts = {}, set()
        for number, attempt, outcome in (line.split() for line in lines):
            statuses[key_of(int(number))] = outcome
            attempts.add((key_of(int(number)), int(attempt)))
        return statuses, attempts


class Reader:
    """Looks again and again, and remembers what it saw."""

    def __init__(self, folder):
        self.run = RunFolder.open(folder)
        self.chance = random.Random(1)
        self.finished = set()

    def look(self, diary):
        acknowledged, attempts = diary.read()
        keys = self.run.keys()
        self.check(acknowledged, keys)
        index = self.run.index()
        everything = index.packed({"done", "failed", "charged_unknown"})
        assert len(everything) == len(index) == len({bytes(key) for key in everything})
        table = pa.Table.from_batches(self.run.joined(["request_key", "status"])).to_pylist()
        self.check(acknowledged, {row["request_key"]: row["status"] for row in table})
        rows = self.run.ledger().select(["request_key", "attempt"]).to_pylist()
        counted = Counter((row["request_key"], row["attempt"]) for row in rows)
        assert attempts <= set(counted)
        assert [attempt for attempt, n in counted.items() if n > 1] == []
        for key in self.chance.sample(sorted(acknowledged), min(3, len(acknowledged))):
            if acknowledged[key] == "done":
                assert self.run.clip_bytes(key) == audio_of(key)

    def check(self, acknowledged, found):
        for key, status in acknowledged.items():
            assert found.get(key) in ({"done"} if status == "done" else {"failed", "done"}), key
        finished = {key for key, status in found.items() if status == "done"}
        assert self.finished <= finished
        self.finished = finished


def start(folder, acks, first, *ways):
    script = Path(__file__).parent / "live_lab.py"
    return subprocess.Popen([sys.executable, script, folder, acks, str(first), str(CALLS), *ways])


def kill_half_way(process, acks):
    while process.poll() is None:
        if acks.exists() and acks.read_bytes().count(b"\n") > CALLS // 4:
            process.send_signal(signal.SIGKILL)
            return
        time.sleep(0.001)


def test_readers_beside_a_writer_that_is_killed_and_followed_by_another(run, add_rows, tmp_path):
    add_rows(run, [key_of(number) for number in range(2 * CALLS)])
    diary = Diary(tmp_path / "acks")
    readers = [Reader(run.path), Reader(run.path)]
    looks = 0
    for life in range(2):
        process = start(run.path, diary.path, life * CALLS, *["stays"] * (life == 0))
        killer = threading.Thread(target=kill_half_way, args=(process, diary.path))
        try:
            # From another thread: a look may take longer than the rest of the calls.
            if life == 0:
                killer.start()
            while process.poll() is None:
                readers[looks % 2].look(diary)
                looks += 1
            if life == 0:
                killer.join(60)
        finally:
            process.kill()
            process.wait(60)
        for reader in (*readers, Reader(run.path)):  # a dead writer's log is read like a living one's
            reader.look(diary)
        assert process.returncode == (-signal.SIGKILL if life == 0 else 0)
    assert looks > 5
    assert list((run.path / "log").iterdir()) == []


def test_each_call_sees_what_is_new(run, add_rows):
    add_rows(run, [key_of(0), key_of(1)])
    reader = RunFolder.open(run.path)
    with run.lock(), run.writer() as out:
        out.sent(sent(key_of(0)))
        assert reader.keys() == {}
        assert reader.ledger().num_rows == 0
        out.answer(done(key_of(0), attempts=1), tried(key_of(0)))
        assert reader.keys() == {key_of(0): "done"}
        assert reader.clip_bytes(key_of(0)) == audio_of(key_of(0))
        assert reader.row(key_of(0), ["text", "credits", "attempts"]) == {
            "text": f"text of {key_of(0)}",
            "credits": 9.5,
            "attempts": 1,
        }
        assert reader.ledger().select(["request_key", "attempt"]).to_pylist() == [
            {"request_key": key_of(0), "attempt": 1}
        ]
        statuses = [row["status"] for batch in reader.joined() for row in batch.to_pylist()]
        assert statuses == ["done", "pending"]


def test_a_record_reads_the_same_from_the_log_and_from_a_part(run):
    with run.lock(), run.writer() as out:
        out.answer(done(key_of(0)), tried(key_of(0)))
        out.answer(failed(key_of(1)), tried(key_of(1), "failed", attempt=1))
        live = [run.row(key_of(n)) for n in range(2)], run.ledger()
    assert ([run.row(key_of(n)) for n in range(2)], run.ledger()) == live


def test_what_is_being_read_stays_readable_when_its_files_go(run, add_rows):
    keys = [key_of(number) for number in range(200)]
    add_rows(run, keys)
    with run.lock(), run.writer() as out:
        for key in keys[:50]:
            out.answer(failed(key))
        out.cut()
        for key in keys[50:]:
            out.answer(done(key))
        batches = run.joined(["status", "audio", "request_key"], batch_rows=20)
        rows = next(batches).to_pylist()
        out.answer(failed(key_of(999)))
        out.answer(done(keys[0]))
        out.cut()
        assert not list(run.path.glob("log/*/0002.log"))
        rows += [row for batch in batches for row in batch.to_pylist()]
    assert [row["status"] for row in rows] == ["failed"] * 50 + ["done"] * 150
    assert [row["audio"]["bytes"] for row in rows[50:]] == [audio_of(key) for key in keys[50:]]


@pytest.mark.parametrize(
    ("room", "moment"),
    [(look, "segment_paths"), (look, "SegmentFile"), (look, "_open_failed"), (parts, "part_files")],
)
def test_a_segment_that_becomes_a_part_in_the_middle_of_a_look_is_seen_once(run, monkeypatch, room, moment):
    monkeypatch.setattr(look, "_LOOKS", 1)
    reader = RunFolder.open(run.path)
    real = getattr(room, moment)
    with run.lock(), run.writer() as out:
        out.answer(failed(key_of(0)))
        out.cut()
        out.answer(done(key_of(0)), tried(key_of(0), attempt=1))
        out.answer(done(key_of(1)), tried(key_of(1), attempt=1))
        out.answer(failed(key_of(2)), tried(key_of(2), "failed", attempt=1))
        wanted = {key_of(0): "done", key_of(1): "done", key_of(2): "failed"}
        seen = []

        def cut(*args):
            # Once before and once after: both sides of this step of a look.
            out.cut()
            found = real(*args)
            out.cut()
            return found

        monkeypatch.setattr(room, moment, cut)
        for number, ask in enumerate((reader.keys, reader.index, reader.ledger), 3):
            out.answer(done(key_of(number)), tried(key_of(number), attempt=1))
            seen.append(ask())
    keys, index, ledger = seen
    assert keys == {**wanted, key_of(3): "done"}
    assert {name: n for name, n in index.counts().items() if n} == {"done": 4, "failed": 1}
    assert ledger.num_rows == 6


def test_no_file_of_a_cut_segment_is_held(run):
    with run.lock(), run.writer() as out:
        out.answer(done(key_of(0)))
        assert run.keys()
        assert run.clip_bytes(key_of(0))
        held = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.exists()]
        assert [path for path in held if path.startswith(str(run.path)) and path.endswith(".log")] == [
            str(out._log.segment.path)
        ]


def test_without_a_log_a_look_is_not_taken_again(run):
    with run.lock(), run.writer() as out:
        out.answer(done(key_of(0)))
    time.sleep(0.2)
    assert run.index() is run.index()


MEMORY = """
import sys
sys.path.insert(0, sys.argv[3])
from peak import peak_kb
from speechframe.old_store import RunFolder

run = RunFolder.open(sys.argv[1])
run.keys()
before = peak_kb()
more = RunFolder.open(sys.argv[2])
assert len(more.keys()) == len(list(more.index().packed({"done"}))) == 120
assert more.ledger().num_rows == 120
assert sum(batch.num_rows for batch in more.joined()) == 120
print(peak_kb() - before)
"""


def test_audio_nobody_asked_for_is_not_held(tmp_path, run, add_rows):
    small = RunFolder.create(tmp_path / "small", run.manifest)
    keys = [key_of(number) for number in range(120)]
    add_rows(run, keys)
    with small.lock(), small.writer() as few, run.lock(), run.writer() as many:
        few.answer(done(key_of(0)), tried(key_of(0)))
        for key in keys:
            many.answer(done(key, size=2**20), tried(key, attempt=1))
        command = [sys.executable, "-c", MEMORY, small.path, run.path, Path(__file__).parents[1]]
        kilobytes = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert kilobytes < 60_000


@pytest.fixture
def segment(tmp_path):
    """A segment with its opening, and what a reader has of it."""
    folder = tmp_path / "w"
    folder.mkdir()
    written = log.Segment(folder / "0001.log")
    written.append(Kind.OPENING, log.encode_meta({"fields": FIELDS, "started_at": "now"}))
    yield written, Segment(written.path), SegmentFile(written.path)
    written.close()


def entry(number, body=b"RIFF"):
    """The bytes of an answer's entry."""
    meta, record, _ = encode_answer(Record(key_of(number), "done", audio_bytes=body), None)
    path = Path(tempfile.mkdtemp()) / "entry"
    one = log.Segment(path)
    one.append(Kind.ANSWER, meta, record.audio_bytes, sha256=sha256_of(record))
    one.close()
    content = path.read_bytes()
    path.unlink()
    return content


def append(written, content):
    with written.path.open("ab") as file:
        file.write(content)


def test_an_entry_shows_when_its_last_byte_is_there(segment):
    written, seen, file = segment
    content = entry(1)
    for at in range(0, len(content), 7):
        append(written, content[at : at + 7])
        seen.read_on(file)
        assert seen.keys == ([key_of(1)] if at + 7 >= len(content) else [])


def test_what_was_taken_back_is_never_seen_and_what_follows_is(segment):
    written, seen, file = segment
    append(written, entry(1)[:-3])
    seen.read_on(file)
    os.truncate(written.path, written.size)
    seen.read_on(file)
    assert seen.keys == []
    append(written, entry(2))
    seen.read_on(file)
    assert seen.keys == [key_of(2)]


def test_audio_that_looks_like_an_entry_is_none_while_it_is_being_written(segment):
    written, seen, file = segment
    content = entry(1, body=entry(666) + bytes(50))
    append(written, content[:-20])
    seen.read_on(file)
    assert seen.keys == []
    append(written, content[-20:])
    seen.read_on(file)
    assert seen.keys == [key_of(1)]


def test_entries_after_a_damaged_one_are_seen(segment):
    written, seen, file = segment
    damaged = bytearray(entry(1))
    damaged[-1] ^= 1
    append(written, bytes(damaged) + entry(2))
    seen.read_on(file)
    assert seen.keys == [key_of(2)]


def test_a_writer_that_cuts_all_the_time_does_not_stop_a_reader(run, monkeypatch):
    monkeypatch.setattr(writer, "PART_ROWS", 1)
    reader = RunFolder.open(run.path)
    with run.lock(), run.writer() as out:
        for number in range(60):
            out.answer(done(key_of(number)))
            assert len(reader.keys()) == len(reader.index()) == number + 1
