"""What a run says of itself: status, why it stopped, and a summary for people."""

import shutil

from tests.rooms.scripted import begun, make

import speechframe as spf


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
