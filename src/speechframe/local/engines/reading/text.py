r"""Prepare text for espeak-ng, and map each character back to the caller's text.

espeak obeys control characters (``\x01`` begins a command) and, in phoneme
mode, ``[[...]]``. It reads each letter of an unknown script as "Chinese letter".
All of this is removed. The map back to the caller's text is kept for every
change, because word times refer to the caller's words.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from speechframe.engines.numbers import plain_numbers
from speechframe.engines.words import SPOKEN_PUNCTUATION
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import EspeakLocale, script_of
from speechframe.local.engines.reading.roman import roman_numerals
from speechframe.spec.speech import Pronunciation, PronunciationKind
from speechframe.spec.texts import split_pauses

__all__ = ["SpokenText", "spoken_text", "unused_words"]

ToPhonemes = Callable[[str], str]
"""Converts IPA to the engine's own spelling. Raises EngineError for a sound that the engine lacks."""

_LONGEST_WORD = 40
_LONGEST_NUMBER = 20
_CLAUSE_ENDS = frozenset(".,;:!?\u2026\u3002\uff0c\u3001\uff1b\uff1a\uff01\uff1f\n")
# Possessive, and each run is tried at its first character only. So the time is linear for any text.
_PUNCTUATION = re.compile(r"((?<!\s)\s++|)(?<![.,;:!?\u2026])([.,;:!?\u2026]++)(?=\s|$)")
_SPACED_LETTER = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
"""A letter of a script with spaces. There, a dictionary word is not found inside a longer word.
Chinese and Japanese do not write spaces, and Korean joins its particles."""
_BRACKETS = {"[": "(", "]": ")"}
"""Round brackets are silent, too, and two of them do not begin phonemes."""
_JOINERS = "\u200c\u200d"
_REWRITTEN = frozenset(
    f"<{tag}>"
    for tag in ("font", "wide", "narrow", "circle", "compat", "initial", "medial", "final", "isolated")
)


@dataclass(frozen=True, slots=True)
class SpokenText:
    """Text for the engine.

    ``origins`` has an index into the caller's text for each character of ``text``.
    ``left_out`` contains each letter that cannot be spoken, once for each occurrence. ``numbers`` has start
    and end of each number with group marks. ``romans`` has each Roman numeral as it is written
    and as it is spoken.
    """

    text: str
    origins: tuple[int, ...]
    phoneme_input: bool = False
    left_out: str = ""
    numbers: tuple[tuple[int, int], ...] = ()
    romans: tuple[tuple[str, str], ...] = ()

    @property
    def speakable(self) -> bool:
        """Whether the text contains any letter, digit or sign."""
        return bool(self.sounding_indices)

    @property
    def sounding_indices(self) -> frozenset[int]:
        """Indices of the letters, digits and signs of the caller's text that the engine gets."""
        return frozenset(
            origin for character, origin in zip(self.text, self.origins, strict=True) if _may_sound(character)
        )


def spoken_text(
    text: str,
    locale: EspeakLocale,
    pronunciations: Mapping[str, Pronunciation],
    to_phonemes: ToPhonemes,
) -> SpokenText:
    """Return a text with its pronunciations inserted and without characters that are not speech.

    Numbers and Roman numerals are written as every engine reads them, unless a pronunciation contains them.

    Parameters
    ----------
    text
        A piece of the caller's text, without pause markers.
    locale
        The locale, with the scripts that it can read.
    pronunciations
        Pronunciations by word. A word in small letters matches any case. Other words match only exactly.
    to_phonemes
        Converts pronunciations in IPA.
    """
    parts: list[tuple[str, int]] = []
    left_out: list[str] = []
    phonemes: set[int] = set()
    found = [*_find(text, pronunciations), (len(text), len(text), "")]
    changes = _changes(text, locale, [(start, end) for start, end, _ in found])
    written, origins = _written(text, changes)
    at = 0
    for start, end, word in found:
        between = slice(bisect_left(origins, at), bisect_left(origins, start))
        parts.extend(_read(written[between], origins[between], locale, left_out))
        if word:
            pronunciation = pronunciations[word]
            if pronunciation.type is PronunciationKind.IPA:
                phonemes.update(range(start, end))
                said = to_phonemes(pronunciation.pronunciation)
            else:
                said = _said_as(pronunciation.pronunciation, locale, left_out)
            parts.extend(_spread(said, start, end))
        at = end
    parts = list(_with_breaks(_with_quiet_punctuation(parts), locale, phonemes))
    return SpokenText(
        "".join(character for character, _ in parts),
        tuple(origin for _, origin in parts),
        bool(phonemes),
        "".join(left_out),
        tuple((change.start, change.end) for change in changes if not change.is_roman),
        tuple((text[change.start : change.end], change.said) for change in changes if change.is_told),
    )


class _Change(NamedTuple):
    """A part of the caller's text that is written differently for the engine."""

    start: int
    end: int
    said: str
    is_roman: bool = False
    is_told: bool = False


def _changes(text: str, locale: EspeakLocale, taken: Iterable[tuple[int, int]] = ()) -> list[_Change]:
    """Return the numbers and Roman numerals of a text in order, without those in a place that is taken."""
    language = locale.language.rpartition("/")[2]
    free = bytearray(b"\1" * len(text))
    for start, end in taken:
        free[start:end] = bytes(end - start)
    found = [_Change(start, end, said) for start, end, said in plain_numbers(text, language)]
    found += (
        _Change(roman.start, roman.end, roman.said, is_roman=True, is_told=roman.is_number)
        for roman in roman_numerals(text, language)
    )
    return sorted(change for change in found if all(free[change.start : change.end]))


def _written(text: str, changes: Iterable[_Change]) -> tuple[str, list[int]]:
    """Return a text with its changes, and the index in `text` of each character."""
    characters: list[tuple[str, int]] = []
    at = 0
    for change in changes:
        characters.extend((text[index], index) for index in range(at, change.start))
        characters.extend(_spread(change.said, change.start, change.end))
        at = change.end
    characters.extend((text[index], index) for index in range(at, len(text)))
    return "".join(character for character, _ in characters), [origin for _, origin in characters]


def _said_as(text: str, locale: EspeakLocale, left_out: list[str]) -> str:
    """Return the text of a pronunciation as the engine gets it."""
    written, origins = _written(text, _changes(text, locale))
    return "".join(character for character, _ in _read(written, origins, locale, left_out))


def unused_words(text: str, pronunciations: Mapping[str, Pronunciation]) -> tuple[str, ...]:
    """Return the words of a dictionary that a text does not contain, in the dictionary's order.

    Parameters
    ----------
    text
        The caller's text. Pause markers are ignored.
    pronunciations
        Pronunciations by word. Words match as in :func:`spoken_text`.
    """
    found = {
        word
        for part in split_pauses(text)
        if isinstance(part, str)
        for _, _, word in _find(part, pronunciations)
    }
    return tuple(word for word in pronunciations if word not in found)


def _spread(said: str, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Yield the characters of a pronunciation. Their origins are spread evenly over the original words."""
    for index, character in enumerate(said):
        yield character, start + index * (end - start) // len(said)


def _may_sound(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNS" or character in SPOKEN_PUNCTUATION


def _with_quiet_punctuation(parts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the text with punctuation in a form that espeak does not read aloud ("dot", "exclamation").

    Punctuation that stands alone joins the word before it. After a sign, punctuation becomes a comma after a
    space, because espeak drops the second word of an emoji's name if punctuation touches the emoji.
    """
    text = "".join(character for character, _ in parts)
    quiet: list[str] = list(text)
    for match in _PUNCTUATION.finditer(text):
        before = text[max(0, match.start() - 1) : match.start()]
        quiet[match.start(1) : match.end(1)] = [""] * len(match.group(1))
        if not before:
            quiet[match.start(2) : match.end(2)] = [""] * len(match.group(2))
        elif _may_sound(before) and not before.isalnum():
            quiet[match.start(2) : match.end(2)] = [" ,", *[""] * (len(match.group(2)) - 1)]
    return [(character, origin) for kept, (_, origin) in zip(quiet, parts, strict=True) for character in kept]


def _with_breaks(
    parts: Sequence[tuple[str, int]], locale: EspeakLocale, phonemes: Container[int]
) -> Iterator[tuple[str, int]]:
    """Yield the text with breaks in long words and clauses, whose rest the engine would silently drop."""
    in_word = in_number = in_clause = 0
    for character, origin in parts:
        if origin in phonemes:
            yield character, origin
            continue
        in_word = in_word + 1 if unicodedata.category(character)[0] in "LMN" else 0
        in_number = in_number + 1 if character.isdigit() else 0
        in_clause = 0 if character in _CLAUSE_ENDS else in_clause + 1
        if in_word > _LONGEST_WORD or in_number > _LONGEST_NUMBER:
            yield " ", origin
            in_word = in_number = 1
        if (
            locale.longest_clause
            and in_clause > locale.longest_clause
            and _may_break_before(character, locale)
        ):
            yield from ((",", origin), (" ", origin))
            in_clause = 1
        yield character, origin


def _may_break_before(character: str, locale: EspeakLocale) -> bool:
    return character.isspace() or (locale.characters_are_words and character.isalpha())


def _find(text: str, pronunciations: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and word for each dictionary word in a text. Prefer the longest word at a place."""
    words = _Words(pronunciations)
    folded = _folded(text) if words else ""
    at = 0
    while at < len(folded):
        end, word = words.longest_at(text, folded, at)
        if word is None:
            at += 1
        else:
            yield at, end, word
            at = end


class _Words:
    """The words of a dictionary. They are found by length and hash, so large dictionaries stay fast."""

    def __init__(self, pronunciations: Iterable[str]) -> None:
        self._by_length: dict[int, tuple[dict[str, tuple[int, str]], dict[str, tuple[int, str]]]] = {}
        self._first: set[str] = set()
        for number, word in enumerate(pronunciations):
            if bare := word.strip():
                exact, any_case = self._by_length.setdefault(len(bare), ({}, {}))
                if bare == bare.lower():
                    any_case.setdefault(_folded(bare), (number, word))
                else:
                    exact.setdefault(bare, (number, word))
                self._first.add(_folded(bare[0]))
        self._lengths = sorted(self._by_length, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._lengths)

    def longest_at(self, text: str, folded: str, at: int) -> tuple[int, str | None]:
        """Return the longest word that begins at a place, or None, with the end of the word."""
        if folded[at] not in self._first or (_is_spaced(text[at]) and at and _is_spaced(text[at - 1])):
            return at, None
        for length in self._lengths:
            end = at + length
            if end > len(text) or (_is_spaced(text[end - 1]) and end < len(text) and _is_spaced(text[end])):
                continue
            exact, any_case = self._by_length[length]
            found = [each for each in (exact.get(text[at:end]), any_case.get(folded[at:end])) if each]
            if found:
                return end, min(found)[1]
        return at, None


def _folded(text: str) -> str:
    """Return a text in small letters with the same number of characters."""
    return "".join(map(_small, text))


@lru_cache(maxsize=8192)
def _small(character: str) -> str:
    # Skip forms with two letters, because they would move all characters after them.
    return next((one for one in (character.casefold(), character.lower()) if len(one) == 1), character)


@lru_cache(maxsize=8192)
def _is_spaced(character: str) -> bool:
    return _SPACED_LETTER.match(character) is not None


def _read(
    text: str, origins: Sequence[int], locale: EspeakLocale, left_out: list[str]
) -> Iterator[tuple[str, int]]:
    """Yield the characters to speak, each with its index in the caller's text. Japanese is read as kana."""
    at = 0
    for start, end, kana in japanese.readings(text) if locale.has_readings else ():
        yield from _cleaned(text[at:start], origins[at:start], locale, left_out)
        known = locale.own_scripts
        unread = [letter for letter in kana if letter.isalpha() and script_of(letter) not in known]
        left_out.extend(unread)
        said = "".join(letter for letter in kana if letter not in unread)
        yield from _spread(said, origins[start], origins[end - 1] + 1)
        at = end
    yield from _cleaned(text[at:], origins[at:], locale, left_out)


def _cleaned(
    text: str, origins: Sequence[int], locale: EspeakLocale, left_out: list[str]
) -> Iterator[tuple[str, int]]:
    """Yield the characters to speak, each with its index in the caller's text."""
    for start, cluster in _clusters(text):
        rewritten = _rewritten(cluster)
        first = rewritten[:1] or " "
        if unicodedata.category(first)[0] in "LM" and not locale.reads(first):
            left_out.append(first)
            rewritten = " "
        elif first in _BRACKETS:
            rewritten = _BRACKETS[first]
        for character in rewritten:
            yield character, origins[start]


def _clusters(text: str) -> Iterator[tuple[int, str]]:
    """Yield the index of each character, and the character with its marks."""
    start = 0
    for index in range(1, len(text) + 1):
        if index == len(text) or not _belongs_to_the_one_before(text[index]):
            yield start, text[start:index]
            start = index


def _belongs_to_the_one_before(character: str) -> bool:
    # Conjoining Korean vowels and finals are marks too, though Unicode calls them letters.
    return unicodedata.combining(character) > 0 or "\u1160" <= character <= "\u11ff"


@lru_cache(maxsize=8192)
def _rewritten(cluster: str) -> str:
    """Return a character and its marks in a form that the engine can read.

    A control character becomes a space. An invisible character is removed. An
    ornamental letter or digit becomes a plain one.
    """
    first = cluster[0]
    category = unicodedata.category(first)
    if first in "\n\t":
        return cluster
    if category == "Cf":
        return cluster if first in _JOINERS else cluster[1:]
    if category[0] == "C":
        return " "
    if category == "Nd":
        return f"{unicodedata.digit(first)}{cluster[1:]}"
    if category[0] in "LN" and unicodedata.decomposition(first).partition(" ")[0] in _REWRITTEN:
        return cluster if "HANGUL" in unicodedata.name(first, "") else unicodedata.normalize("NFKC", cluster)
    return unicodedata.normalize("NFC", cluster)
