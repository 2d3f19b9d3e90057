"""Votes whose truth is known because they are drawn here."""

import numpy as np
import pandas as pd
import pytest


def drawn(
    rng,
    *,
    listeners=8,
    items=6,
    means=(3.0, 3.0),
    listener_sd=0.5,
    item_sd=0.3,
    listener_condition_sd=0.2,
    item_condition_sd=0.2,
    residual_sd=0.8,
    keep=1.0,
):
    """Scores of a crossed study without steps or ends; of every `keep`-th part of the votes, at random."""
    who, what, which = (axis.ravel() for axis in np.indices((listeners, items, len(means))))
    heard = rng.random(len(who)) < keep
    who, what, which = who[heard], what[heard], which[heard]
    normal = rng.standard_normal
    score = (
        np.asarray(means)[which]
        + listener_sd * normal(listeners)[who]
        + item_sd * normal(items)[what]
        + listener_condition_sd * normal((listeners, len(means)))[who, which]
        + item_condition_sd * normal((items, len(means)))[what, which]
        + residual_sd * normal(len(who))
    )
    return who, what, which, score


def mos_frame(rng, **study):
    """Votes of mos as a frame: the drawn scores in whole steps from 1 to 5."""
    who, what, which, score = drawn(rng, **study)
    return pd.DataFrame(
        {
            "listener": [f"l{code:03}" for code in who],
            "item": [f"s{code:03}" for code in what],
            "condition": [f"c{code}" for code in which],
            "score": np.clip(np.round(score), 1, 5),
        }
    )


def ab_frame(rng, *, strengths, listeners=8, items=6, listener_sd=0.0, item_sd=0.0, tie=0.0, votes_each=1):
    """Votes of ab by Davidson's model; who leans to what differs by pair."""
    rows = []
    names = sorted(strengths)
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    for a, b in pairs:
        by_listener = listener_sd * rng.standard_normal(listeners)
        by_item = item_sd * rng.standard_normal(items)
        who, what, _ = (axis.ravel() for axis in np.indices((listeners, items, votes_each)))
        lead = strengths[a] - strengths[b] + by_listener[who] + by_item[what]
        ways = np.stack([np.exp(lead / 2), np.exp(-lead / 2), np.full(len(lead), tie)])
        ends = np.cumsum(ways / ways.sum(axis=0), axis=0)
        choice = np.array(["a", "b", "tie"])[(rng.random(len(lead)) > ends[:2]).sum(axis=0)]
        rows.append(
            pd.DataFrame(
                {
                    "listener": [f"l{code:03}" for code in who],
                    "item": [f"s{code:03}" for code in what],
                    "condition_a": a,
                    "condition_b": b,
                    "left": np.where((who + what) % 2, "a", "b"),
                    "choice": choice,
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


@pytest.fixture
def rng():
    return np.random.default_rng(20240229)


@pytest.fixture
def draw():
    return drawn


@pytest.fixture
def mos():
    return mos_frame


@pytest.fixture
def ab():
    return ab_frame
