"""JSON bodies of translation calls: requests to bytes, answers to values (section 2.6)."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechframe.errors import BadAnswer
from speechframe.spec.translate import TranslateRequest
from speechframe.wire._json import NotJsonError, loads

__all__ = ["Translations", "decode_translate", "encode_translate", "longest_translation"]

_LETTERS_AT_LEAST, _LETTERS_A_CHARACTER = 1000, 50
_MOST_CREDITS = 2**53
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Translations:
    """The answer to a translation call, as the service gave it.

    Parameters
    ----------
    texts
        The translations, in the order of the request.
    target
        The language that the answer says it is in, where it does.
    credits_used
        What the answer says the call cost, where it does.
    notes
        What is odd about the answer though it can be used.
    """

    texts: tuple[str, ...]
    target: str | None = None
    credits_used: float | None = None
    notes: tuple[str, ...] = ()


def encode_translate(request: TranslateRequest) -> bytes:
    r"""Return the canonical JSON of a request: equal requests give equal bytes, here and in later versions.

    Names are sorted, values that are absent are left out, text is UTF-8.

    Examples
    --------
    >>> encode_translate(TranslateRequest(target_language="fr-FR", texts=["Grüße"]))
    b'{"targetLanguage":"fr-FR","texts":["Gr\xc3\xbc\xc3\x9fe"]}'
    """
    fields = request.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    # Never the fast writer: these bytes enter request keys, which must not depend on what is installed.
    return json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def longest_translation(text: str) -> int:
    """Return how many characters a translation of `text` can have that anybody means.

    Examples
    --------
    >>> longest_translation("Hello")
    1250
    """
    return _LETTERS_AT_LEAST + _LETTERS_A_CHARACTER * len(text)


def decode_translate(body: bytes, texts: Sequence[str]) -> Translations:
    """Return what the answer to a translation call holds.

    Forgiven, and named in ``notes``: missing or unusable metadata, text that is no valid Unicode. Unknown
    fields are ignored. An answer that echoes each source text proves that no two rows were swapped.

    Parameters
    ----------
    body
        The answer, unpacked.
    texts
        What was sent, in order.

    Raises
    ------
    BadAnswer
        No JSON object, no list of as many translations as texts, one without text or far too long, or one
        whose ``source_text`` is not the text that was sent at its place.

    Examples
    --------
    >>> decode_translate(
    ...     b'{"translations": [{"source_text": "Hello", "translated_text": "Bonjour"}],'
    ...     b' "metadata": {"target_language": "fr-FR", "credits_used": 5.0}}',
    ...     ["Hello"],
    ... )
    Translations(texts=('Bonjour',), target='fr-FR', credits_used=5.0, notes=())
    """
    try:
        fields, repaired = loads(body)
    except NotJsonError as error:
        raise BadAnswer(f"the answer is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadAnswer("the answer is no JSON object")
    found = fields.get("translations")
    if not isinstance(found, list):
        raise BadAnswer("the answer has no list of translations")
    if len(found) != len(texts):
        raise BadAnswer(f"the answer has {len(found):,} translations of {len(texts):,} texts")
    translated = tuple(
        _translation(item, text, place) for place, (item, text) in enumerate(zip(found, texts, strict=True))
    )
    notes = ["text in the answer was no valid Unicode and was repaired"] if repaired else []
    target, credits_used = _metadata(fields.get("metadata"), notes)
    return Translations(translated, target, credits_used, tuple(notes))


def _translation(item: Any, text: str, place: int) -> str:
    translated = item.get("translated_text") if isinstance(item, dict) else None
    if not isinstance(translated, str):
        raise BadAnswer(f"translation {place} has no translated_text")
    if len(translated) > longest_translation(text):
        raise BadAnswer(
            f"translation {place} has {len(translated):,} characters for a text of {len(text):,} characters"
        )
    source = item.get("source_text")
    if source is not None and source != text and _plain(source) != _plain(text):
        raise BadAnswer(
            f"translation {place} is of another text than the one that was sent there: rows were swapped"
        )
    return translated


def _plain(value: Any) -> Any:
    # Spaces at the ends and the way accents are composed are lost on the way through some services.
    return " ".join(unicodedata.normalize("NFC", value).split()) if isinstance(value, str) else value


def _metadata(value: Any, notes: list[str]) -> tuple[str | None, float | None]:
    if not isinstance(value, Mapping):
        notes.append("the answer has no metadata")
        return None, None
    target: Any = value.get("target_language")
    used: Any = value.get("credits_used")
    is_number = type(used) in {int, float} and 0 <= used <= _MOST_CREDITS
    if not is_number:
        notes.append("the answer does not say which credits were used")
    # Whole or not at all: whoever masks it would not find half a key.
    is_short = isinstance(target, str) and len(target) <= _SHOWN
    return target if is_short else None, float(used) if is_number else None
