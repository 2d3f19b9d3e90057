"""A doubt about the balance, on a real port: who is asked, how often, and what a stop while it is asked leaves."""

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest
from aiohttp import web
from faulty import Faulty, check_books, statuses
from tenacity import wait_fixed

from speechframe.old_batch import retry
from speechframe.spec.billing import billed_characters

LINES = [f"This is line {i:02d}." for i in range(30)]
EACH = billed_characters(LINES[0])
ODD = LINES[9]


@dataclass
class Asked(Faulty):
    """A service that counts how often its page of limits is read.

    Parameters
    ----------
    page_waits
        The page gives no answer while this is set, its first reading aside.
    page_tells
        How many readings say what is left.
    page_goes
        The page is there for its first reading only.
    page_read
        How often it was read.
    """

    page_waits: bool = False
    page_tells: int = 10**9
    page_goes: bool = False
    page_read: int = 0

    async def limits(self, request):
        self.page_read += 1
        number, quota = self.page_read, self.quota
        if self.page_goes and number > 1:
            raise web.HTTPNotFound
        while self.page_waits and number > 1:  # noqa: ASYNC110 - it is another thread that lets it go on
            await asyncio.sleep(0.005)
        self.quota = quota if number <= self.page_tells else None
        try:
            return await super().limits(request)
        finally:
            self.quota = quota


@pytest.fixture
def asked():
    """A service whose tenth answer says that 3 characters are left, of a million."""
    server = Asked(quota=10**6, delay_s=0.005, odd_balances={ODD: 3})
    server.up()
    yield server
    server.page_waits = False
    server.down()


def run_while_it_is_asked(asked, speak, *, width):
    """Return a live run that waits for the page."""
    asked.page_waits = True
    run = speak(asked, LINES, max_concurrency=width, wait=False)
    asked.until(lambda server: server.page_read == 2 and not server.in_flight)
    return run


def check_that_all_of_it_is_there(asked, speak, *, done):
    """Nothing is lost or paid twice: the run says what was made, and the next one makes the rest."""
    asked.page_waits = False
    asked.odd_balances = {}
    again = speak(asked, LINES)
    assert (again.status, again.estimate.finished) == ("finished", done)
    assert statuses(again) == dict.fromkeys(LINES, "done")
    assert asked.billed == Counter(LINES)
    check_books(again, asked)


# -- how often -----------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [1, 4])
def test_however_many_rows_wait_the_service_is_asked_once(asked, speak, width):
    run = run_while_it_is_asked(asked, speak, width=width)
    # Time for every worker to look at the queue again.
    with pytest.raises(TimeoutError):
        run.wait(0.2)
    asked.page_waits = False
    run.wait(60)
    # Before the first call, in doubt, and after the last call.
    assert (run.status, asked.page_read) == ("finished", 3)
    assert set(asked.billed.values()) == {1}


def test_as_soon_as_the_service_says_so_all_calls_go_on_side_by_side(asked, speak):
    run = run_while_it_is_asked(asked, speak, width=4)
    # None of these ends, so none of them can let the others go.
    asked.forever = {"*": "hang"}
    asked.page_waits = False
    asked.until(lambda server: server.in_flight == 4)
    run.stop(drain=False)
    run.wait(60)
    assert list(statuses(run).values()).count("charged_unknown") == 4


@pytest.mark.parametrize("width", [1, 4])
def test_a_service_whose_page_says_no_balance_is_asked_by_one_call(asked, speak, width):
    asked.page_tells = 0
    run = speak(asked, LINES, max_concurrency=width)
    assert (run.status, asked.page_read) == ("finished", 1)
    assert asked.billed == Counter(LINES)


@pytest.mark.parametrize("width", [1, 4])
def test_where_no_page_says_what_a_colleague_left_one_call_at_most_is_refused(asked, speak, width):
    asked.page_tells = 0
    asked.odd_balances, asked.colleagues = {}, {ODD: 10**6 - 13 * EACH}
    run = speak(asked, LINES, max_concurrency=width)
    assert (run.status, run.stopped_because, asked.page_read) == ("stopped", "quota", 1)
    assert asked.refused <= 1
    assert list(statuses(run).values()).count("done") == 13


@pytest.mark.parametrize("page_tells", [0, 1])
def test_a_call_that_went_well_ends_the_doubt_where_neither_page_nor_answers_say_a_balance(
    asked, speak, page_tells
):
    asked.page_tells = page_tells
    asked.odd_balances = {ODD: 3, **dict.fromkeys(LINES[10:])}
    # By then one call has found out; as long as the doubt lasts, each goes alone.
    asked.forever = dict.fromkeys(LINES[16:], "hang")
    run = speak(asked, LINES, wait=False)
    asked.until(lambda server: (len(server.seen), server.in_flight) == (20, 4))
    run.stop(drain=False)
    run.wait(60)
    assert (asked.page_read, asked.billed.total()) == (1 + page_tells, 16)


# -- a stop meanwhile ----------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("drain", [True, False])
def test_a_run_that_is_stopped_while_it_asks_sends_nothing_more_and_loses_no_row(asked, speak, width, drain):
    run = run_while_it_is_asked(asked, speak, width=width)
    sent = len(asked.seen)
    run.stop(drain=drain)
    # What the page says then would let it go on.
    asked.page_waits = False
    run.wait(60)
    assert (run.status, run.stopped_because) == ("stopped", "stopped" if drain else "interrupted")
    assert len(asked.seen) == sent == run.progress.done
    assert Counter(statuses(run).values()) == {"done": sent, "pending": 30 - sent}
    check_books(run, asked)
    check_that_all_of_it_is_there(asked, speak, done=sent)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("drain", [True, False])
def test_a_row_whose_answer_was_lost_stays_in_doubt_when_the_run_is_stopped_while_it_asks(
    asked, speak, monkeypatch, drain
):
    # Its repeat would be paid: it does not fit the balance that the other one says, so it is the one to ask.
    lost, odd = LINES[0], ODD
    monkeypatch.setattr(retry, "_backoff", wait_fixed(1.0))
    asked.idempotent, asked.delay_s = False, 0.1
    # Lost when the other was answered: the repeat is due after that, however slow this machine is.
    asked.held = [lost]
    asked.scripts = {lost: ["reset billed"]}
    asked.page_waits = True
    run = speak(asked, [lost, odd], max_concurrency=2, on_unknown="retry", wait=False)
    asked.until(lambda _: run.progress.done)
    asked.held = []
    asked.until(lambda server: server.page_read == 2 and not server.in_flight)
    run.stop(drain=drain)
    asked.page_waits = False
    run.wait(60)
    assert statuses(run) == {lost: "charged_unknown", odd: "done"}
    assert (asked.sends(lost), run.progress.unknown) == (1, 1)
    check_books(run, asked)


@pytest.mark.parametrize("width", [1, 4])
def test_what_a_page_that_is_gone_said_before_is_not_what_is_left(asked, speak, width):
    asked.page_goes = True
    run = speak(asked, LINES, max_concurrency=width)
    assert statuses(run) == dict.fromkeys(LINES, "done")
    assert asked.page_read >= 2
    assert run.progress.balance == 10**6 - len(LINES) * EACH
