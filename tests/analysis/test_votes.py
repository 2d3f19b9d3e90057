"""The schema of votes, and what is refused before anything is computed."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from speechframe.analysis.intake import checked
from speechframe.analysis.listening import analyse
from speechframe.analysis.votes import METHODS, NEEDED, VOTE_KEY, VOTE_SCHEMA
from speechframe.errors import AnalysisError


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
            **changes,
        }
        for n, (w, i, c) in enumerate((w, i, c) for w in "kl" for i in "pq" for c in "xy")
    ]
    return pd.DataFrame(rows)


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
    assert {*NEEDED[method], *VOTE_KEY[method]} <= names
    assert {"test_id", "seed", "training", "plays", "listened_s", "first_play_utc", "voted_utc"} <= names


@pytest.mark.parametrize("method", METHODS)
def test_a_table_of_the_schema_is_read_as_it_is(method):
    rows = (score_rows() if METHODS[method].has_scores else pair_rows(method)).to_dict("records")
    table = pa.Table.from_pylist(rows, schema=VOTE_SCHEMA[method])
    read = checked(table, method=method, reference="x" if method == "mushra" else None)
    assert read.conditions == ("x", "y")
    assert len(read.frame) == len(rows)


def refused(votes, *, method="mos", **options):
    with pytest.raises(AnalysisError) as caught:
        analyse(votes, method=method, **options)
    return caught.value


def test_no_votes_are_refused():
    assert "there are no votes" in str(refused(score_rows().head(0)))
    assert "there are no votes" in str(refused([]))


def test_practice_alone_is_no_vote():
    assert "all 8 are practice" in str(refused(score_rows(training=True)))


@pytest.mark.parametrize("said", ["False", "yes", 2])
def test_whether_a_vote_is_practice_is_not_guessed(said):
    assert refused(score_rows(training=said)).column == "training"


def test_a_vote_that_does_not_say_is_no_practice():
    assert analyse(score_rows(training=None), method="mos").practice == 0


def test_a_test_that_nobody_touched_has_no_votes():
    assert "left untouched" in str(refused(score_rows(score=np.nan)))


def test_something_else_than_a_table_is_refused():
    assert "not int" in str(refused(7))


def test_an_unknown_method_offers_those_there_are():
    assert "allowed: mos, multi, mushra, ab, abx" in str(refused(score_rows(), method="cmos"))


def test_a_missing_column_is_named_with_those_there_are():
    error = refused(score_rows().drop(columns="score"))
    assert error.column == "score"
    assert "missing: score" in str(error)


@pytest.mark.parametrize(
    ("method", "score", "said"),
    [
        ("mos", 5.5, "is not 1 to 5"),
        ("mos", 0.0, "is not 1 to 5"),
        ("mos", 3.5, "is no step of 1"),
        ("multi", -1.0, "is not 0 to 100"),
        ("multi", 100.5, "is not 0 to 100"),
        ("multi", np.inf, "is not 0 to 100"),
        ("mos", "good", "is no number"),
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
    assert "is none of x, z" in str(error)
    assert error.rows == (1, 3, 5, 7)


def test_a_reference_that_nobody_heard_is_refused():
    assert "no condition of these votes; there are: x, y" in str(refused(score_rows(), reference="human"))


def test_mushra_without_a_reference_is_called_multi():
    assert "the method is 'multi'" in str(refused(score_rows(), method="mushra"))


def test_votes_of_two_tests_are_not_mixed():
    votes = score_rows()
    votes.loc[0, "test_id"] = "other"
    assert "other, t" in str(refused(votes))


def test_the_same_vote_twice_is_refused_with_both_rows():
    votes = score_rows()
    error = refused(pd.concat([votes, votes.iloc[[3]]], ignore_index=True))
    assert error.rows == (3, 8)


def test_the_last_of_two_votes_is_taken_when_asked_whatever_their_order():
    votes = score_rows(voted_utc=pd.Timestamp("2024-01-01T10:00Z"))
    later = votes.iloc[[3]].assign(score=5.0, voted_utc=pd.Timestamp("2024-01-01T10:05Z"))
    for both in (pd.concat([votes, later]), pd.concat([later, votes])):
        read = checked(both, method="mos", duplicates="last")
        assert sorted(read.frame["score"]) == [3.0] * 7 + [5.0]


def test_the_last_of_two_votes_needs_their_times():
    assert refused(score_rows(), duplicates="last").column == "voted_utc"


def test_a_condition_is_not_compared_with_itself():
    assert refused(pair_rows(condition_b="x"), method="ab").rows == (0, 1, 2, 3)


def test_a_choice_that_is_none_is_refused():
    assert "is not a or b or tie" in str(refused(pair_rows(choice="left"), method="ab"))


def test_abx_knows_no_ties():
    assert "is not a or b" in str(refused(pair_rows("abx", answer="tie"), method="abx"))


def test_a_verdict_that_contradicts_the_answer_is_refused():
    assert "contradicts answer and truth" in str(refused(pair_rows("abx", correct=False), method="abx"))


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_that_is_no_share_is_refused(confidence):
    assert "between 0 and 1" in str(refused(score_rows(), confidence=confidence))
