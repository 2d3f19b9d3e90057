"""A run folder on a remote filesystem: the same verbs, and nothing lost when a process or a put dies."""

import json
import os
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty import RATE_HZ, audio_of, check_audio, check_books, statuses
from fsspec.implementations.memory import MemoryFileSystem

import speechframe as spf
from speechframe.errors import StoreError
from speechframe.old_store import remote

LINES = [f"This is line {i}." for i in range(30)]
SERVER = Path(__file__).parents[1] / "store" / "s3_server.py"


@pytest.fixture(scope="module")
def s3_port():
    process = subprocess.Popen([sys.executable, str(SERVER), "0"], stdout=subprocess.PIPE, text=True)
    yield int(process.stdout.readline())
    process.kill()
    process.wait(60)
    process.stdout.close()


@pytest.fixture
def s3(s3_port, monkeypatch, tmp_path):
    """The address of a run that is not there yet, on a local S3 server."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKLOCALTEST", "AWS_SECRET_ACCESS_KEY": "made-up-secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}",
        "AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true", "XDG_STATE_HOME": str(tmp_path / "state"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()
    fs = fsspec.filesystem("s3")
    if not fs.exists("runs"):
        fs.mkdir("runs")
    return f"s3://runs/{uuid.uuid4().hex}"


def test_everything_a_run_can_do(faulty, speak, s3):
    faulty.forever = {LINES[3]: 400}
    run = speak(faulty, LINES, run_dir=s3)
    assert str(run.path) == s3
    assert (run.status, run.stats["done"], run.stats["failed"]) == ("finished", 29, 1)
    check_audio(run)
    check_books(run, faulty)
    assert list(run.failed["text"]) == [LINES[3]]
    assert run.clip("7").audio == audio_of(LINES[7])
    assert run.dataset.count_rows() == 29
    assert s3 in run.summary()
    assert sum(b.num_rows for b in run.batches()) == 30
    # All of it is up, and nothing but what a run has.
    names = {Path(name).parent.name for name in fsspec.filesystem("s3").find(s3)}
    assert names <= {s3.rpartition("/")[2], "input", "parts", "attempts"}

    opened = spf.open_run(s3)
    assert statuses(opened) == statuses(run)
    again = speak(faulty, LINES, run_dir=s3)
    assert (again.estimate.finished, again.estimate.calls) == (29, 1)
    faulty.forever = {}
    more = spf.resume(s3, table=[*LINES, "One more."], service=faulty.settings, progress=False)
    assert set(statuses(more).values()) == {"done"}
    assert spf.changes(s3, LINES, service=faulty.settings).credits == 0


def test_a_second_writer_is_refused(faulty, speak, s3):
    faulty.held = LINES[4:]
    live = speak(faulty, LINES, run_dir=s3, wait=False)
    faulty.until(lambda s: len(s.seen) > 4)
    with pytest.raises(spf.RunLocked):
        spf.resume(s3, service=faulty.settings, progress=False)
    live.stop()
    faulty.held = []
    live.wait(60)


def test_killed_in_mid_run_it_goes_on_and_pays_once(faulty, speak, s3, tmp_path):
    faulty.delay_s, faulty.held = 0.05, LINES[8:]
    code = f"""
        import speechframe as spf
        from speechframe.settings import Settings
        service = Settings(api_key="sk-faulty", base_url={faulty.url!r}, profile="faulty")
        spf.generate({LINES!r}, voice="nora", sample_rate={RATE_HZ}, service=service, run_dir={s3!r},
                     progress=False, max_concurrency=4)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=os.environ, cwd=tmp_path)
    faulty.until(lambda s: len(s.seen) >= 12)
    process.kill()
    process.wait(60)
    faulty.delay_s, faulty.held = 0, []
    run = speak(faulty, LINES, run_dir=s3)
    assert set(statuses(run).values()) == {"done"}
    assert set(faulty.billed.values()) == {1}
    check_audio(run)


@pytest.mark.slow
@pytest.mark.parametrize("is_own_table", [True, False])
def test_killed_while_it_is_put_the_address_can_be_used(faulty, speak, s3, tmp_path, is_own_table):
    code = f"""
        import os, signal
        import speechframe as spf
        from speechframe.settings import Settings
        from speechframe.old_store.remote import Remote
        Remote.claim = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        service = Settings(api_key="sk-faulty", base_url={faulty.url!r}, profile="faulty")
        spf.generate({LINES!r}, voice="nora", sample_rate={RATE_HZ}, service=service, run_dir={s3!r},
                     progress=False)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(command, env=os.environ, cwd=tmp_path, check=False)
    fs = fsspec.filesystem("s3")
    fs.invalidate_cache()
    assert (ended.returncode, len(fs.find(s3))) == (-9, 1)
    lines = LINES if is_own_table else LINES[::-1][:20]
    run = speak(faulty, lines, run_dir=s3)
    assert run.stats["done"] == len(lines)
    check_audio(run)
    # For whoever reads all the tables there.
    assert len(fs.find(f"{s3}/input")) == 1


@pytest.mark.parametrize("name", ["input/notes.txt", "input/0001.parquet", "0001-0123456789abcdef.parquet"])
def test_an_address_with_files_of_others_is_refused(faulty, speak, memory, name):
    MemoryFileSystem().pipe_file(f"{memory}/{name}", b"mine")
    with pytest.raises(StoreError, match="holds other files"):
        speak(faulty, LINES[:3], run_dir=memory)
    assert (MemoryFileSystem().cat_file(f"{memory}/{name}"), faulty.seen) == (b"mine", [])


def test_without_the_extra_it_says_what_to_install(faulty, speak, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(StoreError, match=r"speechframe\[s3\]"):
        speak(faulty, LINES[:2], run_dir="s3://runs/none")
    assert not faulty.seen


def test_a_bucket_that_is_not_there(faulty, speak, s3):
    with pytest.raises(StoreError, match="nowhere"):
        speak(faulty, LINES[:2], run_dir="s3://nowhere/run")
    assert not faulty.seen


@pytest.fixture
def memory(monkeypatch, tmp_path):
    """The address of a run that is not there yet, in this process's memory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return f"memory://{uuid.uuid4().hex}/run"


def refuse(*_, **__):
    raise PermissionError("not for this key")


def test_an_address_that_refused_a_run_says_why_and_can_be_used_later(faulty, speak, memory, monkeypatch):
    with monkeypatch.context() as refusing:
        refusing.setattr(MemoryFileSystem, "pipe_file", refuse)
        with pytest.raises(StoreError, match=r"putting the run failed \(not for this key\)"):
            speak(faulty, LINES[:3], run_dir=memory)
    assert MemoryFileSystem().find(memory) == []
    assert not faulty.seen
    assert speak(faulty, LINES[:3], run_dir=memory).stats["done"] == 3


def test_a_run_that_was_put_although_it_was_refused_stays(faulty, speak, memory, monkeypatch):
    real = MemoryFileSystem.pipe_file

    def refused_late(*given, **how):
        real(*given, **how)
        refuse()

    with monkeypatch.context() as refusing:
        refusing.setattr(MemoryFileSystem, "pipe_file", refused_late)
        planned = speak(faulty, LINES[:3], run_dir=memory, dry_run=True)
    assert planned.path.is_dir()
    assert spf.resume(memory, service=faulty.settings, progress=False).stats["done"] == 3


def test_files_that_cannot_be_listed_at_the_end_are_said_and_the_run_is_whole(
    faulty, speak, memory, monkeypatch, caplog
):
    faulty.held = LINES[4:]
    live = speak(faulty, LINES[:8], run_dir=memory, wait=False)
    faulty.until(lambda s: len(s.seen) > 4)
    with monkeypatch.context() as refusing:
        refusing.setattr(MemoryFileSystem, "ls", refuse)
        faulty.held = []
        live.wait(60)
        with pytest.raises(StoreError, match="not for this key"):
            _ = live.stats
    assert "this run is missing in the month's count" in caplog.text
    assert (live.status, live.stats["done"], set(faulty.billed.values())) == ("finished", 8, {1})


def table_files(address):
    """The tables that run.json names, and those that lie there."""
    fs = MemoryFileSystem()
    named = [entry["file"] for entry in json.loads(fs.cat_file(f"{address}/run.json"))["tables"]]
    return named, sorted(f"input/{Path(name).name}" for name in fs.find(f"{address}/input"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("error", [OSError("an outage"), PermissionError("not for this key")])
@pytest.mark.parametrize("verb", ["resume", "generate", "generate again"])
def test_a_table_that_cannot_be_read_for_a_while_stays_the_run_s(
    faulty, speak, memory, monkeypatch, error, verb
):
    more, given = [*LINES[:4], "One more."], {"service": faulty.settings, "progress": False}
    hand_in = {
        "resume": lambda: spf.resume(memory, table=more, **given),
        "generate": lambda: speak(faulty, more, run_dir=memory),
        "generate again": lambda: speak(faulty, LINES[:4], run_dir=memory),
    }[verb]
    speak(faulty, LINES[:4], run_dir=memory)
    before, sent = table_files(memory), len(faulty.seen)
    assert before[0] == before[1]
    real = MemoryFileSystem.cat_file

    def read(fs, path, *where, **how):
        if "/input/" in path:
            raise error
        return real(fs, path, *where, **how)

    with monkeypatch.context() as failing:
        failing.setattr(remote, "ATTEMPTS", 1)
        failing.setattr(MemoryFileSystem, "cat_file", read)
        with pytest.raises(StoreError, match=rf"cannot be read now \(.*{error}\): call again"):
            hand_in()
    assert (table_files(memory), len(faulty.seen)) == (before, sent)
    assert hand_in().stats["pending"] == 0
    named, there = table_files(memory)
    assert named == there
    assert len(there) == (1 if verb == "generate again" else 2)


def test_a_new_run_s_table_that_cannot_be_read_back_is_no_other_table(faulty, speak, memory, monkeypatch):
    real, failed = MemoryFileSystem.cat_file, []

    def read(fs, path, *where, **how):
        if "/input/" in path and not failed:
            failed.append(path)
            raise OSError("503 slow down")
        return real(fs, path, *where, **how)

    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    monkeypatch.setattr(MemoryFileSystem, "cat_file", read)
    with pytest.raises(StoreError, match=r"cannot be read now \(.*503 slow down\): call again"):
        speak(faulty, LINES[:4], run_dir=memory)
    assert not faulty.seen
    assert speak(faulty, LINES[:4], run_dir=memory).stats["done"] == 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damage", ["missing", "torn", "short"])
def test_a_lost_table_at_an_address_is_handed_in_again(faulty, speak, memory, damage):
    speak(faulty, LINES[:4], run_dir=memory)
    fs, ((name,), _) = MemoryFileSystem(), table_files(memory)
    content = fs.cat_file(f"{memory}/{name}")
    if damage == "missing":
        fs.rm_file(f"{memory}/{name}")
    else:
        short = pa.BufferOutputStream()
        pq.write_table(pq.read_table(pa.BufferReader(content)).slice(1), short)
        fs.pipe_file(f"{memory}/{name}", content[:-9] if damage == "torn" else short.getvalue().to_pybytes())
    again = speak(faulty, LINES[:4], run_dir=memory)
    assert (again.stats["done"], set(faulty.billed.values())) == (4, {1})
    assert table_files(memory)[0] == ["input/0002.parquet"]
    assert spf.open_run(memory)._folder.verify() == []


def test_a_call_reads_little_of_its_table(faulty, speak, memory, monkeypatch):
    real, got = MemoryFileSystem.cat_file, []

    def read(fs, path, *where, **how):
        found = real(fs, path, *where, **how)
        if "/input/" in path:
            got.append(len(found))
        return found

    random = np.random.default_rng(0)
    frame = pd.DataFrame({"text": ["Hi."] * 3_000, **{f"c{i}": random.random(3_000) for i in range(30)}})
    monkeypatch.setattr(MemoryFileSystem, "cat_file", read)
    for table in (frame, frame, frame.assign(c0=0.0)):
        got.clear()
        assert speak(faulty, table, text="text", run_dir=memory).stats["done"] == 3_000
        size = MemoryFileSystem().size(f"{memory}/{table_files(memory)[0][-1]}")
        assert 0 < sum(got) < size / 2
    got.clear()
    assert spf.open_run(memory)._folder.verify() == []
    assert sum(got) > size
