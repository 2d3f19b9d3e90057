"""The votes of a listening test as a table: one row a vote, append-only.

A *vote* is what a listener said about one clip (``mos``, ``multi``, ``mushra``) or about one pair of clips
(``ab``, ``abx``). Whoever writes votes writes :data:`VOTE_SCHEMA`; whoever analyses them asks only for
:data:`NEEDED`, so votes of another tool can be analysed too. Further columns (answers to questions, comments)
may follow; the analysis leaves them alone.

Columns of every method

=================  ====================================================================================
``test_id``        The test; one frame is one test.
``listener``       Who voted: an opaque name.
``seed``           What this listener's order was drawn with.
``trial``          Number of the page in this listener's order, from 0, training pages included.
``training``       True for a practice page: kept, never analysed.
``item``           What was said: the sentence or row that the clips of a trial share.
``plays``          How often playback was started, of all clips the vote is about together.
``listened_s``     Seconds of them that were heard, together.
``first_play_utc`` When the first of them was started; null where none was.
``voted_utc``      When the vote was given.
=================  ====================================================================================

Columns of ``mos``, ``multi``, ``mushra``

=================  ====================================================================================
``slot``           Place of the clip on the page, from 0; always 0 in ``mos``. With listener and trial
                   it names a vote.
``condition``      What made the clip: a voice, a system, the hidden reference, an anchor.
``score``          The vote, in the method's range; null where the listener did not touch it, never 0.
=================  ====================================================================================

Columns of ``ab``, ``abx``; ``a`` and ``b`` always mean the two conditions, never a side of the screen

=================  ====================================================================================
``condition_a``    One condition of the pair; which of the two is called a does not matter.
``condition_b``    The other.
``left``           ``a`` or ``b``: which of them stood on the left (in abx: under the button A).
``choice``         ab: ``a``, ``b`` or ``tie``, what was preferred.
``answer``         abx: ``a`` or ``b``, what X was taken for.
``truth``          abx: ``a`` or ``b``, what X was.
``correct``        abx: whether both are the same.
=================  ====================================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

MOS, MULTI, MUSHRA, AB, ABX = "mos", "multi", "mushra", "ab", "abx"

A, B, TIE = "a", "b", "tie"

_TIME: pa.DataType = pa.timestamp("us", tz="UTC")

_WHO: tuple[tuple[str, pa.DataType], ...] = (
    ("test_id", pa.string()),
    ("listener", pa.string()),
    ("seed", pa.int64()),
    ("trial", pa.int32()),
    ("training", pa.bool_()),
    ("item", pa.string()),
)
_SCORE: tuple[tuple[str, pa.DataType], ...] = (
    ("slot", pa.int32()),
    ("condition", pa.string()),
    ("score", pa.float64()),
)
_PAIR: tuple[tuple[str, pa.DataType], ...] = (
    ("condition_a", pa.string()),
    ("condition_b", pa.string()),
    ("left", pa.string()),
)
_CHOICE: tuple[tuple[str, pa.DataType], ...] = (("choice", pa.string()),)
_ANSWER: tuple[tuple[str, pa.DataType], ...] = (
    ("answer", pa.string()),
    ("truth", pa.string()),
    ("correct", pa.bool_()),
)
_HOW: tuple[tuple[str, pa.DataType], ...] = (
    ("plays", pa.int32()),
    ("listened_s", pa.float64()),
    ("first_play_utc", _TIME),
    ("voted_utc", _TIME),
)

VOTE_SCHEMA: Mapping[str, pa.Schema] = MappingProxyType(
    {
        MOS: pa.schema([*_WHO, *_SCORE, *_HOW]),
        MULTI: pa.schema([*_WHO, *_SCORE, *_HOW]),
        MUSHRA: pa.schema([*_WHO, *_SCORE, *_HOW]),
        AB: pa.schema([*_WHO, *_PAIR, *_CHOICE, *_HOW]),
        ABX: pa.schema([*_WHO, *_PAIR, *_ANSWER, *_HOW]),
    }
)
"""Method to the exact columns of a vote; the module's docstring says what each holds."""

VOTE_KEY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        MOS: ("listener", "trial", "slot"),
        MULTI: ("listener", "trial", "slot"),
        MUSHRA: ("listener", "trial", "slot"),
        AB: ("listener", "trial"),
        ABX: ("listener", "trial"),
    }
)
"""Method to the columns that name one vote of a test: no two rows may share them."""

NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        MOS: ("listener", "item", "condition", "score"),
        MULTI: ("listener", "item", "condition", "score"),
        MUSHRA: ("listener", "item", "condition", "score"),
        AB: ("listener", "item", "condition_a", "condition_b", "choice"),
        ABX: ("listener", "item", "condition_a", "condition_b", "answer", "truth"),
    }
)
"""Method to the columns without which nothing can be analysed; the others only add to it."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way of asking listeners.

    Parameters
    ----------
    name
        As it is typed: ``mos``, ``multi``, ``mushra``, ``ab``, ``abx``.
    title
        As it is read.
    source
        The recommendation it follows, or who described it.
    lowest, highest
        The range of scores; None for methods without scores.
    step
        What the scores differ by; None where any score of the range can be given.
    labels
        The words at the scores: one a step in ``mos``, one a fifth of the scale in the others; the lowest
        first.
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
        """Whether a vote is a score of one clip, not a choice between two."""
        return self.lowest is not None


_QUALITY = ("Bad", "Poor", "Fair", "Good", "Excellent")

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        MOS: Method(MOS, "mean opinion score (MOS)", "ITU-T P.800", 1.0, 5.0, 1.0, _QUALITY),
        MULTI: Method(MULTI, "multi-stimulus rating", "ITU-R BS.2132", 0.0, 100.0, labels=_QUALITY),
        MUSHRA: Method(MUSHRA, "MUSHRA", "ITU-R BS.1534", 0.0, 100.0, labels=_QUALITY),
        AB: Method(AB, "paired preference (A/B)", "Bradley and Terry 1952"),
        ABX: Method(ABX, "discrimination (ABX)", "Munson and Gardner 1950"),
    }
)
"""Every method by its name, with its range of scores and its labels."""
