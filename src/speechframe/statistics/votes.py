"""Define the table of votes of a listening test, with one row a vote.

A *vote* is a listener's score of one clip (``mos``, ``multi``, ``mushra``) or choice between two clips
(``ab``, ``abx``). A listening test writes all columns of :data:`VOTE_SCHEMA`. An analysis requires only the
columns of :data:`REQUIRED_COLUMNS`, so it accepts votes from other tools. An analysis ignores further
columns, such as answers to questions.

Columns of every method

=================  ====================================================================================
``test_id``        Name of the test. All votes of a table must belong to one test.
``listener``       Name of the listener in the test.
``seed``           Seed of the design.
``trial``          Number of the page in this listener's order, from 0, including practice pages.
``training``       True for a vote on a practice page, which is stored but not analysed.
``item``           Name of the item (usually the text) that the clips of a trial share.
``plays``          Number of times that a clip of this vote was started.
``listened_s``     Seconds for which the clips of this vote were played, in total.
``first_play_utc`` Time of the first start of a clip. Null if no clip was started.
``voted_utc``      Time of the vote.
=================  ====================================================================================

Columns of ``mos``, ``multi``, ``mushra``

=================  ====================================================================================
``slot``           Place of the clip on the page, from 0. Always 0 in ``mos``. Listener, trial and slot
                   identify a vote.
``condition``      Condition of the clip, such as a voice, a system, the hidden reference or an anchor.
``score``          The score, in the range of the method. Null if the listener did not rate the clip.
=================  ====================================================================================

Columns of ``ab``, ``abx``. ``a`` and ``b`` are ``condition_a`` and ``condition_b``, not sides of the page

=================  ====================================================================================
``condition_a``    First condition of the pair. The order of the two conditions has no meaning.
``condition_b``    Second condition of the pair.
``left``           ``a`` or ``b``, the condition on the left (in abx, the condition of button A).
``choice``         Only ab. ``a``, ``b`` or ``tie``, the preferred condition.
``answer``         Only abx. ``a`` or ``b``, the listener's answer for X.
``truth``          Only abx. ``a`` or ``b``, the condition of X.
``correct``        Only abx. Whether ``answer`` equals ``truth``.
=================  ====================================================================================
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from speechframe.store.schema import columns

MOS, MULTI, MUSHRA, AB, ABX = "mos", "multi", "mushra", "ab", "abx"

A, B, TIE = "a", "b", "tie"

_SCORED, _PAIRED = (MOS, MULTI, MUSHRA), (AB, ABX)
"""Methods whose votes are scores of clips, and methods whose votes are choices between two clips."""

_UTC_TIME: pa.DataType = pa.timestamp("us", tz="UTC")

_TRIAL_COLUMNS = (
    *columns(test_id=pa.string(), listener=pa.string(), seed=pa.int64()),
    *columns(trial=pa.int32(), training=pa.bool_(), item=pa.string()),
)
_PLAYBACK_COLUMNS = (
    *columns(plays=pa.int32(), listened_s=pa.float64()),
    *columns(first_play_utc=_UTC_TIME, voted_utc=_UTC_TIME),
)
_SCORE_COLUMNS = columns(slot=pa.int32(), condition=pa.string(), score=pa.float64())
_PAIR_COLUMNS = columns(condition_a=pa.string(), condition_b=pa.string(), left=pa.string())
_OWN_COLUMNS: Mapping[str, Iterable["pa.Field[Any]"]] = {
    **dict.fromkeys(_SCORED, _SCORE_COLUMNS),
    AB: (*_PAIR_COLUMNS, *columns(choice=pa.string())),
    ABX: (*_PAIR_COLUMNS, *columns(answer=pa.string(), truth=pa.string(), correct=pa.bool_())),
}

VOTE_SCHEMA: Mapping[str, pa.Schema] = MappingProxyType(
    {name: pa.schema([*_TRIAL_COLUMNS, *own, *_PLAYBACK_COLUMNS]) for name, own in _OWN_COLUMNS.items()}
)
"""Columns of a vote, by method. The module's docstring explains each column."""

VOTE_KEY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    dict.fromkeys(_SCORED, ("listener", "trial", "slot")) | dict.fromkeys(_PAIRED, ("listener", "trial"))
)
"""Columns that identify a vote of a test, by method. Two votes must not be equal in all of these."""

REQUIRED_COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(_SCORED, ("listener", "item", "condition", "score")),
        AB: ("listener", "item", "condition_a", "condition_b", "choice"),
        ABX: ("listener", "item", "condition_a", "condition_b", "answer", "truth"),
    }
)
"""Columns that an analysis requires, by method."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of listening tests, such as MUSHRA.

    Parameters
    ----------
    name
        Name of the method: ``mos``, ``multi``, ``mushra``, ``ab`` or ``abx``.
    title
        Title of the method in texts and reports.
    source
        The recommendation or the article that describes the method.
    lowest, highest
        Range of scores. None for methods without scores.
    step
        Distance between two scores. None allows every score in the range.
    labels
        Labels of the scale, the lowest first. In ``mos`` each score has a label, and in other methods each
        fifth of the scale.
    """

    name: str
    title: str
    source: str
    lowest: float | None = None
    highest: float | None = None
    step: float | None = None
    labels: tuple[str, ...] = ()

    @property
    def has_scores(self) -> bool:
        """Whether a vote is a score of one clip, rather than a choice between two clips."""
        return self.lowest is not None

    @property
    def vote_column(self) -> str:
        """Name of the column with the vote itself."""
        return "score" if self.has_scores else "choice" if self.name == AB else "answer"

    @property
    def condition_columns(self) -> tuple[str, ...]:
        """Names of the columns with the conditions of a vote."""
        return ("condition",) if self.has_scores else ("condition_a", "condition_b")

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest score. Both are 0 for methods without scores."""
        return self.lowest or 0.0, self.highest or 0.0


_QUALITY_LABELS = ("Bad", "Poor", "Fair", "Good", "Excellent")
"""Labels of the scale in all methods with scores, the lowest first."""

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        MOS: Method(MOS, "mean opinion score (MOS)", "ITU-T P.800", 1.0, 5.0, 1.0, _QUALITY_LABELS),
        MULTI: Method(MULTI, "multi-stimulus rating", "ITU-R BS.2132", 0.0, 100.0, labels=_QUALITY_LABELS),
        MUSHRA: Method(MUSHRA, "MUSHRA", "ITU-R BS.1534", 0.0, 100.0, labels=_QUALITY_LABELS),
        AB: Method(AB, "paired preference (A/B)", "Bradley and Terry 1952"),
        ABX: Method(ABX, "discrimination (ABX)", "Munson and Gardner 1950"),
    }
)
"""All methods by name, with their ranges of scores and their labels."""
