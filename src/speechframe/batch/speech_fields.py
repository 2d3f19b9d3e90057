"""The arguments of verbs that speak texts, and the voices they name: the same for every model."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from speechframe.batch.catalogue import VoiceBook
from speechframe.spec.check import FieldProblem

ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "text": "text",
        "voice": "voiceId",
        "locale": "locale",
        "style": "style",
        "pitch": "pitch",
        "rate": "rate",
        "variation": "variation",
        "format": "format",
        "sample_rate": "sampleRate",
        "channel_type": "channelType",
        "audio_duration": "audioDuration",
        "word_durations_as_original_text": "wordDurationsAsOriginalText",
        "pronunciation_dictionary": "pronunciationDictionary",
        "encode_as_base64": "encodeAsBase64",
        "model_version": "modelVersion",
        "multi_native_locale": "multiNativeLocale",
        "model": "model",
    }
)
"""Argument of :func:`speechframe.generate` to the field it fills."""


def voice_in(book: VoiceBook, data: Mapping[str, Any]) -> tuple[str | None, tuple[FieldProblem, ...]]:
    """Return the full id of the voice that a row names, and what is wrong with it, its locale or its style.

    Parameters
    ----------
    book
        The voices of the row's model.
    data
        The row's values by field.
    """
    voice = data.get("voiceId")
    if not isinstance(voice, str):
        return None, ()
    asked = (data.get("locale") or data.get("multiNativeLocale"), data.get("style"))
    return book.resolve(voice, *(value if isinstance(value, str) else None for value in asked))
