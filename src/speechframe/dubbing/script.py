"""A script, SRT or WebVTT, that stands in for what would be recognised."""

from collections import Counter

from speechframe.dubbing.hear import Heard, HeardUtterance
from speechframe.engines.language import detected
from speechframe.wire import cues

__all__ = ["read"]

_SPEAKER = "Speaker 1"
"""Who says what no speaker is marked for."""


def read(text: str, *, locale: str | None, languages: list[str]) -> Heard:
    """Return what a script says, an utterance for each cue.

    Parameters
    ----------
    text
        SRT or WebVTT.
    locale
        What it is written in; None to tell it from the text.
    languages
        What that may be, as codes such as ``en``.

    Raises
    ------
    ValueError
        Not a script; says in which line.
    EngineError
        When the language cannot be told.
    """
    utterances = tuple(
        HeardUtterance(
            start_ms=cue.start_ms,
            end_ms=cue.end_ms,
            speaker=cue.speaker or _SPEAKER,
            text=" ".join(cue.text.split()),
        )
        for cue in cues.parse(text)
    )
    if locale is None and utterances:
        found = detected([utterance.text for utterance in utterances], languages)
        locale = Counter(found).most_common(1)[0][0]
    return Heard(locale=locale, utterances=utterances)
