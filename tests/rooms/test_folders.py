"""Run folders that are damaged, or on another machine."""

import shutil
import uuid

import fsspec
import pytest
from tests.rooms.scripted import begun, heard, make

import speechframe as spf


@pytest.fixture
def run(tmp_path):
    return make(tmp_path / "run", ["line " * 1000, "failed"])


def files_of(run):
    return [problem.file for problem in run.verify()]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("parts/000001.parquet", "missing, with the records of 1"),
        ("failed/000001.parquet", "missing, with the records of 1"),
        ("attempts/000001.parquet", "does not count"),
        ("input/0001.parquet", "cannot be read"),
    ],
)
def test_a_file_that_is_torn_or_missing_is_found(run, name, words):
    assert files_of(run) == []
    path = run.path / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert files_of(run) == [name]
    path.unlink()
    problems = run.verify()
    assert {problem.file for problem in problems} == {name}
    assert words in problems[0].words


def test_audio_that_changed_is_found_with_its_call(run):
    path, audio = run.path / "parts" / "000001.parquet", run.clip(0).audio
    content = path.read_bytes()
    assert content.count(audio) == 1
    path.write_bytes(content.replace(audio, audio[::-1]))
    (problem,) = run.verify()
    assert problem.request_key == run.to_pandas()["request_key"][0]
    assert "sha256" in problem.words


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "not a folder"),
        ("s3:/bucket/run", "second slash"),
        ("s3://user:secret@bucket/run", "no password"),
        ("s3://bucket//run", "likely meant"),
        ("nonsense://x", "library"),
    ],
)
def test_an_address_of_no_use_is_refused_in_words(address, words):
    with pytest.raises(spf.StoreError, match=words) as refused:
        spf.open_run(address)
    assert "secret" not in str(refused.value)


@pytest.fixture
def address(monkeypatch, tmp_path):
    """Return the address of a run that is not there yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return f"memory://runs/{uuid.uuid4().hex}"


@pytest.fixture
def files():
    return fsspec.filesystem("memory")


def cut_off(live):
    live.stop(drain=False)
    live.wait()


def test_a_remote_run_is_written_read_reviewed_and_verified(address, files):
    live = begun(address, ["line", "slow"], 1)
    assert list(spf.open_run(address).to_pandas()["status"]) == ["done", "pending"]
    # Nothing but whole files is there, and no journal.
    there = files.find(address)
    assert not [name for name in there if "log/" in name or "tmp" in name]
    cut_off(live)
    run = spf.open_run(address)
    assert str(run.path) == address
    assert run.clip("0").audio == heard("line")
    assert run.dataset.count_rows() == 1
    run.review("0", "keep")
    assert run.reviews["is_current"].tolist() == [True]
    assert run.verify() == []


def test_another_machine_sees_what_is_there_and_is_kept_from_writing(address, files, monkeypatch, tmp_path):
    live = begun(address, ["line", "slow"], 1)
    held = files.cat_file(f"{address}/lock.json")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert list(spf.open_run(address).to_pandas()["status"]) == ["pending"] * 2
    with pytest.raises(spf.RunLocked, match="being written by process"):
        make(address, ["line"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cut_off(live)
    # A machine that died leaves its file there, and takes the lock again itself.
    files.pipe_file(f"{address}/lock.json", held)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    with pytest.raises(spf.RunLocked, match=r"remove lock\.json"):
        make(address, ["line"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert make(address, ["line"]).estimate.calls == 0


def test_a_journal_is_taken_up_by_its_run_and_not_by_the_next_one_there(address, files, tmp_path):
    state, copy = tmp_path / "state", tmp_path / "copy"
    live = begun(address, ["line", "slow"], 1)
    shutil.copytree(state, copy)
    there = {name: files.cat_file(name) for name in files.find(address)}
    cut_off(live)
    for is_same, calls in ((True, 0), (False, 1)):
        # As a kill would leave it.
        files.rm(address, recursive=True)
        shutil.rmtree(state)
        shutil.copytree(copy, state)
        for name, content in there.items() if is_same else ():
            files.pipe_file(name, content)
        assert make(address, ["line"]).estimate.calls == calls
