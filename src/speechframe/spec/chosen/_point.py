"""A point the document leaves open."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenPoint:
    """A point the document leaves open: our choice, its reason, and how certain it is."""

    id: str
    point: str
    choice: str
    reason: str
    certainty: str
