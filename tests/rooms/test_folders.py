"""Run folders that are damaged, removed, or on another machine."""

import subprocess
import sys
import uuid
from pathlib import Path

import fsspec
import pytest
from tenacity import stop_after_attempt
from tests.rooms.run_folders import Writer, frame_of, make_run, new_folder

from speechframe.errors import NotARun, RunLocked, StoreError
from speechframe.store.reader import StoredRun
from speechframe.store.remote import RemoteFolder, open_folder
from speechframe.store.removal import remove_run

SERVER = Path(__file__).parents[1] / "promises" / "s3_server.py"


@pytest.fixture
def folder(tmp_path):
    folder = new_folder(tmp_path / "run")
    make_run(folder, frame_of(["a", "b", "c"]))
    writer = Writer(folder)
    writer.answer("a", audio=b"heard" * 1000)
    writer.answer("b", "failed")
    writer.cut()
    writer.answer("c")
    writer.cut()
    writer.log.close()
    (folder.path / "log" / "000003.jsonl").unlink()
    (folder.path / "log" / "000003.bytes").unlink()
    return folder


def files_of(run):
    return sorted(problem.file for problem in run.verify())


def test_a_run_that_is_whole_has_no_problems(folder):
    assert StoredRun(folder).verify() == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("parts/000001.parquet", "missing, with the records of 1"),
        ("failed/000001.parquet", "missing, with the records of 1"),
        ("attempts/000001.parquet", "does not count"),
        ("input/0001.parquet", "cannot be read"),
    ],
)
def test_a_file_that_is_missing_is_found(folder, name, words):
    (folder.path / name).unlink()
    problems = StoredRun(folder).verify()
    assert {problem.file for problem in problems} == {name}
    assert words in problems[0].words


@pytest.mark.parametrize("kind", ["parts", "failed", "attempts", "input"])
def test_a_file_that_is_torn_is_found(folder, kind):
    path = next((folder.path / kind).glob("*.parquet"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert files_of(StoredRun(folder)) == [f"{kind}/{path.name}"]


def test_audio_that_changed_is_found_with_its_call(folder):
    path = folder.path / "parts" / "000001.parquet"
    content = path.read_bytes()
    assert content.count(b"heard" * 1000) == 1
    path.write_bytes(content.replace(b"heard" * 1000, b"other" * 1000))
    (problem,) = StoredRun(folder).verify()
    assert problem.request_key is not None
    assert "sha256" in problem.words


def test_removing_a_run_leaves_what_is_not_of_it(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "000009.parquet").write_text("mine")
    (folder.path / "notes.txt").write_text("mine")
    (folder.path / "words").symlink_to(outside)
    (folder.path / "parts" / "000008.parquet").symlink_to(outside / "000009.parquet")
    with folder.lock(), pytest.raises(RunLocked):
        remove_run(open_folder(folder.path))
    assert remove_run(folder) == ["notes.txt", "parts/000008.parquet", "words"]
    assert not (folder.path / "run.json").exists()
    assert (outside / "000009.parquet").read_text() == "mine"
    with pytest.raises(NotARun):
        remove_run(folder)


def test_a_run_alone_in_its_folder_takes_the_folder_with_it(folder):
    assert remove_run(folder) == []
    assert not folder.path.exists()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "no folder"),
        ("a\0b", "no folder"),
        ("s3:/bucket/run", "second slash"),
        ("s3://user:secret@bucket/run", "no password"),
        ("s3://bucket//run", "likely meant"),
        ("nonsense://x", "library"),
    ],
)
def test_an_address_of_no_use_is_refused_in_words(address, words):
    with pytest.raises(StoreError, match=words) as refused:
        open_folder(address)
    assert "secret" not in str(refused.value)


@pytest.fixture(scope="module")
def port():
    process = subprocess.Popen([sys.executable, str(SERVER), "0"], stdout=subprocess.PIPE, text=True)
    yield int(process.stdout.readline())
    process.kill()
    process.wait(60)
    process.stdout.close()


@pytest.fixture(params=["s3", "memory"])
def address(request, monkeypatch, tmp_path):
    """Return the address of a run that is not there yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if request.param == "memory":
        return f"memory://runs/{uuid.uuid4().hex}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKLOCALTEST", "AWS_SECRET_ACCESS_KEY": "made-up-secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{request.getfixturevalue('port')}",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()
    files = fsspec.filesystem("s3")
    if not files.exists("runs"):
        files.mkdir("runs")
    return f"s3://runs/{uuid.uuid4().hex}"


def test_a_remote_run_is_written_read_reviewed_and_verified(address, tmp_path):
    folder = open_folder(address)
    with folder.lock():
        make_run(folder, frame_of(["a", "b", "c"]))
        writer = Writer(folder)
        writer.answer("a")
        assert StoredRun.open(address).statuses() == ["done", "pending", "pending"]
        writer.cut()
        writer.answer("b")
        writer.log.close()
    run = StoredRun.open(address)
    assert str(run.path) == run.place == address
    assert run.clip("0").audio == b"audio of a 0"
    assert [row["status"] for row in run.to_arrow(audio=True).to_pylist()] == ["done", "done", "pending"]
    assert run.dataset.to_table().num_rows == 1
    run.review("0", "keep")
    assert run.reviews["is_current"].tolist() == [True]
    assert [problem.file for problem in run.verify()] == ["log/000002.jsonl"]
    # Nothing but whole files is there, and no journal.
    there = folder.filesystem.find(folder.path.on_filesystem)
    assert not [name for name in there if "log/" in name or "tmp" in name or "lock" in name]
    with pytest.raises(StoreError, match="not on this machine"):
        remove_run(folder)


def test_another_machine_sees_what_is_there_and_is_kept_from_writing(address, monkeypatch, tmp_path):
    folder = open_folder(address)
    with folder.lock():
        make_run(folder, frame_of(["a"]))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
        other = open_folder(address)
        assert other.is_locked
        assert StoredRun(other).statuses() == ["pending"]
        with pytest.raises(RunLocked, match="being written by process"), other.lock():
            pass
        held = folder.read("lock.json")
    # A machine that died leaves its file there, and takes the lock again itself.
    folder.filesystem.pipe_file(f"{folder.path.on_filesystem}/lock.json", held)
    assert other.is_locked
    assert not folder.is_locked
    with pytest.raises(RunLocked, match=r"remove lock\.json"), other.lock():
        pass
    with folder.lock():
        folder.filesystem.rm_file(f"{folder.path.on_filesystem}/lock.json")
        with other.lock(), pytest.raises(RunLocked):
            folder.write("run.json", b"{}")
    assert not other.is_locked


def test_a_journal_of_a_run_that_was_removed_is_not_taken_up_by_the_next(address):
    folder = open_folder(address)
    with folder.lock():
        make_run(folder, frame_of(["a"]))
        writer = Writer(folder)
        writer.answer("a")
        writer.log.close()
    folder.filesystem.rm(folder.path.on_filesystem, recursive=True)
    with folder.lock():
        make_run(folder, frame_of(["a"]))
    assert StoredRun(folder).statuses() == ["pending"]


def test_an_address_that_cannot_be_reached_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setattr(RemoteFolder._ask.retry, "stop", stop_after_attempt(1))
    fsspec.filesystem("s3").clear_instance_cache()
    folder = open_folder("s3://runs/x")
    with pytest.raises(StoreError, match="s3://runs/x"), folder.lock():
        pass
