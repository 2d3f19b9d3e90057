"""A service that limits calls a second, on a real port: its rows come about as fast as it lets them."""

import pytest

from speechframe.testing import FaultyService

RATE = 20


@pytest.mark.sampled(2)
@pytest.mark.quiet
@pytest.mark.parametrize(
    ("knobs", "options", "rows"),
    [
        ({"latency": 0.01}, {}, 80),
        ({"latency": 0.01, "retry_after": None}, {}, 80),
        ({"latency": 0.2}, {"max_concurrency": None}, 100),
        ({"latency": 0.02, "burst": 5}, {"max_concurrency": 50}, 80),
    ],
    ids=["answered at once", "told no wait", "answered slowly", "in bursts"],
)
def test_calls_a_second_are_paced_at_what_the_service_takes(speak, knobs, options, rows):
    with FaultyService(rate=RATE, **knobs) as service:
        run = speak(service, [f"row {i}" for i in range(rows)], wait=False, **options)
        run.wait(60)
        books = service.books()
    assert (run.status, books.answered, run.progress.done) == ("finished", rows, rows)
    assert books.last_at - books.started_at <= 2 * rows / RATE
    assert books.early_retries == 0
    assert books.refused <= 0.4 * rows


@pytest.mark.slow
@pytest.mark.parametrize("latency", [0.01, 0.2])
def test_a_cap_of_one_is_no_rate(speak, latency):
    rows = 60 if latency < 0.1 else 20
    with FaultyService(cap=1, latency=latency) as service:
        run = speak(service, [f"row {i}" for i in range(rows)], wait=False, max_concurrency=None)
        run.wait(60)
        books = service.books()
    assert (run.status, run.progress.done, books.early_retries) == ("finished", rows, 0)
    assert books.refused <= 0.2 * rows
