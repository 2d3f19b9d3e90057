"""Find the words of speech in its text, and estimate the times of words that were not measured."""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from speechframe.spec.texts import PAUSE_MARKERS, SCRIPTS_WITHOUT_SPACES, Pause, split_pauses

SECONDS_PER_CHARACTER = 0.065
"""Usual speaking time of a character in seconds. Spaces count as characters."""

_PAUSES_AFTER = {".": 6, "!": 6, "?": 6, ":": 4, ";": 4, ",": 3}
"""Length of the pause after a punctuation mark, in units of the time of one character."""

_MAX_PAIRS = 500_000
"""Largest number of pairs of equal words that are compared. Only texts that repeat few words have more."""


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


def place_words(text: str, words: Sequence[tuple[str, int, int]]) -> list[list[Any]]:
    """Return a text in pieces, each with the time at which it is spoken.

    The pieces joined are the text. ``[piece, start_ms, end_ms]`` is spoken, ``[piece, None, None]`` is a part
    of the text that was not spoken, and ``[piece]`` is punctuation, space or a pause marker. Words are
    compared without case and accents. If the service returned other words than the text has, such as
    ``twelve`` for ``12``, the part of the text in their place has their time. Without words, the text is one
    piece. Without text, the pieces are the words.

    Examples
    --------
    >>> place_words("Hi, Bo!", [("hi", 0, 200), ("there", 200, 400)])
    [['Hi', 0, 200], [', '], ['Bo', 200, 400], ['!']]
    >>> place_words("Hi, Bo!", [("hi", 0, 200)])
    [['Hi', 0, 200], [', '], ['Bo', None, None], ['!']]
    """
    if not words or not text.strip():
        joined = [piece for word in words for piece in ([*word], [" "])][:-1]
        return joined or ([[text]] if text else [])
    tokens = list(_iter_tokens(text))
    heard = [(folded, k) for k, (word, *_) in enumerate(words) for *_, folded in _iter_tokens(word)]
    matches = _match_tokens([folded for *_, folded in tokens], [folded for folded, _ in heard])
    spans: list[tuple[int, int, int, int]] = []  # first and last token, with first and last word
    after, after_heard = 0, 0
    for at, heard_at in [*matches, (len(tokens), len(heard))]:
        if at > after:
            others = [k for _, k in heard[after_heard:heard_at]] or [-1]
            _add_span(spans, (after, at - 1, others[0], others[-1]))
        if at < len(tokens):
            _add_span(spans, (at, at, heard[heard_at][1], heard[heard_at][1]))
        after, after_heard = at + 1, heard_at + 1
    pieces: list[list[Any]] = []
    end = 0
    for first_token, last_token, first_word, last_word in spans:
        start = tokens[first_token][0]
        if start > end:
            pieces.append([text[end:start]])
        end = tokens[last_token][1]
        times = (None, None) if first_word < 0 else (words[first_word][1], words[last_word][2])
        pieces.append([text[start:end], *times])
    return [*pieces, [text[end:]]] if end < len(text) else pieces


def _add_span(spans: list[tuple[int, int, int, int]], span: tuple[int, int, int, int]) -> None:
    """Add a span of tokens and its words, or extend the last span if both have the same word."""
    if spans and spans[-1][3] == span[2] >= 0:
        first, _, first_word, _ = spans.pop()
        span = first, span[1], first_word, span[3]
    spans.append(span)


def _match_tokens(tokens: list[str], heard: list[str]) -> list[tuple[int, int]]:
    """Return the positions of the longest common subsequence of two lists, as pairs."""
    same = 0
    while same < min(len(tokens), len(heard)) and tokens[same] == heard[same]:
        same += 1
    matches = [(k, k) for k in range(same)]
    positions: dict[str, list[int]] = {}
    for k in range(same, len(heard)):
        positions.setdefault(heard[k], []).append(k)
    if sum(len(positions.get(token, ())) for token in tokens[same:]) > _MAX_PAIRS:
        return matches
    # ends[k] is the earliest end of a common subsequence of k + 1 tokens, and chains[k] links its pairs.
    ends: list[int] = []
    chains: list[Any] = []
    for at in range(same, len(tokens)):
        for heard_at in reversed(positions.get(tokens[at], ())):
            k = bisect_left(ends, heard_at)
            ends[k : k + 1], chains[k : k + 1] = [heard_at], [(at, heard_at, chains[k - 1] if k else None)]
    found, chain = [], chains[-1] if chains else None
    while chain:
        *pair, chain = chain
        found.append(tuple(pair))
    return matches + found[::-1]


def _iter_tokens(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and folded text of each word. In scripts without spaces, each letter is a word."""
    markers = {place for found in PAUSE_MARKERS.finditer(text) for place in range(*found.span())}
    start = None
    for at, character in enumerate(text):
        kind = "sign" if at in markers else _classify(character)
        if start is not None and kind in {"sign", "word"}:
            yield start, at, _fold(text[start:at])
            start = None
        if start is None and kind in {"letter", "word"}:
            start = at
    if start is not None:
        yield start, len(text), _fold(text[start:])


@lru_cache(4096)
def _classify(character: str) -> str:
    """Return what a character is in a text: the mark of a letter, a letter, a whole word, or a sign."""
    category = unicodedata.category(character)[0]
    if category == "M":
        return "mark"
    if category not in "LN":
        return "sign"
    return "word" if unicodedata.name(character, "").startswith(SCRIPTS_WITHOUT_SPACES) else "letter"


def _fold(word: str) -> str:
    """Return a word for comparison, without case and accents."""
    plain = unicodedata.normalize("NFKD", word).casefold()
    return "".join(character for character in plain if unicodedata.category(character)[0] != "M")
