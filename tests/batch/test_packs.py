"""Packs: as few calls as the limits allow, lazily, and the same pack again whoever forms it."""

import math

from hypothesis import given
from hypothesis import strategies as st

from speechframe.old_batch.operation import Planned, Todo
from speechframe.old_batch.packs import Packer, halves, pack, pack_key, sent_together
from speechframe.old_store import SentRecord

LIMITS = st.tuples(st.integers(1, 6), st.integers(5, 30))
ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5)), max_size=40)


def todos(rows, cached=()):
    """A todo a row of kind and characters; its key tells its number."""
    for i, (kind, characters) in enumerate(rows):
        key = f"{i:032x}"
        planned = Planned(key, 0, kind, characters, 1000 * characters, "x" * characters, locale=kind)
        yield Todo(planned, (f"row-{i}",), i in cached)


def packer(limits):
    return Packer(*limits, lambda planned: planned.locale, lambda members: [m.request_key for m in members])


def keys_of(todo):
    return [part.request_key for part in todo.planned.parts]


@given(ROWS, LIMITS, st.sets(st.integers(0, 40), max_size=5))
def test_every_row_goes_once_within_the_limits_with_its_own_name(rows, limits, cached):
    made = list(packer(limits).packed(todos(rows, cached), {}))
    assert sorted(key for todo in made for key in keys_of(todo)) == [f"{i:032x}" for i in range(len(rows))]
    for todo in made:
        parts = todo.planned.parts
        assert len({part.locale for part in parts}) == 1
        assert todo.planned.characters == sum(part.characters for part in parts) <= limits[1]
        assert todo.planned.millicredits == sum(part.millicredits for part in parts)
        assert len(parts) <= limits[0]
        assert todo.row_ids == tuple(f"row-{int(part.request_key, 16)}" for part in parts)
        assert todo.is_cached == (int(parts[0].request_key, 16) in cached)
        if todo.planned.members:
            assert todo.planned.call == keys_of(todo) == sorted(keys_of(todo))
            assert not any(int(key, 16) in cached for key in keys_of(todo))


@given(st.integers(0, 2000), st.integers(1, 300), st.integers(1, 3))
def test_short_rows_take_exactly_as_few_calls_as_the_limit_allows(rows, limit, kinds):
    made = packer((limit, 10**6)).packed(todos([(str(i % kinds), 1) for i in range(rows)]), {})
    wanted = sum(math.ceil(len(range(kind, rows, kinds)) / limit) for kind in range(kinds))
    assert len(list(made)) == wanted


def test_a_full_pack_does_not_wait_for_the_table():
    read = []

    def table():
        for todo in todos([("a", 1)] * 1000):
            read.append(todo)
            yield todo

    made = packer((10, 100)).packed(table(), {})
    next(made)
    assert len(read) == 10
    next(made)
    assert len(read) == 20


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=40, unique=True), st.randoms())
def test_halves_end_in_single_rows_and_are_the_same_in_any_order(numbers, random):
    members = [Planned(f"{n:032x}", 0, None, 1, 1000, "x") for n in numbers]
    whole = pack(members, len)
    shuffled = random.sample(members, len(members))
    assert pack(shuffled, len) == whole
    assert whole.request_key == pack_key([m.request_key for m in shuffled])
    singles, left, packs = [], [whole], 0
    while left:
        one = left.pop()
        parts = halves(one, len)
        packs += 1
        assert (parts == ()) == (len(one.parts) == 1)
        assert len(parts) < 2 or abs(len(parts[0].parts) - len(parts[1].parts)) <= 1
        left += parts
        singles += [] if parts else [one]
    assert sorted(one.request_key for one in singles) == sorted(m.request_key for m in members)
    assert packs == 2 * len(numbers) - 1


@given(ROWS, LIMITS, LIMITS, st.data())
def test_a_pack_that_was_sent_is_formed_again_whatever_the_limits_are_now(rows, limits, other, data):
    sent = [todo for todo in packer(limits).packed(todos(rows), {}) if data.draw(st.booleans())]
    unknown = {
        key: SentRecord(key, idempotency_key=f"run-{todo.planned.request_key}")
        for todo in sent
        for key in keys_of(todo)
    }
    together = sent_together(unknown, run_id="run", repeatable=unknown.keys())
    assert together.keys() == unknown.keys()
    made = [todo.planned.request_key for todo in packer(other).packed(todos(rows), together)]
    assert set(made) >= {todo.planned.request_key for todo in sent}
    assert len(made) == len(set(made))


@given(ROWS, LIMITS, st.data())
def test_a_pack_of_which_a_member_is_gone_is_never_formed_in_part(rows, limits, data):
    sent = list(packer(limits).packed(todos(rows), {}))
    unknown = {
        key: SentRecord(key, idempotency_key=f"run-{todo.planned.request_key}")
        for todo in sent
        for key in keys_of(todo)
    }
    gone = data.draw(st.sets(st.sampled_from(sorted(unknown)))) if unknown else set()
    together = sent_together(unknown, run_id="run", repeatable=unknown.keys() - gone)
    whole = {key for todo in sent if not gone & set(keys_of(todo)) for key in keys_of(todo)}
    assert together.keys() == whole
    assert sent_together(unknown, run_id="another", repeatable=unknown.keys()) == {}


def test_what_was_sent_in_one_pack_is_not_taken_from_the_cache():
    rows = [("a", 1)] * 4
    keys = tuple(f"{i:032x}" for i in range(3))
    made = list(packer((10, 100)).packed(todos(rows, cached={1, 3}), dict.fromkeys(keys, keys)))
    assert [(keys_of(todo), todo.is_cached) for todo in made] == [(list(keys), False), ([f"{3:032x}"], True)]


def test_rows_of_a_pack_that_cannot_be_completed_are_not_sent_in_another():
    keys = tuple(f"{i:032x}" for i in range(5))
    assert list(packer((10, 100)).packed(todos([("a", 1)] * 4), dict.fromkeys(keys, keys))) == []
