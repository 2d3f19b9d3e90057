"""What a run says of itself: status, why it stopped, and a summary for people."""

from tests.rooms.run_folders import Writer, frame_of, make_run, new_folder

from speechframe.batch.live import Run, open_run
from speechframe.batch.plan import Estimate


def summary_of(run):
    return run.summary().splitlines()


def test_a_summary_counts_rows_and_warnings_and_says_what_to_do(tmp_path):
    folder = new_folder(tmp_path / "run")
    texts = [f"line {number}" for number in range(8)]
    manifest = make_run(folder, frame_of(texts))
    writer = Writer(folder)
    for number, text in enumerate(texts[:5]):
        writer.answer(text, warnings=[f"pause of {number + 60} s was clamped", *["slow"] * (number < 2)])
    writer.answer(texts[5], "suspect", error_message="too short")
    writer.cut()
    manifest.state, manifest.stopped_because = "stopped", "budget"
    manifest.stopped_words = "max_credits=6 leaves 0; give 8"
    manifest.write(folder)
    run = open_run(folder.path)
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    first, rows, credits, *others = summary_of(run)
    assert first.endswith("run: stopped (budget)")
    assert rows == "8 rows: 2 pending, 5 done, 1 suspect; 6.0 s of audio"
    assert credits.startswith("6 credits in 6 attempts on test/1")
    warned = "7 warnings: 5 pause of … s was clamped (pause of 60 s was clamped), 2 slow (slow); run.warnings"
    assert others[0].startswith(warned)
    assert others[1] == "max_credits=6 leaves 0; give 8"
    assert others[2].startswith("error_message says what is suspect")
    assert "stopped (budget): max_credits=6 leaves 0; give 8; 7 warnings: 5 pause of" in repr(run)
    assert "7 warnings: 5 pause of" in run._repr_html_()


def test_a_run_whose_process_died_is_stopped_and_one_that_is_locked_is_running(tmp_path):
    folder = new_folder(tmp_path / "run")
    manifest = make_run(folder, frame_of(["a"]))
    manifest.state = "running"
    manifest.write(folder)
    run = open_run(folder.path)
    with folder.lock():
        assert (run.status, run.stopped_because) == ("running", None)
        assert open_run(folder.path).status == "running"
    assert (run.status, run.stopped_because) == ("stopped", "interrupted")
    assert summary_of(run)[-1] == "resume(run) goes on where it stopped"
    manifest.state = "finished"
    manifest.write(folder)
    assert run.status == "finished"


def test_what_is_to_be_done_goes_by_what_became_of_the_rows(tmp_path):
    folder = new_folder(tmp_path / "run")
    manifest = make_run(folder, frame_of(["a", "b"]))
    manifest.state, manifest.remark = "finished", "words are aligned with the audio"
    manifest.write(folder)
    writer = Writer(folder)
    writer.answer("a", "charged_unknown")
    writer.cut()
    words = summary_of(open_run(folder.path))
    assert "words are aligned with the audio" in words
    assert 'resume(run, on_unknown="retry")' in words[-1]
    writer.answer("b", "failed")
    assert "resume(run) tries them again" in summary_of(open_run(folder.path))[-1]


def test_a_run_says_what_was_planned(tmp_path):
    folder = new_folder(tmp_path / "run")
    make_run(folder, frame_of(["a"]))
    run = Run(folder, estimate=Estimate(rows=1, unique=1, finished=0, invalid=0, calls=1, credits=1))
    assert "planned: 1 row, 1 unique, 1 call, 1 credit" in repr(run)
    assert "planned: 1 row, 1 unique, 1 call, 1 credit" in run._repr_html_()
