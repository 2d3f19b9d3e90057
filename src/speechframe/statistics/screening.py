"""Which listeners did not do what was asked of them, by rules that were set before.

Each rule looks only at what a listener did, never at how well it suits the others: somebody who disagrees is
no bad listener.

``reference``
    mushra: gave the hidden reference less than 90 in more than 15 % of its trials (ITU-R BS.1534).
``anchor``
    mushra: gave the mid-range anchor more than 90 in more than 15 % of its trials (ITU-R BS.1534-3).
``constant``
    Gave one and the same score to more than one condition, or said tie, every time over eight votes or more.
``side``
    ab, abx: took the clip of one side every time, over eight decided votes or more.
``unheard``
    Voted without playing anything in more than 15 % of the votes (where plays were recorded).
"""

from typing import TYPE_CHECKING, Any

from speechframe.statistics.intake import Votes
from speechframe.statistics.votes import AB, ABX, MUSHRA, TIE, A

if TYPE_CHECKING:
    import pandas as pd

REFERENCE_SCORE = 90.0
"""What listeners who hear which is which give the hidden reference at least, and an anchor at the most."""

TOLERATED_SHARE = 0.15
"""In how many of their trials listeners may miss it."""

FEWEST_VOTES = 8
"""From how many equal votes on they are no chance: a fair coin does this to one listener in 128."""


def screen(votes: Votes, *, reference: str | None = None, mid_anchor: str | None = None) -> "pd.DataFrame":
    """Return what each listener did, and who is screened out.

    Parameters
    ----------
    votes
        The votes.
    reference
        The hidden reference's condition; its rule is applied in ``mushra`` only.
    mid_anchor
        The condition of the mid-range anchor (7 kHz); its rule is applied in ``mushra`` only.

    Returns
    -------
    pandas.DataFrame
        One row a listener: ``listener``, ``votes``, ``reference_missed`` (share of the hidden reference's
        trials), ``anchor_missed`` (share of the mid-range anchor's), ``unheard`` (share of the votes; NaN
        where plays were not recorded), ``same`` (share of the most frequent vote), ``same_side``,
        ``screened``, ``reason`` (the rules above that speak against them).

    Examples
    --------
    >>> from speechframe.statistics.intake import checked
    >>> rows = [{"listener": w, "item": f"s{n}", "condition": c, "score": s}
    ...         for n in range(5) for w, c, s in
    ...         [("l1", "ref", 100), ("l1", "ours", 60), ("l2", "ref", 80), ("l2", "ours", 90)]]
    >>> found = screen(checked(rows, method="mushra", reference="ref"), reference="ref")
    >>> found[["listener", "screened", "reason"]].values.tolist()
    [['l1', False, ''], ['l2', True, 'reference']]
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for name, frame in votes.frame.groupby("listener", sort=True):
        facts = _facts(frame, votes, reference, mid_anchor)
        reasons = _reasons(facts, frame, votes)
        rows.append({"listener": name, **facts, "screened": bool(reasons), "reason": ", ".join(reasons)})
    return pd.DataFrame(rows)


def _facts(
    frame: "pd.DataFrame", votes: Votes, reference: str | None, mid_anchor: str | None
) -> dict[str, Any]:
    name = votes.method.name
    missed = anchor = heard = side = float("nan")
    if name == MUSHRA:
        scores = frame.loc[frame["condition"] == reference, "score"]
        missed = float((scores < REFERENCE_SCORE).mean()) if len(scores) else float("nan")
        scores = frame.loc[frame["condition"] == mid_anchor, "score"]
        anchor = float((scores > REFERENCE_SCORE).mean()) if len(scores) else float("nan")
    if "plays" in frame.columns and frame["plays"].notna().any():
        heard = float((frame["plays"].fillna(0) <= 0).mean())
    if name in {AB, ABX} and "left" in frame.columns:
        side = _same_side(frame, _vote_column(votes))
    same = float(frame[_vote_column(votes)].value_counts(normalize=True).max())
    return {
        "votes": len(frame),
        "reference_missed": missed,
        "anchor_missed": anchor,
        "unheard": heard,
        "same": same,
        "same_side": side,
    }


def _vote_column(votes: Votes) -> str:
    if votes.method.has_scores:
        return "score"
    return "choice" if votes.method.name == AB else "answer"


def _decided(frame: "pd.DataFrame", column: str) -> "pd.DataFrame":
    return frame[(frame[column] != TIE) & frame["left"].notna()]


def _same_side(frame: "pd.DataFrame", column: str) -> float:
    decided = _decided(frame, column)
    if not len(decided):
        return float("nan")
    left = float((decided[column] == decided["left"]).mean())
    return max(left, 1 - left)


def _reasons(facts: dict[str, Any], frame: "pd.DataFrame", votes: Votes) -> list[str]:
    column = _vote_column(votes)
    many = len(frame) >= FEWEST_VOTES
    found = []
    if facts["reference_missed"] > TOLERATED_SHARE:
        found.append("reference")
    if facts["anchor_missed"] > TOLERATED_SHARE:
        found.append("anchor")
    if many and facts["same"] == 1.0 and _could_differ(frame, column):
        found.append("constant")
    if facts["same_side"] == 1.0 and len(_decided(frame, column)) >= FEWEST_VOTES and _sides_differ(frame):
        found.append("side")
    if facts["unheard"] > TOLERATED_SHARE:
        found.append("unheard")
    return found


def _could_differ(frame: "pd.DataFrame", column: str) -> bool:
    if column == "score":
        return len(set(frame["condition"])) > 1
    # Choosing condition a every time is a preference; only saying tie every time is no vote.
    return column == "choice" and bool((frame[column] == TIE).all())


def _sides_differ(frame: "pd.DataFrame") -> bool:
    """Return whether each condition stood on both sides, so that a side is not a preference."""
    left = frame["condition_a"].where(frame["left"] == A, frame["condition_b"])
    right = frame["condition_b"].where(frame["left"] == A, frame["condition_a"])
    return bool(set(left) & set(right))
