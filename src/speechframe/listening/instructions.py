"""Default texts for listeners. They do not reveal the conditions (such as voices) that a test compares."""

from collections.abc import Mapping
from types import MappingProxyType

from speechframe.statistics.votes import AB, ABX, MOS, MULTI, MUSHRA

__all__ = ["DEFAULT_INTROS", "DEFAULT_PROMPTS", "DEFAULT_TITLE"]

DEFAULT_TITLE = "Listening test"

_LISTENING_ADVICE = (
    "Use headphones in a quiet place. Set the volume before the first trial, and then leave it as it is. "
)
_PAUSE_ADVICE = "You may stop at any time. Your votes are kept, and you can continue later."

DEFAULT_INTROS: Mapping[str, str] = MappingProxyType(
    {
        AB: (
            "You hear two recordings, A and B, and choose the one you prefer. "
            f"{_LISTENING_ADVICE}{_PAUSE_ADVICE}"
        ),
        MOS: (
            "You hear one recording at a time and rate it on a scale of five steps. "
            f"{_LISTENING_ADVICE}{_PAUSE_ADVICE}"
        ),
        MULTI: (
            "You hear several recordings of the same thing and rate each from 0 to 100. "
            f"{_LISTENING_ADVICE}{_PAUSE_ADVICE}"
        ),
        MUSHRA: (
            "You hear a reference and several recordings of the same thing, and rate each from 0 to 100, "
            "compared with the reference. One of the recordings is the reference itself. It should get 100. "
            f"{_LISTENING_ADVICE}{_PAUSE_ADVICE}"
        ),
        ABX: (
            "You hear two recordings, A and B, and a third, X. X is the same as A or the same as B. You "
            f"choose which. {_LISTENING_ADVICE}{_PAUSE_ADVICE}"
        ),
    }
)
"""Default text before the first trial, by method of the test (such as ``ab``)."""

DEFAULT_PROMPTS: Mapping[str, str] = MappingProxyType(
    {
        AB: "Which one sounds better?",
        MOS: "How good is the quality of what you hear?",
        MULTI: "How good is the quality of each recording?",
        MUSHRA: "How good is the quality of each recording, compared with the reference?",
        ABX: "Is X the same as A, or the same as B?",
    }
)
"""Default text above each trial, by method of the test."""
