"""Who is screened out, by which rule, and that both results are given."""

import numpy as np
import pandas as pd
import pytest

from speechframe.statistics.listening import analyse


def mushra_rows(missed, trials=20, listeners=("k", "l", "m")):
    """Every listener of three hears ref and ours; the first gives `missed` references less than 90."""
    rows = []
    for place, listener in enumerate(listeners):
        for n in range(trials):
            low = place == 0 and n < missed
            rows += [(listener, f"s{n}", "ref", 89.9 if low else 90.0 + n % 3)]
            rows += [(listener, f"s{n}", "ours", 40.0 + 5 * place + n % 7)]
    return pd.DataFrame(rows, columns=["listener", "item", "condition", "score"])


@pytest.mark.parametrize(("missed", "out"), [(3, ()), (4, ("k",))])
def test_more_than_fifteen_per_cent_of_missed_references_screens_out(missed, out):
    result = analyse(mushra_rows(missed), method="mushra", reference="ref")
    assert result.screened == out
    assert result.screening.set_index("listener").loc["k", "reference_missed"] == missed / 20
    assert set(result.screening.loc[result.screening["screened"], "reason"]) <= {"reference"}


def test_the_rule_of_the_reference_is_that_of_mushra_only():
    result = analyse(mushra_rows(20), method="multi", reference="ref")
    assert result.screened == ()
    assert result.screening["reference_missed"].isna().all()


ANCHORS = ("low", "mid")


def anchored(missed, trials=20):
    """The same with anchors, of which the first listener gives `missed` mid-range ones more than 90."""
    votes = mushra_rows(0, trials)
    anchors = votes[votes["condition"] == "ours"]
    rated = {"low": 10.0, "mid": 30.0}
    parts = [
        anchors.assign(condition=name, score=score + anchors["score"] / 10) for name, score in rated.items()
    ]
    high = (parts[1]["listener"] == "k") & parts[1]["item"].isin([f"s{n}" for n in range(missed)])
    parts[1].loc[high, "score"] = 90.1
    return pd.concat([votes, *parts], ignore_index=True)


@pytest.mark.parametrize(("missed", "out"), [(3, ()), (4, ("k",))])
def test_who_takes_the_mid_range_anchor_for_the_reference_is_screened_out(missed, out):
    result = analyse(anchored(missed), method="mushra", reference="ref", anchors=ANCHORS)
    assert result.screened == out
    assert result.screening.set_index("listener").loc["k", "anchor_missed"] == missed / 20
    assert set(result.screening.loc[result.screening["screened"], "reason"]) <= {"anchor"}
    assert "gave mid more than 90 in more than 15% of their trials" in result.methods()


def test_ninety_is_not_too_much_for_an_anchor_and_the_low_one_has_no_rule():
    votes = anchored(20)
    votes.loc[votes["score"] == 90.1, "score"] = 90.0
    votes.loc[(votes["listener"] == "k") & (votes["condition"] == "low"), "score"] = 100.0
    assert analyse(votes, method="mushra", reference="ref", anchors=ANCHORS).screened == ()


def test_differences_of_anchors_are_not_tested_unless_they_are_asked_for():
    votes = anchored(0)
    result = analyse(votes, method="mushra", reference="ref", anchors=ANCHORS)
    assert set(result.scores["condition"]) == {"ref", "ours", *ANCHORS}
    assert result.pairs[["condition_a", "condition_b"]].to_numpy().tolist() == [["ref", "ours"]]
    alone = analyse(votes[~votes["condition"].isin(ANCHORS)], method="mushra", reference="ref")
    pd.testing.assert_frame_equal(result.pairs, alone.pairs)
    text = result.methods()
    assert "Anchors of ITU-R BS.1534 were low and mid" in text
    assert "The 1 pair of conditions" in text
    assert "Anchors were left out of the comparisons." in text
    everything = analyse(votes, method="mushra", reference="ref", anchors=ANCHORS, compare_anchors=True)
    assert len(everything.pairs) == 6
    assert "left out of the comparisons" not in everything.methods()


def test_both_results_are_given():
    votes = mushra_rows(20)
    result = analyse(votes, method="mushra", reference="ref")
    without = analyse(votes[votes["listener"] != "k"], method="mushra", reference="ref")
    assert (result.everyone.listeners, result.kept.listeners) == (3, 2)
    pd.testing.assert_frame_equal(result.kept.scores, without.scores)
    pd.testing.assert_frame_equal(result.kept.pairs, without.pairs)
    assert not result.kept.scores["mean"].equals(result.scores["mean"])
    said = result.summary()
    assert "1 of 3 listeners was screened out: k (reference). Without them:" in said
    assert said.count("Mean scores") == 2


def test_where_nobody_is_screened_out_both_are_the_same():
    result = analyse(mushra_rows(0), method="mushra", reference="ref")
    assert result.kept is result.everyone
    assert result.summary().count("Mean scores") == 1


def test_where_everybody_is_screened_out_there_is_no_second_result():
    votes = mushra_rows(20, listeners=("k",))
    result = analyse(votes, method="mushra", reference="ref")
    assert result.kept is None
    assert "all listeners were screened out (1)" in result.summary()


def mos_rows(**of_k):
    rows = []
    for listener in ("k", "l", "m"):
        for n in range(10):
            row = {"listener": listener, "item": f"s{n // 2}", "condition": "xy"[n % 2], "score": 2 + n % 3}
            rows.append(
                {**row, "plays": 1, **({name: of(n) for name, of in of_k.items()} if listener == "k" else {})}
            )
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("of_k", "reason"),
    [
        ({"score": lambda _: 4, "plays": lambda _: 0}, "constant, unheard"),
        ({"plays": lambda n: int(n > 0)}, ""),
    ],
)
def test_rules_of_mos(of_k, reason):
    screening = analyse(mos_rows(**of_k), method="mos").screening.set_index("listener")
    assert screening.loc["k", "reason"] == reason
    assert not screening.loc[["l", "m"], "screened"].any()


def test_the_same_score_for_one_condition_alone_is_no_fault():
    votes = mos_rows(score=lambda _: 4, condition=lambda _: "x")
    assert analyse(votes, method="mos").screened == ()


def test_plays_that_were_not_recorded_speak_against_nobody():
    votes = mos_rows().assign(plays=None)
    result = analyse(votes, method="mos")
    assert result.screened == ()
    assert result.screening["unheard"].isna().all()


def ab_rows(choice_of_k, left=lambda n: "ab"[n % 2]):
    rows = []
    for listener in ("k", "l", "m"):
        for n in range(12):
            choice = choice_of_k(n) if listener == "k" else "aab"[n % 3]
            rows.append((listener, f"s{n}", "x", "y", left(n), choice))
    return pd.DataFrame(rows, columns=["listener", "item", "condition_a", "condition_b", "left", "choice"])


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (lambda n: "ab"[n % 2], "side"),
        (lambda _: "tie", "constant"),
        (lambda _: "a", ""),
        (lambda n: "tie" if n < 6 else "ab"[n % 2], ""),
    ],
)
def test_rules_of_ab(choice, reason):
    screening = analyse(ab_rows(choice), method="ab", replicates=20).screening.set_index("listener")
    assert screening.loc["k", "reason"] == reason
    assert not screening.loc[["l", "m"], "screened"].any()


def test_a_condition_that_always_stood_on_one_side_makes_no_side_of_a_preference():
    result = analyse(ab_rows(lambda _: "a", left=lambda _: "a"), method="ab", replicates=20)
    assert result.screened == ()
    assert np.allclose(result.screening.set_index("listener").loc["k", "same_side"], 1.0)
