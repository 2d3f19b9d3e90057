"""The progress of a run: what is counted, and where it is shown."""

import contextlib
import os
import pty
import subprocess
import sys
import termios

import nbformat
import pytest
from nbclient import NotebookClient

from speechframe.batch.progress import Outcome, Progress
from speechframe.errors import TimedOut

PLAN = "generate on local: 4 rows, 4 calls, 12 credits"
A_RUN = """
import time
from speechframe.batch.progress import Outcome, Progress
progress = Progress("call", 4, {show}, "generate on local: 4 rows, 4 calls, 12 credits")
for number in range(4):
    time.sleep(0.25)
    progress.add(Outcome(str(number), "00", "done", 1, 1.5, 3000))
progress.warn("half_spoken", "row 2: 4 of 9 words were heard")
progress.warn("half_spoken", "row 3: 5 of 9 words were heard")
progress.close()
"""


def test_what_became_of_each_call_is_counted():
    progress = Progress("call", 5, False, PLAN)
    for status in ("done", "cached", "suspect"):
        progress.add(Outcome("1", "00", status, 1, 2.0, 1500))
    for status in ("failed", "charged_unknown"):
        progress.add(Outcome("1", "00", status, 6, error=TimedOut("no answer", sent=True)))
    progress.retried("503")
    progress.warn("half_spoken", "row 2")
    counts = progress.to_dict()
    wanted = {
        "done": 1, "cached": 1, "suspect": 1, "failed": 1, "charged_unknown": 1, "total": 5, "retries": 1,
        "warnings": 1, "credits": 4.5, "audio_seconds": 6.0,
    }  # fmt: skip
    assert {name: counts[name] for name in wanted} == wanted
    assert progress.ended == 5
    assert progress.failed_by == {"TimedOut": 2}


@pytest.mark.parametrize("show", [True, False])
def test_without_a_terminal_there_are_lines_and_nothing_at_all_when_switched_off(show):
    command = [sys.executable, "-c", A_RUN.format(show=show)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    example = "half_spoken (row 2: 4 of 9 words were heard)"
    words = [PLAN, "warning (half_spoken): row 2: 4 of 9 words were heard", f"2 warnings: 2 {example}"]
    lines = done.stderr.splitlines()
    assert len(lines) == (3 if show else 0)
    assert all(line.startswith(said) for line, said in zip(lines, words, strict=False))


def test_now_and_then_a_line_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr("speechframe.batch.progress._LINE_S", 0)
    Progress("call", 4, True, PLAN).add(Outcome("1", "00", "suspect", 1, 1.5, 3000))
    assert "generate on local: 1/4 calls, " in capsys.readouterr().err.splitlines()[1]


def test_on_a_terminal_a_bar_follows_the_plan():
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 100))
    done = subprocess.Popen([sys.executable, "-c", A_RUN.format(show=True)], stdout=writer, stderr=writer)
    os.close(writer)
    shown = b""
    # The other end of a terminal is gone with its last writer: that is an error, not an end.
    with contextlib.suppress(OSError):
        while chunk := os.read(reader, 4096):
            shown += chunk
    os.close(reader)
    assert done.wait(60) == 0
    text = shown.decode()
    assert text.startswith(PLAN)
    assert "4/4" in text
    assert "credits=12" in text


def test_in_a_notebook_the_plan_is_the_label_of_the_bar_and_nothing_is_red():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(A_RUN.format(show=True))])
    client = NotebookClient(notebook, timeout=60, kernel_name="python3")
    client.execute()
    # tqdm's labels have spaces of its own.
    shown = [str(state.get("value")).replace("\u2007", " ") for state in client.widget_state.values()]
    assert any(value.startswith(PLAN) for value in shown), shown
    assert any("credits=12" in value for value in shown), shown
    outputs = notebook.cells[0].outputs
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert "warning (half_spoken): row 2" in str(outputs)
