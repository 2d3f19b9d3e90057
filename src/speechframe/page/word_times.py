"""Estimate the times of words from their lengths, for speech without measured times."""

from speechframe.spec.texts import Pause, split_pauses

__all__ = ["SECONDS_PER_CHARACTER", "estimate_word_times"]

SECONDS_PER_CHARACTER = 0.065
"""Usual speaking time of a character in seconds. Spaces count as characters."""

_PAUSES_AFTER = {".": 6, "!": 6, "?": 6, ":": 4, ";": 4, ",": 3}
"""Length of the pause after a punctuation mark, in units of the time of one character."""


def estimate_word_times(text: str, audio_seconds: float | None = None) -> tuple[tuple[str, int, int], ...]:
    """Return estimated times of all words, from their lengths and with pauses at punctuation.

    Parameters
    ----------
    text
        Spoken text, with pause markers such as ``[pause 1s]``.
    audio_seconds
        Length of the audio in seconds. None uses the usual speaking time of the text.

    Returns
    -------
    tuple
        Each word, with start and end in milliseconds. The times are not measured. With a voice of even pace,
        the error is some tenths of a second.

    Examples
    --------
    >>> estimate_word_times("Go on. Now [pause 1s] then", 3.0)
    (('Go', 0, 190), ('on.', 286, 571), ('Now', 1238, 1524), ('then', 2619, 3000))
    """
    pieces = split_pauses(text)
    pauses_s = sum(piece.seconds for piece in pieces if isinstance(piece, Pause))
    # A unit is a word with its length and the pause after it in characters, or a requested pause in seconds.
    units: list[tuple[str, int, int] | float] = []
    for piece in pieces:
        if isinstance(piece, Pause):
            units.append(piece.seconds)
        else:
            units += [(word, len(word), 1 + _PAUSES_AFTER.get(word[-1], 0)) for word in piece.split()]
    words = [unit for unit in units if isinstance(unit, tuple)]
    total_characters = sum(characters + after for _, characters, after in words) - (
        words[-1][2] if words else 0
    )
    if audio_seconds is None:
        speech_s = SECONDS_PER_CHARACTER * (sum(characters + 1 for _, characters, _ in words) - 1)
    else:
        speech_s = max(audio_seconds - pauses_s, 0.0)
    seconds_per_character = speech_s / total_characters if total_characters else 0.0
    times, now_s = [], 0.0
    for unit in units:
        if isinstance(unit, float):
            now_s += unit
            continue
        word, characters, after = unit
        end_s = now_s + characters * seconds_per_character
        times.append((word, round(now_s * 1000), round(end_s * 1000)))
        now_s = end_s + after * seconds_per_character
    return tuple(times)
