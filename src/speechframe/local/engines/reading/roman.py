"""Find the Roman numerals of a text, and write them as a person reads them.

espeak-ng reads "World War II" as "World War roman two". In Portuguese it reads "CV" as a number. So a numeral
is recognised by the words beside it, as in "Chapter V" and "XX. Jahrhundert". Two or more of the letters I, V
and X are a numeral almost anywhere, because hardly any word has only these letters.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from speechframe.local.engines.reading.roman_words import (
    AMBIGUOUS_NUMERALS,
    FEMALE,
    KING,
    LANGUAGES,
    MALE,
    NUMBER,
    QUEEN,
    Language,
)

_WORD_PATTERN = re.compile(r"[^\W_]++")
_NUMERAL_PATTERN = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_LETTER_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_LONGEST_WORD = 19
"""Letters of the longest word that is examined: the longest numeral, MMMDCCCLXXXVIII, and a suffix."""
_LONGEST_ABBREVIATION = 5
"""Letters of the longest noun that may be an abbreviation with a full stop, as in "chap. V"."""


class RomanNumeral(NamedTuple):
    """A numeral: its start and end in the text, and the text to speak.

    ``is_number`` is False for letters such as "CV" that the engine would wrongly read as a number.
    """

    start: int
    end: int
    replacement: str
    is_number: bool = True


def find_roman_numerals(text: str, language: str) -> Iterator[RomanNumeral]:
    """Yield the Roman numerals of a text.

    Parameters
    ----------
    text
        The text.
    language
        espeak's name of the language without its family, such as ``en-US``. Only numerals in English, German,
        French, Spanish, Portuguese and Italian are found.

    Examples
    --------
    >>> found = find_roman_numerals("Henry VIII, Chapter IV. MIX vitamin C!", "en-US")
    >>> [numeral.replacement for numeral in found]
    ['the eighth', '4']
    """
    code = language.partition("-")[0]
    known = LANGUAGES.get(code)
    if known is None:
        return
    words = [match.span() for match in _WORD_PATTERN.finditer(text)]
    for index, (start, end) in enumerate(words):
        if text[start] in _LETTER_VALUES and end - start <= _LONGEST_WORD:
            found = _Candidate(text, words, index, known, code).read()
            if found is not None:
                yield found


def _parse_numeral(letters: str) -> int:
    values = [_LETTER_VALUES[letter] for letter in letters]
    return sum(
        -value if value < after else value for value, after in zip(values, [*values[1:], 0], strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A word that may be a numeral, with its neighbours."""

    text: str
    words: Sequence[tuple[int, int]]
    index: int
    language: Language
    code: str

    def read(self) -> RomanNumeral | None:
        start, end = self.words[self.index]
        word = self.text[start:end]
        letters = word.rstrip(self.language.suffix_letters)
        is_shortened = self.get_gap(1)[:1] in {"'", "\u2019"} and self.get_word(1) not in {"", "s"}
        if not letters or not _LETTER_VALUES.keys() >= {*letters} or is_shortened:
            return None
        kind = self._classify(letters, word[len(letters) :]) if _NUMERAL_PATTERN.fullmatch(letters) else None
        if kind is None:
            return self._protect_letters(start, end)
        number = _parse_numeral(letters)
        replacement = self._spell(number, kind)
        return RomanNumeral(start, end + self._count_stop(kind), replacement)

    def get_word(self, steps: int) -> str:
        """Return the word that is `steps` words after the numeral, or "" beyond the text."""
        index = self.index + steps
        return self.text[slice(*self.words[index])] if 0 <= index < len(self.words) else ""

    def get_gap(self, side: int) -> str:
        """Return the text between the numeral and the word before (`side` is 0) or after (`side` is 1).

        Only the first 4 characters are returned, so that the time is linear for any text.
        """
        index = self.index + side
        start = self.words[index - 1][1] if index else 0
        end = self.words[index][0] if index < len(self.words) else len(self.text)
        return self.text[start : min(end, start + 4)]

    def _classify(self, letters: str, suffix: str) -> str | None:
        is_small = {*letters} <= {*"IVX"}
        if suffix:
            return self._classify_suffix(letters, suffix) if is_small else None
        if len(letters) > 1 or is_small:
            kind = self._classify_by_word_before(letters) or (
                self._classify_by_word_after() if is_small else None
            )
            if kind is not None:
                return kind
        if not is_small or len(letters) == 1:
            return None
        before = self.get_word(-1)
        is_name = before[:1].isupper() and before[1:].islower() and self.get_gap(0).isspace()
        return NUMBER if is_name or letters not in AMBIGUOUS_NUMERALS else None

    def _classify_suffix(self, letters: str, suffix: str) -> str | None:
        """Return the kind of a French ordinal such as XXe or Ier, or None if it is another word."""
        kind = self.language.suffixes.get(suffix)
        # A short word such as "Ve" may be another word, but not before "siècle" or after a name.
        is_beside = (
            self.get_word(1).lower() in self.language.after or self.get_word(-1) in self.language.names
        )
        return kind if len(letters) > 1 or suffix == "er" or is_beside else None

    def _classify_by_word_before(self, letters: str) -> str | None:
        word, gap = self.get_word(-1), self.get_gap(0)
        if self.code == "en" and word == "the" and gap.isspace():
            word = self.get_word(-2)
        name = word.capitalize() if word.isupper() else word
        if (kind := self.language.names.get(name)) is not None:
            return kind if gap.isspace() and not (letters == "I" and self._may_be_pronoun()) else None
        if (kind := self.language.nouns.get(word.lower())) is None:
            return None
        is_abbreviation = gap.startswith(".") and len(word) <= _LONGEST_ABBREVIATION
        if not gap.isspace() and gap != "-" and not is_abbreviation:
            return None
        # "I" is a numeral in "Part I has", but a pronoun in "the part I have" and in "after the War. I have".
        is_doubtful = letters == "I" and (word[:1].islower() or is_abbreviation)
        return None if is_doubtful and self._may_be_pronoun() else kind

    def _may_be_pronoun(self) -> bool:
        """Return True if an English "I" may be the pronoun: another word follows, which is not "of"."""
        return self.code == "en" and self.get_gap(1).isspace() and self.get_word(1) != "of"

    def _classify_by_word_after(self) -> str | None:
        gap = self.get_gap(1)
        is_beside = gap[:1] == "." and gap[1:].isspace() if self.code == "de" else gap.isspace()
        return self.language.after.get(self.get_word(1).lower()) if is_beside else None

    def _spell(self, number: int, kind: str) -> str:
        ordinals = self.language.ordinals
        if kind == NUMBER or number > self.language.last_ordinal:
            return str(number)
        if self.code == "fr":
            if kind in {KING, QUEEN} and number > 1:
                return str(number)
            return "premi\u00e8re" if number == 1 and kind in {FEMALE, QUEEN} else ordinals[number - 1]
        if self.code == "en":
            return ordinals[number - 1] if self.get_word(-1) == "the" else f"the {ordinals[number - 1]}"
        if self.code == "de":
            return self._spell_german(ordinals[number - 1], kind)
        sign = "\u00aa" if kind in {FEMALE, QUEEN} else "\u00ba"
        return f"{number}{sign}"

    def _spell_german(self, ordinal: str, kind: str) -> str:
        if kind in {KING, QUEEN}:
            return f"{'der' if kind == KING else 'die'} {ordinal.capitalize()}e"
        before = self.get_word(-1).lower()
        if before in {"der", "das", "die"}:
            return f"{ordinal}e"
        if before in {"im", "am", "dem", "den", "des", "vom", "zum", "beim", "einem", "eines"}:
            return f"{ordinal}en"
        return f"{ordinal}{'er' if kind == MALE else 'es'}"

    def _count_stop(self, kind: str) -> int:
        """Return 1 if a full stop belongs to a German ordinal and does not end the sentence, otherwise 0."""
        is_ordinal = self.code == "de" and kind != NUMBER and self.get_gap(1).startswith(".")
        is_inside = kind not in {KING, QUEEN} or self.get_word(1)[:1].islower()
        return int(is_ordinal and is_inside)

    def _protect_letters(self, start: int, end: int) -> RomanNumeral | None:
        """Return letters that the engine would read as a number, rewritten to be read as letters, or None."""
        letters = self.text[start:end]
        if letters == "XL" and self.code != "en":
            return RomanNumeral(start, end, "X L", is_number=False)
        is_like_one = self.code == "pt" and end - start > 1 and _LETTER_VALUES.keys() >= {*letters}
        return RomanNumeral(start, end, letters.lower(), is_number=False) if is_like_one else None
