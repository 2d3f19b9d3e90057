"""Decode the answers to translation calls (section 2.6 of the service document)."""

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechframe.errors import BadAnswer
from speechframe.wire.answers import (
    REPAIRED_TEXT_NOTE,
    load_object,
    make_amount_warning,
    read_amount,
)

_MIN_ALLOWED_LETTERS, _LETTERS_PER_CHARACTER = 1000, 50
"""Allowed length of a translation: a constant, and a number of letters per character of the source text."""
_MAX_TARGET_CHARACTERS = 40
"""Largest number of characters of a target language in an answer. A longer value is ignored."""
_PLAIN_QUOTES = str.maketrans(dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4`", "'"))
_PLAIN_QUOTES |= str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'))


@dataclass(frozen=True, slots=True)
class Translations:
    """The answer to a translation call: a translation or an error for each text.

    Attributes
    ----------
    texts
        A translation for each text of the request, in order. A BadAnswer for a text without a usable one.
    target
        Target language in the answer, or None.
    credits_used
        Price in credits in the answer, or None.
    notes
        Messages about faults of the answer that do not make it unusable.
    """

    texts: tuple[str | BadAnswer, ...]
    target: str | None = None
    credits_used: float | None = None
    notes: tuple[str, ...] = ()


def get_max_translation_characters(text: str) -> int:
    """Return the allowed number of characters in a translation of `text`.

    Examples
    --------
    >>> get_max_translation_characters("Hello")
    1250
    """
    return _MIN_ALLOWED_LETTERS + _LETTERS_PER_CHARACTER * len(text)


def decode_translate(body: bytes, texts: Sequence[str]) -> Translations:
    r"""Return the translation of each text. Entries of the answer and texts are paired by ``source_text``.

    The comparison ignores differences of quotes, spaces and composed accents. Entries without ``source_text``
    are paired by position, if there are as many entries as texts. A text without a usable entry gets a
    BadAnswer, and the other texts keep their translations.

    Missing or unusable metadata and invalid Unicode only add a message to ``notes``. Unknown fields are
    ignored.

    Parameters
    ----------
    body
        Body of the answer, already decompressed.
    texts
        Texts of the request, in order.

    Raises
    ------
    BadAnswer
        The body is not a JSON object, has no list of translations, or has no usable translation.

    Examples
    --------
    >>> body = b'{"translations": [{"source_text": "b", "translated_text": "B"}, {"source_text": "a"}]}'
    >>> decode_translate(body, ["a", "b"]).texts
    (BadAnswer('the answer has no translated_text for this text'), 'B')
    """
    found, target, credits_used, notes = _read_answer(body)
    entries = [entry if isinstance(entry, dict) else {} for entry in found]
    sources = [entry.get("source_text") for entry in entries]
    free: dict[Any, list[int]] = defaultdict(list)
    for position, source in enumerate(sources):
        if isinstance(source, str):
            free[_normalise_text(source)].append(position)
        elif len(entries) == len(texts):
            free[position].append(position)
    paired: list[str | BadAnswer] = []
    for position, text in enumerate(texts):
        places = free[_normalise_text(text)] or free[position]
        if not places:
            paired.append(BadAnswer("the answer has no translation of this text"))
            continue
        chosen = min(places, key=lambda other: sources[other] != text)
        places.remove(chosen)
        paired.append(_check_translation(entries[chosen].get("translated_text"), text))
    wrong = [one for one in paired if isinstance(one, BadAnswer)]
    if wrong and len(wrong) == len(paired):
        raise wrong[0]
    return Translations(tuple(paired), target, credits_used, notes)


def _check_translation(translated: Any, text: str) -> str | BadAnswer:
    if not isinstance(translated, str):
        return BadAnswer("the answer has no translated_text for this text")
    if len(translated) > get_max_translation_characters(text):
        return BadAnswer(
            f"the translation has {len(translated):,} characters for a text of {len(text):,} characters"
        )
    return translated


def _read_answer(body: bytes) -> tuple[list[Any], str | None, float | None, tuple[str, ...]]:
    """Return the entries, target language, credits and notes of an answer."""
    fields, repaired = load_object(body)
    found = fields.get("translations")
    if not isinstance(found, list):
        raise BadAnswer("the answer has no list of translations")
    notes = [REPAIRED_TEXT_NOTE] if repaired else []
    target, credits_used = _read_metadata(fields.get("metadata"), notes)
    return found, target, credits_used, tuple(notes)


def _normalise_text(value: Any) -> Any:
    # Some services change spaces, quotes and the composition of accents in the source text.
    if not isinstance(value, str):
        return value
    return " ".join(unicodedata.normalize("NFC", value).translate(_PLAIN_QUOTES).split())


def _read_metadata(value: Any, notes: list[str]) -> tuple[str | None, float | None]:
    if not isinstance(value, Mapping):
        notes.append("the answer has no metadata")
        return None, None
    target: Any = value.get("target_language")
    reported_credits = value.get("credits_used")
    used = read_amount(reported_credits)
    if reported_credits is None:
        notes.append("the answer does not contain the credits that were used")
    elif used is None:
        notes.append(make_amount_warning("credits_used", reported_credits))
    # Keep the value completely or not at all, because a part of a key cannot be masked.
    is_short = isinstance(target, str) and len(target) <= _MAX_TARGET_CHARACTERS
    return target if is_short else None, None if used is None else float(used)
