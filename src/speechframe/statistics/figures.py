"""The numbers that the analysis of a listening test computes (its figures).

There is one set for all listeners, and one set without the listeners who were screened out.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from speechframe.statistics.discrimination import Discrimination
from speechframe.statistics.preference import Strengths
from speechframe.statistics.votes import Method

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """The results of a group of listeners. Results that the method does not have are None.

    Parameters
    ----------
    listeners, items, votes
        Number of listeners, items and votes.
    scores
        Mean score of each condition, from :func:`~speechframe.statistics.scores.compute_scores`.
    pairs
        Differences of the mean scores of every two conditions, from
        :func:`~speechframe.statistics.scores.compare_pairs`.
    spread
        Deviations of listeners and items, from :func:`~speechframe.statistics.spread.compute_deviations`.
    preference
        Share of votes for each condition of a pair, from
        :func:`~speechframe.statistics.preference.compute_preferences`.
    strengths
        Strength of each condition, from :func:`~speechframe.statistics.preference.fit_strengths`.
    discrimination
        Shares of correct answers, from :func:`~speechframe.statistics.discrimination.analyse_discrimination`.
    """

    listeners: int
    items: int
    votes: int
    scores: "pd.DataFrame | None" = None
    pairs: "pd.DataFrame | None" = None
    spread: "pd.DataFrame | None" = None
    preference: "pd.DataFrame | None" = None
    strengths: Strengths | None = None
    discrimination: Discrimination | None = None

    def frames(self) -> dict[str, "pd.DataFrame"]:
        """Return the DataFrames that a summary contains, by name, without those that are None."""
        found = {
            "scores": self.scores,
            "pairs": self.pairs,
            "preference": self.preference,
            "strengths": self.strengths.frame if self.strengths is not None else None,
            "discrimination": self.discrimination.pairs if self.discrimination is not None else None,
        }
        return {name: frame for name, frame in found.items() if frame is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """The result of the analysis of a listening test: its figures (computed numbers) and its conditions.

    Parameters
    ----------
    method
        The test method.
    reference
        The condition that is the hidden reference. None if the test had no hidden reference.
    conditions
        Names of the rated or compared conditions.
    anchors
        The conditions that are anchors (deliberately degraded clips), the lowest quality first.
    compared
        The conditions whose differences were tested. Anchors are included only with ``compare_anchors``.
    confidence
        Confidence level of all intervals, between 0 and 1.
    everyone
        Figures of all listeners.
    kept
        Figures without the listeners who were screened out. If nobody was screened out, `kept` is the same
        object as `everyone`. If all listeners were screened out, `kept` is None.
    screening
        A DataFrame with one row for each listener, from
        :func:`~speechframe.statistics.screening.screen_listeners`.
    practice
        Number of votes on practice pages, which were left out.
    untouched
        Number of votes without a score or an answer, which were left out.
    """

    method: Method
    reference: str | None
    conditions: tuple[str, ...]
    anchors: tuple[str, ...]
    compared: tuple[str, ...]
    confidence: float
    everyone: Figures
    kept: Figures | None
    screening: "pd.DataFrame"
    practice: int
    untouched: int

    @property
    def screened(self) -> tuple[str, ...]:
        """Names of the listeners who were screened out."""
        return tuple(self.screening.loc[self.screening["screened"], "listener"])
