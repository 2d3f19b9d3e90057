"""Runs from the command line: what is printed, Ctrl-C, pipes, going on."""

import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speechframe import open_run
from speechframe.batch.options import Options
from speechframe.batch.progress import Progress
from speechframe.cli import exits, runs
from speechframe.testing import FaultyService

MANY = 2000


@pytest.fixture
def many(tmp_path):
    """A table that takes a while."""
    path = tmp_path / "many.csv"
    path.write_text(
        "text\n" + "".join(f"This is line number {n} and it goes on for a while.\n" for n in range(MANY))
    )
    return path


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def written(folder):
    """Whether answers are in the run folder's log."""
    return any(path.stat().st_size > 200_000 for path in Path(folder).glob("log/*.bytes"))


def test_a_run_prints_a_summary_and_where_it_is(cli, table):
    said = cli("generate", table, "--text", "line", "--voice-col", "who", "--id", "id", "--run-dir", "a run")
    assert said.code == exits.OK
    assert "generate: finished; 3 rows: 3 done" in said.out
    assert "run folder: a run" in said.out
    # What goes on is told in lines, not drawn, where there is no terminal.
    assert "2 calls" in said.err
    assert "\r" not in said.err
    assert "|" not in said.err


def test_json_is_one_line_and_the_same_again_costs_nothing(here, table):
    words = [
        "generate",
        table,
        "--text",
        "line",
        "--voice-col",
        "who",
        "--id",
        "id",
        "--run-dir",
        "run",
        "--json",
    ]
    first, second = (here(*words, "--no-progress") for _ in range(2))
    assert first.err == second.err == ""
    assert first.out.count("\n") == second.out.count("\n") == 1
    one, two = json.loads(first.out), json.loads(second.out)
    assert (one["rows"], one["done"], one["calls"], one["exit_code"]) == (3, 3, 2, 0)
    assert two["calls"] == 0
    assert one["run_dir"] == "run"
    assert one["credits"] == two["credits"] == len("Good morning.See you soon.")


def test_options_reach_the_rows(here, table):
    words = [
        "--text",
        "line",
        "--voice",
        "nora",
        "--format",
        "WAV",
        "--sample-rate",
        "8000",
        "--rate",
        "-20",
        "--id",
        "id",
        "--run-dir",
        "run",
    ]
    assert here("generate", table, *words, "--tag", "team=ads", "--tag", "of=a=b").code == 0
    run = open_run("run")
    clip = run.clip("02")
    assert (clip.format.value, clip.sample_rate) == ("WAV", 8000)
    assert run.ledger["tags"][0] == {"team": "ads", "of": "a=b"}


def test_a_file_is_read_as_it_is_told(here, tmp_path):
    (tmp_path / "odd.csv").write_text("line;who\n'Good, morning';nora\nSee you soon.;nora\n")
    words = ["generate", "odd.csv", "--text", "line", "--voice-col", "who", "--run-dir", "run", "--dry-run"]
    assert here(*words, "--sep", ",").code == exits.ROWS_INVALID
    said = here(*words, "--sep", ";", "--quoting", "none")
    assert said.code == exits.OK
    assert "2 rows" in said.out


def test_answers_from_the_cache_are_not_counted_as_calls(here, table):
    words = ["generate", table, "--text", "line", "--voice", "nora", "--cache", "cache", "--run-dir"]
    assert "\n2 calls in " in here(*words, "one").out
    said = here(*words, "two")
    assert "2 cached, 0 calls" in said.err
    assert "\n0 calls and 2 answers from the cache in " in said.out
    assert json.loads(here(*words, "three", "--json").out)["calls"] == 0


def test_no_line_of_a_summary_begins_with_the_mark_between_its_parts():
    run = SimpleNamespace(
        status="finished", stopped_because=None, operation="transcribe", service="here", short_path="a"
    )
    facts = {"rows": 3, "credits": 0.0}
    lines = list(
        runs._make_summary_lines(
            run, Progress("clip", 3, Options(progress=False), "", str), facts, {"done": 3}
        )
    )
    assert lines[1] == "0 credits in all on here"


def test_a_dry_run_sends_nothing_and_says_how_to_start(here, table, tmp_path):
    said = here("generate", table, "--text", "line", "--voice", "nora", "--run-dir", "run", "--dry-run")
    assert said.code == exits.OK
    assert "2 calls, 26 credits" in said.out
    assert "nothing was sent" in said.out
    assert len(open_run("run").ledger) == 0
    command = re.search(r"start it with: speechframe (.*)", said.out).group(1)
    assert "3 done" in here(*shlex.split(command)).out
    assert len(open_run("run").ledger) == 2


def test_resume_takes_a_new_table_and_other_takes(here, table):
    assert (
        here("generate", table, "--text", "line", "--voice-col", "who", "--id", "id", "--run-dir", "run").code
        == 0
    )
    with table.open("a") as file:
        file.write("04,A new line.,nora\n")
    said = json.loads(here("resume", "run", "--table", table, "--json").out)
    assert (said["rows"], said["done"], said["calls"]) == (4, 4, 1)
    said = json.loads(here("resume", "run", "--redo", "02", "04", "--json").out)
    assert (said["done"], said["calls"]) == (4, 2)
    takes = open_run("run").to_pandas()["take"].tolist()
    assert takes == [0, 1, 0, 1]
    said = json.loads(here("resume", "run", "--redo", "failed", "--json").out)
    assert (said["done"], said["calls"]) == (4, 0)
    open_run("run").review("04", "reject", corrected_text="A corrected line.")
    said = json.loads(here("resume", "run", "--redo", "corrected", "--json").out)
    assert (said["done"], said["calls"]) == (4, 1)


def test_resume_names_the_service_that_was_chosen(here, service, table, monkeypatch):
    monkeypatch.delenv("SPEECHFRAME_BASE_URL")
    words = ["generate", table, "--text", "line", "--voice", "nora", "--run-dir", "run"]
    said = here(*words, "--base-url", service.url, "--max-credits", "0")
    assert said.code == exits.LIMIT_REACHED
    command = re.search(r"continue with: speechframe (.*)", said.out).group(1)
    assert f"--base-url {service.url}" in command
    assert "--max-credits 26" in command
    assert here(*shlex.split(command)).code == exits.OK


@pytest.mark.parametrize(
    ("rules", "budget", "first", "advised"),
    [
        (
            "max_credits_per_run = 20\n",
            "15",
            "raise max_credits_per_run (set in {}), then ",
            " --max-credits 26",
        ),
        (
            "max_credits_per_run = 15\n",
            "15",
            "raise max_credits_per_run (set in {}), then ",
            " --max-credits 26",
        ),
        ("max_credits_per_run = 15\n", None, "raise max_credits_per_run (set in {}), then ", ""),
        ("max_credits_per_run = 26\n", "15", "", " --max-credits 26"),
        ('budgets = "other.toml"\n', "15", "", ""),
        ('budgets = "other.toml"\n', None, "once all allows more, ", ""),
        ("max_credits_per_month = 15\n", "20", "", ""),
        ("max_credits_per_month = 15\n", None, "once max_credits_per_month allows more, ", ""),
    ],
)
def test_a_higher_budget_is_advised_only_where_it_helps(
    here, table, tmp_path, monkeypatch, rules, budget, first, advised
):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    (tmp_path / "speechframe.toml").write_text(rules)
    (tmp_path / "other.toml").write_text('[[budget]]\nname = "all"\nmax_credits = 20\n')
    own = [] if budget is None else ["--max-credits", budget]
    said = here("generate", table, "--text", "line", "--voice", "nora", "--run-dir", "run", *own)
    assert said.code == exits.LIMIT_REACHED
    first = first.format(tmp_path / "speechframe.toml")
    assert said.out.endswith(f"\n{first}continue with: speechframe resume run{advised}\n")


@pytest.fixture
def faulty(monkeypatch):
    """A service whose answers a test may make odd."""
    with FaultyService() as service:
        monkeypatch.setenv("SPEECHFRAME_API_KEY", service.api_key.get_secret_value())
        yield service


def test_suspect_rows_have_a_next_step_though_the_run_is_finished(here, faulty, tmp_path):
    lines = [f"This is the line with the number {i}, and it is not short." for i in range(6)]
    (tmp_path / "lines.csv").write_text("text\n" + "".join(f'"{line}"\n' for line in lines))
    faulty.set(odd={lines[3]: {"audioLengthInSeconds": "97.5"}})
    said = here("generate", "lines.csv", "--voice", "nora", "--run-dir", "a run", "--base-url", faulty.url)
    assert said.code == exits.OK
    assert "6 rows: 5 done, 1 suspect" in said.out
    assert (
        "\n1 suspect; the column error_message gives the reason. Make another take with: speechframe resume "
        in said.out
    )
    command = re.search(r"Make another take with: speechframe (.*)", said.out).group(1)
    assert shlex.split(command) == ["resume", "a run", "--redo", "suspect", "--base-url", faulty.url]
    faulty.set(odd={})
    again = here(*shlex.split(command))
    assert "6 rows: 6 done" in again.out
    assert "suspect" not in again.out


def test_ctrl_c_finishes_what_is_in_flight_and_prints_how_to_go_on(start, many, tmp_path):
    process = start("generate", many, "--voice", "nora", "--run-dir", "run")
    wait_until(lambda: written(tmp_path / "run") or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == exits.INTERRUPTED
    assert b"Traceback" not in err
    assert b"calls in flight finish first" in err
    assert b"continue with: speechframe resume run" in out
    states = open_run(tmp_path / "run").stats
    assert states["done"] > 0
    assert states["pending"] == MANY - states["done"]
    assert "charged_unknown" not in states
    assert open_run(tmp_path / "run").verify() == []


def test_ctrl_c_before_the_first_call_leaves_nothing(start, tmp_path):
    # A service that accepts and never answers.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = start("voices", env={"SPEECHFRAME_BASE_URL": url})
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (exits.INTERRUPTED, b"")
    assert err.strip() == b"interrupted"


def test_a_reader_that_goes_is_met_without_a_word(start):
    process = start("spec", "--format", "openapi")
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=60) == exits.PIPE_CLOSED
    assert process.stderr.read() == b""


def test_a_run_goes_on_when_nobody_reads_its_progress(start, table):
    process = start("generate", table, "--text", "line", "--voice", "nora", "--run-dir", "run")
    process.stderr.close()
    out = process.stdout.read()
    assert process.wait(timeout=60) == exits.OK
    assert b"3 done" in out


def test_a_closed_standard_error_is_no_error(environment, tmp_path):
    line = f"{shlex.quote(sys.executable)} -m speechframe resume nowhere 2>&-"
    ended = subprocess.run(
        ["sh", "-c", line], check=False, cwd=tmp_path, env=environment, capture_output=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (exits.FOLDER_UNUSABLE, b"", b"")


def test_a_terminal_gets_a_bar(start, table):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    process = start("generate", table, "--text", "line", "--voice", "nora", "--run-dir", "run", stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other end is closed: the process has ended
            break
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"2/2" in shown
    assert b"100%" in shown


@pytest.mark.fresh
def test_it_runs_as_a_module_and_as_a_script(environment):
    script = Path(sys.executable).with_name("speechframe")
    assert script.exists(), "the package must be installed for its tests"
    ends = [
        subprocess.run([*command, "--version"], check=True, capture_output=True, text=True, env=environment)
        for command in ([script], [sys.executable, "-m", "speechframe"])
    ]
    assert ends[0].stdout == ends[1].stdout
    assert ends[0].stdout.startswith("speechframe ")


def test_a_folder_of_parquet_and_an_address_are_tables(here, tmp_path):
    for number in range(2):
        (tmp_path / "lines").mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": ["Good morning."]}), tmp_path / f"lines/{number}.parquet")
    for run, table in (("one", "lines"), ("two", f"file://{tmp_path}/lines")):
        said = here("generate", table, "--text", "text", "--voice", "nora", "--run-dir", run, "--dry-run")
        assert (said.code, "2 rows" in said.out) == (0, True), said
        assert here("resume", run, "--table", table, "--dry-run").code == 0
