"""The budget that stands in run.json: what a resume goes by when it is given none."""

import json
from fractions import Fraction
from math import inf

import numpy as np
import pytest

import speechframe as spf
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


@pytest.mark.parametrize("more", [np.int64(1_000), np.float32(1_000), Fraction(1_000)])
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
