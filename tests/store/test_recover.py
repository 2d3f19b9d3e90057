"""Logs that no orderly life leaves: several dead writers, the same call twice, a damaged middle."""

import os
import shutil

from store_cases import audio_of, check_whole, done, failed, key_of, manifest, sent, tried

from speechframe.old_store import Recovered, RunFolder

A, B, C = map(key_of, range(3))


def dead_log(tmp_path, name, *records):
    """The log folder of a writer that was killed after these records."""
    run = RunFolder.create(tmp_path / f"life-{name}", manifest())
    with run.lock(), run.writer() as out:
        for number, record in enumerate(records):
            out.sent(sent(record.request_key, attempt=100 * ord(name[0]) + number))
            out.answer(record, tried(record.request_key, record.status))
        out.flush()
        shutil.copytree(run.path / "log" / out.name, tmp_path / name)
    return tmp_path / name


def recovered(run, *logs):
    for path in logs:
        path.rename(run.path / "log" / path.name)
    with run.lock():
        found = run.recover()
    return found, {key: row["status"] for key, row in check_whole(run).items()}


def test_a_run_without_logs_has_nothing_to_recover(run):
    assert recovered(run) == (Recovered(), {})


def test_the_later_of_two_dead_writers_has_the_last_word(run, tmp_path):
    first = dead_log(tmp_path, "z-first", failed(A, "charged_unknown"), failed(B))
    second = dead_log(tmp_path, "a-second", failed(A), done(B))
    found, status = recovered(run, first, second)
    assert status == {A: "failed", B: "done"}
    assert found.unknown == {}
    assert (found.records, run.ledger().num_rows) == (4, 4)


def test_a_call_two_writers_finished_stands_once(run, tmp_path):
    with run.lock(), run.writer() as out:
        out.answer(done(A))
    first = dead_log(tmp_path, "b", done(A), done(B))
    second = dead_log(tmp_path, "c", done(B), done(C), done(C))
    _, status = recovered(run, first, second)
    assert status == dict.fromkeys([A, B, C], "done")


def test_a_call_with_audio_is_not_failed_by_a_later_attempt(run, tmp_path):
    with run.lock(), run.writer() as out:
        out.answer(done(A))
    _, status = recovered(run, dead_log(tmp_path, "b", failed(A), done(B), failed(B)))
    assert status == {A: "done", B: "done"}
    assert run.clip_bytes(A) == audio_of(A)


def test_answers_behind_a_damaged_stretch_are_kept(run, tmp_path):
    path = dead_log(tmp_path, "b", done(A), done(B), done(C))
    content = bytearray((path / "0001.log").read_bytes())
    at = content.index(audio_of(B)) + 10
    content[at : at + 50] = bytes(50)
    (path / "0001.log").write_bytes(content)
    found, status = recovered(run, path)
    assert status == {A: "done", B: "charged_unknown", C: "done"}
    assert found.damaged_bytes > 900
    assert set(found.unknown) == {B}


def test_audio_whose_last_page_never_came_to_the_disk_is_not_taken_for_whole(run, tmp_path):
    path = dead_log(tmp_path, "b", done(A), done(B))
    log = path / "0001.log"
    # The length is there, as a file system gives it, and zeros where the end of the audio was to be.
    log.write_bytes(log.read_bytes()[:-200] + bytes(200))
    found, status = recovered(run, path)
    assert status == {A: "done", B: "charged_unknown"}
    assert (set(found.unknown), found.records) == ({B}, 1)
    assert found.torn_bytes > 900


def test_a_record_that_names_no_sha256_of_its_audio_is_kept_all_the_same(run, tmp_path):
    path = dead_log(tmp_path, "b", done(A, sha256="unknown"), done(B, sha256=""))
    path.rename(run.path / "log" / path.name)
    with run.lock():
        assert run.recover().records == 2
    assert [run.clip_bytes(key) for key in (A, B)] == [audio_of(A), audio_of(B)]


def test_a_log_whose_beginning_is_lost_is_read_nevertheless(run, tmp_path):
    path = dead_log(tmp_path, "b", done(A))
    content = bytearray((path / "0001.log").read_bytes())
    content[:100] = bytes(100)
    (path / "0001.log").write_bytes(content)
    assert recovered(run, path)[1] == {A: "done"}


def test_files_of_others_in_the_log_folder_are_left_alone(run, tmp_path):
    path = dead_log(tmp_path, "b", done(A))
    (path / "notes.log").write_text("mine")
    (run.path / "log" / "readme").write_text("mine")
    (tmp_path / "empty").mkdir()
    os.truncate(shutil.copy(path / "0001.log", path / "0002.log"), 0)
    assert recovered(run, path, tmp_path / "empty")[1] == {A: "done"}
    assert sorted(str(p.relative_to(run.path)) for p in (run.path / "log").rglob("*")) == [
        "log/b",
        "log/b/notes.log",
        "log/readme",
    ]


def test_large_logs_are_recovered_part_by_part(run, tmp_path):
    keys = [key_of(number) for number in range(200)]
    _, status = recovered(run, dead_log(tmp_path, "b", *map(done, keys)))
    assert status == dict.fromkeys(keys, "done")
