"""A doubt about an answer: what makes its row ``suspect``."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """Why an answer is suspect, each with what it means; each kind of answer has its own.

    Attributes
    ----------
    meaning : str
        For people.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """Take the meaning beside the value."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why an answer is suspect.

    Parameters
    ----------
    code
        What is wrong.
    words
        The same for people, with figures.
    """

    code: Reason
    words: str
