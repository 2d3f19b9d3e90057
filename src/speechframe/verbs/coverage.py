"""Whether the words of an answer are those of its text.

Services write words in their own ways: numbers spelled out, punctuation kept or dropped, compounds joined or
parted. So only letters are compared, in any case and without accents: by the share of the text's letters that
come back in order.
"""

import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from speechframe.spec.pauses import strip_pauses

Word = tuple[str, int, int]

_WORDS_AT_LEAST, _WORDS_PER_CHARACTER = 20, 8
"""How many words are compared at all."""
_APOSTROPHES = frozenset("'\u2019\u02bc\u2032`\u00b4")
_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a text its words cover.

    Parameters
    ----------
    letters
        Letters of the text that can be compared; 0 when there is nothing to compare.
    covered
        Those that come back in order.
    foreign
        The words are in Latin letters, and none of these is in the text: a transcription, perhaps.
    """

    letters: int
    covered: int
    foreign: bool = False


def coverage(text: str, words: Sequence[Word], *, except_for: Collection[str] = ()) -> Coverage:
    """Return how much of a text the words of an answer cover.

    Parameters
    ----------
    text
        What was to be said; pause markers do not count.
    words
        Word, start and end in milliseconds.
    except_for
        Words of the text that need not come back, because a pronunciation was given for them.

    Examples
    --------
    >>> coverage("In 1984, 'twas cold.", [("in", 0, 90), ("nineteen", 90, 300), ("Twas", 300, 500)])
    Coverage(letters=10, covered=6, foreign=False)
    """
    shown = " ".join([word for word, _, _ in words[: _WORDS_AT_LEAST + _WORDS_PER_CHARACTER * len(text)]])
    tokens, heard = _tokens(strip_pauses(text)), _tokens(shown)
    wanted = list(filter(str.isalpha, tokens))
    if except_for:
        respelled = {token for word in except_for for token in _tokens(word)}
        wanted = [token for token in wanted if token not in respelled]
    letters = sum(map(len, wanted))
    # The usual case, and the cheap one.
    if tokens == heard or wanted == list(filter(str.isalpha, heard)):
        return Coverage(letters, letters)
    covered = _in_order(wanted, heard)
    shown = "".join(heard)
    foreign = not covered and bool(heard) and shown.isascii() and set("".join(wanted)).isdisjoint(shown)
    return Coverage(letters, covered, foreign)


def _tokens(text: str) -> list[str]:
    """Return the words of a text for comparing; in scripts without spaces every letter is one."""
    folded = text.casefold()
    if not folded.isascii():
        folded = unicodedata.normalize("NFKD", folded)
    return folded.translate(_FOLDING).split()


def _in_order(wanted: list[str], heard: list[str]) -> int:
    """Return how many letters of `wanted` are in `heard` too, in the same order.

    The n-th occurrence of a word is paired with its n-th occurrence in `heard`; of these pairs, the longest
    chain of rising places counts.
    """
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place in range(len(heard) - 1, -1, -1):
        places[heard[place]].append(place)
    pairs = [(places[token].pop(), len(token)) for token in wanted if places.get(token)]
    # Patience sorting: the smallest place at which a chain of each length can end, and the chain's letters.
    ends: list[int] = []
    letters: list[int] = []
    for place, size in pairs:
        at = bisect_left(ends, place)
        total = size + (letters[at - 1] if at else 0)
        ends[at : at + 1], letters[at : at + 1] = [place], [total]
    return letters[-1] if letters else 0


class _Folding(dict[int, str | None]):
    """A table for `str.translate` to what is compared, filled as characters are met."""

    def __missing__(self, code: int) -> str | None:
        folded = self[code] = _folded(chr(code))
        return folded


def _folded(character: str) -> str | None:
    if unicodedata.category(character)[0] == "M" or character in _APOSTROPHES:
        return None
    if not character.isalnum():
        return " "
    if unicodedata.name(character, "").startswith(_WITHOUT_SPACES):
        return f" {character} "
    return character


_FOLDING = _Folding()
