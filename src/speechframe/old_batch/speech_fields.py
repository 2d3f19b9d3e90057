"""The arguments of verbs that speak texts, and the voices they name: the same for every model."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from speechframe.old_batch.catalogue import VOICE_FIELD, VoiceBook
from speechframe.spec.check import FieldProblem
from speechframe.spec.speech import GenerateRequest, StreamRequest

_WIRE = GenerateRequest.wire_names()
_LOCALES = _WIRE["locale"], _WIRE["multi_native_locale"]

# `model` is a field of streams alone.
ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {"voice" if name == "voice_id" else name: wire for name, wire in _WIRE.items()}
    | {"model": StreamRequest.wire_names()["model"]}
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
    voice = data.get(VOICE_FIELD)
    if not isinstance(voice, str):
        return None, ()
    asked = (data.get(_LOCALES[0]) or data.get(_LOCALES[1]), data.get("style"))
    return book.resolve(voice, *(value if isinstance(value, str) else None for value in asked))
