"""What a run says of itself: status, why it stopped, and a summary for people."""

import pickle
import shutil

from tests.rooms.scripted import Scripted, begun, make

import speechframe as spf
from speechframe.writing.notebook import Problems


def test_a_summary_counts_rows_and_warnings_and_says_what_to_do(tmp_path):
    texts = [f"warned {number}" for number in range(60, 65)]
    run = spf.open_run(make(tmp_path / "run", [*texts, "suspect", "line", "last"], max_credits=6).path)
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    first, rows, spent, *others = run.summary().splitlines()
    assert first.endswith("run: stopped (budget)")
    assert rows == "8 rows: 2 pending, 5 done, 1 suspect; 6.0 s of audio"
    assert spent == "6 credits in 6 attempts on scripted/1"
    warned = "10 warnings: 5 pause of … s was clamped (pause of 60 s was clamped), 5 slow; run.warnings"
    assert others[0].startswith(warned)
    assert "max_credits=6: 6 spent" in others[1]
    assert others[2].startswith("error_message says what is suspect")
    for shown in (repr(run), run._repr_html_()):
        assert "stopped (budget)" in shown
        assert "10 warnings: 5 pause of" in shown


def test_the_repr_of_a_run_of_this_process_reads_none_of_its_rows(tmp_path):
    run = make(tmp_path / "run", ["warned 60", "line"])
    shutil.rmtree(run.path / "parts")
    assert "2 warnings: 1 pause of … s was clamped (pause of 60 s was clamped), 1 slow" in repr(run)


def test_a_run_whose_process_died_is_stopped_and_one_that_is_locked_is_running(tmp_path):
    live = begun(tmp_path / "run", ["line", "slow"], 1)
    # As a kill would leave it.
    shutil.copytree(live.path, tmp_path / "killed")
    run, killed = spf.open_run(live.path), spf.open_run(tmp_path / "killed")
    assert (run.status, run.stopped_because) == ("running", None)
    assert (killed.status, killed.stopped_because) == ("stopped", "interrupted")
    assert killed.summary().splitlines()[-1] == "resume(run, backend=...) goes on where it stopped"
    live.stop(drain=False)
    live.wait()
    assert (run.status, run.stopped_because) == ("stopped", "stopped")


def test_what_is_to_be_done_goes_by_what_became_of_the_rows(tmp_path):
    for text, words in (
        ("unknown", 'resume(run, on_unknown="retry", backend=...)'),
        ("failed", "resume(run, backend=...) tries them again"),
        ("suspect", 'resume(run, redo="suspect", backend=...) makes another take'),
    ):
        assert words in make(tmp_path / text, ["line", text]).summary().splitlines()[-1]


def test_a_run_says_what_was_planned(tmp_path):
    run = make(tmp_path / "run", ["line"], dry_run=True)
    for shown in (repr(run), run._repr_html_()):
        assert "planned: 1 row, 1 unique, 1 call, 1 credit" in shown


def test_a_run_that_was_made_names_its_results_instead_of_its_plan(tmp_path):
    run = make(tmp_path / "run", ["line", "failed"])
    for shown in (repr(run), run._repr_html_()):
        assert "planned" not in shown
        assert "to resume" not in shown
    assert "2 of 2 calls, " in repr(run)
    assert "1 failed" in repr(run)
    again = spf.resume(run, backend=Scripted(), dry_run=True, progress=False)
    assert "to resume: 2 rows" in repr(again)


def test_what_a_run_returns_is_a_line_in_a_terminal_and_a_short_table_in_a_notebook(tmp_path):
    texts = [f"line {number}" for number in range(3000)]
    run = make(tmp_path / "run", texts)
    found = spf.changes(run, [*texts[:-1], "new"], backend=Scripted())
    many = Problems([{"row_id": f"r{n}", "field": "voice", "problem": "is <unknown>"} for n in range(3000)])
    for value, words in (
        (run.progress, "3,000 of 3,000 calls"),
        (run.estimate, "3,000 rows, 3,000 unique, 3,000 calls"),
        (found, "0 new, 1 changed, 0 removed, 2,999 unchanged"),
    ):
        assert words in repr(value)
        assert len(repr(value).splitlines()) == 1
        assert "<table>" in value._repr_html_()
        assert max(len(repr(value)), len(value._repr_html_())) < 2000
    assert repr(many).splitlines()[0] == "3,000 problems"
    assert "... and 2,995 more" in repr(many)
    assert many._repr_html_().count("is &lt;unknown&gt;") == 5
    assert pickle.loads(pickle.dumps(many)) == many
