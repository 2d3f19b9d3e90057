"""The log gives back every whole entry, and nothing else, whatever happened to its end or middle."""

import errno
import hashlib
import json
import os
import struct
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_cases import MOMENT, done, failed, key_of, sent, tried

from speechframe.old_store import CallStatus, log
from speechframe.old_store.entries import FIELDS, Decoder, encode_answer, encode_attempt, encode_sent
from speechframe.old_store.log import MAGIC, Kind, LogWriter, Segment, SegmentReader


def written(path, *entries, sealed=False):
    segment = Segment(path)
    ends = []
    for kind, meta, body in entries:
        sha256 = hashlib.sha256(body).digest() if sealed else None
        segment.append(kind, log.encode_meta(meta), body, sha256=sha256)
        ends.append(segment.size)
    segment.close()
    return ends


def read(path):
    reader = SegmentReader(path)
    return [(entry.kind, entry.meta, entry.body) for entry in reader], reader


both_ways = pytest.mark.parametrize("sealed", [False, True], ids=["one checksum", "SHA-256 of the body"])

ENTRIES = [
    (Kind.OPENING, {"writer": "w"}, b""),
    (Kind.SENT, ["key", 1], b""),
    (Kind.ANSWER, ["key", "naïve 👋"], b"RIFF" * 20),
]


@both_ways
def test_entries_come_back(tmp_path, sealed):
    written(tmp_path / "a", *ENTRIES, sealed=sealed)
    found, reader = read(tmp_path / "a")
    assert found == ENTRIES
    assert (reader.torn_bytes, reader.damaged_bytes) == (0, 0)


@both_ways
def test_a_log_cut_at_any_byte_of_its_last_entry_gives_all_entries_before_it(tmp_path, sealed):
    path = tmp_path / "a"
    ends = written(path, *ENTRIES, sealed=sealed)
    whole = path.read_bytes()
    for length in range(ends[-2], ends[-1]):
        path.write_bytes(whole[:length])
        found, reader = read(path)
        assert found == ENTRIES[:-1], length
        assert reader.torn_bytes == length - ends[-2]
    path.write_bytes(whole)
    assert read(path)[0] == ENTRIES


@pytest.mark.parametrize("tail", [bytes(4096), b"\xff" * 10, MAGIC, MAGIC + b"\x03" + b"\xff" * 200])
def test_what_a_lost_page_leaves_behind_is_no_entry(tmp_path, tail):
    path = tmp_path / "a"
    written(path, *ENTRIES)
    path.write_bytes(path.read_bytes() + tail)
    found, reader = read(path)
    assert found == ENTRIES
    assert reader.torn_bytes == len(tail)


@both_ways
def test_an_entry_damaged_in_any_byte_is_left_out_and_the_others_stay(tmp_path, sealed):
    path = tmp_path / "a"
    entries = [ENTRIES[0], ENTRIES[2], ENTRIES[1]]
    ends = written(path, *entries, sealed=sealed)
    whole = path.read_bytes()
    for i in range(ends[0], ends[1]):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x40]) + whole[i + 1 :])
        found, reader = read(path)
        assert found == [entries[0], entries[2]], i
        assert reader.damaged_bytes == ends[1] - ends[0]


def test_a_log_may_hold_entries_of_both_ways(tmp_path):
    written(tmp_path / "a", *ENTRIES)
    written(tmp_path / "b", *ENTRIES, sealed=True)
    (tmp_path / "c").write_bytes((tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes())
    assert read(tmp_path / "c")[0] == ENTRIES * 2


@both_ways
def test_audio_that_looks_like_an_entry_is_not_taken_for_one(tmp_path, sealed):
    written(tmp_path / "inner", *ENTRIES, sealed=sealed)
    inside = (tmp_path / "inner").read_bytes()
    entries = [(Kind.ANSWER, ["outer"], inside), (Kind.SENT, ["after"], b"")]
    written(tmp_path / "a", *entries, sealed=sealed)
    assert read(tmp_path / "a")[0] == entries


def test_an_empty_log_has_no_entries(tmp_path):
    (tmp_path / "a").touch()
    assert read(tmp_path / "a")[0] == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(Kind), st.lists(st.text(st.characters(codec="utf-8"))), st.binary(max_size=200)
        )
    ),
    st.booleans(),
    st.data(),
)
def test_any_cut_of_any_log_gives_a_beginning_of_it(tmp_path_factory, entries, sealed, data):
    path = tmp_path_factory.mktemp("log") / "a"
    ends = [0, *written(path, *entries, sealed=sealed)]
    length = data.draw(st.integers(0, ends[-1]))
    os.truncate(path, length)
    found, _ = read(path)
    assert found == entries[: sum(end <= length for end in ends[1:])]


def test_records_come_back_from_their_entries():
    decoder = Decoder(FIELDS)
    meta, record, row = encode_answer(done(key_of(1)), tried(key_of(1), tags=("a", "b")))
    found, found_row = decoder.answer(log.json.loads(meta), record.audio_bytes)
    assert [tuple(word) for word in found.word_durations] == record.word_durations
    found.word_durations = record.word_durations
    assert found == record
    assert (found_row.time, found_row.tags) == (row.time, ["a", "b"])
    assert (
        decoder.answer(log.json.loads(encode_answer(failed(key_of(2)), None)[0]), b"")[0].audio_bytes is None
    )
    assert decoder.sent(log.json.loads(encode_sent(sent(key_of(1)))[0])).idempotency_key
    assert decoder.ledger(log.json.loads(encode_attempt(tried(key_of(1)))[0])).credits_basis == "computed"


def test_entries_of_a_version_with_other_fields_are_read_by_name():
    decoder = Decoder({**FIELDS, "sent": ["colour", "attempt", "request_key"]})
    assert decoder.sent(["red", 2, "key"]).request_key == "key"
    assert decoder.sent(["red", 2, "key"]).attempt == 2
    assert decoder.sent(["red", 2, "key"]).lane is None


def test_every_entry_is_on_the_disk_a_quarter_of_a_second_later(tmp_path, monkeypatch):
    (tmp_path / "log").mkdir()
    sizes = []
    real = os.fdatasync

    def seen(descriptor):
        real(descriptor)
        sizes.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fdatasync", seen)
    writer = LogWriter(tmp_path / "log" / "w", {})
    try:
        for number in range(3):
            writer.append(Kind.SENT, log.encode_meta([number]))
            wait_until(lambda: sizes and sizes[-1] == writer.segment.size)
        calls = len(sizes)
        time.sleep(3 * log.SYNC_SECONDS)
        assert len(sizes) == calls, "an idle log is not synced again and again"
    finally:
        writer.close()


def test_many_entries_do_not_wait_for_the_clock(tmp_path, monkeypatch):
    (tmp_path / "log").mkdir()
    monkeypatch.setattr(log, "SYNC_SECONDS", 600.0)
    synced = []
    real = Segment.sync
    monkeypatch.setattr(Segment, "sync", lambda self: (real(self), synced.append(self.size)))
    writer = LogWriter(tmp_path / "log" / "w", {})
    for _ in range(log.SYNC_RECORDS - 1):
        writer.append(Kind.SENT, b"[]")
    time.sleep(0.05)
    assert synced == []
    writer.append(Kind.SENT, b"[]")
    wait_until(lambda: synced)
    writer.close()


def test_what_the_last_segment_held_is_synced_after_a_rotation_too(tmp_path, monkeypatch):
    (tmp_path / "log").mkdir()
    synced = set()
    real = Segment.sync
    monkeypatch.setattr(Segment, "sync", lambda self: (real(self), synced.add(self.path.name)))
    writer = LogWriter(tmp_path / "log" / "w", {})
    writer.append(Kind.SENT, b"[]")
    writer.rotate([])
    wait_until(lambda: "0001.log" in synced)
    writer.close()


def test_every_segment_is_synced_however_often_the_log_moves_on_before(tmp_path, monkeypatch):
    (tmp_path / "log").mkdir()
    synced = []
    real = Segment.sync
    monkeypatch.setattr(Segment, "sync", lambda self: (real(self), synced.append(self.path.name)))
    monkeypatch.setattr(log, "SYNC_SECONDS", 600.0)
    writer = LogWriter(tmp_path / "log" / "w", {})
    for _ in range(3):
        writer.append(Kind.SENT, b"[]")
        writer.rotate([])
    writer.sync()
    assert sorted(synced) == ["0001.log", "0002.log", "0003.log", "0004.log"]
    writer.sync()
    assert synced[4:] == ["0004.log"], "what ended is on the disk already"
    # In the background, too.
    writer.rotate([])
    writer.append(Kind.SENT, b"[]")
    writer.rotate([])
    writer.append_all([(Kind.SENT, b"[]", b"")] * log.SYNC_RECORDS)
    wait_until(lambda: {"0004.log", "0005.log", "0006.log"} <= {*synced[5:]})
    writer.close()


@pytest.mark.parametrize("together", [False, True], ids=["one", "several"])
def test_an_entry_is_never_cut_off_for_one_that_failed_before_or_after_it(tmp_path, monkeypatch, together):
    """On a disk where an entry is torn and what is torn cannot be cut off, either."""
    segment = Segment(tmp_path / "a")
    real = os.writev

    def append(meta):
        entry = (Kind.ANSWER, log.encode_meta([meta]), b"RIFF" * 20)
        segment.append_all([entry]) if together else segment.append(*entry)

    def torn(descriptor, pieces):
        real(descriptor, [b"".join(pieces)[:40]])
        raise OSError(errno.EIO, "broken")

    def broken(descriptor, length):
        raise OSError(errno.EIO, "broken")

    append("first")
    for cut in (broken, os.ftruncate):
        with monkeypatch.context() as patch:
            patch.setattr(os, "writev", torn)
            patch.setattr(os, "ftruncate", cut)
            with pytest.raises(OSError, match="broken"):
                append("lost")
        append("kept")
    found, reader = read(tmp_path / "a")
    assert [meta for _, meta, _ in found] == [["first"], ["kept"], ["kept"]]
    assert (reader.torn_bytes, reader.damaged_bytes) == (0, 40)
    assert segment.size == (tmp_path / "a").stat().st_size


def test_segments_stay_in_order_beyond_four_digits(tmp_path):
    for number in (1, 2, 9_999, 10_000):
        (tmp_path / f"{number:04d}.log").touch()
    (tmp_path / "notes.log").touch()
    assert [path.stem for path in log.segment_files(tmp_path)] == ["0001", "0002", "9999", "10000"]


def test_a_new_segments_name_is_on_the_disk_with_its_content(tmp_path, monkeypatch):
    (tmp_path / "log").mkdir()
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (real(descriptor), synced.append(os.fstat(descriptor).st_ino))
    )
    writer = LogWriter(tmp_path / "log" / "w", {})
    folder = writer.folder.stat().st_ino
    for _ in range(2):
        writer.append(Kind.SENT, b"[]")
        writer.sync()
        assert synced.count(folder) == writer.number
        writer.sync()
        assert synced.count(folder) == writer.number
        writer.rotate([])
    writer.close()


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


LIMITED = """
import resource, sys
from pathlib import Path
from speechframe.old_store.log import Kind, Segment

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
segment = Segment(Path(sys.argv[1]))
kept = 0
try:
    while True:
        segment.append(Kind.ANSWER, b"[%d]" % kept, bytes(1_000))
        kept += 1
except OSError as error:
    segment.append(Kind.SENT, b'["small"]')
    print(kept, segment.size)
"""


def test_an_entry_that_does_not_fit_leaves_the_log_as_it_was(tmp_path):
    done_ = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "a"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    kept, size = map(int, done_.stdout.split())
    found, reader = read(tmp_path / "a")
    assert kept == 9
    assert [meta for _, meta, _ in found] == [*([number] for number in range(kept)), ["small"]]
    assert (reader.torn_bytes, reader.damaged_bytes) == (0, 0)
    assert size == (tmp_path / "a").stat().st_size


def test_the_header_is_what_the_module_says(tmp_path):
    written(tmp_path / "a", (Kind.SENT, [], b"xy"))
    content = (tmp_path / "a").read_bytes()
    assert struct.unpack_from("<4sBIQ", content) == (MAGIC, Kind.SENT, 2, 2)
    assert content[-4:] == b"[]xy"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.sampled_from(CallStatus),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner),
)  # fmt: skip


@given(VALUES)
def test_json_is_the_same_with_and_without_the_faster_library(value):
    results = []
    for encode in (log.encode_meta, log._plain_encode):
        try:
            results.append(json.loads(encode(value)))
        except (UnicodeEncodeError, TypeError):
            results.append("refused")
    assert results[0] == results[1] or (results[0] == "refused" and "9223372036854775808" in str(value))


@pytest.mark.parametrize("value", ["\ud800", MOMENT, b"bytes", {1, 2}])
def test_what_json_cannot_hold_is_refused_by_both(value):
    for encode in (log.encode_meta, log._plain_encode):
        with pytest.raises((UnicodeEncodeError, TypeError)):
            encode([value])
