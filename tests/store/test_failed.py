"""``failed.parquet`` of a run whose failed calls succeed one after the other."""

import shutil

import pytest
from store_cases import all_rows, check_whole, done, failed, key_of

from speechframe.old_store import RunFolder, writer
from speechframe.old_store import failed as failed_file
from speechframe.old_store.index import KeyIndex
from speechframe.old_store.parts import open_part

CALLS = 160
CUT_ROWS = 10
KEYS = [key_of(i) for i in range(CALLS)]


@pytest.fixture
def hapless(run, monkeypatch):
    """A run whose calls all failed, some of them without anybody knowing whether they were billed."""
    with run.lock(), run.writer() as out:
        for number, key in enumerate(KEYS):
            out.answer(failed(key, "failed" if number % 9 else "charged_unknown"))
    monkeypatch.setattr(writer, "PART_ROWS", CUT_ROWS)
    return run


@pytest.fixture
def copied(monkeypatch):
    """Rows of failed.parquet that were written once more, each time it was written."""
    counts = []
    fitted = failed_file.fitted

    def counted(table, *rest):
        counts.append(table.num_rows)
        return fitted(table, *rest)

    monkeypatch.setattr(failed_file, "fitted", counted)
    return counts


def stale(run):
    """The calls that stand in failed.parquet and in a part."""
    with open_part(run.path / "parts" / "failed.parquet") as file:
        there = set(file.read(columns=["request_key"]).column(0).to_pylist())
    finished = {row["request_key"] for row in all_rows(run) if row["status"] == "done"}
    return there & finished


def test_what_is_written_grows_with_the_calls_and_not_with_their_square(hapless, copied):
    with hapless.lock(), hapless.writer() as out:
        for key in KEYS:
            out.answer(done(key))
    assert 0 < sum(copied) < CALLS
    assert {row["status"] for row in check_whole(hapless).values()} == {"done"}


def test_readers_never_see_a_call_as_failed_that_has_its_audio(hapless):
    reader, seen_stale = RunFolder.open(hapless.path), 0
    with hapless.lock(), hapless.writer() as out:
        for start in range(0, CALLS, CUT_ROWS):
            for key in KEYS[start : start + CUT_ROWS]:
                out.answer(done(key))
            out._queue.join()
            seen_stale += bool(stale(hapless))
            finished = set(KEYS[: start + CUT_ROWS])
            for run in (reader, RunFolder.open(hapless.path)):
                assert {key for key, status in run.keys().items() if status == "done"} == finished
                assert run.index().counts().get("done") == len(finished)
                assert len(run.keys()) == len(run.index()) == CALLS
                assert run.row(KEYS[start])["status"] == "done"
            assert [p.file for p in hapless.verify()] == [f"log/{out.name}/{out._log.number:04d}.log"]
    assert seen_stale > CALLS / CUT_ROWS / 2
    check_whole(hapless)


@pytest.mark.parametrize("has_log", [True, False])
def test_what_a_dead_writer_left_beside_its_parts_goes(hapless, tmp_path, has_log):
    with hapless.lock(), hapless.writer() as out:
        for key in KEYS[: CUT_ROWS * 4]:
            out.answer(done(key))
        out._queue.join()
        shutil.copytree(hapless.path, tmp_path / "left")
    left = RunFolder.open(tmp_path / "left")
    if not has_log:  # it is on another machine
        shutil.rmtree(next((left.path / "log").iterdir()))
    assert stale(left) == set(KEYS[: CUT_ROWS * 4])
    with left.lock():
        unknown = left.recover().unknown
    rows = check_whole(left)
    assert {key for key, row in rows.items() if row["status"] == "done"} == set(KEYS[: CUT_ROWS * 4])
    assert set(unknown) == {key for key, row in rows.items() if row["status"] == "charged_unknown"}
    assert len(rows) == CALLS


def test_what_may_have_been_billed_is_looked_up_at_once_and_not_one_by_one(hapless, monkeypatch):
    searches = []
    find = KeyIndex.find
    monkeypatch.setattr(KeyIndex, "find", lambda index, keys: searches.append(len(keys)) or find(index, keys))
    with hapless.lock(), hapless.writer() as out:
        out.answer(done(KEYS[0]))
        out.answer(failed(key_of("new"), "failed"))
        out.cut()
        before = sum(status == "charged_unknown" for status in RunFolder.open(hapless.path).keys().values())
        assert len(searches) < before / 2
    unknown = failed_file.read_unknown(hapless.path)
    assert len(unknown) == before == len(range(0, CALLS, 9)) - 1
    assert KEYS[0] not in unknown


def test_a_cut_that_was_asked_for_leaves_every_call_in_one_place(hapless):
    with hapless.lock(), hapless.writer() as out:
        for key in KEYS[:3]:
            out.answer(done(key))
        out.cut()
        assert not stale(hapless)


def test_a_call_that_fails_is_there_before_its_log_goes(hapless):
    with hapless.lock(), hapless.writer() as out:
        out.answer(failed(key_of("new"), "charged_unknown"))
        for key in KEYS[:CUT_ROWS]:
            out.answer(done(key))
        out._queue.join()
        assert key_of("new") in failed_file.read_unknown(hapless.path)
        assert not stale(hapless)
