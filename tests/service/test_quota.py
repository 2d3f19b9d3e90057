"""Balances: reserve, settle, release, as steps of transactions on a real database file."""

import datetime as dt
import subprocess
import sys
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from speechframe.local.service.books import database, idempotency, quota
from speechframe.local.service.books.database import connect, run_transaction
from speechframe.local.service.books.idempotency import BodyMismatch, IdempotencyMark
from speechframe.local.service.books.keys import Key
from speechframe.local.service.books.quota import Balance, QuotaExhausted


@pytest.fixture
def connection(tmp_path):
    opened = connect(tmp_path / "x.sqlite3")
    yield opened
    opened.close()


def key(quota_millis=10_000, name=b"k"):
    return Key(name, "f", quota_millis, None)


def reserved(connection, who, millis, mark=None, owner="me"):
    reservation = quota.Reservation(owner, who, mark, "generate", millis)
    run_transaction(connection, lambda c: quota.reserve(c, reservation))
    return reservation


def left(connection, who):
    return quota.compute_left_millis(connection, who, quota.format_cycle(quota.now()))


def settle(connection, reservation, millis):
    return run_transaction(connection, lambda c: quota.settle(c, reservation, millis))


def test_a_month_is_a_billing_cycle_and_a_request_belongs_to_the_month_it_came_in(connection, monkeypatch):
    clock = [dt.datetime(2026, 1, 31, 23, 59, 59, tzinfo=dt.UTC).timestamp()]
    for module in (quota, idempotency):
        monkeypatch.setattr(module, "now", lambda: clock[0])
    late = reserved(connection, key(), 10_000)
    clock[0] += 2
    assert quota.read_balance(connection, key()) == Balance(10_000, 0)
    early = reserved(connection, key(), 10_000)
    assert settle(connection, late, 10_000) == Balance(10_000, 10_000)
    assert quota.read_balance(connection, key()).used_millis == 0
    settle(connection, early, 10_000)
    assert quota.read_balance(connection, key(), "2026-01").used_millis == 10_000
    assert quota.read_balance(connection, key(), "2026-02").used_millis == 10_000


def test_a_lowered_quota_shows_nothing_left_never_less(connection):
    reservation = reserved(connection, key(), 9_000)
    settle(connection, reservation, 9_000)
    lowered = key(quota_millis=5_000)
    assert quota.read_balance(connection, lowered).remaining_characters == 0
    with pytest.raises(QuotaExhausted) as short:
        reserved(connection, lowered, 1_000)
    assert short.value.left_millis == 0


def test_a_begun_character_counts_as_used_and_only_whole_ones_remain():
    balance = Balance(quota_millis=10_000, used_millis=2_500)
    assert (balance.remaining_characters, balance.used_characters) == (7, 3)


MARK = IdempotencyMark(b"idem", b"body")


def test_a_repeat_is_served_even_when_nothing_is_left_of_a_lowered_quota(connection):
    first = reserved(connection, key(), 10_000, MARK)
    settle(connection, first, 10_000)
    repeat = reserved(connection, key(quota_millis=1_000), 10_000, MARK)
    assert settle(connection, repeat, 10_000).used_millis == 10_000


@pytest.mark.parametrize("settled", [True, False])
def test_the_same_idempotency_key_with_another_body_is_refused(connection, settled):
    first = reserved(connection, key(), 1_000, MARK)
    if settled:
        settle(connection, first, 1_000)
    with pytest.raises(BodyMismatch):
        reserved(connection, key(), 1_000, IdempotencyMark(b"idem", b"other"))
    assert len(connection.execute("SELECT 1 FROM reservations").fetchall()) == (0 if settled else 1)


def test_records_are_forgotten_after_their_time(connection, monkeypatch):
    first = reserved(connection, key(), 1_000, MARK)
    settle(connection, first, 1_000)
    late = database.now() + 24 * 3600 + 1
    for module in (quota, idempotency):
        monkeypatch.setattr(module, "now", lambda: late)
    reserved(connection, key(), 1_000, MARK)
    assert left(connection, key()) == 8_000
    run_transaction(connection, idempotency.remove_old)
    assert connection.execute("SELECT COUNT(*) FROM idempotency").fetchone() == (0,)


def test_a_repeat_is_free_for_24_hours_after_the_answer_however_often_it_is_repeated(connection, monkeypatch):
    clock = [database.now()]
    for module in (quota, idempotency):
        monkeypatch.setattr(module, "now", lambda: clock[0])
    for hours, used in ((0, 1_000), (20, 1_000), (10, 2_000)):
        clock[0] += hours * 3600
        repeat = reserved(connection, key(), 1_000, MARK)
        assert settle(connection, repeat, 1_000).used_millis == used


def test_what_is_settled_is_not_billed_again_when_its_caller_is_found_gone(connection):
    for mark in (None, MARK):
        before = quota.read_balance(connection, key()).used_millis
        call = reserved(connection, key(), 1_000, mark)
        settle(connection, call, 1_000)
        run_transaction(connection, lambda c, call=call: quota.settle(c, call, 500))
        run_transaction(connection, lambda c, call=call: quota.settle(c, call, 0))
        assert quota.read_balance(connection, key()).used_millis == before + 1_000


def test_threads_with_connections_of_their_own_never_pass_the_quota(tmp_path):
    path = tmp_path / "x.sqlite3"
    connect(path).close()
    who, billed, refused = key(quota_millis=50_000), [], []

    def work():
        mine = connect(path)
        for _ in range(20):
            try:
                reservation = reserved(mine, who, 1_000)
            except QuotaExhausted:
                refused.append(1)
            else:
                billed.append(settle(mine, reservation, 1_000).used_millis)
        mine.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(billed) == [1_000 * n for n in range(1, 51)], "each balance was true at its moment"
    assert len(refused) == 30


RACE = """
import multiprocessing, pathlib, sys
from speechframe.local.service.books.database import connect, run_transaction
from speechframe.local.service.books.keys import load_salt

folder = pathlib.Path(sys.argv[1])

def work(barrier, found):
    for n in range(25):
        barrier.wait()
        connection = connect(folder / str(n))
        found.put((n, run_transaction(connection, load_salt)))
        connection.close()

context = multiprocessing.get_context("fork")
barrier, found = context.Barrier(6), context.Queue()
processes = [context.Process(target=work, args=(barrier, found), daemon=True) for _ in range(6)]
for process in processes:
    process.start()
print(len({found.get(timeout=40) for _ in range(6 * 25)}))
"""


@pytest.mark.slow
def test_many_processes_that_make_the_file_at_once_all_get_it(tmp_path):
    command = [sys.executable, "-c", RACE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "25", done.stderr[-2000:]


QUOTA = 20_000


class Ledger(RuleBasedStateMachine):
    """Any order of reserving, settling, releasing and dying keeps the balance exact and never negative."""

    held = Bundle("held")

    def __init__(self):
        super().__init__()
        self.connection = connect(":memory:")
        self.keys = [key(QUOTA, b"a"), key(QUOTA, b"b")]
        self.billed = {b"a": 0, b"b": 0}
        self.marks = {}
        self.parts = {}
        self.flying = {}

    @rule(target=held, who=st.integers(0, 1), size=st.integers(0, 9), mark=st.sampled_from([None, b"1", b"2"]),
          owner=st.sampled_from(["p", "q"]))  # fmt: skip
    def reserve(self, who, size, mark, owner):
        api_key = self.keys[who]
        # One idempotency key stands for one body, and so for one price.
        millis = size * 1_000 if mark is None else int(mark) * 3_000
        full_mark = IdempotencyMark(mark, mark) if mark else None
        pair = (api_key.key_hash, mark)
        free = mark is not None and (pair in self.marks or any(f[0:2] == pair for f in self.flying.values()))
        holders = {}
        for hash_, idem, cost in self.flying.values():
            holders[hash_, idem if idem is not None else object()] = cost - self.paid(hash_, idem)
        holding = sum(cost for (hash_, idem), cost in holders.items()
                      if hash_ == api_key.key_hash and (hash_, idem) not in self.marks)  # fmt: skip
        rest = millis - self.paid(*pair)
        fits = free or rest == 0 or self.billed[api_key.key_hash] + holding + rest <= QUOTA
        reservation = quota.Reservation(owner, api_key, full_mark, "generate", millis)
        try:
            run_transaction(self.connection, lambda c: quota.reserve(c, reservation))
        except QuotaExhausted:
            assert not fits, "402 exactly when the quota does not cover it"
            return None
        assert fits
        self.flying[reservation.id] = (*pair, millis)
        return reservation

    @rule(reservation=consumes(held))
    def settle(self, reservation):
        if reservation is None or reservation.id not in self.flying:
            return
        hash_, mark, millis = self.flying.pop(reservation.id)
        if mark is None or (hash_, mark) not in self.marks:
            self.billed[hash_] += millis - self.paid(hash_, mark)
        if mark is not None:
            self.marks[hash_, mark] = True
        after = run_transaction(self.connection, lambda c: quota.settle(c, reservation, millis))
        assert after.used_millis == self.billed[hash_]

    def paid(self, hash_, mark):
        """What a request has paid for by now; without an idempotency key it is always a new one."""
        return 0 if mark is None else self.parts.get((hash_, mark), 0)

    @rule(reservation=consumes(held), thirds=st.integers(0, 3))
    def break_off(self, reservation, thirds):
        if reservation is None or reservation.id not in self.flying:
            return
        hash_, mark, millis = self.flying.pop(reservation.id)
        part = millis * thirds // 3
        if mark is None or (hash_, mark) not in self.marks:
            self.billed[hash_] += max(0, part - self.paid(hash_, mark))
        if mark is not None:
            self.parts[hash_, mark] = max(part, self.paid(hash_, mark))
        run_transaction(self.connection, lambda c: quota.settle(c, reservation, part))

    @rule(reservation=consumes(held))
    def fail(self, reservation):
        if reservation is not None and self.flying.pop(reservation.id, None) is not None:
            run_transaction(self.connection, lambda c: quota.settle(c, reservation, 0))

    @rule(owner=st.sampled_from(["p", "q"]))
    def die(self, owner):
        gone = self.connection.execute("SELECT id FROM reservations WHERE owner = ?", (owner,)).fetchall()
        for (name,) in gone:
            self.flying.pop(name)
        run_transaction(self.connection, lambda c: quota.release_owner(c, owner))

    @invariant()
    def balances_hold(self):
        for api_key in self.keys:
            used = quota.read_balance(self.connection, api_key).used_millis
            assert used == self.billed[api_key.key_hash] <= QUOTA
            assert left(self.connection, api_key) >= 0

    def teardown(self):
        self.connection.close()


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
