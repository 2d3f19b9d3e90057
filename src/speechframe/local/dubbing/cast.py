"""Choose a voice for each speaker of a media file."""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain
from math import sqrt
from types import MappingProxyType

from speechframe.engines.base import EngineVoice
from speechframe.engines.registry import CatalogueEntry, build_catalogue
from speechframe.recognition import clarity
from speechframe.spec.fields._range import Range
from speechframe.spec.speech import Gender, Model, VoiceKind

_MIN_FEMALE_HZ = 135.0
"""A speaker from this median pitch on gets a woman's voice. Male voices of our catalogues reach 119 Hz,
female voices begin at 138 Hz. The bound is close to the female voices, because real men can exceed 130 Hz,
and real women hardly ever speak that low."""
_BOUNDARY_RANGE_HZ = Range(128.0, 150.0)
"""Bounds of the pitch that separates men and women if the speakers clearly differ. This pitch is the
geometric mean of the lowest and the highest speaker, clamped to these bounds."""
_MIN_PITCH_RATIO = 1.25
"""Speakers clearly differ if the highest pitch is at least this many times the lowest pitch."""


def list_voices(engines: Collection[str] | None = None) -> dict[str, CatalogueEntry]:
    """Return the voices of all catalogues by full id, or only the voices of the named engines."""
    names = None if engines is None else frozenset(engines)
    return dict(chain.from_iterable(build_catalogue(model, names).items() for model in Model))


def cast_speakers(
    registers: Mapping[str, float],
    locale: str,
    known: Mapping[str, CatalogueEntry],
    wanted: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the voice id of each speaker. The dict is empty if no voice speaks the locale.

    The least used voices come first, so a speaker gets an unused voice if there is one. Among equally used
    voices, those of the speaker's gender come first, then the clearest voice wins. Pitch decides the gender.

    Parameters
    ----------
    registers
        Speaker to median pitch in Hz, 0 if the pitch is unknown.
    locale
        Locale of the dub.
    known
        Voices by full id.
    wanted
        Speaker to requested voice id. A voice that does not speak the locale is ignored.
    """
    suitable = {name: entry.voice for name, entry in known.items() if locale in entry.voice.supported_locales}
    if not suitable:
        return {}
    chosen = {speaker: wanted[speaker] for speaker in registers if wanted.get(speaker) in suitable}
    pitches_hz = [pitch_hz for pitch_hz in registers.values() if pitch_hz > 0] or [0.0]
    lowest_hz, highest_hz = min(pitches_hz), max(pitches_hz)
    are_apart = highest_hz >= _MIN_PITCH_RATIO * lowest_hz
    female_from_hz = _BOUNDARY_RANGE_HZ.clamp(sqrt(lowest_hz * highest_hz)) if are_apart else _MIN_FEMALE_HZ
    for speaker, pitch_hz in registers.items():
        if speaker not in chosen:
            taken = Counter(chosen.values())
            gender = Gender.FEMALE if pitch_hz >= female_from_hz else Gender.MALE
            best = min(
                suitable.values(),
                key=lambda voice: (
                    taken[voice.voice_id],
                    voice.gender is not gender and pitch_hz > 0,
                    *_rank(voice, locale),
                ),
            )
            chosen[speaker] = best.voice_id
    return chosen


def _rank(voice: EngineVoice, locale: str) -> tuple[bool, bool, float, str]:
    # Neural voices come first: the least clear one that was measured is clearer than any formant voice.
    error = clarity.find_error_rates(voice.voice_id).get(locale, 1.0)
    return voice.kind is not VoiceKind.NEURAL, voice.locale != locale, error, voice.voice_id
