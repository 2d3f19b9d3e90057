"""abx: correct answers against guessing."""

import numpy as np
import pandas as pd
import pytest

from speechframe.statistics.listening import analyse


def abx_rows(correct_of, trials=16, pairs=(("x", "y"),)):
    rows = []
    for listener, correct in correct_of.items():
        for n in range(trials):
            truth = "ab"[n % 2]
            answer = truth if n < correct else "ba"[n % 2]
            a, b = pairs[n % len(pairs)]
            rows.append((listener, f"s{n}", a, b, truth, answer, "ab"[(n // 2) % 2]))
    return pd.DataFrame(
        rows, columns=["listener", "item", "condition_a", "condition_b", "truth", "answer", "left"]
    )


def test_twelve_of_sixteen_answers_are_the_known_p():
    found = analyse(abx_rows({"k": 12, "l": 8}), method="abx").discrimination
    of_k = found.listeners.set_index("listener").loc["k"]
    assert (of_k["correct"], of_k["votes"], of_k["share"]) == (12, 16, 0.75)
    assert of_k["p_exact"] == pytest.approx(0.0384, abs=5e-5)
    assert of_k["p_holm"] == pytest.approx(2 * of_k["p_exact"])


def test_all_answers_are_pooled_and_clustered():
    found = analyse(abx_rows({"k": 12, "l": 11, "m": 10, "n": 12}), method="abx").discrimination
    pooled = found.pairs.iloc[0]
    assert (pooled["correct"], pooled["votes"], pooled["listeners"], pooled["items"]) == (45, 64, 4, 16)
    assert pooled["p_exact"] < 0.001
    assert pooled["p_clustered"] > pooled["p_exact"]
    assert pooled["clustered_low"] < pooled["low"]


def test_several_pairs_are_given_one_by_one_and_together():
    found = analyse(abx_rows({"k": 12, "l": 11}, pairs=(("x", "y"), ("z", "x"))), method="abx").discrimination
    assert found.pairs[["condition_a", "condition_b"]].to_numpy().tolist() == [
        ["x", "y"],
        ["x", "z"],
        ["all", "all"],
    ]
    assert found.pairs["votes"].tolist() == [16, 16, 32]
    assert found.pairs["p_holm"].isna().tolist() == [False, False, True]


def test_fewer_correct_answers_than_by_guessing_are_no_finding():
    pooled = analyse(abx_rows({"k": 2, "l": 3}), method="abx").discrimination.pairs.iloc[0]
    assert pooled["p_exact"] > 0.99
    assert pooled["p_clustered"] > 0.8


def test_one_listener_has_an_exact_p_and_no_clustered_one():
    pooled = analyse(abx_rows({"k": 12}), method="abx").discrimination.pairs.iloc[0]
    assert pooled["p_exact"] == pytest.approx(0.0384, abs=5e-5)
    assert np.isnan(pooled["p_clustered"])
    assert pooled["reason"].startswith("one listener")
