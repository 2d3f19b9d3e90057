"""Whether a translation can be true: what it lacks, repeats, or has too much of.

Only what no translator means is doubted. A service may answer 200 with an
empty text, with the text it was sent, or with one word a hundred times; such
rows are called suspect, not failed, and say why in figures.
"""

import itertools
import re
from collections.abc import Iterator

from speechframe.old_batch.doubt import Doubt, Reason
from speechframe.old_batch.operation import Planned
from speechframe.old_client import Translated
from speechframe.old_store import Record
from speechframe.spec.locales import is_another

__all__ = ["Doubt", "Suspicion", "TranslationTruth"]

_LEAST_CHARACTERS = 20
"""Of a text whose length says something: "OK" may become a word of twelve letters."""
_SHORTEST, _LONGEST = 0.08, 8.0
"""Chinese has about a quarter of the characters of English, German a third more."""
_SAME_WORDS = 6
"""Names, addresses and titles may well be the same in two languages."""
_SAME_CHARACTERS = 30
_REPEATS = 6
_WORD = re.compile(r"\w+")


class Suspicion(Reason):
    """Why a translation is suspect, each with what it means.

    Examples
    --------
    >>> Suspicion("untranslated").meaning
    'the translation is the text that was to be translated'
    """

    EMPTY = "empty", "the translation is empty"
    UNTRANSLATED = "untranslated", "the translation is the text that was to be translated"
    LENGTH = "length", "the translation is far too short or too long for the text"
    REPEATING = "repeating", "the translation repeats one word over and over"
    TARGET = "target", "the answer says that it is in another language"


class TranslationTruth:
    """Looks at the translations of one run, one after the other."""

    @staticmethod
    def doubts(planned: Planned, answer: Translated, record: Record) -> tuple[Doubt, ...]:
        """Return everything that speaks against a translation; nothing as a rule.

        Parameters
        ----------
        planned, record
            The text, and its translation.
        answer
            What came.
        """
        told = set(record.warnings) - set(answer.notes)
        return tuple(
            itertools.chain(
                _of_target(answer.target, planned.locale, is_told=bool(told)),
                _doubts(planned.text, record.translated_text or "", is_told=bool(told)),
            )
        )


def _of_target(said: str | None, wanted: str | None, *, is_told: bool) -> Iterator[Doubt]:
    # A service that says why (it has no French of that region) need not be doubted.
    if said is not None and wanted is not None and not is_told and is_another(said, wanted):
        yield Doubt(Suspicion.TARGET, f"the answer says it is in {said}, {wanted} was asked for")


def _doubts(text: str, translated: str, *, is_told: bool) -> Iterator[Doubt]:
    if not translated.strip():
        yield Doubt(Suspicion.EMPTY, f"the text has {len(text):,} characters, its translation none")
        return
    words = _WORD.findall(text)
    # A service that says why (the text is in the target's language) need not be doubted.
    is_long = len(words) > _SAME_WORDS or len(text) > _SAME_CHARACTERS
    if not is_told and is_long and _folded(text) == _folded(translated):
        yield Doubt(Suspicion.UNTRANSLATED, f"the translation is the text itself, {len(words)} words long")
    ratio = len(translated) / len(text)
    if len(text) >= _LEAST_CHARACTERS and not _SHORTEST <= ratio <= _LONGEST:
        yield Doubt(
            Suspicion.LENGTH,
            f"the text has {len(text):,} characters, its translation {len(translated):,}",
        )
    repeated = _longest_repeat(translated)
    if repeated >= _REPEATS > _longest_repeat(text):
        yield Doubt(Suspicion.REPEATING, f"the translation has the same word {repeated} times in a row")


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _longest_repeat(text: str) -> int:
    longest = run = 0
    before = None
    for found in _WORD.finditer(text):
        word = found[0].casefold()
        run = run + 1 if word == before else 1
        longest, before = max(longest, run), word
    return longest
