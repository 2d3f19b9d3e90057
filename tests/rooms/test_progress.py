"""The progress of a run: what is counted, and where it is shown."""

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
    done = subprocess.run(
        [sys.executable, "-c", A_RUN.format(show=show)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == ""
    if not show:
        assert done.stderr == ""
        return
    lines = done.stderr.splitlines()
    assert lines[0] == PLAN
    assert lines[1] == "warning (half_spoken): row 2: 4 of 9 words were heard"
    assert lines[-1].startswith("2 warnings: 2 half_spoken (row 2: 4 of 9 words were heard)")
    assert len(lines) == 3


def test_on_a_terminal_a_bar_follows_the_plan():
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 100))
    done = subprocess.Popen([sys.executable, "-c", A_RUN.format(show=True)], stdout=writer, stderr=writer)
    os.close(writer)
    shown = b""
    # The other end of a terminal is gone with its last writer: that is an error, not an end.
    while chunk := _read(reader):
        shown += chunk
    os.close(reader)
    assert done.wait(60) == 0
    text = shown.decode()
    assert text.startswith(PLAN)
    assert "4/4" in text
    assert "credits=12" in text


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""


def test_in_a_notebook_the_bar_begins_with_the_plan_and_nothing_is_red():
    begin, goes_on = A_RUN.format(show=True).split("for number")
    cells = [nbformat.v4.new_code_cell(code) for code in (begin, f"for number{goes_on}")]
    client = NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=60, kernel_name="python3")
    labels = []

    def keep(**_):
        # tqdm's labels have spaces of its own.
        values = [str(state["value"]) for state in client.widget_state.values() if "value" in state]
        labels.append([value.replace("\u2007", " ") for value in values])

    client.on_cell_executed = keep
    client.execute()
    assert any(value.startswith(PLAN) for value in labels[0]), labels
    assert not any(PLAN in value for value in labels[1]), "the plan was not followed by the figures"
    assert not [output for cell in cells for output in cell.outputs if output.get("name") == "stderr"]
    assert "warning (half_spoken): row 2" in str(cells[1].outputs)
