"""Split a text into words, as the field ``wordDurations`` of an answer has them.

These rules apply:

* A word is the text between two spaces, without the punctuation around it. A
  hyphen, an apostrophe and punctuation between digits (``10:30``, ``1,234.5``)
  belong to the word. Other punctuation inside separates two words. Numbers,
  dates and abbreviations are one entry each, as written (``42``, ``$20``,
  ``U.S``, ``3 000``).
* Chinese has one entry per character, because each character is a syllable. Latin words and
  numbers between them are one entry each. Japanese has one entry per run between
  spaces and punctuation.
* A sign alone (``&``, an emoji) has an entry if it is spoken.
* If the words of the original text are requested, each whitespace token has an entry, exactly as written.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_APOSTROPHES = "'\u2019\u02bc\u2032`"
_HYPHENS = "-\u2010\u2011"
SPOKEN_PUNCTUATION = frozenset("%#&@*/\\\u00a7\u00b6\u00b7\u2020\u2021\u2022\u2030")
"""Punctuation that some languages read aloud. Such a sign is a word, or part of the word that it touches."""
_INNER_PUNCTUATION = SPOKEN_PUNCTUATION | frozenset(f"{_APOSTROPHES}{_HYPHENS}_+=~^|\u05f3\u05f4\u0f0b\u2044")
"""Punctuation that is part of a word if letters surround it."""
_NUMBER_PUNCTUATION = frozenset(".,:\u066b\u066c\u2013")
"""Punctuation that is part of a number between digits."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a text, at ``text[start:end]``.

    ``shown`` is the word as written. ``certain`` is True if the word is certainly spoken, because it has a
    letter or digit. For other words, the audio decides. If ``always`` is True, the word has an entry in any
    case.
    """

    shown: str
    start: int
    end: int
    certain: bool
    always: bool = False


def original_tokens(text: str) -> list[Token]:
    """Return a token for each part of a text between whitespace, exactly as written.

    Examples
    --------
    >>> [token.shown for token in original_tokens("Wait -- what?")]
    ['Wait', '--', 'what?']
    """
    return [
        Token(match.group(), match.start(), match.end(), _has_letter_or_digit(match.group()), always=True)
        for match in re.finditer(r"\S+", text)
    ]


def spoken_tokens(
    text: str, *, characters_are_words: bool = False, numbers: Iterable[tuple[int, int]] = ()
) -> list[Token]:
    r"""Return the spoken words of a text, without the punctuation around them.

    Parameters
    ----------
    text
        Any text.
    characters_are_words
        True counts every Han character as a word, as in Chinese. Default False.
    numbers
        Start and end of numbers, in order. Each number is one word, even if spaces group its digits.

    Examples
    --------
    >>> [token.shown for token in spoken_tokens('"Dr. No\u2014the first, 1962!" & more')]
    ['Dr', 'No', 'the', 'first', '1962', '&', 'more']
    >>> [token.shown for token in spoken_tokens("我有3个book。", characters_are_words=True)]
    ['我', '有', '3', '个', 'book']
    """
    found = []
    for match in re.finditer(r"\S+", text):
        for start, end in _split_token(text, match.start(), match.end(), characters_are_words):
            start, end = _strip_punctuation(text, start, end)  # noqa: PLW2901  (the part, stripped)
            if start < end:
                shown = text[start:end]
                found.append(Token(shown, start, end, _has_letter_or_digit(shown)))
    return _join_numbers(text, found, numbers)


def _join_numbers(text: str, tokens: list[Token], numbers: Iterable[tuple[int, int]]) -> list[Token]:
    """Return the tokens, but join those inside one number. `numbers` has the start and end of numbers."""
    joined: list[Token] = []
    ends = iter(numbers)
    start, end = next(ends, (len(text), len(text)))
    for token in tokens:
        while token.start >= end < len(text):
            start, end = next(ends, (len(text), len(text)))
        if joined and token.start > start and joined[-1].end > start and token.start < end:
            first = joined.pop().start
            joined.append(Token(text[first : token.end], first, token.end, certain=True))
        else:
            joined.append(token)
    return joined


def _split_token(text: str, start: int, end: int, characters_are_words: bool) -> Iterator[tuple[int, int]]:  # noqa: FBT001
    """Yield start and end of each word in ``text[start:end]``, a part between whitespace.

    A word may still have punctuation around it, or be empty.
    """
    piece = start
    for index in range(start, end):
        if characters_are_words and _is_han(text[index]):
            yield piece, index
            yield index, index + 1
            piece = index + 1
        elif _separates_words(text, index, start, end):
            yield piece, index
            piece = index + 1
    yield piece, end


def _separates_words(text: str, index: int, start: int, end: int) -> bool:
    """Return whether the character at `index` separates two words in ``text[start:end]``."""
    character = text[index]
    if unicodedata.category(character)[0] != "P" or character in _INNER_PUNCTUATION:
        return False
    before = text[index - 1] if index > start else ""
    after = text[index + 1] if index + 1 < end else ""
    if character in _NUMBER_PUNCTUATION and before.isdigit() and after.isdigit():
        return False
    # A single dot between letters does not separate words ("e.g.", "example.com"). Three dots do.
    return not (character == "." and before.isalnum() and after.isalnum())


def _strip_punctuation(text: str, start: int, end: int) -> tuple[int, int]:
    """Return start and end of ``text[start:end]`` without the punctuation around it.

    A piece with symbols but without letters or digits stays unchanged.
    """
    first, last = start, end
    while first < last and _is_edge(text[first]):
        first += 1
    while first < last and _is_edge(text[last - 1]):
        last -= 1
    if first == last and any(unicodedata.category(character)[0] == "S" for character in text[start:end]):
        return start, end
    return first, last


def _is_edge(character: str) -> bool:
    """Return whether a character at the edge of a word does not belong to the word."""
    category = unicodedata.category(character)
    return (category[0] in "PCZ" and character not in SPOKEN_PUNCTUATION) or category == "Sk"


def _has_letter_or_digit(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _is_han(character: str) -> bool:
    return unicodedata.name(character, "").startswith("CJK")
