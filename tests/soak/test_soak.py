"""Thousands of rows, a service that fails in every way, both ends killed: no row and no character is lost."""

import os
import time

import pytest
from soak_lab import soak

SEED = os.environ.get("SPEECHFRAME_SOAK_SEED") or str(time.time_ns())

both = pytest.mark.parametrize("honours", [True, False], ids=["with idempotency", "without idempotency"])


@pytest.mark.slow
@both
def test_one_kill_of_each_kind_loses_no_row_and_no_character(tmp_path, honours):
    with soak(tmp_path, SEED, rows=300, honours=honours, retry_after="float") as run:
        run.leg(("client",), share=0.3, credits=0.6)
        # More than its share: what the leg before left of its budget may be nothing, and the disk has to end it.
        run.leg(("disk",), share=0.1, credits=0.75)
        run.leg(("service",), share=0.1, credits=0.8)
        run.spend(0.85)
        run.finish()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@both
def test_soak_of_5000_rows(tmp_path, honours):
    with soak(tmp_path, SEED, rows=5000, honours=honours) as run:
        run.leg(("client",), share=0.3, credits=0.5)
        run.leg(("client",), share=0.3, credits=0.6)
        # More than its share: what the legs before left of their budgets may be nothing, and the disk has to end it.
        run.leg(("disk",), share=0.1, credits=0.75)
        run.leg(("service",), share=0.2, credits=0.8)
        run.leg(("client",), share=0.2, credits=0.85)
        run.spend(0.9)
        # What still fails after so few attempts is left to the next resume.
        run.leg((), share=1, credits=run.enough)
        run.finish()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@both
def test_soak_of_20_random_kills(tmp_path, honours):
    with soak(tmp_path, SEED, rows=1500, honours=honours, kills_early=True, part_rows=64) as run:
        kinds = [("client",), ("client",), ("service",), ("client", "service")]
        for _ in range(20):
            # Where the service alone is killed, the client goes on to the end of its budget: the next has its own.
            run.leg(run.draw.choice(kinds), share=0.03, credits=run.spent / run.cost + 0.05)
        run.finish()
