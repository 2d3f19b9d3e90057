"""Analyse the votes of a listening test: scores, differences, preferences, and screening of listeners."""

import html
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from speechframe.errors import AnalysisError
from speechframe.statistics.discrimination import Discrimination, discrimination
from speechframe.statistics.figures import Figures, Findings
from speechframe.statistics.intake import Duplicates, Votes, check_votes
from speechframe.statistics.methods_text import methods_text
from speechframe.statistics.power import Power, listeners_needed, power
from speechframe.statistics.preference import REPLICATES, Strengths, preference_frame, strengths
from speechframe.statistics.scores import pair_frame, score_frame
from speechframe.statistics.screening import screen
from speechframe.statistics.spread import Spread, spread_frame
from speechframe.statistics.votes import AB, METHODS, VOTE_SCHEMA, Method
from speechframe.writing.words import counted, printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "METHODS",
    "VOTE_SCHEMA",
    "Figures",
    "ListeningResult",
    "Method",
    "Power",
    "Spread",
    "analyse",
    "listeners_needed",
    "power",
]

_SMALLEST_P = 0.001
"""p values below this value are printed as ``<0.001``."""

_SUMMARY = {
    "scores": ["condition", "mean", "low", "high", "votes", "listeners", "items", "untouched"],
    "pairs": ["condition_a", "condition_b", "difference", "low", "high", "p_holm", "p_wilcoxon_holm"],
    "preference": ["condition_a", "condition_b", "prefer_a", "prefer_b", "ties", "share", "p_holm"],
    "strengths": ["condition", "strength", "low", "high", "worth"],
    "discrimination": ["condition_a", "condition_b", "correct", "votes", "share", "low", "high", "p_exact"],
}
"""Columns of each DataFrame that a summary contains."""
_TITLES = {
    "scores": "Mean scores",
    "pairs": "Differences",
    "preference": "Preference",
    "strengths": "Strengths (Bradley-Terry, ties by Davidson)",
    "discrimination": "Correct answers",
}

_NAMES = frozenset({"condition", "condition_a", "condition_b", "reason"})
"""Columns of text, which are aligned to the left."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListeningResult(Findings):
    """The result of a listening test, from :func:`analyse`.

    There are two sets of figures (computed numbers). ``everyone`` contains the figures of all listeners,
    which are also the attributes ``scores``, ``pairs`` and so on. ``kept`` contains the figures without the
    listeners who were screened out. :class:`~speechframe.statistics.figures.Findings` describes all fields.
    """

    @property
    def scores(self) -> "pd.DataFrame | None":
        """Mean scores of the conditions, from all listeners. None in ab and abx."""
        return self.everyone.scores

    @property
    def pairs(self) -> "pd.DataFrame | None":
        """Differences of the mean scores, from all listeners. None in ab and abx."""
        return self.everyone.pairs

    @property
    def spread(self) -> "pd.DataFrame | None":
        """Deviations of listeners and items from the mean scores. None in ab and abx."""
        return self.everyone.spread

    @property
    def preference(self) -> "pd.DataFrame | None":
        """Preferences in each pair of conditions, from all listeners. None unless the method is ab."""
        return self.everyone.preference

    @property
    def strengths(self) -> Strengths | None:
        """Bradley-Terry strengths, from all listeners. None unless the method is ab."""
        return self.everyone.strengths

    @property
    def discrimination(self) -> Discrimination | None:
        """Shares of correct answers, from all listeners. None unless the method is abx."""
        return self.everyone.discrimination

    def methods(self, *, setup: str = "") -> str:
        """Return the methods paragraph of a paper, with its references.

        Parameters
        ----------
        setup
            Sentences on facts that the votes do not contain, such as the recruitment of listeners, their
            equipment and the loudness. The sentences are inserted after the description of the design.
        """
        return methods_text(self, setup=setup)

    def summary(self) -> str:
        """Return the results as text. If listeners were screened out, the results without them follow."""
        lines = [self._headline()]
        lines += _tables(self.everyone)
        lines += ["", self._screening_in_words()]
        if self.kept is not None and self.screened:
            lines += _tables(self.kept)
        return printable("\n".join(lines))

    def __repr__(self) -> str:
        """Return the method and the size of the test as text."""
        return printable(f"<ListeningResult {self._headline()}>")

    def _headline(self) -> str:
        counts = self.everyone
        size = (
            f"{self.method.title}: {counted(len(self.conditions), 'condition')}, "
            f"{counted(counts.listeners, 'listener')}, {counted(counts.items, 'item')}, "
            f"{counted(counts.votes, 'vote')}"
        )
        left_out = [(self.practice, "practice vote"), (self.untouched, "untouched clip")]
        out = " and ".join(counted(count, what) for count, what in left_out if count)
        return f"{size} ({out} left out)" if out else size

    def _screening_in_words(self) -> str:
        if not self.screened:
            return "Screening: nobody was screened out."
        table = self.screening[self.screening["screened"]]
        out, total = len(table), self.everyone.listeners
        who = "; ".join(f"{row.listener} ({row.reason})" for row in table.itertuples())
        if self.kept is None:
            return f"Screening: all listeners were screened out ({total}): {who}."
        was = "was" if out == 1 else "were"
        return f"Screening: {out} of {counted(total, 'listener')} {was} screened out: {who}. Without them:"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(self._headline())}</b></p>", *_html_tables(self.everyone)]
        parts.append(f"<p>{html.escape(self._screening_in_words())}</p>")
        if self.kept is not None and self.screened:
            parts += _html_tables(self.kept)
        return "<div>" + "".join(parts) + "</div>"


def analyse(
    votes: Any,
    *,
    method: str,
    reference: str | None = None,
    conditions: Collection[str] | None = None,
    anchors: Sequence[str] = (),
    compare_anchors: bool = False,
    confidence: float = 0.95,
    duplicates: Duplicates = "refuse",
    replicates: int = REPLICATES,
    seed: int = 0,
) -> ListeningResult:
    """Analyse the votes of a listening test.

    Parameters
    ----------
    votes
        A pandas DataFrame, an Arrow table, or a list of mappings, with one row for each vote in any order.
        :data:`~speechframe.statistics.votes.VOTE_SCHEMA` lists the columns, and
        :data:`~speechframe.statistics.votes.NEEDED` the required ones.
    method
        ``mos``, ``multi``, ``mushra``, ``ab`` or ``abx``.
    reference
        The condition that is the hidden reference. ``mushra`` requires a reference.
    conditions
        All allowed conditions. Votes on another condition are refused. None (default) allows every condition.
    anchors
        The conditions that are anchors (degraded clips) in ``mushra``, the lowest quality first. Anchors get
        mean scores, and a screening rule uses the last anchor. Differences to anchors are not tested, because
        each additional pair weakens the tests of all other pairs.
    compare_anchors
        Whether to test the differences to anchors, too (default False).
    confidence
        Confidence level of the intervals, between 0 and 1 (default 0.95).
    duplicates
        Treatment of two rows for the same vote. ``refuse`` (default) raises an error, and ``last`` keeps the
        latest row.
    replicates, seed
        Number of bootstrap samples in ``ab``, and their seed.

    Raises
    ------
    AnalysisError
        The votes cannot be analysed. For example, there are no votes, a column is missing, a score is out of
        range, a vote occurs twice, votes belong to two tests, or a condition is unknown. The message names
        the rows at fault. The same error is raised if scipy is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> rows = [{"listener": f"l{w}", "item": f"s{i}", "condition": c, "score": draw.integers(low, low + 3)}
    ...         for w in range(8) for i in range(6) for c, low in [("ours", 3), ("theirs", 1)]]
    >>> result = analyse(rows, method="mos")
    >>> result.pairs[["condition_a", "condition_b"]].values.tolist()
    [['ours', 'theirs']]
    >>> bool(result.pairs["p_holm"][0] < 0.001)
    True
    """
    if not 0 < confidence < 1:
        raise AnalysisError(f"confidence must be between 0 and 1, such as 0.95, not {confidence:g}")
    read = check_votes(
        votes, method=method, reference=reference, conditions=conditions, duplicates=duplicates
    )
    untouched = sum(read.untouched.values())
    if not len(read.frame):
        raise AnalysisError(f"there are no votes to analyse: all {untouched} clips were left untouched")
    rated = tuple(name for name in anchors if name in read.conditions)
    screening = screen(read, reference=reference, mid_anchor=rated[-1] if rated else None)
    out = set(screening.loc[screening["screened"], "listener"])
    left_out = () if compare_anchors else rated
    figures = partial(_figures, left_out=left_out, confidence=confidence, replicates=replicates, seed=seed)
    everyone = figures(read)
    kept: Figures | None = everyone
    if len(out) == len(read.listeners):
        kept = None
    elif out:
        kept = figures(read.without(out))
    return ListeningResult(
        method=read.method,
        reference=reference,
        conditions=read.conditions,
        anchors=rated,
        compared=tuple(name for name in read.conditions if name not in left_out),
        confidence=confidence,
        everyone=everyone,
        kept=kept,
        screening=screening,
        practice=read.practice,
        untouched=untouched,
    )


def _figures(
    votes: Votes, *, left_out: Collection[str], confidence: float, replicates: int, seed: int
) -> Figures:
    counts = Figures(len(votes.listeners), len(votes.items), len(votes.frame))
    if votes.method.has_scores:
        return replace(
            counts,
            scores=score_frame(votes, confidence=confidence),
            pairs=pair_frame(votes.without_conditions(left_out), confidence=confidence),
            spread=spread_frame(votes),
        )
    if votes.method.name == AB:
        return replace(
            counts,
            preference=preference_frame(votes, confidence=confidence),
            strengths=strengths(votes, confidence=confidence, replicates=replicates, seed=seed),
        )
    return replace(counts, discrimination=discrimination(votes, confidence=confidence))


def _texts(name: str, frame: "pd.DataFrame") -> "pd.DataFrame":
    columns = _SUMMARY[name]
    # Include the column `reason` only if a row has a reason.
    shown = frame[[*columns, "reason"] if (frame["reason"] != "").any() else columns]
    texts = {str(column): [_text(str(column), value) for value in shown[column]] for column in shown}
    return shown.assign(**texts)


def _text(column: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "-"
    return "<0.001" if column.startswith("p_") and value < _SMALLEST_P else f"{value:.3f}"


def _tables(figures: Figures) -> list[str]:
    lines = []
    for name, frame in figures.frames().items():
        lines += ["", _TITLES[name], _texts(name, frame).to_string(index=False)]
    return lines


def _html_tables(figures: Figures) -> list[str]:
    return [_html_table(_TITLES[name], _texts(name, frame)) for name, frame in figures.frames().items()]


def _html_table(title: str, texts: "pd.DataFrame") -> str:
    def cells(tag: str, row: Iterable[Any]) -> str:
        # Set the alignment in each cell, so that it is the same with every style sheet of a page.
        sides = ["left" if column in _NAMES else "right" for column in texts]
        return "".join(
            f'<{tag} style="text-align: {side}">{html.escape(str(value))}</{tag}>'
            for side, value in zip(sides, row, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in texts.itertuples(index=False))
    head = f"<thead><tr>{cells('th', texts)}</tr></thead>"
    return f"<p>{html.escape(title)}</p><table>{head}<tbody>{body}</tbody></table>"
