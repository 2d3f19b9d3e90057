"""What a writer that is not disturbed leaves behind."""

import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from store_cases import all_rows, audio_of, check_whole, done, failed, key_of, sent, tried

from speechframe.errors import StoreError
from speechframe.old_store import RunFolder, parts, writer
from speechframe.old_store.parts import open_part, part_files

KEYS = [key_of(i) for i in range(300)]


def statuses(run):
    return {row["request_key"]: row["status"] for row in all_rows(run)}


def test_outcomes_are_in_parts_and_failures_beside_them(run):
    with run.lock(), run.writer() as out:
        for key in KEYS[:5]:
            out.sent(sent(key))
            out.answer(done(key), tried(key))
        out.sent(sent(KEYS[5]))
        out.attempt(tried(KEYS[5], "error"))
        out.answer(failed(KEYS[5]))
        out.answer(done(KEYS[6], status="suspect"))
        assert (out.rows_written, out.bytes_written) == (7, 6 * 900)
    rows = check_whole(run)
    assert {key: row["status"] for key, row in rows.items()} == {
        **dict.fromkeys(KEYS[:5], "done"),
        KEYS[5]: "failed",
        KEYS[6]: "suspect",
    }
    assert run.keys() == statuses(run)
    assert run.ledger().num_rows == 6
    assert list((run.path / "log").iterdir()) == []


def test_a_call_that_failed_and_then_succeeded_stands_in_one_place(run):
    for first, second in [("failed", "done"), ("charged_unknown", "done"), ("failed", "charged_unknown")]:
        key = key_of(first + second)
        with run.lock():
            with run.writer() as out:
                out.answer(failed(key, first))
            with run.writer() as out:
                out.answer(done(key) if second == "done" else failed(key, second))
        assert check_whole(run)[key]["status"] == second
        assert (key in run_unknown(run)) == (second == "charged_unknown")


def run_unknown(run):
    with run.lock():
        return run.recover().unknown


def test_a_call_in_flight_when_the_writer_closes_may_have_been_billed(run):
    with run.lock(), run.writer(tags=["night"]) as out:
        out.sent(sent(KEYS[0], 2, model="gen2", voice_id="en-US-nora"))
    row = check_whole(run)[KEYS[0]]
    assert row["status"] == "charged_unknown"
    assert "may have been billed" in row["error_message"]
    (attempt,) = run.ledger().to_pylist()
    assert (attempt["status"], attempt["attempt"], attempt["credits"]) == ("charged_unknown", 2, 9.5)
    assert (attempt["credits_basis"], attempt["tags"], attempt["run_id"]) == ("unknown", ["night"], "run-1")
    assert (attempt["voice_id"], attempt["key_fingerprint"], attempt["idempotency"]) == (
        "en-US-nora",
        "fp-1",
        True,
    )
    unknown = run_unknown(run)
    assert unknown == {KEYS[0]: sent(KEYS[0], 2, model="gen2", voice_id="en-US-nora", time=attempt["time"])}


def test_an_attempt_that_ended_without_a_charge_leaves_nothing_open(run):
    with run.lock(), run.writer() as out:
        out.sent(sent(KEYS[0], 1))
        out.attempt(tried(KEYS[0], "refused", credits_millis=0, credits_basis="none"))
    assert check_whole(run) == {}
    assert [row["status"] for row in run.ledger().to_pylist()] == ["refused"]


def test_an_attempt_that_succeeded_stays_in_flight_until_its_answer_is_kept(run):
    with run.lock(), run.writer() as out:
        out.sent(sent(KEYS[0]))
        out.attempt(tried(KEYS[0], "done"))
    assert check_whole(run)[KEYS[0]]["status"] == "charged_unknown"
    assert [row["status"] for row in run.ledger().to_pylist()] == ["done"]


def test_a_second_attempt_without_word_of_the_first_leaves_two_ledger_rows(run):
    with run.lock(), run.writer() as out:
        out.sent(sent(KEYS[0], 1))
        out.sent(sent(KEYS[0], 2))
        out.answer(done(KEYS[0]), tried(KEYS[0]))
    check_whole(run)
    rows = run.ledger().sort_by("attempt").to_pylist()
    assert [(row["attempt"], row["status"]) for row in rows] == [(1, "charged_unknown"), (2, "done")]


def test_parts_and_row_groups_keep_their_sizes(run):
    with run.lock(), run.writer() as out:
        for number in range(2_048 + 70):
            out.answer(done(key_of(number), size=10))
    sizes = []
    for path in part_files(run.path):
        with open_part(path) as file:
            groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        sizes.append(sum(groups))
        assert max(groups) == 64
    assert sizes == [2_048, 70]
    assert len(check_whole(run)) == 2_048 + 70


def test_large_audio_ends_row_groups_and_parts_early(run):
    size = 9 * 2**20
    audio = audio_of(KEYS[0], size)
    with run.lock(), run.writer() as out:
        for key in KEYS[:16]:
            out.answer(done(key, audio_bytes=audio))
    rows = []
    for path in part_files(run.path):
        with open_part(path) as file:
            rows.append([file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)])
    assert rows == [[4, 4, 4, 3], [1]], "32 MB end a row group, 128 MB a part"
    assert run.clip_bytes(KEYS[15]) == audio
    shutil.rmtree(run.path)


def test_folders_that_an_archive_lost_are_made_again(run):
    for name in ("parts", "log", "attempts", "input"):
        (run.path / name).rmdir()
    assert run.keys() == {}
    assert len(run.index()) == 0
    assert run.verify() == []
    with run.lock():
        run.recover()
        run.writer().answer(done(KEYS[0]))
    assert set(check_whole(run)) == {KEYS[0]}


def test_cut_puts_what_was_acknowledged_into_parts(run):
    with run.lock(), run.writer() as out:
        out.sent(sent(KEYS[1]))
        out.answer(done(KEYS[0]))
        assert list((run.path / "parts").iterdir()) == []
        out.cut()
        assert [row["request_key"] for row in all_rows(run)] == [KEYS[0]]
        assert RunFolder.open(run.path).keys() == {KEYS[0]: "done"}
        assert run.clip_bytes(KEYS[0]) == audio_of(KEYS[0])
        out.answer(done(KEYS[1]))
        out.flush()
    assert set(check_whole(run)) == set(KEYS[:2])
    assert run.ledger().num_rows == 0


def test_calls_in_flight_are_carried_over_when_the_log_moves_on(run):
    with run.lock(), run.writer() as out:
        out.sent(sent(KEYS[0]))
        out.sent(sent(KEYS[1]))
        out.attempt(tried(KEYS[1], "done"))
        for key in KEYS[2:5]:
            out.answer(done(key))
            out.cut()
        out.answer(done(KEYS[0]), tried(KEYS[0]))
    rows = check_whole(run)
    assert rows[KEYS[0]]["status"] == "done"
    assert rows[KEYS[1]]["status"] == "charged_unknown"
    assert run.ledger().num_rows == 2


def test_a_service_that_only_refuses_does_not_fill_memory(run, monkeypatch):
    monkeypatch.setattr(writer, "SEGMENT_EVENTS", 50)
    with run.lock(), run.writer() as out:
        for attempt in range(220):
            out.sent(sent(KEYS[0], attempt))
            out.attempt(tried(KEYS[0], "refused"))
        assert len(out._tally.ledger) <= 50
    assert run.ledger().num_rows == 220
    check_whole(run)


def test_many_threads_may_write(run):
    def one(number):
        out.sent(sent(key_of(number)))
        out.answer(done(key_of(number)), tried(key_of(number)))

    with run.lock(), run.writer() as out, ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(1_000)))
    assert len(check_whole(run)) == 1_000
    assert run.ledger().num_rows == 1_000


def test_a_closed_writer_says_so(run):
    with run.lock():
        out = run.writer()
        out.close()
        out.close()
        for call in (lambda: out.answer(done(KEYS[0])), lambda: out.sent(sent(KEYS[0]))):
            with pytest.raises(StoreError, match="closed"):
                call()
    assert check_whole(run) == {}


def test_writing_needs_the_lock(run):
    with pytest.raises(StoreError, match="lock"):
        run.writer()
    with pytest.raises(StoreError, match="lock"):
        run.recover()


def test_a_run_has_one_writer_at_a_time_and_is_not_recovered_under_it(run):
    with run.lock():
        out = run.writer()
        for call in (run.writer, run.recover):
            with pytest.raises(StoreError, match="while a writer is open"):
                call()
        out.close()
        run.recover()
        run.writer().answer(done(KEYS[0]))
    with pytest.raises(StoreError, match="closed"):
        out.answer(done(KEYS[1]))
    assert check_whole(run)[KEYS[0]]["status"] == "done", "the end of the lock closes the writer"


def test_an_interrupt_between_log_and_books_keeps_the_log(run, monkeypatch):
    with run.lock():
        out = run.writer()
        out.sent(sent(KEYS[0]))

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(out._tally, "answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            out.answer(done(KEYS[0]), tried(KEYS[0]))
        with pytest.raises(StoreError, match="interrupted"):
            out.sent(sent(KEYS[1]))
        with pytest.raises(StoreError, match="interrupted"):
            out.close()
        assert run.recover().records == 1
    assert check_whole(run)[KEYS[0]]["status"] == "done"


def test_an_interrupt_while_closing_does_not_free_the_run_before_the_writer_is_done(run, monkeypatch):
    gate = threading.Event()
    real = parts.PartFile.write
    monkeypatch.setattr(parts.PartFile, "write", lambda self, records: (gate.wait(), real(self, records)))
    held = run.lock()
    held.__enter__()
    out = run.writer()
    out.answer(done(KEYS[0]))
    join = out._thread.join

    def interrupted():
        monkeypatch.setattr(out._thread, "join", join)
        raise KeyboardInterrupt

    monkeypatch.setattr(out._thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        out.close()
    assert not out.closed
    threading.Timer(0.1, gate.set).start()
    held.__exit__(None, None, None)
    assert out.closed
    assert check_whole(run)[KEYS[0]]["status"] == "done"


def test_an_interrupt_before_the_last_part_leaves_the_log(run, monkeypatch):
    with run.lock():
        out = run.writer()
        out.answer(done(KEYS[0]))
        settle = out._tally.settle

        def interrupted():
            settle()
            raise KeyboardInterrupt

        monkeypatch.setattr(out._tally, "settle", interrupted)
        with pytest.raises(KeyboardInterrupt):
            out.close()
        with pytest.raises(StoreError, match="interrupted"):
            out.close()
        assert out.closed
        assert run.recover().records == 1
    assert check_whole(run)[KEYS[0]]["status"] == "done"


def test_no_thread_is_left_behind(run):
    before = threading.active_count()
    with run.lock(), run.writer() as out:
        out.answer(done(KEYS[0]))
        assert threading.active_count() == before + 2
    assert threading.active_count() == before


def test_an_answer_waits_when_the_disk_lags_behind(run, monkeypatch):
    gate = threading.Event()
    real = parts.PartFile.write
    monkeypatch.setattr(parts.PartFile, "write", lambda self, records: (gate.wait(), real(self, records)))
    with run.lock(), run.writer() as out:
        # One batch being written, two waiting, one being filled: the next full one has to wait.
        kept = 0
        for kept in range(4 * parts.GROUP_ROWS - 1):
            out.answer(done(key_of(kept), size=5))
        last = threading.Thread(target=out.answer, args=[done(key_of(kept + 1), size=5)])
        last.start()
        last.join(0.2)
        assert last.is_alive()
        gate.set()
        last.join(60)
        assert not last.is_alive()
    assert len(check_whole(run)) == 4 * parts.GROUP_ROWS


MEMORY = """
import sys
sys.path[:0] = sys.argv[2:]
from peak import peak_kb
from store_cases import all_rows, done, key_of, manifest, sent, tried
from speechframe.old_store import RunFolder

audio = bytes(60_000)
run = RunFolder.create(sys.argv[1], manifest())
peaks = []
with run.lock(), run.writer() as out:
    for number in range(5_000):
        key = key_of(number)
        out.sent(sent(key))
        out.answer(done(key, audio_bytes=bytes(bytearray(audio)), sha256="0" * 64), tried(key))
        if number in (600, 4_999):
            peaks.append(peak_kb() // 1024)
print(*peaks)
"""


def test_memory_does_not_grow_with_rows(tmp_path):
    here = Path(__file__).parent
    command = [sys.executable, "-c", MEMORY, tmp_path / "run", here, here.parent]
    early, late = map(
        int, subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split()
    )
    assert late - early < 60, f"{early} MB after 36 MB of audio, {late} MB after 300 MB"
    assert sum(path.stat().st_size for path in (tmp_path / "run" / "parts").iterdir()) > 290_000_000
    shutil.rmtree(tmp_path / "run")
