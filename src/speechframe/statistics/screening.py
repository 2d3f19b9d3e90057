"""Find listeners who did not follow the instructions (screening), by rules that are fixed before the test.

A rule never compares a listener with other listeners, because a different opinion is not a fault. A listener
who breaks one of these rules is screened out:

``reference``
    Only mushra. The hidden reference got less than 90 in more than 15 % of its trials (ITU-R BS.1534).
``anchor``
    Only mushra. The mid-range anchor got more than 90 in more than 15 % of its trials (ITU-R BS.1534-3).
``constant``
    All votes gave the same score to different conditions, or all votes were ties. The listener must have
    eight votes or more.
``side``
    Only ab and abx. All votes except ties were for the same side of the page. The listener must have eight
    such votes or more.
``unheard``
    More than 15 % of the votes were given without playing a clip. The votes must have the column ``plays``.
"""

from typing import TYPE_CHECKING, Any

from speechframe.statistics.intake import Votes
from speechframe.statistics.votes import AB, ABX, MUSHRA, TIE, A

if TYPE_CHECKING:
    import pandas as pd

REFERENCE_SCORE = 90.0
"""Lowest accepted score of the hidden reference, and highest accepted score of the mid-range anchor."""

TOLERATED_SHARE = 0.15
"""Largest share of a listener's trials that may break a rule."""

MIN_VOTES = 8
"""Smallest number of votes for the rules ``constant`` and ``side``. Of 128 listeners who toss a coin for each
vote, one has eight equal votes."""


def screen_listeners(
    votes: Votes, *, reference: str | None = None, mid_anchor: str | None = None
) -> "pd.DataFrame":
    """Apply the screening rules to each listener.

    Parameters
    ----------
    votes
        Checked votes of one test.
    reference
        The condition that is the hidden reference. Its rule applies only to ``mushra``.
    mid_anchor
        The condition that is the mid-range anchor (7 kHz). Its rule applies only to ``mushra``.

    Returns
    -------
    pandas.DataFrame
        One row for each listener. ``listener`` is the name, ``votes`` the number of votes, and ``screened``
        is True if the listener is screened out. ``reason`` names the rules that the listener broke. The other
        columns are shares: of trials that broke the rule of the reference or of the anchor
        (``reference_missed``, ``anchor_missed``), of votes without playing a clip (``unheard``), of the most
        frequent vote (``same``), and of the most frequent side (``same_side``). A share that cannot be
        computed is NaN.

    Examples
    --------
    >>> from speechframe.statistics.intake import check_votes
    >>> rows = [{"listener": w, "item": f"s{n}", "condition": c, "score": s}
    ...         for n in range(5) for w, c, s in
    ...         [("l1", "ref", 100), ("l1", "ours", 60), ("l2", "ref", 80), ("l2", "ours", 90)]]
    >>> found = screen_listeners(check_votes(rows, method="mushra", reference="ref"), reference="ref")
    >>> found[["listener", "screened", "reason"]].values.tolist()
    [['l1', False, ''], ['l2', True, 'reference']]
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for name, frame in votes.frame.groupby("listener", sort=True):
        facts = _collect_facts(frame, votes, reference, mid_anchor)
        reasons = _find_reasons(facts, frame, votes)
        rows.append({"listener": name, **facts, "screened": bool(reasons), "reason": ", ".join(reasons)})
    return pd.DataFrame(rows)


def _collect_facts(
    frame: "pd.DataFrame", votes: Votes, reference: str | None, mid_anchor: str | None
) -> dict[str, Any]:
    name = votes.method.name
    missed = anchor = unheard = side = float("nan")
    if name == MUSHRA:
        scores = frame.loc[frame["condition"] == reference, "score"]
        missed = float((scores < REFERENCE_SCORE).mean()) if len(scores) else float("nan")
        scores = frame.loc[frame["condition"] == mid_anchor, "score"]
        anchor = float((scores > REFERENCE_SCORE).mean()) if len(scores) else float("nan")
    if "plays" in frame.columns and frame["plays"].notna().any():
        unheard = float((frame["plays"].fillna(0) <= 0).mean())
    if name in {AB, ABX} and "left" in frame.columns:
        side = _measure_same_side(frame, votes.method.vote_column)
    same = float(frame[votes.method.vote_column].value_counts(normalize=True).max())
    return {
        "votes": len(frame),
        "reference_missed": missed,
        "anchor_missed": anchor,
        "unheard": unheard,
        "same": same,
        "same_side": side,
    }


def _select_decided(frame: "pd.DataFrame", column: str) -> "pd.DataFrame":
    return frame[(frame[column] != TIE) & frame["left"].notna()]


def _measure_same_side(frame: "pd.DataFrame", column: str) -> float:
    decided = _select_decided(frame, column)
    if not len(decided):
        return float("nan")
    left = float((decided[column] == decided["left"]).mean())
    return max(left, 1 - left)


def _find_reasons(facts: dict[str, Any], frame: "pd.DataFrame", votes: Votes) -> list[str]:
    column = votes.method.vote_column
    many = len(frame) >= MIN_VOTES
    found = []
    if facts["reference_missed"] > TOLERATED_SHARE:
        found.append("reference")
    if facts["anchor_missed"] > TOLERATED_SHARE:
        found.append("anchor")
    if many and facts["same"] == 1.0 and _is_constant_suspicious(frame, column):
        found.append("constant")
    if (
        facts["same_side"] == 1.0
        and len(_select_decided(frame, column)) >= MIN_VOTES
        and _has_condition_on_both_sides(frame)
    ):
        found.append("side")
    if facts["unheard"] > TOLERATED_SHARE:
        found.append("unheard")
    return found


def _is_constant_suspicious(frame: "pd.DataFrame", column: str) -> bool:
    if column == "score":
        return len(set(frame["condition"])) > 1
    # A listener may always prefer condition a. Only ties in every vote are suspicious.
    return column == "choice" and bool((frame[column] == TIE).all())


def _has_condition_on_both_sides(frame: "pd.DataFrame") -> bool:
    """Return whether a condition was on both sides. Otherwise votes for one side may be a preference."""
    left = frame["condition_a"].where(frame["left"] == A, frame["condition_b"])
    right = frame["condition_b"].where(frame["left"] == A, frame["condition_a"])
    return bool(set(left) & set(right))
