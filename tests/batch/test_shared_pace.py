"""A run that paces its calls together with others of its key: what is no call leaves its turn to them."""

import math
import time

import pytest
from faulty import statuses

from speechframe.batch import connection
from speechframe.batch.permits import SharedPermits
from speechframe.spec.billing import billed_characters

LINES = [f"This is line {i}." for i in range(20)]
PER_SECOND = 500.0


class Counted(SharedPermits):
    """Counts turns that were taken."""

    turns = 0

    def turn_s(self, gap_s):
        wait_s = super().turn_s(gap_s)
        self.turns += not wait_s
        return wait_s


@pytest.fixture
def paced(monkeypatch):
    """Have every run find another that uses its key and paces its calls; hold the runs' permits."""
    mine, others = [], []

    def shared(folder, *, name):
        others.append(SharedPermits(folder, name=name))
        others[-1].publish(4, time.time(), rate=(PER_SECOND, PER_SECOND, math.inf))
        mine.append(Counted(folder, name=name))
        return mine[-1]

    monkeypatch.setattr(connection, "SharedPermits", shared)
    yield mine
    for permits in others:
        permits.close()


def turns(paced):
    return sum(permits.turns for permits in paced)


def test_rows_of_the_cache_take_no_turn(faulty, speak, paced, tmp_path):
    speak(faulty, LINES[:16], run_dir=tmp_path / "first", cache=tmp_path / "calls")
    assert turns(paced) == len(faulty.seen) == 16
    run = speak(faulty, LINES, run_dir=tmp_path / "again", cache=tmp_path / "calls")
    assert (run.status, run.progress.cached) == ("finished", 16)
    assert turns(paced) == len(faulty.seen) == 20


def test_rows_on_hold_take_no_turn(faulty, speak, paced):
    faulty.delay_s = 0.1
    run = speak(faulty, LINES, max_credits=3 * billed_characters(LINES[0]))
    assert (run.stopped_because, list(statuses(run).values()).count("done")) == ("budget", 3)
    assert turns(paced) == len(faulty.seen) == 3
