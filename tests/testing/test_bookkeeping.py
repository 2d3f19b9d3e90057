"""Meters, books and the journal, without a service around them."""

import json
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.testing import Billed, Books
from speechframe.testing.accounts import Account, Bank, OtherBodyError, QuotaUsedUpError
from speechframe.testing.books import Counters, InFlightMeter
from speechframe.testing.journal import Bill, BillsFile


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=40))
def test_a_meter_integrates_what_is_in_flight_from_the_first_in_to_the_last_change(cap, moves):
    meter, now_s, in_flight, area, start_s, most = InFlightMeter(cap), 100.0, 0, 0.0, None, 0
    for passed, comes in moves:
        if not comes and not in_flight:
            continue
        if start_s is not None:
            area += passed / 8 * min(in_flight, cap) / cap
        now_s += passed / 8
        (meter.enter if comes else meter.leave)(now_s)
        in_flight += 1 if comes else -1
        most = max(most, in_flight)
        start_s = now_s if start_s is None else start_s
    timed_s = now_s - start_s if start_s is not None else 0.0
    assert meter.utilisation == (pytest.approx(area / timed_s) if timed_s else None)
    assert (meter.in_flight, meter.highest, meter.is_full) == (in_flight, most, in_flight >= cap)


def test_a_meter_counts_each_stretch_against_the_cap_of_its_time_and_none_without_a_cap():
    meter = InFlightMeter(4)
    meter.enter(0.0)
    meter.enter(0.0)
    meter.set_cap(2, 1.0)  # one second at 2 of 4
    meter.set_cap(1, 2.0)  # one second at 2 of 2
    meter.set_cap(None, 3.0)  # one second at 2 of 1, which is full and no more
    meter.leave(9.0)
    assert meter.utilisation == pytest.approx((0.5 + 1 + 1) / 3)
    assert InFlightMeter(None).utilisation is None
    assert not meter.is_full


@given(st.floats(0.5, 200), st.integers(1, 5), st.lists(st.floats(0, 0.2), min_size=1, max_size=200))
def test_a_rate_lets_through_its_burst_and_then_what_the_time_brings_and_never_more(rate, burst, gaps):
    account, now_s, passed = Account("k", {}), 0.0, 0
    for number, gap in enumerate(gaps):
        now_s += gap if number else 0.0
        passed += account.take_rate_token(rate, burst, now_s)
    assert min(burst, len(gaps)) <= passed or now_s * rate < burst
    assert passed <= burst + now_s * rate + 1e-6
    assert passed >= 1


def test_books_survive_json_to_the_letter():
    counters = Counters()
    counters.count_call()
    counters.count_answer(200)
    counters.count_bill(2**64 - 1, 7)
    counters.count_bill(2**64 - 1, 7)
    counters.count_bill(3, 1)
    books = counters.make_books({"global": [InFlightMeter(3)]}, {"abc": 5})
    assert books.billed == {2**64 - 1: Billed(2, 14), 3: Billed(1, 1)}
    assert books.duplicates == {2**64 - 1: 2}
    assert Books.from_json(json.loads(json.dumps(books.to_json()))) == books


def test_a_bill_is_read_back_and_a_line_that_was_cut_is_taken_off(tmp_path):
    journal = BillsFile(tmp_path)
    bills = [Bill("abc", 5, 10, "m" * 32, "b" * 32), Bill("abc", 2**64 - 1, 3)]
    for bill in bills:
        journal.write(bill)
    with (tmp_path / "billed.journal").open("r+b") as file:
        first = file.readline()
        file.seek(0, 2)
        file.write(first[:-4])
    again = BillsFile(tmp_path)
    assert list(again.read_bills()) == bills
    again.write(bills[0])
    assert list(BillsFile(tmp_path).read_bills()) == [*bills, bills[0]]


def test_a_bill_that_the_disk_does_not_take_whole_is_not_on_record(tmp_path):
    journal, refused = BillsFile(tmp_path), []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60, before[1]))
    try:
        for number in range(5):
            try:
                journal.write(Bill("abc", number, 1, "m" * 32))
            except OSError as error:
                refused.append((number, str(error)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [number for number, _ in refused] == [1, 2, 3, 4]
    assert "disk is full" in refused[0][1]
    assert len(list(journal.read_bills())) == 1


def test_a_key_pays_once_for_a_mark_and_never_more_than_its_quota(tmp_path):
    def opened():
        counters = Counters()
        return counters, Bank(["one", "two"], ["global"], None, BillsFile(tmp_path), counters)

    counters, bank = opened()
    one, two = bank.find_account("one"), bank.find_account("two")
    assert bank.pay(one, {1: 6}, quota=10, mark=("k", b"body"))
    assert not bank.pay(one, {1: 6}, quota=10, mark=("k", b"body"))
    with pytest.raises(OtherBodyError):
        bank.pay(one, {1: 6}, quota=10, mark=("k", b"other"))
    with pytest.raises(QuotaUsedUpError):
        bank.pay(one, {2: 5}, quota=10, mark=None)
    assert bank.pay(one, {2: 4}, quota=10, mark=None)
    assert bank.pay(two, {1: 6}, quota=10, mark=("k", b"body")), "a mark is its key's own"
    counters, bank = opened()
    assert counters.billed_characters == 16
    assert sorted(bank.count_remaining_characters(10).values()) == [0, 4]
    assert not bank.pay(bank.find_account("one"), {1: 6}, quota=10, mark=("k", b"body"))
    assert bank.find_account("three") is None
    assert bank.find_account(None) is None
