"""Slots that processes share."""

import multiprocessing
import os
import signal
import tempfile

from speechframe.slots import Slots, shared_folder

_processes = multiprocessing.get_context("spawn")


def _hold(path, count, pipe):
    slots = Slots(path)
    pipe.send([slots.take(5) for _ in range(count)])
    pipe.recv()


def test_a_killed_process_holds_no_slots(tmp_path):
    ours, theirs = _processes.Pipe()
    process = _processes.Process(target=_hold, args=(tmp_path / "lane", 3, theirs), daemon=True)
    process.start()
    assert ours.recv() == [0, 1, 2]
    slots = Slots(tmp_path / "lane")
    assert (slots.others(), slots.held_by_others()) == (1, 3)
    assert [slots.take(5) for _ in range(3)] == [3, 4, None]
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert (slots.others(), slots.held_by_others()) == (0, 0)
    slots.give(4)
    assert [slots.take(5) for _ in range(4)] == [0, 1, 2, 4]
    slots.close()


def test_runs_of_one_process_share_too_and_the_lowest_free_slot_comes_first(tmp_path):
    first, second = Slots(tmp_path / "lane"), Slots(tmp_path / "lane")
    assert [first.take(4), second.take(4), first.take(4), second.take(4), first.take(4)] == [0, 1, 2, 3, None]
    second.give(1)
    assert (first.take(2), first.held_by_others(), second.held_by_others()) == (1, 1, 3)
    first.close()
    assert (second.others(), second.held_by_others(), second.take(4)) == (0, 0, 0)


def test_a_forked_child_keeps_no_slot_that_its_parent_gave_back(tmp_path):
    slots = Slots(tmp_path / "lane")
    slots.take(1)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=theirs.recv, daemon=True)
    child.start()
    slots.close()
    other = Slots(tmp_path / "lane")
    assert (other.others(), other.take(1)) == (0, 0)
    ours.send(None)
    child.join()
    other.close()


def test_a_folder_that_is_a_link_is_not_shared(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = shared_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert shared_folder() is None
    assert "link" in caplog.text
