"""Other takes: rows keep what they are called, and a take without audio hides none that was paid for."""

import os
import subprocess
import sys
import textwrap

import pandas as pd
import pytest
from faulty import RATE_HZ, check_books, statuses

import speechframe as spf
from speechframe.old_batch import driver
from speechframe.old_store import RunFolder

LINES = [f"This is the line with the number {i}, and it is not short." for i in range(3)]
INDEXES = {
    "words": ["x", "y", "z"],
    "shuffled": [2, 0, 1],
    "filtered": pd.RangeIndex(10, 40, 10),
    "dates": pd.date_range("2026-01-01", periods=3, tz="Europe/Paris"),
    "two levels": pd.MultiIndex.from_tuples([("a", 2), ("a", 0), ("b", 1)], names=["book", "line"]),
    "categories": pd.CategoricalIndex(["low", "high", "mid"]),
}


def redone(run, server, redo, **options):
    return spf.resume(run, redo=redo, service=server.settings, progress=False, **options)


def named(run):
    return dict(zip(run.to_pandas()["text"], run._values("speech_row_id"), strict=True))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", INDEXES)
def test_rows_are_called_as_before_after_another_take(faulty, speak, kind):
    frame = pd.DataFrame({"text": LINES}, index=INDEXES[kind])
    run = speak(faulty, frame)
    before = named(run)
    for times in (1, 2):
        run = redone(run, faulty, [before[LINES[1]]])
        assert run.to_pandas()["take"].tolist() == [0, times, 0]
        assert named(run) == before
    assert run.clip(before[LINES[1]]).text == LINES[1]
    assert run.to_pandas().index.equals(frame.index)
    changes = spf.changes(run, frame, service=faulty.settings)
    # The table asks for no other take of the row.
    assert (changes.new, changes.changed, changes.removed) == ((), (before[LINES[1]],), ())
    assert [faulty.sends(line) for line in LINES] == [1, 3, 1]


def test_rows_are_called_as_before_after_takes_made_by_themselves(faulty, speak):
    faulty.audio_for, faulty.wrong_for = {LINES[2]: "Hm."}, 1
    run = speak(faulty, pd.DataFrame({"text": LINES}, index=[2, 0, 1]), max_retakes=1)
    assert named(run) == dict(zip(LINES, "201", strict=True))
    assert (run.clip(0).text, run.clip(1).text) == (LINES[1], LINES[2])


def test_a_rejected_row_is_the_same_one_after_another_was_redone(faulty, speak):
    run = speak(faulty, pd.DataFrame({"text": LINES}, index=["x", "y", "z"]))
    run = redone(run, faulty, ["y"])
    run.review("z", "reject")
    run = redone(run, faulty, "rejected")
    assert run.to_pandas()["take"].tolist() == [0, 1, 1]


KILLED = """
    import os, signal
    import speechframe as spf
    from speechframe.old_batch.driver import Driver
    from speechframe.settings import Settings
    made = Driver._make
    def make(self, ahead):
        if self._round:
            os.kill(os.getpid(), signal.SIGKILL)
        return made(self, ahead)
    Driver._make = make
    service = Settings(api_key="sk-faulty", base_url={url!r}, profile="faulty")
    spf.generate({lines!r}, voice="nora", sample_rate={rate}, service=service, progress=False, max_retakes=1,
                 run_dir={run_dir!r})
"""


@pytest.fixture(params=[None, "run"])
def killed(request, faulty, speak, tmp_path, monkeypatch):
    """The call of a run that was killed when it was about to send another take of its suspect row."""
    monkeypatch.chdir(tmp_path)
    faulty.audio_for = {LINES[1]: "Hm."}
    code = KILLED.format(url=faulty.url, lines=LINES, rate=RATE_HZ, run_dir=request.param)
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=os.environ, check=False)
    assert (ended.returncode, faulty.sends(LINES[1])) == (-9, 1)
    return lambda **options: speak(faulty, LINES, run_dir=request.param, **options)


def shown(run):
    return [*statuses(run).values()], run.to_pandas()["take"].tolist()


@pytest.mark.slow
def test_killed_before_the_take_it_is_made_by_the_next_call(faulty, killed):
    faulty.audio_for = {}
    looked = killed(dry_run=True)
    assert (looked.estimate.finished, looked.estimate.calls) == (2, 1)
    run = killed()
    assert (run.status, shown(run)) == ("finished", (["done"] * 3, [0, 1, 0]))
    assert killed().estimate.calls == 0
    check_books(run, faulty)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["refused", "budget"])
def test_killed_before_the_take_that_then_cannot_be_made_the_paid_audio_is_shown(faulty, killed, way):
    faulty.forever = {LINES[1]: 400} if way == "refused" else {}
    for _ in range(2):
        run = killed(max_credits=float("inf") if way == "refused" else 10)
        assert (run.status, shown(run)) == ("finished", (["done", "suspect", "done"], [0, 0, 0]))
        assert run.clip("1").credits == len(LINES[1])
    assert run.estimate.calls == 0


def test_a_take_of_a_take_that_fails_leaves_the_one_before(faulty, speak, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    faulty.audio_for = {LINES[1]: "Hm."}
    for retakes in (1, 0):
        assert shown(speak(faulty, LINES, run_dir=None, max_retakes=retakes))[1] == [0, 1, 0]
    faulty.scripts = {LINES[1]: [400]}
    run = speak(faulty, LINES, run_dir=None, max_retakes=2)
    assert (run.status, shown(run)) == ("finished", (["done", "suspect", "done"], [0, 1, 0]))


@pytest.mark.parametrize("step", [400, "truncated"])
def test_a_take_that_fails_ends_no_takes_of_other_rows(make_faulty, speak, step):
    server = make_faulty(delay_s=0.01)
    server.audio_for, server.wrong_for = dict.fromkeys(LINES[1:], "Hm."), 2
    server.scripts = {LINES[1]: ["ok", step]}
    run = speak(server, LINES, max_retakes=3, max_attempts=1, on_error="raise")
    assert (run.status, shown(run)) == ("finished", (["done", "suspect", "done"], [0, 0, 2]))
    # It is tried once, and not in every round.
    assert [server.sends(line) for line in LINES] == [1, 2, 3]
    assert run.clip("1").credits == len(LINES[1])
    check_books(run, server)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["run"], indirect=True)
def test_a_take_of_a_killed_run_that_fails_ends_no_takes_of_other_rows(faulty, killed, speak):
    more = "One more line of this kind, with a take of its own."
    faulty.audio_for, faulty.wrong_for, faulty.forever = {more: "Hm."}, 1, {LINES[1]: 400}
    run = speak(faulty, [*LINES, more], run_dir="run", max_retakes=2)
    assert (run.status, shown(run)) == ("finished", (["done", "suspect", "done", "done"], [0, 0, 0, 1]))
    assert (faulty.sends(LINES[1]), faulty.sends(more)) == (2, 2)


def test_somebody_else_has_the_run_when_a_take_is_to_stand_and_nothing_is_left_half(
    faulty, speak, monkeypatch
):
    faulty.audio_for = {LINES[1]: "Hm."}
    own, others = driver.prepare, []

    async def prepare(*args):
        others.append(args)
        with RunFolder.open(args[4].run_dir).lock():
            return await own(*args)

    with monkeypatch.context() as theirs:
        theirs.setattr(driver, "prepare", prepare)
        run = speak(faulty, LINES, max_retakes=1)
    assert len(others) == 1
    again = speak(faulty, LINES)
    assert (again.status, again.estimate.calls, shown(again)[1]) == ("finished", 0, [0, 0, 0])
    assert (run.status, faulty.sends(LINES[1])) == ("finished", 1)
