"""Analyse the votes of a listening test: scores, differences, preferences, and screening of listeners."""

import html
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from speechframe.errors import AnalysisError
from speechframe.statistics.discrimination import Discrimination, analyse_discrimination
from speechframe.statistics.figures import Figures, Findings
from speechframe.statistics.intake import Duplicates, Votes, check_votes
from speechframe.statistics.methods_text import write_methods_text
from speechframe.statistics.preference import (
    DEFAULT_REPLICATES,
    Strengths,
    compute_preferences,
    fit_strengths,
)
from speechframe.statistics.scores import compare_pairs, compute_scores
from speechframe.statistics.screening import screen_listeners
from speechframe.statistics.spread import compute_deviations
from speechframe.statistics.votes import AB
from speechframe.writing.words import format_count, replace_unprintable

if TYPE_CHECKING:
    import pandas as pd

_SMALLEST_P = 0.001
"""p values below this value are printed as ``<0.001``."""

_SUMMARY_COLUMNS = {
    "scores": ["condition", "mean", "low", "high", "votes", "listeners", "items", "untouched"],
    "pairs": ["condition_a", "condition_b", "difference", "low", "high", "p_holm", "p_wilcoxon_holm"],
    "preference": ["condition_a", "condition_b", "prefer_a", "prefer_b", "ties", "share", "p_holm"],
    "strengths": ["condition", "strength", "low", "high", "worth"],
    "discrimination": ["condition_a", "condition_b", "correct", "votes", "share", "low", "high", "p_exact"],
}
"""Columns of each DataFrame that a summary contains."""
_TABLE_TITLES = {
    "scores": "Mean scores",
    "pairs": "Differences",
    "preference": "Preference",
    "strengths": "Strengths (Bradley-Terry, ties by Davidson)",
    "discrimination": "Correct answers",
}

_TEXT_COLUMNS = frozenset({"condition", "condition_a", "condition_b", "reason"})
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
        return write_methods_text(self, setup=setup)

    def summary(self) -> str:
        """Return the results as text. If listeners were screened out, the results without them follow."""
        lines = [self._make_headline()]
        lines += _format_tables(self.everyone)
        lines += ["", self._describe_screening()]
        if self.kept is not None and self.screened:
            lines += _format_tables(self.kept)
        return replace_unprintable("\n".join(lines))

    def __repr__(self) -> str:
        """Return the method and the size of the test as text."""
        return replace_unprintable(f"<ListeningResult {self._make_headline()}>")

    def _make_headline(self) -> str:
        counts = self.everyone
        size = (
            f"{self.method.title}: {format_count(len(self.conditions), 'condition')}, "
            f"{format_count(counts.listeners, 'listener')}, {format_count(counts.items, 'item')}, "
            f"{format_count(counts.votes, 'vote')}"
        )
        left_out = [(self.practice, "practice vote"), (self.untouched, "untouched clip")]
        out = " and ".join(format_count(count, what) for count, what in left_out if count)
        return f"{size} ({out} left out)" if out else size

    def _describe_screening(self) -> str:
        if not self.screened:
            return "Screening: nobody was screened out."
        table = self.screening[self.screening["screened"]]
        out, total = len(table), self.everyone.listeners
        who = "; ".join(f"{row.listener} ({row.reason})" for row in table.itertuples())
        if self.kept is None:
            return f"Screening: all listeners were screened out ({total}): {who}."
        was = "was" if out == 1 else "were"
        return (
            f"Screening: {out} of {format_count(total, 'listener')} {was} screened out: {who}. Without them:"
        )

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(self._make_headline())}</b></p>", *_render_html_tables(self.everyone)]
        parts.append(f"<p>{html.escape(self._describe_screening())}</p>")
        if self.kept is not None and self.screened:
            parts += _render_html_tables(self.kept)
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
    replicates: int = DEFAULT_REPLICATES,
    seed: int = 0,
) -> ListeningResult:
    """Analyse the votes of a listening test.

    Parameters
    ----------
    votes
        A pandas DataFrame, an Arrow table, or a list of mappings, with one row for each vote in any order.
        :data:`~speechframe.statistics.votes.VOTE_SCHEMA` lists the columns, and
        :data:`~speechframe.statistics.votes.REQUIRED_COLUMNS` the required ones.
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
    checked = check_votes(
        votes, method=method, reference=reference, conditions=conditions, duplicates=duplicates
    )
    untouched = sum(checked.untouched.values())
    if not len(checked.frame):
        raise AnalysisError(f"there are no votes to analyse: all {untouched} clips were left untouched")
    rated = tuple(name for name in anchors if name in checked.conditions)
    screening = screen_listeners(checked, reference=reference, mid_anchor=rated[-1] if rated else None)
    out = set(screening.loc[screening["screened"], "listener"])
    left_out = () if compare_anchors else rated
    figures = partial(
        _compute_figures, left_out=left_out, confidence=confidence, replicates=replicates, seed=seed
    )
    everyone = figures(checked)
    kept: Figures | None = everyone
    if len(out) == len(checked.listeners):
        kept = None
    elif out:
        kept = figures(checked.drop_listeners(out))
    return ListeningResult(
        method=checked.method,
        reference=reference,
        conditions=checked.conditions,
        anchors=rated,
        compared=tuple(name for name in checked.conditions if name not in left_out),
        confidence=confidence,
        everyone=everyone,
        kept=kept,
        screening=screening,
        practice=checked.practice,
        untouched=untouched,
    )


def _compute_figures(
    votes: Votes, *, left_out: Collection[str], confidence: float, replicates: int, seed: int
) -> Figures:
    counts = Figures(len(votes.listeners), len(votes.items), len(votes.frame))
    if votes.method.has_scores:
        return replace(
            counts,
            scores=compute_scores(votes, confidence=confidence),
            pairs=compare_pairs(votes.drop_conditions(left_out), confidence=confidence),
            spread=compute_deviations(votes),
        )
    if votes.method.name == AB:
        return replace(
            counts,
            preference=compute_preferences(votes, confidence=confidence),
            strengths=fit_strengths(votes, confidence=confidence, replicates=replicates, seed=seed),
        )
    return replace(counts, discrimination=analyse_discrimination(votes, confidence=confidence))


def _format_frame(name: str, frame: "pd.DataFrame") -> "pd.DataFrame":
    columns = _SUMMARY_COLUMNS[name]
    # Include the column `reason` only if a row has a reason.
    shown = frame[[*columns, "reason"] if (frame["reason"] != "").any() else columns]
    texts = {str(column): [_format_value(str(column), value) for value in shown[column]] for column in shown}
    return shown.assign(**texts)


def _format_value(column: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "-"
    return "<0.001" if column.startswith("p_") and value < _SMALLEST_P else f"{value:.3f}"


def _format_tables(figures: Figures) -> list[str]:
    lines = []
    for name, frame in figures.frames().items():
        lines += ["", _TABLE_TITLES[name], _format_frame(name, frame).to_string(index=False)]
    return lines


def _render_html_tables(figures: Figures) -> list[str]:
    return [
        _render_html_table(_TABLE_TITLES[name], _format_frame(name, frame))
        for name, frame in figures.frames().items()
    ]


def _render_html_table(title: str, texts: "pd.DataFrame") -> str:
    def render_cells(tag: str, row: Iterable[Any]) -> str:
        # Set the alignment in each cell, so that it is the same with every style sheet of a page.
        sides = ["left" if column in _TEXT_COLUMNS else "right" for column in texts]
        return "".join(
            f'<{tag} style="text-align: {side}">{html.escape(str(value))}</{tag}>'
            for side, value in zip(sides, row, strict=True)
        )

    body = "".join(f"<tr>{render_cells('td', row)}</tr>" for row in texts.itertuples(index=False))
    head = f"<thead><tr>{render_cells('th', texts)}</tr></thead>"
    return f"<p>{html.escape(title)}</p><table>{head}<tbody>{body}</tbody></table>"
