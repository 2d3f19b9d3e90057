"""The budget that stands in run.json: what a resume goes by when it is given none."""

import json
from decimal import Decimal
from fractions import Fraction
from math import inf

import numpy as np
import pytest

import speechframe as spf
from speechframe.old_batch.ahead import Outlook
from speechframe.old_store import RunFolder
from speechframe.old_store.run_state import STATE_KEY, STOPPED
from speechframe.spec.billing import billed_characters

LINES = [f"This is line {i}." for i in range(4)]
OTHERS = [f"Something else that is number {i}." for i in range(4)]
EACH = billed_characters(LINES[0])


def kept(run):
    """What run.json says, read as JSON has it."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads((run.path / "run.json").read_text(), parse_constant=refuse)["max_credits"]


@pytest.fixture
def resume(faulty):
    def call(run, *table, **options):
        return spf.resume(run, *table, service=faulty.settings, progress=False, **options)

    return call


@pytest.mark.sampled(1)
@pytest.mark.parametrize("more", [np.int64(1_000), np.float32(1_000), Fraction(1_000), Decimal(1_000)])
def test_a_resume_takes_any_kind_of_number(faulty, speak, resume, more):
    run = speak(faulty, LINES, max_credits=EACH)
    assert resume(run, max_credits=more).status == "finished"
    assert kept(run) == 1_000


def test_that_there_is_no_limit_is_kept(faulty, speak, resume):
    spf.configure(max_credits=5 * EACH)
    run = speak(faulty, LINES, max_credits=inf)
    assert kept(run) == "inf"
    assert resume(run, OTHERS).status == "finished"
    assert kept(run) == "inf"
    # A finite one takes its place, and a run that says nothing goes by what all runs are given.
    assert resume(run, [*LINES, "More."], max_credits=EACH).stopped_because == "budget"
    with run._folder.lock():
        run._folder.update_manifest(extra={**run._folder.manifest.extra, "max_credits": None})
    assert resume(run, [*LINES, "More."]).stopped_because == "budget"
    assert kept(run) == 5 * EACH


def test_a_dry_run_s_limit_that_is_none_is_kept(faulty, speak, resume):
    planned = speak(faulty, LINES, max_credits=inf, dry_run=True)
    assert kept(planned) == "inf"
    spf.configure(max_credits=EACH)
    assert resume(planned).status == "finished"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("look", [{}, {"max_credits": 90 * EACH}, {"max_credits": inf}])
def test_a_look_at_another_table_leaves_a_plan_s_budget_alone(faulty, speak, resume, look):
    planned = speak(faulty, LINES, max_credits=2 * EACH, dry_run=True)
    speak(faulty, OTHERS, dry_run=True, **look)
    resume(planned, OTHERS, dry_run=True, **look)
    assert kept(planned) == 2 * EACH
    run = resume(planned)
    assert (run.stopped_because, faulty.characters) == ("budget", 2 * EACH)


def test_a_look_at_its_own_table_changes_a_plan_s_budget_where_it_names_one(faulty, speak, resume):
    planned = speak(faulty, LINES, max_credits=2 * EACH, dry_run=True)
    speak(faulty, LINES, dry_run=True)
    resume(planned, dry_run=True)
    assert kept(planned) == 2 * EACH
    speak(faulty, LINES, dry_run=True, max_credits=3 * EACH)
    assert kept(planned) == 3 * EACH
    resume(planned, dry_run=True, max_credits=EACH)
    assert kept(planned) == EACH
    resume(planned)
    assert faulty.characters == EACH


def test_a_look_leaves_alone_what_was_started_meanwhile(faulty, speak, resume, monkeypatch):
    planned = speak(faulty, LINES, max_credits=EACH, dry_run=True)
    look = Outlook.ahead

    def overtaken(self, *args):
        found = look(self, *args)
        other = RunFolder.open(planned.path)
        with other.lock():
            other.update_manifest(extra={**other.manifest.extra, STATE_KEY: STOPPED, "max_credits": 7})
        return found

    monkeypatch.setattr(Outlook, "ahead", overtaken)
    resume(planned, dry_run=True, max_credits=9 * EACH)
    assert kept(planned) == 7


def test_redo_of_a_plan_refuses_the_rows_that_its_resume_refuses(faulty, speak, resume):
    planned = speak(faulty, [*LINES, ""], dry_run=True)
    for options in ({}, {"redo": ["0"]}):
        with pytest.raises(spf.errors.InvalidRows) as caught:
            resume(planned, **options)
        assert [found["row_id"] for found in caught.value.problems] == ["4"]
    assert faulty.seen == []
    assert resume(planned, redo=["0"], dry_run=True).estimate.invalid == 1
    run = resume(planned, redo=["0"], on_invalid="skip")
    # What was made without them is not asked about again.
    assert resume(run, redo=["1"]).stats["done"] == 4
