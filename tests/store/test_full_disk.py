"""A folder that takes no more says so, by name; what was acknowledged is there afterwards."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from store_cases import TABLE_SCHEMA, check_whole, done, key_of, manifest, sent, table_batch, tried

from speechframe.errors import StoreError
from speechframe.old_store import RunFolder, files, writer

LIMITED = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from store_cases import done, key_of, sent, tried
from speechframe.errors import StoreError
from speechframe.old_store import RunFolder

run = RunFolder.open(sys.argv[1])
kept = 0
# No file may grow beyond this: a disk that is full, for any user and on any file system.
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    with run.lock(), run.writer() as out:
        while True:
            key = key_of(kept)
            out.sent(sent(key))
            out.answer(done(key, size=20_000), tried(key))
            kept += 1
except StoreError as error:
    print(kept, error)
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", [300_000, 3_000_000])
def test_a_full_disk_keeps_what_was_acknowledged(run, limit):
    command = [sys.executable, "-c", LIMITED, run.path, Path(__file__).parent, str(limit)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    kept = int(said.split()[0])
    assert kept >= limit // 21_000 - 1
    assert str(run.path) in said
    assert "make room and run again" in said
    run = RunFolder.open(run.path)
    with run.lock():
        found = run.recover()
    rows = check_whole(run)
    assert sum(row["status"] == "done" for row in rows.values()) == kept
    assert set(found.unknown) == {key_of(kept)}, "the answer that did not fit may have been billed"
    assert run.ledger().num_rows == kept + 1


def test_no_call_is_begun_without_room_for_its_answer(run, monkeypatch):
    with run.lock(), run.writer() as out:
        out.sent(sent(key_of(0)))
        monkeypatch.setattr(writer, "LEAST_FREE_BYTES", 2**62)
        with pytest.raises(StoreError, match=r"MB are free.*no call is made"):
            send_many(out)
        out.answer(done(key_of(0)), tried(key_of(0)))
    assert check_whole(run)[key_of(0)]["status"] == "done"


def send_many(out):
    for number in range(1, 100):
        out.sent(sent(key_of(number)))


def test_parts_that_cannot_be_written_stop_new_calls_and_keep_the_answers_of_old_ones(run):
    parts_folder = run.path / "parts"
    with run.lock():
        out = run.writer()
        parts_folder.rmdir()
        parts_folder.touch()  # a file in the folder's place refuses any user
        for number in range(3):
            out.sent(sent(key_of(number)))
        out.answer(done(key_of(0)), tried(key_of(0)))
        with pytest.raises(StoreError, match="writing parts failed"):
            out.cut()
        with pytest.raises(StoreError, match="writing parts failed"):
            out.sent(sent(key_of(3)))
        # These two are paid for: the log still takes them.
        out.answer(done(key_of(1)), tried(key_of(1)))
        out.attempt(tried(key_of(2), "error"))
        with pytest.raises(StoreError, match=str(run.path)):
            out.close()
        with pytest.raises(StoreError, match="recovering the run failed"):
            run.recover()
    parts_folder.unlink()
    parts_folder.mkdir()
    with run.lock():
        assert run.recover().records == 2
    assert {key: row["status"] for key, row in check_whole(run).items()} == dict.fromkeys(
        map(key_of, range(2)), "done"
    )
    assert run.ledger().num_rows == 3


def test_a_log_that_cannot_go_on_stops_new_calls_and_loses_nothing(run):
    with run.lock():
        out = run.writer()
        out.sent(sent(key_of(0)))
        (run.path / "log" / out.name / "0002.log").mkdir()  # the next segment cannot be made
        out.answer(done(key_of(0)), tried(key_of(0)))
        with pytest.raises(StoreError, match="segment of the log failed"):
            out.cut()
        out.answer(done(key_of(1)))
        with pytest.raises(StoreError):
            out.close()
        (run.path / "log" / out.name / "0002.log").rmdir()
        run.recover()
    assert set(check_whole(run)) == {key_of(0), key_of(1)}


@pytest.mark.parametrize("where", ["{tmp}/file/run", "/proc/speechframe-run"])
def test_a_folder_that_cannot_be_made_says_so(tmp_path, where):
    (tmp_path / "file").touch()
    path = where.format(tmp=tmp_path)
    with pytest.raises(StoreError, match=rf"{path}: making the run folder failed .*choose another run_dir"):
        RunFolder.create(path, manifest())


def test_a_table_that_does_not_fit_says_so(run):
    (run.path / "input").rmdir()
    (run.path / "input").touch()
    with pytest.raises(StoreError, match=r"writing the table failed"), run.add_table(TABLE_SCHEMA) as table:
        table.write(table_batch([key_of(1)]))
    assert run.tables() == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device.*make room and run again"),
        (errno.EDQUOT, ".*quota.*make room"),
        (errno.EROFS, "Read-only file system.*make the folder writable, or choose another run_dir"),
        (errno.EACCES, "Permission denied.*make the folder writable"),
        (errno.ENOTDIR, "Not a directory.*choose another run_dir"),
        (errno.EIO, ".*Input/output error.*everything that was acknowledged"),
    ],
)
def test_the_words_say_what_to_do(number, words):
    with (
        pytest.raises(StoreError, match=rf"^/runs/a: writing failed \({words}"),
        files.storing(Path("/runs/a"), "writing"),
    ):
        raise OSError(number, os.strerror(number))
