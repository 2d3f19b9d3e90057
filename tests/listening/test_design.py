"""Who hears what: balanced over conditions, items, sides and places, for any figures, and drawn by the seed."""

from collections import Counter
from itertools import combinations, pairwise

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.errors import ListeningError
from speechframe.listening.design import build_pages, design_trials, draw_latin_rows

FEW = settings(max_examples=15, deadline=None)
FIGURES = {
    "conditions": st.integers(2, 5),
    "items": st.integers(1, 8),
    "listeners": st.integers(1, 6),
    "trials": st.integers(1, 24),
    "seed": st.integers(0, 2**40),
}


def drawn(method, *, conditions, items, listeners, trials, seed, training=0):
    return design_trials(
        method,
        conditions=[f"c{k}" for k in range(conditions)],
        items=[f"s{k}" for k in range(items)],
        listeners=listeners,
        trials_per_listener=trials,
        training=training,
        seed=seed,
    )


def spread(values, of):
    """How much more often the most frequent of some values is there than the rarest."""
    counts = Counter(values)
    found = [counts[value] for value in of]
    return max(found) - min(found)


def pairs(frame):
    return list(zip(frame["condition_a"], frame["condition_b"], strict=True))


@FEW
@given(**FIGURES)
def test_in_mos_conditions_and_items_are_heard_equally_often(conditions, items, listeners, trials, seed):
    frame = drawn("mos", conditions=conditions, items=items, listeners=listeners, trials=trials, seed=seed)
    names, said = [f"c{k}" for k in range(conditions)], [f"s{k}" for k in range(items)]
    cells = list(zip(frame["condition"], frame["item"], strict=True))
    assert spread(cells, [(c, s) for c in names for s in said]) <= 1, "over all listeners"
    for _, mine in frame.groupby("listener"):
        assert len(mine) == min(trials, conditions * items)
        assert not mine.duplicated(["condition", "item"]).any(), "nobody is asked the same twice"
        assert spread(mine["condition"], names) <= 1
        assert spread(mine["item"], said) <= 2
        assert mine["trial"].tolist() == list(range(len(mine)))


@FEW
@given(**FIGURES)
def test_in_ab_pairs_are_equally_often_and_on_both_sides(conditions, items, listeners, trials, seed):
    frame = drawn("ab", conditions=conditions, items=items, listeners=listeners, trials=trials, seed=seed)
    of = list(combinations([f"c{k}" for k in range(conditions)], 2))
    for _, mine in frame.groupby("listener"):
        assert spread(pairs(mine), of) <= 1
        for _, one in mine.groupby(["condition_a", "condition_b"]):
            assert spread(one["left"], "ab") <= 2
    for _, one in frame.groupby(["condition_a", "condition_b", "item"]):
        assert spread(one["left"], "ab") <= 1, "each pair of clips stands on both sides"


@FEW
@given(**FIGURES)
def test_in_abx_the_number_of_trials_is_fixed_and_x_is_each_equally_often(
    conditions, items, listeners, trials, seed
):
    frame = drawn("abx", conditions=conditions, items=items, listeners=listeners, trials=trials, seed=seed)
    for _, mine in frame.groupby("listener"):
        assert len(mine) == trials, "clips are repeated, so that the number is the one that was fixed"
        for _, one in mine.groupby(["condition_a", "condition_b"]):
            assert spread(one["truth"], "ab") <= 2
            assert spread(one["left"], "ab") <= 4


@FEW
@given(**FIGURES)
def test_on_pages_each_condition_stands_equally_often_in_each_place(
    conditions, items, listeners, trials, seed
):
    frame = drawn("multi", conditions=conditions, items=items, listeners=listeners, trials=trials, seed=seed)
    names = [f"c{k}" for k in range(conditions)]
    for _, page in frame.groupby(["listener", "trial"]):
        assert sorted(page["condition"]) == names, "a page holds all"
        assert page["slot"].tolist() == list(range(conditions))
        assert len(set(page["item"])) == 1
    for _, one in frame.groupby("slot"):
        # A square that is not used up leaves as many rows as it has, in the worst order.
        assert spread(one["condition"], names) <= (2 if conditions % 2 else 1)


@FEW
@given(size=st.integers(1, 9), seed=st.text(max_size=5))
def test_latin_rows_are_balanced_in_places_and_in_neighbours(size, seed):
    rows = draw_latin_rows(size, seed)
    assert all(sorted(row) == list(range(size)) for row in rows)
    for column in zip(*rows, strict=True):
        assert spread(column, range(size)) == 0
    after = [pair for row in rows for pair in pairwise(row)]
    if size > 1:
        assert spread(after, [(a, b) for a in range(size) for b in range(size) if a != b]) == 0


@FEW
@given(
    method=st.sampled_from(["ab", "mos", "multi", "abx"]),
    training=st.integers(0, 4),
    more=st.integers(0, 3),
    **FIGURES,
)
def test_a_listener_hears_the_same_by_the_same_seed_however_many_listen(method, training, more, **figures):
    few = drawn(method, training=training, **figures)
    many = drawn(method, training=training, **{**figures, "listeners": figures["listeners"] + more})
    pd.testing.assert_frame_equal(few, many[many["listener"].isin(few["listener"])])
    practice = few[few["training"]].groupby("listener")["trial"].unique()
    assert all(list(trials) == list(range(training)) for trials in practice), "practice comes first"


def test_practice_is_of_cells_that_do_not_come_again():
    frame = drawn("mos", conditions=3, items=6, listeners=4, trials=9, seed=1, training=3)
    for _, mine in frame.groupby("listener"):
        assert not mine.duplicated(["condition", "item"]).any()


def test_another_seed_is_another_order():
    orders = {
        tuple(drawn("mos", conditions=3, items=4, listeners=1, trials=12, seed=seed)["item"])
        for seed in range(5)
    }
    assert len(orders) == 5


def test_the_same_item_does_not_come_twice_running():
    frame = drawn("ab", conditions=3, items=8, listeners=10, trials=24, seed=2)
    running = sum(
        (mine["item"].to_numpy()[1:] == mine["item"].to_numpy()[:-1]).sum()
        for _, mine in frame.groupby("listener")
    )
    assert running <= 10, "at most once a listener, where nothing else is left"


def test_conditions_come_in_each_place_of_the_order_equally_often():
    frame = drawn("mos", conditions=4, items=4, listeners=8, trials=16, seed=3)
    for _, at in frame.groupby(frame["trial"] % 4):
        assert spread(at["condition"], [f"c{k}" for k in range(4)]) == 0


def test_pages_say_what_stands_where():
    frame = drawn("abx", conditions=2, items=2, listeners=1, trials=4, seed=0)
    for page in build_pages(frame, "listener-01"):
        row = page.rows[0]
        names = {"a": row["condition_a"], "b": row["condition_b"]}
        assert page.slots["A"] == names[row["left"]]
        assert set(page.slots.values()) == {"c0", "c1"}
        assert page.x == names[row["truth"]]


def test_a_page_with_too_many_signals_is_refused():
    with pytest.raises(ListeningError, match="12 signals at most, not 13"):
        design_trials("multi", items=["s1"], conditions=list("abcdefghijklm"))
