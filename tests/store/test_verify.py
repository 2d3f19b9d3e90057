"""verify() finds what is not as it was answered."""

import shutil
from dataclasses import astuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_cases import audio_of, done, failed, key_of, sent, tried

from speechframe.errors import StoreError
from speechframe.old_store import Problem, footer, parts
from speechframe.old_store.ledger import ledger_files
from speechframe.old_store.parts import failed_file, part_files

KEYS = [key_of(i) for i in range(5)]


@pytest.fixture
def filled(run, add_rows):
    add_rows(run, KEYS)
    with run.lock(), run.writer() as out:
        for key in KEYS[:4]:
            out.answer(done(key), None)
        out.answer(failed(KEYS[4]))
    return run


def words(run):
    return [(problem.request_key, problem.words) for problem in run.verify()]


def test_a_whole_run_has_no_problems(filled):
    assert filled.verify() == []


def test_one_changed_bit_of_audio_is_found(filled):
    (path,) = part_files(filled.path)
    content = path.read_bytes()
    at = content.index(audio_of(KEYS[2])) + 100
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    name = f"parts/{path.name}"
    assert filled.verify() == [
        Problem(name, KEYS[2], "the audio is not what was answered: its sha256 differs")
    ]


def test_a_cut_file_is_found(filled):
    (path,) = part_files(filled.path)
    path.write_bytes(path.read_bytes()[:-100])
    ((key, said),) = words(filled)
    assert key is None
    assert "cannot be read" in said


def test_a_call_that_stands_twice_is_found(filled):
    (path,) = part_files(filled.path)
    shutil.copy(path, path.with_name("zz-0001.parquet"))
    assert words(filled) == [(key, f"stands in parts/{path.name} too") for key in KEYS[:4]]


def test_keys_in_a_footer_that_are_not_those_of_the_rows_are_found(filled, monkeypatch):
    monkeypatch.setattr(
        parts, "note", lambda keys, statuses: footer.note([key_of(n) for n in (7, 8)], statuses)
    )
    with filled.lock(), filled.writer() as out:
        out.answer(done(key_of(5)))
        out.answer(done(key_of(6)))
    assert words(filled) == [(None, "the keys in its footer are not those of its rows")]


def test_a_part_of_other_columns_is_found(filled):
    (path,) = part_files(filled.path)
    pq.write_table(pq.read_table(path).drop_columns(["sha256"]), path)
    assert words(filled) == [(None, "has no column sha256")]


@pytest.mark.parametrize("lost", ["request_key", "status", "audio"])
def test_a_part_without_what_makes_its_rows_of_use_is_found_and_not_read(filled, lost):
    (path,) = part_files(filled.path)
    pq.write_table(pq.read_table(path).drop_columns([lost]).replace_schema_metadata(), path)
    assert words(filled) == [(None, f"has no column {lost}")]
    with pytest.raises(StoreError, match=f"no column {lost}: restore it"):
        list(filled.joined(audio=True))


def test_files_of_an_earlier_version_are_whole_and_have_nothing_in_the_columns_they_lack(filled):
    with filled.lock(), filled.writer() as out:
        out.answer(failed(key_of(5)), tried(key_of(5), "refused"))
    lost = ["channels", "credits"]
    for path in (*part_files(filled.path), failed_file(filled.path)):
        table = pq.read_table(path)
        pq.write_table(table.drop_columns(lost), path)
    (path,) = ledger_files(filled.path)
    pq.write_table(pq.read_table(path).drop_columns(["idempotency", "take"]), path)
    assert filled.verify() == []
    rows = pa.Table.from_batches(filled.joined(["line", "status", "channels"]))
    assert rows.column("status").to_pylist() == ["done"] * 4 + ["failed"]
    assert rows.column("channels").null_count == 5
    assert filled.row(KEYS[0], lost) == {"channels": None, "credits": None}
    with filled.lock(), filled.writer() as out:
        out.answer(failed(key_of(6)))
    assert filled.row(KEYS[4], ["error_code", *lost]) == {
        "error_code": failed(KEYS[4]).error_code, "channels": None, "credits": None,
    }  # fmt: skip
    assert filled.row(key_of(6), ["status"]) == {"status": "failed"}


@pytest.mark.parametrize("lost", ["request_key", "status"])
def test_a_ledger_without_what_makes_its_rows_of_use_is_found_and_not_read(filled, lost):
    with filled.lock(), filled.writer() as out:
        out.attempt(tried(KEYS[0], "error"))
    (path,) = ledger_files(filled.path)
    pq.write_table(pq.read_table(path).drop_columns([lost]), path)
    assert words(filled) == [(None, f"has no column {lost}")]
    with pytest.raises(StoreError, match=f"no column {lost}: restore it"):
        filled.ledger()


def test_a_ledger_nobody_can_read_is_found(filled):
    with filled.lock(), filled.writer() as out:
        out.attempt(tried(KEYS[0], "error"))
    (path,) = ledger_files(filled.path)
    path.write_bytes(b"PAR1")
    assert "cannot be read" in words(filled)[0][1]


@pytest.fixture
def billed_part(filled):
    """A further part of `filled`, with a call that is in the ledger."""
    before = set(part_files(filled.path))
    with filled.lock(), filled.writer() as out:
        out.answer(done(key_of(5)), tried(key_of(5), "done"))
    (path,) = set(part_files(filled.path)) - before
    return path


def test_a_part_that_is_gone_is_found(filled, billed_part):
    assert filled.verify() == []
    billed_part.unlink()
    ((_, said),) = words(filled)
    assert said.startswith("1 call was answered and no part holds it")


@pytest.mark.parametrize("last", ["error", "refused"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_call_that_was_sent_once_more_and_not_answered_is_not_gone(filled, last, is_cut):
    with filled.lock(), filled.writer() as out:
        for attempt, status in ((1, "done"), (2, last)):
            out.sent(sent(key_of(6), attempt))
            out.attempt(tried(key_of(6), status))
            if is_cut:
                out.cut()
    assert filled.verify() == []


def test_calls_whose_attempts_are_gone_from_the_ledger_are_found(filled):
    before = {*part_files(filled.path), *ledger_files(filled.path)}
    with filled.lock(), filled.writer() as out:
        # What a cache had cost nothing: there is no attempt of it, and none is missed.
        out.answer(done(key_of(5), status="cached", attempts=0))
        for number in range(6, 9):
            out.answer(done(key_of(number), attempts=1), tried(key_of(number)))
    assert filled.verify() == []
    (part,) = set(part_files(filled.path)) - before
    (ledger,) = set(ledger_files(filled.path)) - before
    table = pq.read_table(ledger)
    pq.write_table(table.slice(1), ledger)
    name = f"parts/{part.name}"
    ((file, _, said),) = [astuple(problem) for problem in filled.verify()]
    assert (file, said.partition(",")[0]) == (name, "of 1 call no attempt is in the ledger")
    shutil.rmtree(filled.path / "attempts")
    ((_, said),) = words(filled)
    assert said.startswith(
        "of 3 calls no attempt is in the ledger, so what they cost is not counted: restore"
    )
    # While somebody writes, a part may be there before its file of the ledger.
    with filled.lock(), filled.writer():
        assert [problem.file.partition("/")[0] for problem in filled.verify()] == ["log"]


def test_calls_of_a_part_nobody_can_read_are_not_told_twice(filled, billed_part):
    billed_part.write_bytes(b"PAR1")
    assert len(filled.verify()) == 1


def test_a_table_with_other_rows_than_run_json_says_is_found(filled):
    path = filled.path / "input" / "0001.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    assert words(filled) == [(None, "has 4 rows, run.json says 5")]


def test_a_log_somebody_left_is_named(filled):
    with filled.lock():
        with filled.writer() as out:
            (problem,) = filled.verify()
            assert problem.file == f"log/{out.name}/0001.log"
        assert filled.verify() == []


def test_null_tables_are_read_too(filled):
    path = filled.path / "input" / "0001.parquet"
    table = pq.read_table(path).append_column("nothing", pa.nulls(5))
    pq.write_table(table, path)
    assert filled.verify() == []
