"""The voice of each speaker of a medium."""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain
from math import sqrt
from types import MappingProxyType

from speechframe.engines.base import EngineVoice
from speechframe.engines.registry import CatalogueEntry, catalogue
from speechframe.local.engines import clarity
from speechframe.spec.fields._range import Range
from speechframe.spec.speech import Gender, Model, VoiceKind

__all__ = ["cast", "voices"]

_FEMALE_FROM_HZ = 135.0
"""Lowest pitch of women's voices. Men of our catalogues have up to 119 Hz, women 138 and more. The bound is
close to the women, because real men reach 130 Hz and more, and real women are hardly ever as low."""
_HALFWAY_HZ = Range(128.0, 150.0)
"""Range of that pitch if the voices differ. It is then halfway between the lowest and the highest voice."""
_APART = 1.25
"""The voices differ if the highest is this many times as high as the lowest."""


def voices(engines: Collection[str] | None = None) -> dict[str, CatalogueEntry]:
    """Return the voices of all catalogues by full id. Engines may be named to return their voices alone."""
    names = None if engines is None else frozenset(engines)
    return dict(chain.from_iterable(catalogue(model, names).items() for model in Model))


def cast(
    registers: Mapping[str, float],
    locale: str,
    known: Mapping[str, CatalogueEntry],
    wanted: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the voice id of each speaker, or nothing if no voice speaks the locale.

    A voice has the speaker's register and is the clearest of the free ones. Two speakers share a voice only
    if there are fewer voices than speakers.

    Parameters
    ----------
    registers
        Speaker to pitch in Hz, 0 if it is unknown.
    locale
        Locale of the dub.
    known
        Voices by full id.
    wanted
        Speaker to voice id. A voice that does not speak the locale is ignored.
    """
    able = {name: entry.voice for name, entry in known.items() if locale in entry.voice.supported_locales}
    if not able:
        return {}
    chosen = {speaker: wanted[speaker] for speaker in registers if wanted.get(speaker) in able}
    pitches_hz = [pitch_hz for pitch_hz in registers.values() if pitch_hz > 0] or [0.0]
    lowest_hz, highest_hz = min(pitches_hz), max(pitches_hz)
    are_apart = highest_hz >= _APART * lowest_hz
    female_from_hz = _HALFWAY_HZ.clamp(sqrt(lowest_hz * highest_hz)) if are_apart else _FEMALE_FROM_HZ
    for speaker, pitch_hz in registers.items():
        if speaker not in chosen:
            taken = Counter(chosen.values())
            gender = Gender.FEMALE if pitch_hz >= female_from_hz else Gender.MALE
            best = min(
                able.values(),
                key=lambda voice: (
                    taken[voice.voice_id],
                    voice.gender is not gender and pitch_hz > 0,
                    *_rank(voice, locale),
                ),
            )
            chosen[speaker] = best.voice_id
    return chosen


def _rank(voice: EngineVoice, locale: str) -> tuple[bool, bool, float, str]:
    # Neural voices are first. Few are measured, but the worst of them is clearer than the best of the others.
    error = clarity.of_voice(voice.voice_id).get(locale, 1.0)
    return voice.kind is not VoiceKind.NEURAL, voice.locale != locale, error, voice.voice_id
