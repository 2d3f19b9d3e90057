r"""Prepare text for espeak-ng, and map each character back to the caller's text.

espeak interprets control characters (``\x01`` begins a command) and, in phoneme
mode, ``[[...]]``. It speaks a letter of an unknown script as "Chinese letter", for
example. All of these are removed or replaced. The map back to the caller's text is
needed because word times refer to the caller's words.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from speechframe.engines.numbers import find_rewritten_numbers
from speechframe.engines.words import SPOKEN_PUNCTUATION
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import EspeakLocale, find_script
from speechframe.local.engines.reading.roman import find_roman_numerals
from speechframe.spec.pronunciations import WordIndex
from speechframe.spec.speech import Pronunciation, PronunciationKind

ToPhonemes = Callable[[str], str]
"""A function that converts IPA to the engine's symbols. It raises EngineError for an unknown sound."""

_LONGEST_WORD = 40
"""Letters of a word after which a break is inserted, because espeak drops the rest of a long word."""
_LONGEST_NUMBER = 20
"""Digits of a number after which a break is inserted."""
_CLAUSE_ENDS = frozenset(".,;:!?\u2026\u3002\uff0c\u3001\uff1b\uff1a\uff01\uff1f\n")
# Punctuation before whitespace, with the whitespace before it. The repetitions are possessive, and a run
# matches only from its first character, so the time is linear for any text.
_PUNCTUATION_PATTERN = re.compile(r"((?<!\s)\s++|)(?<![.,;:!?\u2026])([.,;:!?\u2026]++)(?=\s|$)")
_BRACKET_REPLACEMENTS = {"[": "(", "]": ")"}
"""Replacements of square brackets, because two of them would begin phonemes. Round brackets are silent."""
_JOINER_CHARACTERS = "\u200c\u200d"
"""Invisible characters that are kept, because they change letters: zero-width non-joiner and joiner."""
# Types of Unicode decompositions of ornamental letters and digits, which are replaced by plain ones.
_REWRITTEN_TAGS = frozenset(
    f"<{tag}>"
    for tag in ("font", "wide", "narrow", "circle", "compat", "initial", "medial", "final", "isolated")
)


@dataclass(frozen=True, slots=True)
class SpokenText:
    """Text for the engine.

    Attributes
    ----------
    text
        The characters for the engine.
    origins
        Index into the caller's text for each character of `text`.
    phoneme_input
        True if `text` contains phonemes of IPA pronunciations.
    left_out
        Letters that cannot be spoken, in order, with repetitions.
    numbers
        Start and end, in the caller's text, of each number that was rewritten.
    romans
        Roman numerals, each as written and as spoken.
    """

    text: str
    origins: tuple[int, ...]
    phoneme_input: bool = False
    left_out: str = ""
    numbers: tuple[tuple[int, int], ...] = ()
    romans: tuple[tuple[str, str], ...] = ()

    @property
    def is_speakable(self) -> bool:
        """True if the text contains a letter, digit or sign."""
        return bool(self.sounding_indices)

    @property
    def sounding_indices(self) -> frozenset[int]:
        """Indices into the caller's text of the letters, digits and signs that the engine gets."""
        return frozenset(
            origin for character, origin in zip(self.text, self.origins, strict=True) if _may_sound(character)
        )


def prepare_text(
    text: str,
    locale: EspeakLocale,
    pronunciations: Mapping[str, Pronunciation],
    to_phonemes: ToPhonemes,
) -> SpokenText:
    """Return a text for the engine: pronunciations are inserted, unspeakable characters are removed.

    Numbers and Roman numerals are rewritten so that every engine reads them correctly, unless a word of the
    dictionary covers them.

    Parameters
    ----------
    text
        A piece of the caller's text, without pause markers.
    locale
        The locale, with the scripts that espeak reads in it.
    pronunciations
        Dictionary of words and their pronunciations. :mod:`speechframe.spec.pronunciations` has the rule for
        matches.
    to_phonemes
        Function that converts an IPA pronunciation to the engine's symbols.
    """
    parts: list[tuple[str, int]] = []
    left_out: list[str] = []
    phonemes: set[int] = set()
    found = [*WordIndex(pronunciations).find(text), (len(text), len(text), "")]
    changes = _find_changes(text, locale, [(start, end) for start, end, _ in found])
    written, origins = _apply_changes(text, changes)
    at = 0
    for start, end, word in found:
        between = slice(bisect_left(origins, at), bisect_left(origins, start))
        parts.extend(_read_characters(written[between], origins[between], locale, left_out))
        if word:
            pronunciation = pronunciations[word]
            if pronunciation.type is PronunciationKind.IPA:
                phonemes.update(range(start, end))
                spoken = to_phonemes(pronunciation.pronunciation)
            else:
                spoken = _prepare_pronunciation(pronunciation.pronunciation, locale, left_out)
            parts.extend(_spread_origins(spoken, start, end))
        at = end
    parts = list(_insert_breaks(_silence_punctuation(parts), locale, phonemes))
    return SpokenText(
        "".join(character for character, _ in parts),
        tuple(origin for _, origin in parts),
        bool(phonemes),
        "".join(left_out),
        tuple((change.start, change.end) for change in changes if not change.is_roman),
        tuple(
            (text[change.start : change.end], change.replacement)
            for change in changes
            if change.needs_warning
        ),
    )


class _NumberChange(NamedTuple):
    """A number or Roman numeral of the caller's text that is rewritten for the engine.

    ``needs_warning`` is True if a warning must mention the change.
    """

    start: int
    end: int
    replacement: str
    is_roman: bool = False
    needs_warning: bool = False


def _find_changes(
    text: str, locale: EspeakLocale, taken: Iterable[tuple[int, int]] = ()
) -> list[_NumberChange]:
    """Return the numbers and Roman numerals of a text in order. Those that overlap `taken` are left out."""
    language = locale.language.rpartition("/")[2]
    free = bytearray(b"\1" * len(text))
    for start, end in taken:
        free[start:end] = bytes(end - start)
    found = [
        _NumberChange(start, end, replacement)
        for start, end, replacement in find_rewritten_numbers(text, language)
    ]
    found += (
        _NumberChange(roman.start, roman.end, roman.replacement, is_roman=True, needs_warning=roman.is_number)
        for roman in find_roman_numerals(text, language)
    )
    return sorted(change for change in found if all(free[change.start : change.end]))


def _apply_changes(text: str, changes: Iterable[_NumberChange]) -> tuple[str, list[int]]:
    """Apply changes to a text. Return the new text, and the index into `text` of each new character."""
    characters: list[tuple[str, int]] = []
    at = 0
    for change in changes:
        characters.extend((text[index], index) for index in range(at, change.start))
        characters.extend(_spread_origins(change.replacement, change.start, change.end))
        at = change.end
    characters.extend((text[index], index) for index in range(at, len(text)))
    return "".join(character for character, _ in characters), [origin for _, origin in characters]


def _prepare_pronunciation(text: str, locale: EspeakLocale, left_out: list[str]) -> str:
    """Return a pronunciation that is given as text, prepared for the engine."""
    written, origins = _apply_changes(text, _find_changes(text, locale))
    return "".join(character for character, _ in _read_characters(written, origins, locale, left_out))


def find_unused_words(text: str, pronunciations: Mapping[str, Pronunciation]) -> tuple[str, ...]:
    """Return the words of a dictionary that a text does not contain, in the dictionary's order.

    Parameters
    ----------
    text
        The caller's text. Pause markers are ignored.
    pronunciations
        Pronunciations by word. Words match as in :func:`prepare_text`.
    """
    found = WordIndex(pronunciations).find_used(text)
    return tuple(word for word in pronunciations if word not in found)


def _spread_origins(replacement: str, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Yield the characters of a replacement. Their origins are spread evenly over the original span."""
    for index, character in enumerate(replacement):
        yield character, start + index * (end - start) // len(replacement)


def _may_sound(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNS" or character in SPOKEN_PUNCTUATION


def _silence_punctuation(parts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Rewrite punctuation that espeak would otherwise read aloud, as "dot" or "exclamation".

    Spaces before punctuation are removed. After a sign or emoji, punctuation becomes a space and a comma,
    because espeak drops the second word of an emoji's name if punctuation touches the emoji.
    """
    text = "".join(character for character, _ in parts)
    quiet: list[str] = list(text)
    for match in _PUNCTUATION_PATTERN.finditer(text):
        before = text[max(0, match.start() - 1) : match.start()]
        quiet[match.start(1) : match.end(1)] = [""] * len(match.group(1))
        if not before:
            quiet[match.start(2) : match.end(2)] = [""] * len(match.group(2))
        elif _may_sound(before) and not before.isalnum():
            quiet[match.start(2) : match.end(2)] = [" ,", *[""] * (len(match.group(2)) - 1)]
    return [(character, origin) for kept, (_, origin) in zip(quiet, parts, strict=True) for character in kept]


def _insert_breaks(
    parts: Sequence[tuple[str, int]], locale: EspeakLocale, phonemes: Container[int]
) -> Iterator[tuple[str, int]]:
    """Yield the text with breaks in long words, numbers and clauses, because espeak drops their rest."""
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


def _read_characters(
    text: str, origins: Sequence[int], locale: EspeakLocale, left_out: list[str]
) -> Iterator[tuple[str, int]]:
    """Yield the characters to speak, each with its index in the caller's text. Kanji become kana."""
    at = 0
    for start, end, kana in japanese.find_readings(text) if locale.has_readings else ():
        yield from _clean_characters(text[at:start], origins[at:start], locale, left_out)
        known = locale.own_scripts
        unread = [letter for letter in kana if letter.isalpha() and find_script(letter) not in known]
        left_out.extend(unread)
        said = "".join(letter for letter in kana if letter not in unread)
        yield from _spread_origins(said, origins[start], origins[end - 1] + 1)
        at = end
    yield from _clean_characters(text[at:], origins[at:], locale, left_out)


def _clean_characters(
    text: str, origins: Sequence[int], locale: EspeakLocale, left_out: list[str]
) -> Iterator[tuple[str, int]]:
    """Yield the characters to speak, each with its index in the caller's text."""
    for start, cluster in _split_clusters(text):
        rewritten = _rewrite_cluster(cluster)
        first = rewritten[:1] or " "
        if unicodedata.category(first)[0] in "LM" and not locale.can_read(first):
            left_out.append(first)
            rewritten = " "
        elif first in _BRACKET_REPLACEMENTS:
            rewritten = _BRACKET_REPLACEMENTS[first]
        for character in rewritten:
            yield character, origins[start]


def _split_clusters(text: str) -> Iterator[tuple[int, str]]:
    """Yield the index of each character, and the character with its marks."""
    start = 0
    for index in range(1, len(text) + 1):
        if index == len(text) or not _continues_cluster(text[index]):
            yield start, text[start:index]
            start = index


def _continues_cluster(character: str) -> bool:
    # Conjoining Korean vowels and finals also belong to the character before, although they are letters in
    # Unicode.
    return unicodedata.combining(character) > 0 or "\u1160" <= character <= "\u11ff"


@lru_cache(maxsize=8192)
def _rewrite_cluster(cluster: str) -> str:
    """Return a character and its marks in a form that the engine can read.

    A control character becomes a space. An invisible character is removed. An
    ornamental letter or digit becomes a plain one.
    """
    first = cluster[0]
    category = unicodedata.category(first)
    if first in "\n\t":
        return cluster
    if category == "Cf":
        return cluster if first in _JOINER_CHARACTERS else cluster[1:]
    if category[0] == "C":
        return " "
    if category == "Nd":
        return f"{unicodedata.digit(first)}{cluster[1:]}"
    if category[0] in "LN" and unicodedata.decomposition(first).partition(" ")[0] in _REWRITTEN_TAGS:
        return cluster if "HANGUL" in unicodedata.name(first, "") else unicodedata.normalize("NFKC", cluster)
    return unicodedata.normalize("NFC", cluster)
