"""Pronunciations of words by locale and voice. A request gets only those of the words in its text."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

from speechframe.backends.sheets import rank_locale, read_sheet
from speechframe.spec.check import check
from speechframe.spec.chosen import MAX_PRONUNCIATION_CHARACTERS
from speechframe.spec.pronunciations import WordIndex, fold_word
from speechframe.spec.speech import Pronunciation
from speechframe.writing.words import format_count

WORD, LOCALE, VOICE, IPA, SAY_AS = PRONUNCIATION_COLUMNS = ("word", "locale", "voice", "ipa", "say_as")
_MAX_SHOWN_WORDS = 5  # words that a note lists


def read_pronunciations(table: Any) -> list[list[str]] | None:
    """Return the lines of a sheet as word, locale, voice, type and pronunciation. Empty texts stand for any.

    `table` may also be a dict of word to the text to say.
    """
    if table is None or (isinstance(table, (Mapping, list, tuple)) and not table):
        return None
    if isinstance(table, Mapping) and all(isinstance(value, str) for value in table.values()):
        table = [{WORD: word, SAY_AS: sound} for word, sound in table.items()]
    return read_sheet(table, "pronunciations", PRONUNCIATION_COLUMNS, _read_row)


def _read_row(row: Mapping[str, str]) -> tuple[tuple[str, ...], list[str]]:
    word, voice = row[WORD], row[VOICE].casefold()
    if not 0 < len(word) <= MAX_PRONUNCIATION_CHARACTERS:
        raise ValueError(f"needs a {WORD} of at most {MAX_PRONUNCIATION_CHARACTERS} characters")
    if bool(row[IPA]) == bool(row[SAY_AS]):
        raise ValueError(f"{word!r} needs either {IPA} or {SAY_AS}")
    kind = IPA if row[IPA] else SAY_AS
    fields = {"type": kind.upper(), "pronunciation": row[kind]}
    for problem in check(Pronunciation, fields).problems:
        raise ValueError(f"the {kind} of {word!r}: {problem}")
    return (fold_word(word), row[LOCALE], voice), [word, row[LOCALE], voice, *fields.values()]


class PronunciationSheet:
    """The lines of a sheet of pronunciations, and the words that the rows so far have used.

    If several lines have the same word, a line for the row's voice comes first, then a line for its locale,
    then a line for its language.
    """

    def __init__(self, lines: Sequence[Sequence[str]]) -> None:
        self._lines = lines
        self._unused = dict.fromkeys(range(len(lines)))
        self._choose_lines = cache(self._find_lines)

    def choose(self, text: str, locale: str | None, voice_id: str) -> dict[str, dict[str, str]]:
        """Return the pronunciation dictionary for a text, which has only the words of the text."""
        index, numbers_by_word = self._choose_lines(locale, voice_id.casefold())
        found: dict[str, dict[str, str]] = {}
        for word in sorted(index.find_used(text)):
            for number in numbers_by_word[word]:
                self._unused.pop(number, None)
            *_, kind, sound = self._lines[numbers_by_word[word][0]]
            found[word] = {"type": kind, "pronunciation": sound}
        return found

    def list_notes(self) -> list[str]:
        """Return a note that names the words that no row has used, if there are any."""
        if not self._unused:
            return []
        lines = [self._lines[number] for number in islice(self._unused, _MAX_SHOWN_WORDS)]
        shown = ", ".join(f"{word!r}" + (f" ({locale})" if locale else "") for word, locale, *_ in lines)
        more = ", ..." if len(lines) < len(self._unused) else ""
        return [f"{format_count(len(self._unused), 'word')} of pronunciations: in no row: {shown}{more}"]

    def _find_lines(self, locale: str | None, voice_id: str) -> tuple[WordIndex, dict[str, list[int]]]:
        """Return the words for a locale and a voice, and the numbers of each word's lines, the best first."""
        of_voice = {"": 0, voice_id.rpartition("-")[2]: 1, voice_id: 2}
        applicable: dict[str, list[tuple[int, int, int]]] = {}
        for number, (word, of_sheet, voice, *_) in enumerate(self._lines):
            locale_rank, voice_rank = rank_locale(of_sheet, locale), of_voice.get(voice)
            if locale_rank is not None and voice_rank is not None:
                applicable.setdefault(fold_word(word), []).append((voice_rank, locale_rank, number))
        ranked = [[number for *_, number in sorted(found, reverse=True)] for found in applicable.values()]
        numbers_by_word = {self._lines[numbers[0]][0]: numbers for numbers in ranked}
        return WordIndex(numbers_by_word), numbers_by_word
