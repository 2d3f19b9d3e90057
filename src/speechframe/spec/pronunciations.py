"""Find the words of a pronunciation dictionary in a text. Clients and engines use this one rule.

A word in lower case matches any case, and any other word matches only as written. A word matches only as a
whole, except in scripts without spaces between words. At each place the longest word wins.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from speechframe.spec.texts import split_pauses

_SPACED_LETTER_PATTERN = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
"""A letter of a script with spaces between words. A dictionary word is not searched inside longer words of
such scripts. Chinese and Japanese are written without spaces, and Korean appends particles to words."""


class WordIndex:
    """The words of a dictionary, indexed by length and hash, so that large dictionaries stay fast.

    If several words match at one place with the same length, a word as written comes first.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._by_length: dict[int, tuple[dict[str, str], dict[str, str]]] = {}
        self._first: set[str] = set()
        for word in words:
            if bare := word.strip():
                exact, any_case = self._by_length.setdefault(len(bare), ({}, {}))
                (any_case if bare == bare.lower() else exact).setdefault(fold_word(bare), word)
                self._first.add(_lower_character(bare[0]))
        self._lengths = sorted(self._by_length, reverse=True)

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and word for each dictionary word in a text without pause markers."""
        folded = "".join(map(_lower_character, text)) if self._lengths else ""
        at = 0
        while at < len(folded):
            end, word = self._find_longest(text, folded, at)
            if word is None:
                at += 1
            else:
                yield at, end, word
                at = end

    def find_used(self, text: str) -> set[str]:
        """Return the dictionary words in a text. Pause markers are ignored."""
        parts = (part for part in split_pauses(text) if isinstance(part, str))
        return {word for part in parts for _, _, word in self.find(part)}

    def _find_longest(self, text: str, folded: str, at: int) -> tuple[int, str | None]:
        """Return the end of the longest dictionary word that begins at `at`, and the word or None."""
        if folded[at] not in self._first or (_is_spaced(text[at]) and at and _is_spaced(text[at - 1])):
            return at, None
        for length in self._lengths:
            end = at + length
            if end > len(text) or (_is_spaced(text[end - 1]) and end < len(text) and _is_spaced(text[end])):
                continue
            exact, any_case = self._by_length[length]
            word = exact.get(text[at:end]) or any_case.get(folded[at:end])
            if word is not None:
                return end, word
        return at, None


def fold_word(word: str) -> str:
    """Return the form in which two dictionary words are equal if they match the same texts."""
    return "".join(map(_lower_character, word)) if word == word.lower() else word


@lru_cache(maxsize=8192)
def _lower_character(character: str) -> str:
    # Skip lower-case forms of two letters, because they would shift the indices of all later characters.
    return next((one for one in (character.casefold(), character.lower()) if len(one) == 1), character)


@lru_cache(maxsize=8192)
def _is_spaced(character: str) -> bool:
    return _SPACED_LETTER_PATTERN.match(character) is not None
