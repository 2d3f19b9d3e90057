"""When words are heard, where nobody said it: by how long they are."""

from speechframe.spec.texts import Pause, split_pauses

__all__ = ["SECONDS_PER_CHARACTER", "guessed_words"]

SECONDS_PER_CHARACTER = 0.065
"""Of a text with its blanks, spoken at a usual rate."""

_PAUSES_AFTER = {".": 6, "!": 6, "?": 6, ":": 4, ";": 4, ",": 3}
"""How many characters' time is heard as silence after one of these."""


def guessed_words(text: str, audio_seconds: float | None = None) -> tuple[tuple[str, int, int], ...]:
    """Return when each word is heard, roughly: time is divided by characters, with pauses between sentences.

    Parameters
    ----------
    text
        What is said, with pause markers such as ``[pause 1s]``.
    audio_seconds
        How long all of it is; by default what such a text usually takes.

    Returns
    -------
    tuple
        Word, start and end in milliseconds. Nothing is measured here: on a voice of even pace a word is off
        by some tenths of a second.

    Examples
    --------
    >>> guessed_words("Go on. Now [pause 1s] then", 3.0)
    (('Go', 0, 190), ('on.', 286, 571), ('Now', 1238, 1524), ('then', 2619, 3000))
    """
    pieces = split_pauses(text)
    pauses_s = sum(piece.seconds for piece in pieces if isinstance(piece, Pause))
    # Words and the silences after them, in characters; pauses that were asked for, in seconds.
    units: list[tuple[str, int, int] | float] = []
    for piece in pieces:
        if isinstance(piece, Pause):
            units.append(piece.seconds)
        else:
            units += [(word, len(word), 1 + _PAUSES_AFTER.get(word[-1], 0)) for word in piece.split()]
    spoken = [unit for unit in units if isinstance(unit, tuple)]
    length = sum(characters + after for _, characters, after in spoken) - (spoken[-1][2] if spoken else 0)
    if audio_seconds is None:
        speech_s = SECONDS_PER_CHARACTER * (sum(characters + 1 for _, characters, _ in spoken) - 1)
    else:
        speech_s = max(audio_seconds - pauses_s, 0.0)
    a_character_s = speech_s / length if length else 0.0
    times, now_s = [], 0.0
    for unit in units:
        if isinstance(unit, float):
            now_s += unit
            continue
        word, characters, after = unit
        end_s = now_s + characters * a_character_s
        times.append((word, round(now_s * 1000), round(end_s * 1000)))
        now_s = end_s + after * a_character_s
    return tuple(times)
