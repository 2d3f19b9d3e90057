"""Runs on another machine: what is there is whole, and what is not there yet is in the log here."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.fs
import pytest
from store_cases import (
    MOMENT,
    TABLE_SCHEMA,
    all_rows,
    audio_of,
    done,
    failed,
    key_of,
    manifest,
    sent,
    table_batch,
    tried,
)

from speechframe.cli import main
from speechframe.errors import NotARun, RunLocked, StoreError
from speechframe.old_store import RunFolder, draft_parent, holder, is_remote, locate, remote, writer
from speechframe.old_store.locate import work_folder

HERE = Path(__file__).parent
BUCKET = "speech"


class Server:
    """An S3 server that can go away and come back, without what it had."""

    def __init__(self):
        self.start(0)

    def start(self, port):
        self.process = subprocess.Popen(
            [sys.executable, HERE / "s3_server.py", str(port)], stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.kill()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def server():
    """An S3 server on a free port."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(remote, "LONGEST_WAIT_SECONDS", 0.05)


@pytest.fixture
def s3(server, monkeypatch):
    """The environment in which `s3://` is the local server."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKLOCALTEST", "AWS_SECRET_ACCESS_KEY": "made-up-secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        "AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()
    fs = fsspec.filesystem("s3")
    if not fs.exists(BUCKET):
        fs.mkdir(BUCKET)
    return fs


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.slow), "memory"])
def address(request):
    """The address of a run that is not there yet."""
    if request.param == "s3":
        request.getfixturevalue("s3")
    return f"{request.param}://{BUCKET}/{uuid.uuid4().hex}/run"


def answer(run, numbers, **options):
    with run.lock():
        run.recover()
        with run.writer() as out:
            for number in numbers:
                out.sent(sent(key_of(number)))
                out.answer(done(key_of(number), **options), tried(key_of(number)))


def remote_names(run, folder):
    return sorted(path.name for path in (run.path / folder).iterdir())


@pytest.mark.slow
def test_a_run_of_five_thousand_rows_is_written_read_and_gone_on_with(address):
    keys = [key_of(number) for number in range(5_000)]
    run = RunFolder.create(address, manifest())
    with run.add_table(TABLE_SCHEMA) as table:
        table.write(table_batch(keys))
    answer(run, range(4_000), size=100)
    again = RunFolder.open(address)
    assert again.manifest == run.manifest
    assert again.keys() == dict.fromkeys(keys[:4_000], "done")
    answer(again, range(4_000, 5_000), size=100)
    assert again.verify() == []
    table = pa.Table.from_batches(RunFolder.open(address).joined(["status", "audio", "line"]))
    assert table.column("status").to_pylist() == ["done"] * 5_000
    assert [clip["bytes"] for clip in table.column("audio").to_pylist()] == [audio_of(k, 100) for k in keys]
    assert again.ledger().num_rows == 5_000
    assert list((work_folder(again.path) / "log").iterdir()) == []
    assert list((work_folder(again.path) / "drafts").iterdir()) == []
    assert len(remote_names(again, "parts")) == 3


def test_failures_rows_and_clips_are_as_in_a_local_run(address, tmp_path):
    runs = [RunFolder.create(tmp_path / "run", manifest()), RunFolder.create(address, manifest())]
    for run in runs:
        with run.lock(), run.writer() as out:
            out.answer(done(key_of(0)), tried(key_of(0)))
            out.answer(failed(key_of(1)))
            out.cut()
            out.answer(done(key_of(1)))
            out.answer(failed(key_of(2), finished_at=MOMENT))
    local, away = runs
    assert away.keys() == local.keys() == {key_of(0): "done", key_of(1): "done", key_of(2): "failed"}
    assert sorted(map(str, all_rows(away))) == sorted(map(str, all_rows(local)))
    assert away.clip_bytes(key_of(1)) == audio_of(key_of(1))
    assert away.row(key_of(7)) is None
    assert is_remote(away.path)
    assert not is_remote(local.path)


def test_the_log_is_read_before_its_part_is_there(address):
    run = RunFolder.create(address, manifest())
    with run.lock(), run.writer() as out:
        out.answer(done(key_of(0)))
        assert remote_names(run, "parts") == []
        assert RunFolder.open(address).clip_bytes(key_of(0)) == audio_of(key_of(0))


def test_there_is_no_run_until_there_is_one_and_never_two(address):
    assert not RunFolder.exists(address)
    with pytest.raises(NotARun, match="run"):
        RunFolder.open(address)
    RunFolder.create(address, manifest())
    assert RunFolder.exists(address)
    with pytest.raises(StoreError, match="holds a run already"):
        RunFolder.create(address, manifest())


def test_a_local_run_moves_there_whole_and_once(address, tmp_path, add_rows):
    drafts = [RunFolder.create(tmp_path / name, manifest()) for name in "ab"]
    for draft in drafts:
        add_rows(draft, [key_of(0)])
    answer(drafts[0], [0])
    moved = drafts[0].move(address)
    assert moved.keys() == {key_of(0): "done"}
    assert [batch.num_rows for batch in moved.joined()] == [1]
    with pytest.raises(StoreError, match="holds a run already"):
        drafts[1].move(address)
    assert drafts[1].move(tmp_path / "c").path == tmp_path / "c"


def test_of_two_that_are_put_at_once_each_has_its_own_table(address, tmp_path, add_rows, monkeypatch):
    drafts = [RunFolder.create(tmp_path / name, manifest()) for name in "ab"]
    for draft, number in zip(drafts, range(2), strict=True):
        add_rows(draft, [key_of(number)])
    claims, real = [], remote.Remote.claim

    def claim(path, content):
        if path.name != "run.json":
            return real(path, content)
        claims.append((path, content))
        if len(claims) == 1:
            # The first has put its files: now the second puts its own, and comes too late.
            with pytest.raises(StoreError, match="holds a run already"):
                drafts[1].move(address)
            return True
        assert real(*claims[0])
        return real(path, content)

    monkeypatch.setattr(remote.Remote, "claim", claim)
    moved = drafts[0].move(address)
    rows = pa.Table.from_batches(moved.joined(["request_key"]))
    assert rows.column("request_key").to_pylist() == [key_of(0)]
    assert remote_names(moved, "input") == [Path(entry.file).name for entry in moved.tables()]


def test_a_run_that_is_moved_to_where_it_is_stays_whole(address, tmp_path, add_rows):
    draft = RunFolder.create(tmp_path / "a", manifest())
    add_rows(draft, [key_of(0)])
    answer(draft, [0])
    moved = draft.move(address)
    with pytest.raises(StoreError, match="holds a run already"):
        draft.move(address)
    assert moved.verify() == []
    assert moved.table().read().num_rows == 1


def start(address, first, calls, part_rows):
    command = [sys.executable, HERE / "remote_lab.py", address, *map(str, (first, calls, part_rows))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_killed_writer_loses_nothing_and_the_next_puts_what_it_had(s3):
    address = f"s3://{BUCKET}/{uuid.uuid4().hex}/run"
    run = RunFolder.create(address, manifest())
    kept = []
    for first in (0, 10_000):
        process = start(address, first, 5_000, 40)
        try:
            kept += [key_of(int(process.stdout.readline())) for _ in range(150)]
            process.kill()
            process.wait(60)
            kept += [key_of(int(line)) for line in process.stdout.read().split("\n")[:-1]]
        finally:
            process.kill()
            process.wait(60)
            process.stdout.close()
        assert set(kept) <= set(RunFolder.open(address).keys())
    with run.lock():
        found = run.recover()
    assert run.verify() == []
    done_keys = {key for key, status in run.keys().items() if status == "done"}
    assert set(kept) <= done_keys
    assert set(run.keys()) == done_keys | set(found.unknown)
    rows = all_rows(run)
    assert len(rows) == len({row["request_key"] for row in rows})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_around_a_put_stops_the_run_and_loses_nothing(address, monkeypatch, when):
    run = RunFolder.create(address, manifest())
    real, calls = run.path.fs.put_file, []

    def broken(local, target, **options):
        calls.append(target)
        if when == "after":
            real(local, target, **options)
        raise OSError("the line is cut")

    monkeypatch.setattr(run.path.fs, "put_file", broken)
    with pytest.raises(StoreError, match=r"cut.*nothing that was acknowledged is lost"):
        answer(run, range(5))
    assert len(calls) == remote.ATTEMPTS
    monkeypatch.setattr(run.path.fs, "put_file", real)
    assert RunFolder.open(address).keys() == {key_of(number): "done" for number in range(5)}
    assert [p for p in run.verify() if "log" not in p.file] == []
    with run.lock():
        run.recover()
    assert run.verify() == []
    assert run.keys() == {key_of(number): "done" for number in range(5)}


class CuttingProxy:
    """Stands before a server and cuts the line in the middle of every upload of more than a few bytes."""

    def __init__(self, port):
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.cuts = 0
        self.cutting = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
                threading.Thread(target=self._up, args=(here, there), daemon=True).start()
                threading.Thread(target=self._down, args=(there, here), daemon=True).start()

    def _up(self, source, target):
        sent = 0
        with source, target, suppress(OSError):
            while data := source.recv(2**14):
                sent += len(data)
                if self.cutting and sent > 2**17:
                    self.cuts += 1
                    return
                target.sendall(data)

    def _down(self, source, target):
        with source, target, suppress(OSError):
            while data := source.recv(2**14):
                target.sendall(data)

    def close(self):
        self._listening.close()


def test_a_line_cut_in_the_middle_of_a_put_leaves_nothing_truncated(s3, server, monkeypatch):
    address = f"s3://{BUCKET}/{uuid.uuid4().hex}/run"
    proxy = CuttingProxy(server.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    fsspec.filesystem("s3").clear_instance_cache()
    run = RunFolder.create(address, manifest())
    run.path.fs.retries = 1
    with pytest.raises(StoreError, match="nothing that was acknowledged is lost"):
        answer(run, range(5), size=2**20)
    assert proxy.cuts >= remote.ATTEMPTS
    assert remote_names(run, "parts") == []
    proxy.cutting = False
    with run.lock():
        run.recover()
    assert run.verify() == []
    assert run.keys() == {key_of(number): "done" for number in range(5)}
    proxy.close()


def test_a_file_that_did_not_arrive_whole_is_put_again(address, monkeypatch):
    run = RunFolder.create(address, manifest())
    real, calls = run.path.fs.put_file, []

    def short(local, target, **options):
        calls.append(target)
        if len(calls) % 2:
            run.path.fs.pipe_file(target, Path(local).read_bytes()[:-7])
        else:
            real(local, target, **options)

    monkeypatch.setattr(run.path.fs, "put_file", short)
    answer(run, range(5))
    assert len(calls) == 4
    assert run.verify() == []


def test_the_server_goes_away_and_comes_back(monkeypatch):
    server = Server()
    try:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "AKLOCALTEST", "AWS_SECRET_ACCESS_KEY": "made-up-secret",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        fsspec.filesystem("s3").clear_instance_cache()
        fs = fsspec.filesystem("s3")
        fs.retries = 1
        fs.mkdir(BUCKET)
        monkeypatch.setattr(remote, "ATTEMPTS", 2)
        monkeypatch.setattr(writer, "PART_ROWS", 10)
        run = RunFolder.create(f"s3://{BUCKET}/run", manifest())
        said = (run.path / "run.json").read_bytes()
        with run.lock():
            out = run.writer()
            for number in range(9):
                out.answer(done(key_of(number)), tried(key_of(number), attempt=1))
            server.stop()
            out.answer(done(key_of(9)), tried(key_of(9), attempt=1))
            with pytest.raises(StoreError, match="nothing that was acknowledged is lost"):
                out.close()
        with pytest.raises(StoreError, match="nothing that was acknowledged is lost"):
            run.keys()
        server.start(server.port)
        # It comes back without what it had: of the run it needs only that there is one.
        fs.mkdir(BUCKET)
        fs.pipe_file(f"{BUCKET}/run/run.json", said)
        assert run.keys() == {key_of(number): "done" for number in range(10)}
        answer(run, [10])
        assert run.keys() == {key_of(number): "done" for number in range(11)}
        assert run.verify() == []
        assert run.ledger().num_rows == 11
    finally:
        server.stop()


def test_another_machine_sees_what_is_there_and_is_kept_from_writing(address, monkeypatch, tmp_path):
    run = RunFolder.create(address, manifest())
    answer(run, [0])
    monkeypatch.setattr(holder, "_SETTLE_SECONDS", 0)
    with run.lock(), run.writer() as out:
        out.answer(done(key_of(1)))
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
            there = RunFolder.open(address)
            assert there.keys() == {key_of(0): "done"}
            with pytest.raises(RunLocked, match=f"process {os.getpid()} on"), there.lock():
                pass
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        assert there.keys() == {key_of(0): "done", key_of(1): "done"}
        answer(there, [2])
    assert run.keys() == {key_of(number): "done" for number in range(3)}
    assert not (run.path / "lock.json").exists()


def test_a_holder_that_is_silent_too_long_is_replaced_and_stops_before_its_next_file(
    address, monkeypatch, tmp_path
):
    run = RunFolder.create(address, manifest())
    monkeypatch.setattr(holder, "_SETTLE_SECONDS", 0)
    with run.lock():
        out = run.writer()
        out.answer(done(key_of(0)))
        lock = run.path / "lock.json"
        said = json.loads(lock.read_bytes())
        lock.replace_content(json.dumps({**said, "at": "2020-01-01T00:00:00+00:00"}).encode())
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
            there = RunFolder.open(address)
            with there.lock(), there.writer() as theirs:
                theirs.answer(done(key_of(1)))
                theirs.cut()
                elsewhere.undo()
                with pytest.raises(RunLocked, match="is open for writing in process"):
                    out.cut()
        with pytest.raises(RunLocked):
            out.close()
    assert remote_names(run, "parts") == [f"{theirs.name}-0001.parquet"]
    with run.lock():
        run.recover()
    assert run.keys() == {key_of(0): "done", key_of(1): "done"}


def test_a_holder_whose_object_is_removed_says_so_and_loses_nothing(address):
    run = RunFolder.create(address, manifest())
    with run.lock():
        out = run.writer()
        out.answer(done(key_of(0)))
        (run.path / "lock.json").unlink()
        with pytest.raises(RunLocked, match=r"lock\.json was removed.*can be resumed"):
            out.cut()
        with pytest.raises(RunLocked):
            out.close()
    with run.lock():
        run.recover()
    assert run.keys() == {key_of(0): "done"}


@pytest.mark.slow
def test_a_dead_holder_of_this_machine_holds_nothing(s3):
    address = f"s3://{BUCKET}/{uuid.uuid4().hex}/run"
    run = RunFolder.create(address, manifest())
    # More than it can say: nobody reads on.
    process = start(address, 0, 100_000, 40)
    process.stdout.readline()
    with pytest.raises(RunLocked, match=f"process {process.pid} on"), run.lock():
        pass
    process.kill()
    process.wait(60)
    process.stdout.close()
    assert json.loads((run.path / "lock.json").read_bytes())["pid"] == process.pid
    with run.lock():
        run.recover()


def test_a_claim_whose_answer_was_lost_holds(address, monkeypatch):
    place = locate(address) / "one"
    real = place.fs.pipe_file

    def lost(*args, **kwargs):
        real(*args, **kwargs)
        monkeypatch.setattr(place.fs, "pipe_file", real)
        raise OSError("the line is cut")

    monkeypatch.setattr(place.fs, "pipe_file", lost)
    assert place.claim(b"mine")
    assert not place.claim(b"another's")


def test_failures_that_are_replaced_before_they_are_read_stay_as_they_were(address, add_rows):
    run = RunFolder.create(address, manifest())
    add_rows(run, [key_of(number) for number in range(50)])
    with run.lock(), run.writer() as out:
        for number in range(50):
            out.answer(failed(key_of(number)))
        out.cut()
        batches = run.joined(["status", "error_message"], batch_rows=10)
        for number in range(49):
            out.answer(done(key_of(number)))
        out.cut()
        rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{"status": "failed", "error_message": "no such voice"}] * 50


def test_only_one_of_many_becomes_the_holder(s3, monkeypatch, tmp_path):
    place = locate(f"s3://{BUCKET}/{uuid.uuid4().hex}/run")
    won, barrier = [], threading.Barrier(6)

    def try_it():
        one = holder.Holder(place)
        barrier.wait()
        try:
            one.take()
        except RunLocked:
            return
        won.append(one.token)

    # Each is a machine of its own: none may take the other for its own dead process.
    monkeypatch.setattr(holder, "machine", lambda: uuid.uuid4().hex)
    threads = [threading.Thread(target=try_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_a_life_sign_renews_the_object_and_stops_when_another_has_it(address, monkeypatch):
    monkeypatch.setattr(holder, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(holder, "_now", iter(f"moment {n}" for n in range(10**6)).__next__)
    run = RunFolder.create(address, manifest())
    with run.lock():
        lock = run.path / "lock.json"
        first = json.loads(lock.read_bytes())["at"]
        while json.loads(lock.read_bytes())["at"] == first:
            pass
        another = {"token": "another"}
        stays = 0
        while stays < 20:  # a life sign that was on its way may still arrive
            time.sleep(0.02)
            stays = stays + 1 if json.loads(lock.read_bytes()) == another else 0
            if not stays:
                lock.replace_content(json.dumps(another).encode())
    assert json.loads(lock.read_bytes()) == another


def filesystems(tmp_path):
    wrapped = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    return {
        "pyarrow": wrapped,
        "fsspec": fsspec.filesystem("dir", path=str(tmp_path), target_protocol="file"),
    }


@pytest.mark.parametrize("kind", ["pyarrow", "fsspec"])
def test_a_filesystem_may_be_handed_in(tmp_path, kind):
    filesystem = filesystems(tmp_path)[kind]
    run = RunFolder.create("deep/run", manifest(), filesystem=filesystem)
    answer(run, range(3))
    assert RunFolder.open("deep/run", filesystem=filesystem).keys() == run.keys()
    assert run.clip_bytes(key_of(2)) == audio_of(key_of(2))
    assert RunFolder.open(tmp_path / "deep" / "run").verify() == []
    assert RunFolder.exists("deep/run", filesystem=filesystem)
    with run.lock():
        pass


@pytest.mark.slow
def test_a_pyarrow_filesystem_of_s3_may_be_handed_in(s3, server):
    filesystem = pyarrow.fs.S3FileSystem(
        access_key="AKLOCALTEST", secret_key="made-up-secret", endpoint_override=f"127.0.0.1:{server.port}",
        scheme="http", region="us-east-1",
    )  # fmt: skip
    path = f"{BUCKET}/{uuid.uuid4().hex}/run"
    run = RunFolder.create(path, manifest(), filesystem=filesystem)
    answer(run, range(3))
    assert RunFolder.open(f"s3://{path}").verify() == []
    assert RunFolder.open(f"s3://{path}").keys() == run.keys()


def test_addresses_of_this_machine_are_paths(tmp_path):
    assert locate(f"file://{tmp_path}/run") == tmp_path / "run"
    assert locate(tmp_path / "run", fsspec.filesystem("file")) == tmp_path / "run"
    assert locate(str(tmp_path), pyarrow.fs.LocalFileSystem()) == tmp_path
    assert locate("~/runs/a") == Path.home() / "runs" / "a"
    assert draft_parent(tmp_path / "run") == tmp_path
    assert draft_parent(locate("memory://a/run")) == tmp_path / "state" / "speechframe" / "remote" / "new"


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(StoreError, match="holds no password") as caught:
        locate("ftp://ada:secret1@host/run")
    assert "secret1" not in str(caught.value)


def test_an_object_whose_name_begins_with_a_slash_is_refused_because_it_is_never_found_again(s3):
    for address, meant in {
        f"s3://{BUCKET}//run": "run",
        f"s3://{BUCKET}///a/run": "a/run",
        f"s3:///{BUCKET}//a": "a",
    }.items():
        for start in (RunFolder.open, RunFolder.exists, lambda place: RunFolder.create(place, manifest())):
            with pytest.raises(StoreError, match=f"likely meant: s3://{BUCKET}/{meant}$"):
                start(address)
    with pytest.raises(StoreError, match="folder without a name"):
        RunFolder.exists(f"{BUCKET}//run", filesystem=s3)
    # Further on, and on what has no buckets, it is found.
    address = f"s3://{BUCKET}/{uuid.uuid4().hex}//run"
    answer(RunFolder.create(address, manifest()), range(2))
    assert len(RunFolder.open(address).keys()) == 2
    assert locate("memory://a//run").path == "/a//run"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ftp://127.0.0.1:{port}/x", "ConnectionRefusedError"),
        ("zip://a.zip", "IsADirectoryError"),
        ("reference://x", "TypeError"),
        ("http://ada:secret1@[host/run", "cannot be read"),
        ("file://", "give a path"),
        ("", "give a path"),
        (os.fsdecode(b"bad\xff/run"), "is not UTF-8"),
        (f"s3://{BUCKET}/" + os.fsdecode(b"bad\xff"), "is not UTF-8"),
    ],
)
def test_an_address_that_is_of_no_use_is_refused_in_words(address, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = address.format(port=listening.getsockname()[1])
    for start in (RunFolder.open, RunFolder.exists, lambda place: RunFolder.create(place, manifest())):
        with pytest.raises(StoreError, match=words) as caught:
            start(address)
        assert "secret1" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_protocol_of_an_address_may_stand_in_capitals(tmp_path):
    assert str(locate("MEMORY://a/run")) == "memory://a/run"
    assert locate(f"FILE://{tmp_path}/run") == tmp_path / "run"


def test_no_credential_is_written_anywhere(s3, tmp_path):
    run = RunFolder.create(f"s3://{BUCKET}/{uuid.uuid4().hex}/run", manifest())
    with run.lock(), run.writer() as out:
        out.answer(done(key_of(0)))
        held = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        held += [s3.cat_file(path) for path in s3.find(run.path.path)]
    assert held
    said = b"".join([*held, repr(run).encode(), repr(run.path).encode(), repr(run._looker).encode()])
    assert b"made-up-secret" not in said
    assert b"AKLOCALTEST" not in said


@pytest.fixture
def planned(tmp_path):
    """A run that was planned on this machine and lies nowhere else yet."""
    return RunFolder.create(tmp_path / "planned", manifest())


NOTHING_SENT = "nothing was sent; check the address and this machine's credentials"


def test_a_bucket_that_is_missing_loses_nothing_because_nothing_was_sent(s3, planned):
    address = f"s3://no-such-{BUCKET}/run"
    for start in (lambda: planned.move(address), lambda: RunFolder.create(address, manifest())):
        with pytest.raises(StoreError) as caught:
            start()
        assert str(caught.value).startswith(f"{address}: ")
        assert "bucket does not exist" in str(caught.value)
        assert str(caught.value).endswith(NOTHING_SENT)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("start", ["move", "create", "open", "exists"])
def test_without_credentials_nothing_is_said_to_be_kept(s3, planned, monkeypatch, tmp_path, start):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    fsspec.filesystem("s3").clear_instance_cache()
    address = f"s3://{BUCKET}/{uuid.uuid4().hex}/run"
    starts = {
        "move": lambda: planned.move(address),
        "create": lambda: RunFolder.create(address, manifest()),
        "open": lambda: RunFolder.open(address),
        "exists": lambda: RunFolder.exists(address),
    }
    with pytest.raises(StoreError, match="NoCredentialsError") as caught:
        starts[start]()
    assert str(caught.value).endswith(NOTHING_SENT)
    assert planned.verify() == []


def test_an_address_on_the_web_is_named_once(planned):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/run"
    assert str(locate(address)) == address
    assert str(locate(address) / "parts" / "a.parquet") == f"{address}/parts/a.parquet"
    with pytest.raises(StoreError) as caught:
        planned.move(address)
    assert str(caught.value).startswith(f"{address}: putting the run failed (ClientConnectorError")
    assert str(caught.value).count("http://") == 1
    assert str(caught.value).endswith(NOTHING_SENT)


@pytest.mark.parametrize("name", ["run", "my run"])
def test_the_command_verifies_a_run_by_its_address(address, name, capsys):
    address = f"{address}/{name}"
    run = RunFolder.create(address, manifest())
    answer(run, range(3))
    assert main(["runs", "verify", address]) == 0
    assert capsys.readouterr().out == f"{address}: whole\n"
    part = next(path for path in (run.path / "parts").glob("*.parquet"))
    part.replace_content(part.read_bytes()[:-9])
    assert main(["runs", "verify", address]) == 1
    assert capsys.readouterr().out.splitlines()[0] == f"{address}: 1 problem"


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(StoreError, match=r"pip install 'speechframe\[s3\]'"):
        RunFolder.open("s3://bucket/run")
    with pytest.raises(StoreError, match="Protocol not known"):
        RunFolder.exists("nowhere://bucket/run")
