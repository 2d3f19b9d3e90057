"""The figures of an analysed listening test, of all its listeners and of those who were kept."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from speechframe.statistics.discrimination import Discrimination
from speechframe.statistics.preference import Strengths
from speechframe.statistics.votes import Method

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Figures", "Findings"]


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """Figures of a group of listeners. Frames that do not exist for the method are None.

    Parameters
    ----------
    listeners, items, votes
        Number of listeners, items and votes.
    scores
        Mean scores: the columns of :func:`~speechframe.statistics.scores.score_frame`.
    pairs
        Differences: :func:`~speechframe.statistics.scores.pair_frame`.
    spread
        Deviations of listeners and items: :func:`~speechframe.statistics.spread.spread_frame`.
    preference
        Shares of each pair: :func:`~speechframe.statistics.preference.preference_frame`.
    strengths
        Strengths from all pairs together: :class:`~speechframe.statistics.preference.Strengths`.
    discrimination
        Correct answers: :class:`~speechframe.statistics.discrimination.Discrimination`.
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
        """Return the frames that a summary shows, by name."""
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
    """The figures and conditions of an analysed listening test.

    Parameters
    ----------
    method
        The test method.
    reference
        The condition of the hidden reference, if there was one.
    conditions
        Names of the rated or compared conditions.
    anchors
        The conditions that are anchors, the lowest first.
    compared
        The conditions whose differences were tested. Anchors are included only with ``compare_anchors``.
    confidence
        Confidence level of all intervals.
    everyone
        Figures of all listeners.
    kept
        Figures without the listeners who were screened out. If nobody was screened out, `kept` is `everyone`.
        If all were screened out, `kept` is None.
    screening
        One row a listener, as from :func:`~speechframe.statistics.screening.screen`.
    practice, untouched
        Number of votes that were left out, on practice pages and on clips that were not touched.
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
        """The listeners who were screened out, by name."""
        return tuple(self.screening.loc[self.screening["screened"], "listener"])
