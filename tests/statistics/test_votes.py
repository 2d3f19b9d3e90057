"""The schema of votes, and what is refused before anything is computed."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from speechframe.errors import AnalysisError
from speechframe.statistics.intake import check_votes
from speechframe.statistics.listening import analyse
from speechframe.statistics.votes import METHODS, REQUIRED_COLUMNS, VOTE_KEY, VOTE_SCHEMA


def score_rows(**changes):
    rows = [
        {
            "test_id": "t",
            "listener": w,
            "trial": n,
            "slot": 0,
            "item": i,
            "condition": c,
            "score": 3.0,
        }
        for n, (w, i, c) in enumerate((w, i, c) for w in "kl" for i in "pq" for c in "xy")
    ]
    return pd.DataFrame(rows).assign(**changes)


def pair_rows(method="ab", **changes):
    voted = {"choice": "a"} if method == "ab" else {"answer": "a", "truth": "a"}
    rows = [
        {"listener": w, "trial": n, "item": i, "condition_a": "x", "condition_b": "y", **voted, **changes}
        for n, (w, i) in enumerate((w, i) for w in "kl" for i in "pq")
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_needed_and_what_names_a_vote_are_columns_of_the_schema(method):
    names = set(VOTE_SCHEMA[method].names)
    assert {*REQUIRED_COLUMNS[method], *VOTE_KEY[method]} <= names
    assert {"test_id", "seed", "training", "plays", "listened_s", "first_play_utc", "voted_utc"} <= names


@pytest.mark.parametrize("method", METHODS)
def test_a_table_of_the_schema_is_read_as_it_is(method):
    rows = (score_rows() if METHODS[method].has_scores else pair_rows(method)).to_dict("records")
    table = pa.Table.from_pylist(rows, schema=VOTE_SCHEMA[method])
    read = check_votes(table, method=method, reference="x" if method == "mushra" else None)
    assert read.conditions == ("x", "y")
    assert len(read.frame) == len(rows)


def refused(votes, *, method="mos", **options):
    with pytest.raises(AnalysisError) as caught:
        analyse(votes, method=method, **options)
    return caught.value


@pytest.mark.parametrize(
    ("votes", "asked", "said"),
    [
        ([], {}, "there are no votes"),
        (score_rows(training=True), {}, "all 8 are practice"),
        (score_rows(score=np.nan), {}, "left untouched"),
        (7, {}, "not int"),
        (score_rows(), {"method": "cmos"}, "allowed: mos, multi, mushra, ab, abx"),
        (score_rows(), {"reference": "human"}, "not a condition of these votes; there are: x, y"),
        (score_rows(), {"method": "mushra"}, "use method='multi'"),
        (score_rows(test_id=["other", *"ttttttt"]), {}, "other, t"),
        (score_rows(), {"confidence": 95}, "between 0 and 1"),
        (pair_rows(choice="left"), {"method": "ab"}, "is not a or b or tie"),
        (pair_rows("abx", answer="tie"), {"method": "abx"}, "is not a or b"),
        (pair_rows("abx", correct=False), {"method": "abx"}, "contradicts answer and truth"),
    ],
)
def test_what_are_no_votes_is_refused_in_words(votes, asked, said):
    assert said in str(refused(votes, **asked))


@pytest.mark.parametrize("said", ["False", 2])
def test_whether_a_vote_is_practice_is_not_guessed(said):
    assert refused(score_rows(training=said)).column == "training"


def test_a_vote_that_does_not_say_is_no_practice():
    assert analyse(score_rows(training=None), method="mos").practice == 0


def test_a_missing_column_is_named_with_those_there_are():
    error = refused(score_rows().drop(columns="score"))
    assert error.column == "score"
    assert "missing: score" in str(error)


@pytest.mark.parametrize(
    ("method", "score", "said"),
    [
        ("mos", 5.5, "is not in the range 1 to 5"),
        ("mos", 3.5, "is not in steps of 1"),
        ("multi", -1.0, "is not in the range 0 to 100"),
        ("multi", np.inf, "is not in the range 0 to 100"),
        ("mos", "good", "is not a number"),
    ],
)
def test_a_score_out_of_range_is_refused_with_its_row(method, score, said):
    votes = score_rows().astype({"score": object})
    votes.loc[5, "score"] = score
    error = refused(votes, method=method)
    assert said in str(error)
    assert (error.column, error.rows) == ("score", (5,))


@pytest.mark.parametrize("column", ["listener", "item", "condition"])
def test_an_empty_name_is_refused(column):
    votes = score_rows()
    votes.loc[2, column] = None
    error = refused(votes)
    assert (error.column, error.rows) == (column, (2,))


def test_an_unknown_condition_is_refused_where_they_are_given():
    error = refused(score_rows(), conditions=["x", "z"])
    assert "is not one of x, z" in str(error)
    assert error.rows == (1, 3, 5, 7)


def test_the_same_vote_twice_is_refused_with_both_rows():
    votes = score_rows()
    error = refused(pd.concat([votes, votes.iloc[[3]]], ignore_index=True))
    assert error.rows == (3, 8)


def test_the_last_of_two_votes_is_taken_when_asked_whatever_their_order():
    votes = score_rows(voted_utc=pd.Timestamp("2024-01-01T10:00Z"))
    later = votes.iloc[[3]].assign(score=5.0, voted_utc=pd.Timestamp("2024-01-01T10:05Z"))
    for both in (pd.concat([votes, later]), pd.concat([later, votes])):
        read = check_votes(both, method="mos", duplicates="last")
        assert sorted(read.frame["score"]) == [3.0] * 7 + [5.0]


def test_the_last_of_two_votes_needs_their_times():
    assert refused(score_rows(), duplicates="last").column == "voted_utc"


def test_a_condition_is_not_compared_with_itself():
    assert refused(pair_rows(condition_b="x"), method="ab").rows == (0, 1, 2, 3)
