"""A run that paces its calls together with others of its key: what is no call leaves its turn to them."""

import math
import time
from types import SimpleNamespace

import pytest
from faulty import statuses

from speechframe.old_batch import connection
from speechframe.old_batch import turns as pacing
from speechframe.old_batch.cap import Cap
from speechframe.old_batch.news import News
from speechframe.old_batch.permits import SharedPermits
from speechframe.old_batch.places import TURNS
from speechframe.old_batch.rate import Rate
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


def test_a_first_guess_is_told_to_nobody_and_what_stood_its_trial_is(tmp_path):
    permits, rate = SharedPermits(tmp_path, name="key"), Rate()
    news = News(Cap(2, 50), rate, permits)
    for number in range(10):
        rate.passed(number / 10, number)
    rate.proved(1.0, processes=2)
    news.tell_refused(1.0, is_shared=True)
    assert rate.per_second is not None
    assert permits.learned.rate is None
    for number in range(10, 13):
        assert not news.is_untold
        rate.begin(1.0, number)
        rate.passed(1.0, number)
    news.tell(1.0, is_shared=True)
    assert permits.learned.rate == rate.known
    # From then on also what is refused, and that it was no rate.
    for number in range(13, 100):
        rate.begin(1.0, number)
        rate.refused(1.0, number)
        news.tell(1.0, is_shared=True)
        assert permits.learned.rate == (rate.known or (0.0, 0.0, 0.0))
    assert rate.per_second is None
    permits.close()


def test_pacing_goes_on_when_the_count_of_turns_begins_anew(tmp_path, monkeypatch):
    now_s = len(TURNS) / 10_000 - 0.25
    monkeypatch.setattr(pacing, "time", SimpleNamespace(monotonic_ns=lambda: int(1e9 * now_s)))
    permits, waits_s = SharedPermits(tmp_path, name="lane"), []
    for _ in range(20):
        waits_s.append(permits.turn_s(0.1))
        now_s += waits_s[-1]
    permits.close()
    assert waits_s[:5] == pytest.approx([0, 0.1, 0, 0.1, 0], abs=1e-3)
    assert waits_s.count(0) >= 10
