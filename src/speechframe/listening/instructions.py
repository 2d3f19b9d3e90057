"""What listeners read, unless a test says something else; no word of it tells what is compared."""

from collections.abc import Mapping
from types import MappingProxyType

from speechframe.statistics.votes import AB, ABX, MOS, MULTI, MUSHRA

__all__ = ["INTROS", "PROMPTS", "TITLE"]

TITLE = "Listening test"

_HOW = "Use headphones in a quiet place. Set the volume before the first trial, and then leave it as it is. "
_PAUSE = "You may stop at any time: what you voted is kept, and you go on where you were."

INTROS: Mapping[str, str] = MappingProxyType(
    {
        AB: f"You hear two recordings, A and B, and say which one you prefer. {_HOW}{_PAUSE}",
        MOS: f"You hear one recording at a time and rate it on a scale of five steps. {_HOW}{_PAUSE}",
        MULTI: f"You hear several recordings of the same thing and rate each from 0 to 100. {_HOW}{_PAUSE}",
        MUSHRA: (
            "You hear a reference and several recordings of the same thing, and rate each from 0 to 100, "
            f"compared with the reference. One of them is the reference itself: it should get 100. "
            f"{_HOW}{_PAUSE}"
        ),
        ABX: f"You hear two recordings, A and B, and a third, X, which is one of them: which? {_HOW}{_PAUSE}",
    }
)
"""What stands before the test, by method."""

PROMPTS: Mapping[str, str] = MappingProxyType(
    {
        AB: "Which one sounds better?",
        MOS: "How good is the quality of what you hear?",
        MULTI: "How good is the quality of each recording?",
        MUSHRA: "How good is the quality of each recording, compared with the reference?",
        ABX: "Is X the same as A, or the same as B?",
    }
)
"""What stands above each trial, by method."""
