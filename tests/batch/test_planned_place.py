"""Where a run lies and what it looks like there: modes, links, working folders, what a crash leaves."""

import os
import stat
import subprocess
import sys
import time

import pytest

import speechframe as spf
from speechframe import errors
from speechframe.old_store import RunFolder, RunManifest, draft_in

LINES = ["The first line.", "The second line."]


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_has_the_mode_that_folders_have_here(faulty, speak, tmp_path):
    (tmp_path / "usual").mkdir()
    assert mode_of(speak(faulty, LINES).path) == mode_of(tmp_path / "usual")


@pytest.mark.parametrize("is_link", [False, True])
def test_an_empty_folder_stays_the_folder_it_is(faulty, speak, tmp_path, is_link):
    folder = tmp_path / "given"
    folder.mkdir()
    folder.chmod(0o2770)
    inode = folder.stat().st_ino
    run_dir = tmp_path / "link" if is_link else folder
    if is_link:
        run_dir.symlink_to(folder)
    run = speak(faulty, LINES, run_dir=run_dir)
    assert run.stats["done"] == 2
    assert (mode_of(folder), folder.stat().st_ino) == (0o2770, inode)
    assert {path.name for path in folder.iterdir()} >= {"run.json", "input", "parts"}
    assert not list(tmp_path.rglob(".planning-*"))


def test_a_folder_with_files_of_others_is_refused(faulty, speak, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(errors.StoreError, match="holds other files"):
        speak(faulty, LINES)
    assert faulty.seen == []


LONG_AGO = time.time() - 90_000
OLD, NEW, HELD = (f".planning-{digit * 12}" for digit in "0af")


def draft(path, *, age=LONG_AGO):
    """Leave what a process that is killed while it plans leaves behind."""
    folder = RunFolder.create(path, RunManifest(path.name, "generate"))
    os.utime(path, (age, age))
    return folder


def test_what_was_killed_while_it_planned_goes_after_a_day_and_what_plans_stays(tmp_path):
    parent = tmp_path / "runs"
    old, new, held = (parent / name for name in (OLD, NEW, HELD))
    draft(old), draft(new, age=time.time())
    with draft(held).lock():
        os.utime(held, (LONG_AGO, LONG_AGO))
        with draft_in(parent) as mine:
            assert mine.is_dir()
            assert (old.exists(), new.exists(), held.exists()) == (False, True, True)
        assert not mine.exists()


@pytest.mark.parametrize("name", [".planning-2025", ".planning-old", OLD, f"{OLD}0", OLD.upper()])
def test_a_folder_of_somebody_else_stays_whatever_it_is_called(faulty, speak, tmp_path, name):
    (tmp_path / name / "input").mkdir(parents=True)
    (tmp_path / name / "input" / "thesis.txt").write_text("years of work")
    os.utime(tmp_path / name, (LONG_AGO, LONG_AGO))
    assert speak(faulty, LINES).stats["done"] == 2
    assert (tmp_path / name / "input" / "thesis.txt").read_text() == "years of work"


def test_what_a_link_points_to_stays(tmp_path):
    parent, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    draft(elsewhere)
    draft(parent / NEW)
    (parent / NEW / "input" / "0001.parquet").symlink_to(elsewhere / "run.json")
    os.utime(parent / NEW, (LONG_AGO, LONG_AGO))
    (parent / OLD).symlink_to(elsewhere)
    os.utime(parent / OLD, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    with draft_in(parent):
        assert (parent / OLD / "run.json").is_file()
        assert (parent / NEW / "run.json").is_file()


def test_what_was_killed_in_a_folder_goes_when_the_run_there_is_written(faulty, speak, tmp_path):
    run = speak(faulty, LINES)
    old, new, mine = (run.path / name for name in (OLD, NEW, ".planning-2025"))
    draft(old), draft(new, age=time.time())
    mine.mkdir()
    os.utime(mine, (LONG_AGO, LONG_AGO))
    assert spf.resume(run, service=faulty.settings, progress=False).stats["done"] == 2
    assert (old.exists(), new.exists(), mine.exists()) == (False, True, True)


def test_a_folder_with_only_what_was_killed_there_is_empty(faulty, speak, tmp_path):
    (tmp_path / "run" / NEW).mkdir(parents=True)
    assert speak(faulty, LINES).stats["done"] == 2


def test_a_run_goes_on_when_its_process_changes_folders(faulty, speak, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    faulty.held.append(LINES[1])
    run = speak(faulty, LINES, run_dir="runs/here", wait=False)
    faulty.until(lambda server: server.sends(LINES[1]))
    assert (run.place, run.path) == ("runs/here", tmp_path / "runs" / "here")
    monkeypatch.chdir(tmp_path / "elsewhere")
    faulty.held.clear()
    run.wait()
    assert run.to_pandas()["status"].tolist() == ["done"] * 2
    assert run.place == str(tmp_path / "runs" / "here")
    assert not list((tmp_path / "elsewhere").iterdir())


WATCHER = """
import sys
import speechframe as spf
run = spf.open_run(sys.argv[1])
assert run.status == "running", run.status
print("sees it", flush=True)
sys.stdin.readline()
print(run.status, run.stopped_because)
"""


@pytest.mark.slow
def test_who_opened_a_run_that_went_on_sees_that_it_has_ended_well(faulty, speak, tmp_path):
    faulty.held.append(LINES[1])
    run = speak(faulty, LINES, wait=False)
    faulty.until(lambda server: server.sends(LINES[1]))
    watcher = subprocess.Popen(
        [sys.executable, "-c", WATCHER, run.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout.readline() == "sees it\n"
    faulty.held.clear()
    run.wait()
    assert watcher.communicate("\n", timeout=60)[0] == "finished None\n"


def test_a_dry_run_s_budget_is_that_of_the_run_it_starts(faulty, speak):
    price = speak(faulty, LINES[:1], run_dir=speak.folder.with_name("one")).ledger["credits"].sum()
    planned = speak(faulty, LINES, max_credits=2 * price, dry_run=True)
    planned = speak(faulty, LINES, max_credits=price, dry_run=True)
    run = spf.resume(planned, service=faulty.settings, progress=False)
    assert (run.stopped_because, run.ledger["credits"].sum()) == ("budget", price)
    # What all runs are given does not go before what this one was.
    spf.configure(max_credits=9 * price)
    try:
        assert spf.resume(run, service=faulty.settings, progress=False).stopped_because == "budget"
    finally:
        spf.configure(max_credits=None)
    assert (
        spf.resume(run, service=faulty.settings, progress=False, max_credits=9 * price).status == "finished"
    )
