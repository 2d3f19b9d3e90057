"""The words of a text, as ``wordDurations`` counts them.

What counts as a word:

* one entry per spoken word: what stands between spaces, without the punctuation
  around it. A hyphen or an apostrophe holds a word together, and so does what
  stands between digits (``10:30``, ``1,234.5``); a dash, a slash between words
  in brackets, an ellipsis or any other punctuation inside parts two words.
  Numbers, dates and abbreviations are one entry each, as written (``42``,
  ``$20``, ``U.S``), however many words are heard for them.
* in Chinese, which writes no spaces, one entry per character, since each is a
  syllable of its own; Latin words and numbers between them are one entry each.
  In Japanese one entry per run between spaces and punctuation, as the engine
  speaks it.
* a sign alone (``&``, an emoji) has an entry when it is heard, and none when it is not.
* as original text: one entry per whitespace token, exactly as written, heard or not.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["SPOKEN_PUNCTUATION", "Token", "original_tokens", "spoken_tokens"]

_APOSTROPHES = "'\u2019\u02bc\u2032`"
_HYPHENS = "-\u2010\u2011"
SPOKEN_PUNCTUATION = frozenset("%#&@*/\\\u00a7\u00b6\u00b7\u2020\u2021\u2022\u2030")
"""Punctuation that is read aloud somewhere: alone it may be a word, and touching one it belongs to it."""
_HOLDING = SPOKEN_PUNCTUATION | frozenset(f"{_APOSTROPHES}{_HYPHENS}_+=~^|\u05f3\u05f4\u0f0b\u2044")
"""Punctuation that is part of a word when it stands inside."""
_HOLDING_DIGITS = frozenset(".,:\u066b\u066c\u2013")
"""Punctuation that is part of a number between digits."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the text: what is shown and where it stands.

    ``certain`` says that it is heard, as everything with a letter or digit is;
    of a sign the audio decides. ``always`` asks for an entry even unheard.
    """

    shown: str
    start: int
    end: int
    certain: bool
    always: bool = False


def original_tokens(text: str) -> list[Token]:
    """Return the whitespace tokens of a text, exactly as written.

    Examples
    --------
    >>> [token.shown for token in original_tokens("Wait -- what?")]
    ['Wait', '--', 'what?']
    """
    return [
        Token(match.group(), match.start(), match.end(), _has_letter_or_digit(match.group()), always=True)
        for match in re.finditer(r"\S+", text)
    ]


def spoken_tokens(text: str, *, characters_are_words: bool = False) -> list[Token]:
    r"""Return what is spoken as a word each, without the punctuation around it.

    Parameters
    ----------
    text
        Any text.
    characters_are_words
        For Chinese: every Han character is a word.

    Examples
    --------
    >>> [token.shown for token in spoken_tokens('"Dr. No\u2014the first, 1962!" & more')]
    ['Dr', 'No', 'the', 'first', '1962', '&', 'more']
    >>> [token.shown for token in spoken_tokens("我有3个book。", characters_are_words=True)]
    ['我', '有', '3', '个', 'book']
    """
    found = []
    for match in re.finditer(r"\S+", text):
        for start, end in _parts(text, match.start(), match.end(), characters_are_words):
            start, end = _without_edges(text, start, end)  # noqa: PLW2901  (the part, stripped)
            if start < end:
                shown = text[start:end]
                found.append(Token(shown, start, end, _has_letter_or_digit(shown)))
    return found


def _parts(text: str, start: int, end: int, characters_are_words: bool) -> Iterator[tuple[int, int]]:  # noqa: FBT001
    """Yield the pieces of one whitespace token."""
    piece = start
    for index in range(start, end):
        if characters_are_words and _is_han(text[index]):
            yield piece, index
            yield index, index + 1
            piece = index + 1
        elif _parts_words(text, index, start, end):
            yield piece, index
            piece = index + 1
    yield piece, end


def _parts_words(text: str, index: int, start: int, end: int) -> bool:
    character = text[index]
    if unicodedata.category(character)[0] != "P" or character in _HOLDING:
        return False
    before = text[index - 1] if index > start else ""
    after = text[index + 1] if index + 1 < end else ""
    if character in _HOLDING_DIGITS and before.isdigit() and after.isdigit():
        return False
    # "e.g.", "example.com": a single dot between letters holds, three do not.
    return not (character == "." and before.isalnum() and after.isalnum())


def _without_edges(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a piece without the punctuation around it; one of signs alone stays as it is."""
    first, last = start, end
    while first < last and _is_edge(text[first]):
        first += 1
    while first < last and _is_edge(text[last - 1]):
        last -= 1
    if first == last and any(unicodedata.category(character)[0] == "S" for character in text[start:end]):
        return start, end
    return first, last


def _is_edge(character: str) -> bool:
    category = unicodedata.category(character)
    return (category[0] in "PCZ" and character not in SPOKEN_PUNCTUATION) or category == "Sk"


def _has_letter_or_digit(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _is_han(character: str) -> bool:
    return unicodedata.name(character, "").startswith("CJK")
