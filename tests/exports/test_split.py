"""Splits: a group is never divided, earlier rows never move, and values of strata are in all splits."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

import speechframe as spf
from speechframe.errors import ExportError
from speechframe.exports.split import connect_rows, draw_splits

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}


@given(
    rows=st.lists(st.tuples(st.integers(0, 30), st.none() | st.integers(0, 12)), min_size=1, max_size=60),
    seed=st.integers(0, 5),
)
def test_rows_with_a_common_text_or_speaker_are_in_one_split(rows, seed):
    links = [(("text", text), None if speaker is None else ("speaker", speaker)) for text, speaker in rows]
    groups = connect_rows(links)
    members = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    facts = [{"key": ("run", str(place)), "stratum": ()} for place in range(len(rows))]
    drawn = draw_splits(facts, members, SHARES, {}, seed)
    split_of = [drawn[group] for group in groups]
    seen = defaultdict(set)
    for row_links, name in zip(links, split_of, strict=True):
        for link in row_links:
            if link is not None:
                seen[link].add(name)
    assert all(len(names) == 1 for names in seen.values())
    # Row 0 and row 9 may be connected only through others: then they share a group, too.
    assert all(members[group] for group in set(groups))


def test_shares_are_kept_for_each_value_of_a_stratum():
    facts = [{"key": ("run", str(n)), "stratum": ("rare" if n % 20 == 0 else "common",)} for n in range(1000)]
    drawn = draw_splits(facts, {n: [n] for n in range(1000)}, SHARES, {}, 0)
    counts = Counter((facts[n]["stratum"][0], name) for n, name in drawn.items())
    assert counts == {
        ("common", "train"): 760, ("common", "valid"): 95, ("common", "test"): 95,
        ("rare", "train"): 40, ("rare", "valid"): 5, ("rare", "test"): 5,
    }  # fmt: skip


def test_equal_texts_stay_together_and_the_result_is_a_column_by_row_id(corpus):
    parts = spf.split(corpus[1], {"train": 0.5, "test": 0.5}, seed=3)
    assert parts.index.names == ["row_id"]
    assert parts["a"] == parts["b"]
    assert Counter(parts) == {"train": 2, "test": 2}
    both = spf.split(corpus, {"train": 0.5, "test": 0.5}, strata=["voice_id"])
    assert both.index.names == ["run_id", "row_id"]
    assert len(both) == 15  # without the rejected row
    assert "en/9" not in both.index.get_level_values("row_id")


def test_rows_of_an_earlier_split_never_move(corpus):
    before = spf.split(corpus[0], {"train": 0.5, "test": 0.5}, groups=["speaker"])
    fewer = before[before.index != "en/0"]
    after = spf.split(corpus[0], {"train": 0.9, "test": 0.1}, groups=["speaker"], previous=fewer)
    assert after[fewer.index].equals(fewer)
    assert after["en/0"] == before["en/4"]  # the same speaker

    # Without groups, speakers were divided. A new row of such a speaker would join two splits.
    divided = fewer.copy()
    divided["en/4"], divided["en/8"] = "train", "test"
    joined = spf.split(corpus[0], {"train": 0.5, "test": 0.5}, groups=["speaker"], previous=divided)
    assert "en/0" not in joined.index
    assert joined.equals(divided)  # no earlier row moved
    assert joined.attrs["left_out"] == [(corpus[0].run_id, "en/0")]


@pytest.mark.parametrize(
    ("shares", "given", "words"),
    [
        ({"train": 0.9}, {}, "with the sum 1"),
        ({"train": 1.5, "test": -0.5}, {}, "must be positive"),
        ({"a/b": 1.0}, {}, "'a/b' is not a name of a split"),
        (SHARES, {"strata": "voice"}, r"strata='voice' must be a list of columns"),
        (SHARES, {"groups": ["nope"]}, "has no column 'nope'"),
        (SHARES, {"groups": ["voice"], "strata": ["voice"]}, "the column 'voice' cannot be spread"),
    ],
)
def test_what_cannot_be_split_is_refused(corpus, shares, given, words):
    with pytest.raises(ExportError, match=words):
        spf.split(corpus[0], shares, **given)
