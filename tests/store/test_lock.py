"""One writer a run, and a dead one holds nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from store_cases import manifest

from speechframe.errors import RunLocked, StoreError
from speechframe.old_store import RunFolder

HOLDER = """
import sys, time
from speechframe.old_store import RunFolder

with RunFolder.open(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(run):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, run.path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_told_who_holds_the_run(run, holder):
    with pytest.raises(RunLocked) as caught, run.lock():
        pass
    words = str(caught.value)
    since = json.loads((run.path / "lock.json").read_text())["since"]
    assert f"process {holder.pid} on {socket.gethostname()} since {since}" in words
    assert str(run.path) in words
    assert "choose another run_dir" in words


def test_the_lock_of_a_killed_process_is_free_at_once(run, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with run.lock():
        assert json.loads((run.path / "lock.json").read_text())["pid"] == os.getpid()


def test_reading_needs_no_lock(run, holder):
    assert RunFolder.open(run.path).keys() == {}


def test_the_same_process_cannot_hold_a_run_twice(run):
    with run.lock():
        with pytest.raises(RunLocked, match="this very process"), RunFolder.open(run.path).lock():
            pass
        run.recover()
    with RunFolder.open(run.path).lock():
        pass


def test_the_lock_may_be_given_back_by_another_thread(run):
    held = run.lock()
    held.__enter__()
    thread = threading.Thread(target=held.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    with RunFolder.open(run.path).lock():
        pass


def test_an_error_in_the_block_frees_the_lock_and_stays_what_it_was(run):
    with pytest.raises(KeyError, match="x"), run.lock():
        raise KeyError("x")
    with pytest.raises(OSError, match="gone"), run.lock():
        raise OSError("gone")
    with run.lock():
        pass


def test_a_note_nobody_can_read_is_no_obstacle(run):
    with run.lock():
        (run.path / "lock.json").write_text("{")
        with pytest.raises(RunLocked, match="another process"), RunFolder.open(run.path).lock():
            pass


def test_the_holder_sees_what_others_changed_before(run):
    other = RunFolder.open(run.path)
    with other.lock():
        other.update_manifest(audio_format="WAV")
    with run.lock():
        assert run.manifest.audio_format == "WAV"


def test_a_folder_that_is_gone_is_a_store_error(tmp_path):
    run = RunFolder.create(tmp_path / "run", manifest())
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="run"), run.lock():
        pass
