"""``speechframe runs``: which runs there are, whether they are whole, and removing them."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import speechframe as spf
from speechframe import open_run
from speechframe.cli import exits


@pytest.fixture(scope="module")
def finished_run(service, tmp_path_factory):
    """A run of three rows, two of which are equal."""
    path = tmp_path_factory.mktemp("made") / "run"
    settings = spf.Settings(api_key=service.rich, base_url=service.url)
    lines = ["Good morning.", "See you soon.", "Good morning."]
    spf.generate(lines, voice="nora", run_dir=path, service=settings, progress=False)
    return path


@pytest.fixture
def made(finished_run, tmp_path):
    """Put a finished run into a folder below the test's; returns its path."""

    def make(folder="runs/one"):
        path = tmp_path / folder
        shutil.copytree(finished_run, path)
        return path

    return make


@pytest.fixture
def nobody():
    """The environment of somebody without a key, and without a place for a service."""
    return {
        "SPEECHFRAME_API_KEY": None,
        "SPEECHFRAME_BASE_URL": None,
        "SPEECHFRAME_SERVICE": "/dev/null/service",
    }


HOLDER = """
import fcntl, sys

lock = open(sys.argv[1] + "/lock", "a")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold():
    """Hold a run's lock in another process."""
    started = []

    def starter(path):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield starter
    for process in started:
        process.kill()
        process.communicate()


# -- ls ------------------------------------------------------------------------------


def test_ls_says_of_each_run_what_it_is(cli, here, made, nobody, table, tmp_path):
    first = made("runs/one")
    planned = tmp_path / "speechframe-runs" / "deep" / "two"
    assert (
        here("generate", table, "--text", "line", "--voice", "nora", "--run-dir", planned, "--dry-run").code
        == 0
    )
    said = cli("runs", "ls", "--json", env=nobody)
    assert said.code == exits.OK, said.err
    found = {run["path"]: run for run in json.loads(said.out)["runs"]}
    assert set(found) == {"runs/one", "speechframe-runs/deep/two"}
    one, two = found["runs/one"], found["speechframe-runs/deep/two"]
    stats = open_run(first).stats
    assert (one["operation"], one["status"], one["rows"], one["done"]) == ("generate", "finished", 3, 3)
    # Two of the three rows are equal: one clip for both.
    assert one["clips"] == 2
    assert one["credits"] == stats["credits"] == 26
    assert 0 < one["audio_seconds"] < stats["audio_seconds"]
    assert one["bytes"] == sum(p.stat().st_size for p in first.rglob("*") if p.is_file())
    assert (two["status"], two["rows"], two["done"], two["credits"]) == ("planned", 3, 0, 0)
    assert type(one["credits"]) is type(two["credits"]) is float
    assert sorted(p.name for p in planned.iterdir()) == ["holder.json", "input", "lock", "run.json"]
    lines = cli("runs", "ls", env=nobody).out.splitlines()
    assert lines[0].split() == ["PATH", "VERB", "DONE", "STATUS", "CREDITS", "AUDIO", "SIZE", "CHANGED"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["speechframe-runs/deep/two", "generate", "0/3", "planned"],
        ["runs/one", "generate", "3/3", "finished"],
    ]


def test_ls_looks_where_it_is_told_and_passes_by_what_is_hidden(here, made, tmp_path):
    made("elsewhere/one")
    made("elsewhere/.planning-x")
    (tmp_path / "elsewhere" / "other").mkdir()
    (tmp_path / "elsewhere" / "other" / "run.json").write_text("{}")
    said = here("runs", "ls", "elsewhere")
    assert said.code == exits.OK
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == ["elsewhere/one"]
    assert f"not listed: {tmp_path}/elsewhere/other has layout None, this version reads layout 3" in said.err
    assert here("runs", "ls").out == "no runs below speechframe-runs, runs\n"
    missing = here("runs", "ls", "nowhere")
    assert missing.code == exits.FOLDER_UNUSABLE
    assert "nowhere is not a folder" in missing.err


def note(path, state):
    told = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**told, "state": state}))


def test_ls_tells_a_run_that_is_being_made_from_one_that_was_cut_off(here, made, hold):
    path = made()
    note(path, "running")
    holder = hold(path)

    def status():
        return json.loads(here("runs", "ls", "--json").out)["runs"][0]["status"]

    assert status() == "running"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert status() == "stopped" == open_run(path).status
    note(path, "finished")
    assert status() == "finished"


def test_what_only_the_journal_of_a_killed_run_has_is_counted_too(here, service, tmp_path):
    settings = spf.Settings(api_key=service.rich, base_url=service.url)
    lines = [f"This is line {number} of many." for number in range(40)]
    live = spf.generate(
        lines, voice="nora", run_dir=tmp_path / "live", service=settings, progress=False, wait=False
    )
    for ended, _ in enumerate(live.outcomes()):
        if ended == 3:
            # What a kill would leave: calls that ended and are in no part yet.
            shutil.copytree(tmp_path / "live", tmp_path / "killed")
            break
    live.stop()
    live.wait()
    assert not list((tmp_path / "killed").glob("parts/*"))
    (facts,) = json.loads(here("runs", "ls", "killed", "--json").out)["runs"]
    stats = open_run(tmp_path / "killed").stats
    assert facts["clips"] == facts["done"] == stats["done"] >= 3
    assert (facts["credits"], facts["audio_seconds"]) == (stats["credits"], stats["audio_seconds"])
    lost = here("runs", "rm", tmp_path / "killed", "--yes").err
    assert lost.startswith(f"{tmp_path / 'killed'}: {facts['clips']} clips, ")


def test_ls_lists_each_run_once(here, made):
    path = made()
    for words in ([".", "."], [".", "runs"], ["runs", path]):
        found = json.loads(here("runs", "ls", *words, "--json").out)["runs"]
        assert len(found) == 1, words


def cut_part(path):
    next((path / "parts").glob("*.parquet")).write_bytes(b"PAR1 half")


def no_table(path):
    next((path / "input").glob("*.parquet")).unlink()


def odd_columns(path):
    shutil.copy(next((path / "input").glob("*.parquet")), next((path / "parts").glob("*.parquet")))


def cut_manifest(path):
    (path / "run.json").write_text("{")


DAMAGES = [cut_part, no_table, odd_columns, cut_manifest]


def test_ls_lists_damaged_runs_and_says_what_is_wrong(here, made):
    whole, damaged = made("runs/whole"), {f"runs/{damage.__name__}": damage for damage in DAMAGES}
    for path, damage in damaged.items():
        damage(made(path))
    said = here("runs", "ls")
    assert said.code == exits.OK
    rows = {line.split()[0]: line.split()[1] for line in said.out.splitlines()[1:]}
    assert rows == {"runs/whole": "generate", **dict.fromkeys(damaged, "damaged")}
    assert all(path in said.err for path in damaged)
    listed = {run["path"]: run for run in json.loads(here("runs", "ls", "--json").out)["runs"]}
    one = listed["runs/whole"]
    assert one["problem"] is None
    for path in damaged:
        other = listed[path]
        assert list(one) == list(other)
        assert (other["status"], other["rows"], path in other["problem"]) == ("damaged", None, True)
        assert other["bytes"] == sum(p.stat().st_size for p in Path(path).rglob("*") if p.is_file())
    assert open_run(whole).stats["done"] == 3


# -- verify --------------------------------------------------------------------------


def test_verify_reads_everything_and_names_what_is_wrong(cli, here, made, nobody):
    whole, damaged = made("runs/whole"), made("runs/damaged")
    assert here("runs", "verify", whole).out == f"{whole}: whole\n"
    part = next((damaged / "parts").glob("*.parquet"))
    content = bytearray(part.read_bytes())
    content[100] ^= 1
    part.write_bytes(content)
    said = cli("runs", "verify", whole, damaged, env=nobody)
    assert said.code == exits.ROWS_FAILED
    lines = said.out.splitlines()
    assert lines[:2] == [f"{whole}: whole", f"{damaged}: 1 problem"]
    assert f"parts/{part.name}" in lines[3]
    found = json.loads(here("runs", "verify", damaged, "--json").out)
    assert (found["ok"], found["exit_code"], len(found["runs"][str(damaged)])) == (False, 1, 1)


def test_verify_gives_each_advice_once(here, made):
    damaged = made()
    part = next((damaged / "parts").glob("*.parquet"))
    records = pq.read_table(part)
    place, audio = records.schema.get_field_index("audio"), records.column("audio")
    changed = pa.chunked_array([[{**clip, "bytes": b"x"} for clip in audio.to_pylist()]], audio.type)
    pq.write_table(records.set_column(place, records.schema.field(place), changed), part)
    (damaged / "log").mkdir(exist_ok=True)
    for number in (90, 91):
        (damaged / "log" / f"{number:06d}.jsonl").touch()
    lines = here("runs", "verify", damaged).out.splitlines()
    assert lines[0] == f"{damaged}: 4 problems"
    assert [line.rpartition("  ")[2] for line in lines[2:6]] == [
        *["the audio has changed, because its sha256 differs"] * 2,
        *["is the journal of a run that was interrupted"] * 2,
    ]
    assert lines[6:] == [
        "restore these files from a copy of the folder",
        f"the journal lost nothing; continue the run with: speechframe resume {damaged}",
    ]


def test_verify_takes_the_addresses_a_run_can_lie_at(here, made, service):
    path, address = made("runs/one"), "memory://verified/run"
    settings = spf.Settings(api_key=service.rich, base_url=service.url)
    spf.generate(["Good morning."], voice="nora", run_dir=address, service=settings, progress=False)
    said = here("runs", "verify", f"file://{path}", address)
    assert (said.code, said.out) == (exits.OK, f"{path}: whole\n{address}: whole\n")
    memory = fsspec.filesystem("memory")
    memory.pipe_file(memory.glob("/verified/run/parts/*.parquet")[0], b"PAR1 half")
    said = here("runs", "verify", f"file://{path}", address)
    assert said.code == exits.ROWS_FAILED
    assert said.out.splitlines()[:2] == [f"{path}: whole", f"{address}: 1 problem"]


@pytest.mark.parametrize("address", ["s3://bucket/run", "file:///tmp/run"])
@pytest.mark.parametrize(("words", "doing"), [(["ls"], "list"), (["rm", "--yes"], "remove")])
def test_ls_and_rm_say_that_they_are_for_local_folders(here, address, words, doing):
    said = here("runs", *words, address)
    assert (said.code, said.out) == (exits.WRONG_USAGE, "")
    assert (
        f"runs {words[0]} works on local folders; {doing} {address} with the tools of its store" in said.err
    )


def test_verify_tells_of_each_run_also_beside_what_is_none(here, made, tmp_path):
    whole, damaged, bad = made("runs/whole"), made("runs/damaged"), made("runs/bad")
    cut_part(damaged)
    (bad / "run.json").write_text("{")
    said = here("runs", "verify", bad, whole, tmp_path / "nowhere", damaged, "--json")
    assert (said.code, said.err) == (exits.FOLDER_UNUSABLE, "")
    found = json.loads(said.out)
    assert (found["ok"], found["exit_code"]) == (False, exits.FOLDER_UNUSABLE)
    names = [str(path) for path in (bad, whole, tmp_path / "nowhere", damaged)]
    assert list(found["runs"]) == names
    words = [[problem["words"] for problem in found["runs"][name]] for name in names]
    assert "is damaged" in words[0][0]
    assert words[1] == []
    assert "is not a run folder" in words[2][0]
    assert "cannot be read" in words[3][0]


# -- rm ------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["ls"], ["rm", "--yes"]])
def test_a_folder_without_a_name_is_not_the_one_that_one_is_in(here, made, monkeypatch, words):
    path = made()
    monkeypatch.chdir(path)
    said = here("runs", *words, "")
    assert said.code in {exits.WRONG_USAGE, exits.FOLDER_UNUSABLE}
    assert "'' is not a folder" in said.err
    assert here("runs", "verify", ".").out == f"{path}: whole\n"
    # By its own name it is.
    assert here("runs", "rm", ".", "--yes").code == exits.OK
    assert not path.exists()


def test_rm_says_what_is_lost_and_removes_it(cli, made, nobody, tmp_path):
    one, two = made("runs/one"), made("runs/two")
    said = cli("runs", "rm", one, two, "runs/one", "runs/../runs/two", "--yes", env=nobody)
    assert said.code == exits.OK
    assert said.out == f"removed {one}\nremoved {two}\n"
    assert "runs/one: 2 clips, 0.0 minutes of audio, 26 credits spent on local/espeak-" in said.err
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("damage", [no_table, cut_manifest])
def test_rm_removes_a_damaged_run_and_says_that_it_cannot_say_what_is_lost(here, made, damage):
    whole, damaged = made("runs/whole"), made("runs/damaged")
    damage(damaged)
    asked = here("runs", "rm", damaged)
    assert (asked.code, (damaged / "run.json").exists()) == (exits.WRONG_USAGE, True)
    said = here("runs", "rm", damaged, "--yes", "--json")
    assert said.code == exits.OK
    assert f"{damaged}: it cannot be read ({damaged}" in said.err
    (gone,) = json.loads(said.out)["removed"]
    assert (gone["path"], gone["status"]) == (str(damaged), "damaged")
    assert not damaged.exists()
    assert open_run(whole).stats["done"] == 3


@pytest.mark.parametrize(("words", "lost"), [("{", "input"), ('{"layout": 99}', None)])
def test_rm_leaves_what_may_be_no_run(here, made, words, lost):
    path = made()
    (path / "run.json").write_text(words)
    if lost is not None:
        shutil.rmtree(path / lost)
    said = here("runs", "rm", path, "--yes")
    assert said.code == exits.FOLDER_UNUSABLE
    assert (path / "run.json").read_text() == words
    assert len(list((path / "parts").iterdir())) == 1


def test_rm_needs_yes_where_nobody_can_be_asked(cli, made, nobody):
    path = made()
    said = cli("runs", "rm", path, env=nobody)
    assert said.code == exits.WRONG_USAGE
    assert "--yes" in said.err
    assert open_run(path).stats["done"] == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("answer", "goes"), [("y\n", True), ("n\n", False), ("\n", False), ("\x04", False)])
def test_rm_asks_on_a_terminal(start, made, nobody, answer, goes):
    path = made()
    ours, theirs = pty.openpty()
    process = start("runs", "rm", path, env=nobody, stdin=theirs)
    os.close(theirs)
    os.write(ours, answer.encode())
    out, err = process.communicate(timeout=60)
    os.close(ours)
    assert b"Remove 1 run for good? [y/N]" in err
    assert path.exists() is not goes
    assert process.returncode == (exits.OK if goes else exits.INTERRUPTED)
    assert (b"nothing was removed" in err) is not goes
    assert bool(out) is goes


def test_rm_refuses_a_run_that_is_being_made(here, made, hold):
    held = made("runs/held")
    holder = hold(held)
    said = here("runs", "rm", held, "--yes")
    assert said.code == exits.FOLDER_UNUSABLE
    assert "is being written by" in said.err
    assert open_run(held).stats["done"] == 3
    holder.kill()
    holder.wait()
    assert here("runs", "rm", held, "--yes").code == exits.OK


@pytest.mark.parametrize("name", ["parts/notes.txt", "mine/run.json"])
def test_rm_leaves_what_is_not_ours_and_names_it(here, made, name):
    path = made()
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("mine")
    said = here("runs", "rm", path, "--yes")
    assert said.code == exits.OK
    assert f"{path} keeps files that speechframe did not write: {name}\n" in said.err
    assert [file for file in path.rglob("*") if file.is_file()] == [path / name]
    assert (path / name).read_text() == "mine"


def test_rm_refuses_links_and_what_is_no_run(here, made, tmp_path):
    path = made()
    (tmp_path / "link").symlink_to(path)
    said = here("runs", "rm", "link", "--yes")
    assert said.code == exits.FOLDER_UNUSABLE
    assert "is a symbolic link" in said.err
    assert open_run(path).stats["done"] == 3
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "a.txt").write_text("mine")
    assert here("runs", "rm", "precious", "--yes").code == exits.FOLDER_UNUSABLE
    assert (tmp_path / "precious" / "a.txt").exists()


def test_a_run_with_everything_a_run_can_hold_is_removed_whole(here, service, tmp_path):
    settings = spf.Settings(api_key=service.rich, base_url=service.url)
    path = tmp_path / "runs" / "one"
    clip = spf.say("Good morning.", voice="nora", service=settings).audio
    run = spf.change_voice([clip], voice="nora", run_dir=path, service=settings, progress=False)
    run.review("0", "reject", comment="too fast")
    (path / "parts" / ".000002.parquet.tmp").write_bytes(b"half")
    held = {file.name for file in path.iterdir()}
    assert {"attempts", "clips", "input", "parts", "reviews.parquet", "run.json"} <= held
    assert here("runs", "rm", path, "--yes").code == exits.OK
    assert list((tmp_path / "runs").iterdir()) == []
