"""The chapter that joins the others: one result, shown as text and HTML, and the paragraph on methods."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from speechframe.statistics.listening import analyse
from speechframe.statistics.votes import METHODS


def test_only_the_frames_of_the_method_are_there(rng, mos, ab):
    scores = analyse(mos(rng), method="mos")
    assert scores.preference is scores.strengths is scores.discrimination is None
    assert len(scores.spread) == scores.everyone.listeners + scores.everyone.items
    pairs = analyse(ab(rng, strengths={"x": 0.5, "y": 0.0}), method="ab", replicates=20)
    assert pairs.scores is pairs.pairs is pairs.spread is pairs.discrimination is None


def test_a_frame_an_arrow_table_and_a_list_are_read_alike(rng, mos):
    votes = mos(rng)
    results = [
        analyse(of, method="mos") for of in (votes, pa.Table.from_pandas(votes), votes.to_dict("records"))
    ]
    for other in results[1:]:
        pd.testing.assert_frame_equal(results[0].pairs, other.pairs)


def test_votes_are_left_as_they_were(rng, mos):
    votes = mos(rng)
    before = votes.copy()
    analyse(votes, method="mos")
    pd.testing.assert_frame_equal(votes, before)


def test_practice_is_left_out_and_counted(rng, mos):
    votes = mos(rng)
    practice = votes.head(5).assign(score=1.0, training=True)
    result = analyse(pd.concat([votes.assign(training=False), practice]), method="mos")
    assert result.practice == 5
    pd.testing.assert_frame_equal(result.scores, analyse(votes, method="mos").scores)
    assert "5 practice votes left out" in result.summary()


def test_a_summary_tells_counts_scores_differences_and_screening(rng, mos):
    result = analyse(mos(rng, listeners=30, items=20, means=(2.0, 4.0)), method="mos")
    said = result.summary()
    assert repr(result) == f"<ListeningResult {said.splitlines()[0]}>"
    assert said.startswith("mean opinion score (MOS): 2 conditions, 30 listeners, 20 items, 1,200 votes")
    assert "<0.001" in said
    assert f"{result.scores['mean'][0]:.3f}" in said
    assert "nobody was screened out" in said


def test_names_are_escaped_in_html(rng, mos):
    votes = mos(rng).replace({"c0": "<b>loud</b>"})
    shown = analyse(votes, method="mos")._repr_html_()
    assert "&lt;b&gt;loud" in shown
    assert "<b>loud" not in shown


def test_the_deviation_of_a_listener_does_not_depend_on_which_conditions_they_heard():
    rows = [("k", i, "good", 5.0) for i in "pqr"] + [("l", i, "bad", 2.0) for i in "pqr"]
    result = analyse(pd.DataFrame(rows, columns=["listener", "item", "condition", "score"]), method="mos")
    assert result.spread["deviation"].abs().max() == 0.0


@pytest.mark.parametrize("method", METHODS)
def test_methods_tell_every_number_and_cite_only_what_they_list(method, rng, mos, ab):
    if method == "ab":
        votes = ab(rng, strengths={"x": 0.5, "y": 0.0, "z": 0.1})
    elif method == "abx":
        votes = ab(rng, strengths={"x": 0.5, "y": 0.0}).assign(truth="a").rename(columns={"choice": "answer"})
    else:
        votes = mos(rng, listeners=8, means=(3.0, 3.5, 3.2))
    reference = "c1" if method == "mushra" else None
    options = {"replicates": 50} if method == "ab" else {}
    result = analyse(votes, method=method, reference=reference, **options)
    paragraph, _, references = result.methods(setup="They listened by headphones.").partition(
        "\n\nReferences\n"
    )
    assert "\n" not in paragraph
    assert "  " not in paragraph
    assert paragraph.startswith(f"8 listeners took part in a test by {METHODS[method].title} ")
    expected = [
        "6 items",
        f"{result.everyone.votes:,} votes",
        ", ".join(result.conditions),
        "(5 over all votes)",
    ]
    expected += [
        "headphones",
        "Holm 1979",
        "Cameron et al. 2011",
        METHODS[method].source,
        "screened out",
        "scipy",
    ]
    expected += {
        "mos": ["1 to 5 in steps of 1", "Bad, Poor, Fair, Good, Excellent", "P.808", "3 pairs", "Wilcoxon"],
        "multi": ["0 to 100", "3 pairs"],
        "mushra": ["The hidden reference was c1.", "less than 90 in more than 15% of"],
        "ab": ["Davidson 1970", "50 bootstrap samples", "Wilson 1927", "same side"],
        "abx": ["exact one-sided binomial", "guessing"],
    }[method]
    assert [words for words in expected if words not in paragraph] == []
    years = {line.partition("(")[2][:4] for line in references.splitlines()}
    assert {"2011", "1979"} <= years
    assert len(references.splitlines()) >= 4


def test_methods_tell_who_was_screened_out_and_what_was_left_out(rng, mos):
    votes = mos(rng, listeners=10)
    votes.loc[votes["listener"] == "l003", "score"] = 3.0
    votes.loc[votes.index[-2:], "score"] = np.nan
    practice = votes.head(7).assign(training=True)
    result = analyse(pd.concat([votes, practice]), method="mos")
    said = result.methods()
    assert "1 of 10 listeners was screened out. Results were computed with and without this listener." in said
    assert "2 votes were left untouched and counted as missing." in said
    assert "7 votes on practice pages were left out." in said
