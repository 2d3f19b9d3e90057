"""What each fault ends in for the real client, and what the books say of it."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from speechframe import errors
from speechframe.spec.speech import Format
from speechframe.testing import Billed, FaultyService, tag_in, tag_of
from speechframe.testing.plan import Fault

TEXT = "Hello there."

# Step, what the client raises, whether it was billed.
ENDINGS = [
    ("400", errors.BadRequest, False),
    ("402", errors.PaymentRequired, False),
    ("403", errors.PermissionDenied, False),
    ("408", errors.RequestTimeout, False),
    ("418", errors.ServiceError, False),
    ("429", errors.RateLimited, False),
    ("500", errors.ServerError, False),
    ("503", errors.Unavailable, False),
    ("reset_before", errors.ConnectionFailed, False),
    ("reset_after", errors.ConnectionFailed, True),
    ("hang", errors.TimedOut, False),
    ("hang_billed", errors.TimedOut, True),
    ("truncated", errors.BadAnswer, True),
    ("broken_json", errors.BadAnswer, True),
    ("broken_base64", errors.BadAnswer, True),
    ("expired_url", errors.BadAnswer, True),
    ("no_audio", errors.BadAnswer, True),
]


def test_every_fault_is_tried_here():
    assert {step for step, _, _ in ENDINGS} | {"slow_bytes"} >= set(Fault)


@pytest.fixture(scope="module")
def one_by_one():
    """One service for every fault; texts tell the tests apart."""
    with FaultyService(cap=1) as service:
        yield service


@pytest.mark.parametrize(
    ("step", "ending", "billed", "as_base64"),
    # Whether the audio comes with the answer or behind a link matters where there is an answer.
    [(*each, True) for each in ENDINGS] + [(*each, False) for each in ENDINGS if each[1] is errors.BadAnswer],
)
def test_a_fault_ends_in_its_error_and_its_bill(one_by_one, tools, step, ending, billed, as_base64):
    service, text = one_by_one, f"Hello {step} {as_base64}."
    tag = tag_of(text)
    service.set(scripts={text: [step]})
    before = service.books()
    call = tools.call(text, encode_as_base64=as_base64)
    first = tools.outcome(service, call, timeout_s=2 if "hang" in step else 20)
    assert type(first) is ending, first
    if isinstance(first, errors.ConnectionFailed):
        assert first.sent is True
    if isinstance(first, errors.ServiceError):
        assert first.status == int(step)
    after = service.books()
    assert after.billed.get(tag) == (Billed(1, len(text)) if billed else None)
    assert after.faults[step] == before.faults.get(step, 0) + 1
    second = tools.outcome(service, call)
    assert tag_in(second.audio) == tag, "the script is over, and the slot is free again"
    books = service.books()
    assert books.in_flight == 0
    assert books.billed[tag].times == 1 + billed
    assert books.duplicates.get(tag) == (2 if billed else None)
    assert books.billed_characters == before.billed_characters + len(text) * (1 + billed)
    assert books.requests == before.requests + 2


def test_slow_bytes_arrive_in_the_end_and_hold_their_slot_meanwhile(faulty, tools):
    service = faulty(scripts={TEXT: ["slow_bytes"]}, slow_s=2.0, cap=1)
    start = time.monotonic()
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(tools.outcome, service, TEXT)
        while not service.books().in_flight:
            time.sleep(0.01)
        refused = tools.outcome(service, "Something else.")
        slow = coming.result(60)
    assert time.monotonic() - start >= 1.8
    assert tag_in(slow.audio) == tag_of(TEXT)
    assert isinstance(refused, errors.RateLimited)
    assert tools.outcome(service, tools.call(TEXT), timeout_s=20).audio == slow.audio


def test_a_client_that_goes_in_the_middle_of_slow_bytes_leaves_a_free_slot(faulty, tools):
    service = faulty(scripts={TEXT: ["slow_bytes"]}, slow_s=4, cap=1, audio_bytes=60_000)
    assert isinstance(tools.outcome(service, TEXT, timeout_s=0.5), errors.TimedOut)
    deadline = time.monotonic() + 60
    while service.books().in_flight and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tools.outcome(service, TEXT).format is Format.WAV
    assert service.books().answered == 1


def test_a_connection_that_hangs_is_closed_when_its_time_is_over(faulty, tools):
    service = faulty(scripts={TEXT: ["hang"]}, hang_s=0.3)
    ended = tools.outcome(service, TEXT)
    assert type(ended) is errors.ConnectionFailed


def test_shares_come_true_and_are_the_same_whatever_the_order(faulty, tools):
    shares = {"500": 0.2, "broken_json": 0.2, "reset_before": 0.2}
    texts = [f"Sentence {number}." for number in range(100)]

    def endings(seed, order):
        service = faulty(seed=seed, faults=shares)
        ended = dict(zip(order, tools.outcomes(service, *order), strict=True))
        books = service.books()
        assert books.requests == len(texts)
        assert books.answered - books.faults["broken_json"] == sum(
            not isinstance(e, Exception) for e in ended.values()
        )
        assert sum(books.faults.values()) == pytest.approx(0.6 * len(texts), rel=0.2)
        return {text: type(ended[text]) for text in texts}

    first = endings(1, texts)
    assert endings(1, texts[::-1]) == first
    assert endings(2, texts) != first


def test_attempts_of_a_text_are_drawn_one_by_one(faulty, tools):
    service = faulty(faults={"500": 0.5})
    calls = ["One text."] * 20
    first = [type(e) for e in tools.outcomes(service, *calls, at_once=False)]
    service.restart()
    assert [type(e) for e in tools.outcomes(service, *calls, at_once=False)] == first
    assert 4 < first.count(errors.ServerError) < 16


def test_scripts_are_played_for_a_text_for_every_text_and_for_ever(faulty, tools):
    service = faulty(scripts={"mine": ["500", "ok"], "*": ["503"], "down": ["408", "..."]}, faults={"400": 1})
    seen = {
        text: [getattr(e, "status", 200) for e in tools.outcomes(service, *[text] * 4, at_once=False)]
        for text in ("mine", "theirs", "others", "down")
    }
    assert seen == {
        "mine": [500, 200, 200, 200],
        "theirs": [503, 200, 200, 200],
        "others": [503, 200, 200, 200],
        "down": [408] * 4,
    }
