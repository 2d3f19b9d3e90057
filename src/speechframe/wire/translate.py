"""Answers to translation calls (section 2.6)."""

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechframe.errors import BadAnswer
from speechframe.wire.answers import REPAIRED, NotJsonError, amount, loads, odd_amount

_LETTERS_AT_LEAST, _LETTERS_A_CHARACTER = 1000, 50
_SHOWN = 40
_PLAIN_QUOTES = str.maketrans(dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4`", "'"))
_PLAIN_QUOTES |= str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'))


@dataclass(frozen=True, slots=True)
class Translations:
    """The answer to a translation call, each text with its translation or its error.

    Parameters
    ----------
    texts
        One for each text of the request, in its order.
    target
        The language that the answer says it is in, where it does.
    credits_used
        What the answer says the call cost, where it does.
    notes
        What is odd about the answer though it can be used.
    """

    texts: tuple[str | BadAnswer, ...]
    target: str | None = None
    credits_used: float | None = None
    notes: tuple[str, ...] = ()


def longest_translation(text: str) -> int:
    """Return how many characters a translation of `text` can have that anybody means.

    Examples
    --------
    >>> longest_translation("Hello")
    1250
    """
    return _LETTERS_AT_LEAST + _LETTERS_A_CHARACTER * len(text)


def decode_translate(body: bytes, texts: Sequence[str]) -> Translations:
    r"""Return the translation of each text, paired by ``source_text``, so that one bad entry costs one text.

    Of entries that differ from a text in the spelling of quotes or spaces alone, texts take the first that is
    left. Entries without ``source_text`` are taken by place, if there are as many as texts.

    Missing or unusable metadata and broken Unicode are forgiven, and named in ``notes``. Unknown
    fields are ignored.

    Parameters
    ----------
    body
        The answer, unpacked.
    texts
        What was sent, in order.

    Raises
    ------
    BadAnswer
        No JSON object, no list of translations, or no usable translation of any text.

    Examples
    --------
    >>> body = b'{"translations": [{"source_text": "b", "translated_text": "B"}, {"source_text": "a"}]}'
    >>> decode_translate(body, ["a", "b"]).texts
    (BadAnswer('the answer has no translated_text for this text'), 'B')
    """
    found, target, credits_used, notes = _read(body)
    entries = [entry if isinstance(entry, dict) else {} for entry in found]
    sources = [entry.get("source_text") for entry in entries]
    free: dict[Any, list[int]] = defaultdict(list)
    for place, source in enumerate(sources):
        if isinstance(source, str):
            free[_plain(source)].append(place)
        elif len(entries) == len(texts):
            free[place].append(place)
    paired: list[str | BadAnswer] = []
    for place, text in enumerate(texts):
        places = free[_plain(text)] or free[place]
        if not places:
            paired.append(BadAnswer("the answer has no translation of this text"))
            continue
        chosen = min(places, key=lambda other: sources[other] != text)
        places.remove(chosen)
        paired.append(_usable(entries[chosen].get("translated_text"), text))
    wrong = [one for one in paired if isinstance(one, BadAnswer)]
    if wrong and len(wrong) == len(paired):
        raise wrong[0]
    return Translations(tuple(paired), target, credits_used, notes)


def _usable(translated: Any, text: str) -> str | BadAnswer:
    if not isinstance(translated, str):
        return BadAnswer("the answer has no translated_text for this text")
    if len(translated) > longest_translation(text):
        return BadAnswer(
            f"the translation has {len(translated):,} characters for a text of {len(text):,} characters"
        )
    return translated


def _read(body: bytes) -> tuple[list[Any], str | None, float | None, tuple[str, ...]]:
    """Return the entries of an answer, its target, its credits and notes."""
    try:
        fields, repaired = loads(body)
    except NotJsonError as error:
        raise BadAnswer(f"the answer is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadAnswer("the answer is no JSON object")
    found = fields.get("translations")
    if not isinstance(found, list):
        raise BadAnswer("the answer has no list of translations")
    notes = [REPAIRED] if repaired else []
    target, credits_used = _metadata(fields.get("metadata"), notes)
    return found, target, credits_used, tuple(notes)


def _plain(value: Any) -> Any:
    # Spaces, quotes and the way accents are composed are lost on the way through some services.
    if not isinstance(value, str):
        return value
    return " ".join(unicodedata.normalize("NFC", value).translate(_PLAIN_QUOTES).split())


def _metadata(value: Any, notes: list[str]) -> tuple[str | None, float | None]:
    if not isinstance(value, Mapping):
        notes.append("the answer has no metadata")
        return None, None
    target: Any = value.get("target_language")
    said = value.get("credits_used")
    used = amount(said)
    if said is None:
        notes.append("the answer does not say which credits were used")
    elif used is None:
        notes.append(odd_amount("credits_used", said))
    # Keep a text whole or not at all, because half a key cannot be masked.
    is_short = isinstance(target, str) and len(target) <= _SHOWN
    return target if is_short else None, None if used is None else float(used)
