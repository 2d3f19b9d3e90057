"""The type of a point that the document leaves open."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenPoint:
    """A point that the document leaves open, with our choice.

    Attributes
    ----------
    id : str
        Short name, which docstrings quote as "chosen: <id>".
    point, choice, reason : str
        The open point, our choice and its reason, as texts for people.
    certainty : str
        One of sure, likely, ours and guess. `speechframe.spec.chosen` explains the words.
    """

    id: str
    point: str
    choice: str
    reason: str
    certainty: str = "ours"
