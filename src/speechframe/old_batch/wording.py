"""Whether the words of an answer are those of its text.

Services write words down in their own ways: numbers spelled out, punctuation
kept or dropped, compounds joined or parted. So only what can be compared is:
letters, in whatever case and with or without accents, by the share of a text
that comes back in order.
"""

import unicodedata
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from speechframe.spec.pauses import strip_pauses

__all__ = ["Coverage", "WordHabits", "coverage"]

Word = tuple[str, int, int]

_ENOUGH = 20
_USUAL = 0.95
_LOCALES = 2048
_WORDS_PER_CHARACTER = 8
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
        The words are in Latin letters and not one of them is in the text: a transcription, perhaps.
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
    shown = " ".join([word for word, _, _ in words[: _WORDS_PER_CHARACTER * len(text) + _ENOUGH]])
    tokens, heard = _tokens(strip_pauses(text)), _tokens(shown)
    wanted = list(filter(str.isalpha, tokens))
    if except_for:
        respelled = {token for word in except_for for token in _tokens(word)}
        wanted = [token for token in wanted if token not in respelled]
    letters = sum(map(len, wanted))
    # What may not be compared is often the same on both sides, too.
    if tokens == heard or wanted == list(filter(str.isalpha, heard)):
        return Coverage(letters, letters)
    covered = _in_order(wanted, heard)
    shown = "".join(heard)
    foreign = not covered and bool(heard) and shown.isascii() and set("".join(wanted)).isdisjoint(shown)
    return Coverage(letters, covered, foreign)


class WordHabits:
    """Whether the answers of a locale come with words, and in the script of their texts.

    The document asks for a list of words in every answer, not for words in it,
    and says nothing of their spelling. So a list that is empty, or a
    transcription, is odd only where 20 answers had words that matched.
    """

    def __init__(self) -> None:
        self._locales: OrderedDict[Hashable, list[int]] = OrderedDict()

    def usual(self, locale: Hashable) -> bool:
        """Return whether words that match are what this locale gives."""
        matched, answers = self._locales.get(locale, (0, 0))
        return matched >= _ENOUGH and matched >= _USUAL * answers

    def learn(self, locale: Hashable, *, matched: bool) -> None:
        """Take note of an answer that was found good, to a text with words in it."""
        counts = self._locales.get(locale)
        if counts is None:
            counts = self._locales[locale] = [0, 0]
            if len(self._locales) > _LOCALES:
                self._locales.popitem(last=False)
        else:
            self._locales.move_to_end(locale)
        counts[0] += matched
        counts[1] += 1


def _tokens(text: str) -> list[str]:
    """Return the words of a text for comparing; where words are not parted by spaces, every letter is one."""
    folded = text.casefold()
    if not folded.isascii():
        folded = unicodedata.normalize("NFKD", folded)
    return folded.translate(_FOLDING).split()


def _in_order(wanted: list[str], heard: list[str]) -> int:
    """Return how many letters of `wanted` are in `heard` too, in the same order.

    The n-th time a word comes is the n-th time it was heard; of these pairs, the
    longest chain that rises counts.
    """
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place in range(len(heard) - 1, -1, -1):
        places[heard[place]].append(place)
    pairs = [(places[token].pop(), len(token)) for token in wanted if places.get(token)]
    # Patience sorting: the smallest place a chain of each length can end in, and the letters in that chain.
    ends: list[int] = []
    letters: list[int] = []
    for place, size in pairs:
        at = bisect_left(ends, place)
        total = size + (letters[at - 1] if at else 0)
        if at == len(ends):
            ends.append(place)
            letters.append(total)
        else:
            ends[at], letters[at] = place, total
    return letters[-1] if letters else 0


class _Folding(dict[int, str | None]):
    """What becomes of each character in comparing, found out when it is first met."""

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
