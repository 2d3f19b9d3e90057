"""The progress of a run: what is counted, and where it is shown."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.rooms.scripted import begun, make

from forked import Program

PLAN = "scripted on scripted/1: 4 rows, 4 unique, 4 calls, 4 credits, 1 at a time"
A_RUN = """
import sys, time
sys.path.insert(0, {tests!r})
from rooms.scripted import Scripted, make
if {hurries}:
    clock = time.monotonic
    time.monotonic = lambda: 100 * clock()
def audio(text, take):
    time.sleep(0.25)
    return b"heard"
make({folder!r}, ["line 1", "warned 61", "warned 62", "line 4"], backend=Scripted(audio=audio), progress={show})
"""


def a_run(folder, *, show=True, hurries=False):
    tests = str(Path(__file__).parents[1])
    return Program(A_RUN.format(tests=tests, folder=str(folder / "run"), show=show, hurries=hurries))


def test_what_became_of_each_call_is_counted(tmp_path):
    texts = ["line", "suspect", "failed", "unknown", "warned 60"]
    live = begun(tmp_path / "run", texts, 5)
    counts, failed_by = live.wait().progress.to_dict(), live.progress.failed_by
    wanted = {
        "done": 2, "cached": 0, "suspect": 1, "failed": 1, "charged_unknown": 1, "total": 5, "retries": 0,
        "warnings": 2, "audio_seconds": 3.0,
    }  # fmt: skip
    assert {name: counts[name] for name in wanted} == wanted
    assert failed_by == {"BadRequest": 1, "ConnectionFailed": 1}
    assert counts["credits"] == live.ledger["credits"].sum()


@pytest.mark.parametrize("show", [True, False])
def test_without_a_terminal_there_are_lines_and_nothing_at_all_when_switched_off(tmp_path, show):
    command = [sys.executable, "-c", a_run(tmp_path, show=show)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    lines = [line.partition(" [")[0] for line in done.stderr.splitlines()]
    kinds = "pause of … s was clamped (pause of 61 s was clamped), 2 slow; run.warnings shows them"
    words = [PLAN, "warning (pause of … s was clamped): pause of 61 s was clamped", "warning: slow",
             f"4 warnings: 2 {kinds}"]  # fmt: skip
    assert lines == (words if show else [])


def test_now_and_then_a_line_says_how_far_it_is(tmp_path):
    command = [sys.executable, "-c", a_run(tmp_path, hurries=True)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
    assert re.search(r"^scripted on scripted/1: [123]/4 calls, .* a second, about ", said, re.MULTILINE), said


def run_on_terminal(program, columns):
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, columns))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.Popen([sys.executable, "-c", program], stdout=writer, stderr=writer, env=env)
    os.close(writer)
    shown = b""
    # The other end of a terminal is gone with its last writer: that is an error, not an end.
    with contextlib.suppress(OSError):
        while chunk := os.read(reader, 4096):
            shown += chunk
    os.close(reader)
    assert done.wait(60) == 0
    return shown.decode()


def test_on_a_terminal_a_bar_follows_the_plan(tmp_path):
    text = run_on_terminal(a_run(tmp_path), columns=100)
    assert text.startswith(PLAN)
    assert "4/4" in text
    assert "4 credits" in text


def test_on_a_narrow_terminal_the_plan_and_the_bar_are_a_line_each(tmp_path):
    shown = run_on_terminal(a_run(tmp_path), columns=56)
    plan, *lines = (line for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[A", "", shown)) if line.strip())
    bars = [line for line in lines if "%|" in line]
    assert plan == "scripted on scripted/1: 4 rows, 4 calls, 4 credits"
    assert max(map(len, bars)) <= 56
    assert "4 credits]" in bars[-1]


def test_a_notebook_shows_a_warning_once_in_lines_that_fit(tmp_path, monkeypatch, capsys):
    shell = SimpleNamespace(kernel=object(), execution_count=3, config={})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    run = make(
        tmp_path / "run",
        [*(f"warned {number}" for number in range(61, 65)), "last"],
        max_credits=3,
        progress=True,
    )
    printed, html = capsys.readouterr().out, run._repr_html_()
    told = " ".join((printed + html).split())
    assert (told.count("pause of 61 s was clamped"), told.count("6 warnings: ")) == (1, 1)
    lines = [line for line in re.split(r"[\r\n]+", printed) if "%|" not in line]
    assert max(map(len, lines)) <= 58, lines
    assert "word-break: normal" in html, "JupyterLab breaks words elsewhere"
    shell.execution_count = 4
    assert "pause of 61 s was clamped" in run._repr_html_(), "another cell shows it again"


@pytest.mark.slow
def test_in_a_notebook_the_plan_is_the_label_of_the_bar_and_nothing_is_red(tmp_path):
    import nbformat  # takes seconds
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(a_run(tmp_path))])
    client = NotebookClient(notebook, timeout=60, kernel_name="python3")
    client.execute()
    # tqdm's labels have spaces of its own.
    shown = [str(state.get("value")).replace("\u2007", " ") for state in client.widget_state.values()]
    assert "4 rows, 4 calls, 4 credits: 100%" in shown
    assert any("4 credits" in value for value in shown), shown
    outputs = notebook.cells[0].outputs
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert "run.warnings shows them" in str(outputs)
