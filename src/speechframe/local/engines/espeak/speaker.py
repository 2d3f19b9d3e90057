"""The speech engine of the local service: espeak-ng, in 70 and more locales.

The voice is not beautiful, but fast and steady. A second of speech takes three
milliseconds. Word times and lengths are exact, and equal requests give equal bytes.
espeak-ng is GPL-3 and keeps global state, so the service runs it in worker
processes. See :mod:`speechframe.local.engines.espeak.library`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from speechframe.engines.base import EngineVoice, Speech, Utterance
from speechframe.engines.streaming import SentenceSpeaker
from speechframe.errors import EngineFault
from speechframe.local.engines.espeak import library as espeak_library
from speechframe.local.engines.espeak.chunks import SAMPLE_RATE_HZ, speak_pieces
from speechframe.local.engines.espeak.phonemes import phoneme_input
from speechframe.local.engines.espeak.prosody import EspeakReading, reading
from speechframe.local.engines.espeak.voices import EspeakVoice, engine_voices, espeak_voices, gain_db
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.reading.pieces import (
    Chunk,
    Piece,
    chosen_style,
    fit_to_length,
    frames_of,
    join_with_pauses,
    list_letter_warnings,
    pieces_and_pauses,
    refuse_unspeakable,
    room_to_speak,
    silent_frames,
    word_entries,
)
from speechframe.spec.texts import Pause, text_warnings

__all__ = ["EspeakSpeaker"]

_ROUNDS = 3
_CLOSE_ENOUGH = 0.004

REVISION = 4
"""Incremented whenever an equal request sounds different, because a run must not mix two revisions."""


class EspeakSpeaker(SentenceSpeaker):
    """The espeak-ng engine. See :class:`speechframe.engines.base.Speaker`.

    Examples
    --------
    >>> speech = EspeakSpeaker().speak(Utterance("Hello there", voice_id="en-US-nora", locale="en-US"))
    >>> [word.word for word in speech.words]
    ['Hello', 'there']
    """

    name = "espeak"
    licence = "GPL-3.0-or-later"

    @property
    def version(self) -> str:
        """The library's version and :data:`REVISION`. Raises EngineFault if it is not installed."""
        return f"{espeak_library.engine_version()}+{REVISION}{japanese.version_mark()}"

    def voices(self) -> Sequence[EngineVoice]:
        """Return every voice of both catalogues."""
        return engine_voices()

    def files(self) -> Sequence[Path]:
        """Return the library and the folder of its dictionaries and voices."""
        return espeak_library.files()

    def speak(self, utterance: Utterance) -> Speech:
        """Return an utterance as speech at 22050 Hz. Equal utterances give equal bytes.

        Raises
        ------
        EngineError
            The voice, locale and style do not exist together, the text has no letter that can be spoken, a
            pronunciation has unknown symbols, or the pauses alone exceed the length.
        """
        return self._levelled(utterance)

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings for a whole text. Raise EngineError if the text cannot be spoken."""
        parts, _, warnings = _planned(utterance)
        return (*warnings, *list_letter_warnings(parts, utterance, LOCALES[utterance.locale]))

    def _spoken(self, utterance: Utterance) -> Speech:
        return _spoken(utterance)

    def _gain_db(self, utterance: Utterance) -> float:
        return gain_db(_find_voice(utterance)[0], utterance.locale)


def _planned(utterance: Utterance) -> tuple[list[Piece | Pause], EspeakReading, tuple[str, ...]]:
    """Return the parts to speak, the manner, and the warnings for the caller."""
    voice, style = _find_voice(utterance)
    warnings = list(text_warnings(utterance.text))
    locale = LOCALES[utterance.locale]
    parts = pieces_and_pauses(utterance, locale, lambda ipa: phoneme_input(ipa, locale.language), warnings)
    if locale.has_readings:
        parts = [_with_readable_kana(part) if isinstance(part, Piece) else part for part in parts]
    return parts, reading(utterance, voice.timbre, style), tuple(warnings)


def _with_readable_kana(piece: Piece) -> Piece:
    text, origins = japanese.with_breaks(piece.spoken.text, piece.spoken.origins)
    return replace(piece, spoken=replace(piece.spoken, text=text, origins=tuple(origins)))


def _spoken(utterance: Utterance) -> Speech:
    """Return an utterance at the loudness of the engine."""
    parts, read, planned_warnings = _planned(utterance)
    warnings = list(planned_warnings)
    chunks = _speech_and_silence(parts, utterance, read, warnings)
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return Speech(samples, SAMPLE_RATE_HZ, word_entries(chunks, SAMPLE_RATE_HZ), tuple(warnings))


def _find_voice(utterance: Utterance) -> tuple[EspeakVoice, str]:
    """Return the voice and the style's name. Raise EngineError if either is unknown."""
    voice = espeak_voices().get(utterance.voice_id)
    if voice is None:
        raise EngineFault(f"espeak has no voice {utterance.voice_id!r}")
    styles = voice.styles(utterance.locale) if utterance.locale in voice.supported_locales else ()
    return voice, chosen_style(
        voice.voice_id, utterance.locale, utterance.style, voice.supported_locales, styles
    )


def _speech_and_silence(
    parts: Sequence[Piece | Pause], utterance: Utterance, read: EspeakReading, warnings: list[str]
) -> list[Chunk]:
    """Return every part as audio, in order, in the requested length if there is one."""
    pieces = [part for part in parts if isinstance(part, Piece)]
    if utterance.audio_duration_s:
        silent = silent_frames(parts, SAMPLE_RATE_HZ)
        spoken = _fit(pieces, read, utterance.audio_duration_s, silent, warnings)
    else:
        spoken = speak_pieces(pieces, read, 1.0)
    if not any(len(chunk.samples) for chunk in spoken):
        refuse_unspeakable(utterance.locale)
    return join_with_pauses(parts, spoken, SAMPLE_RATE_HZ)


def _fit(
    pieces: Sequence[Piece], read: EspeakReading, seconds: float, silent: int, warnings: list[str]
) -> list[Chunk]:
    """Return the pieces, spoken in exactly the frames between the pauses.

    The speed is solved in a few rounds, because the engine's pauses do not
    follow it. The rest, usually below one per cent, is stretched.
    """
    room = room_to_speak(seconds, silent, SAMPLE_RATE_HZ)
    speed = 1.0
    best = speak_pieces(pieces, read, speed)
    for _ in range(_ROUNDS):
        ratio = frames_of(best) / room
        if not ratio or abs(ratio - 1) < _CLOSE_ENOUGH or read.setting(speed * ratio) == read.setting(speed):
            break
        speed *= ratio
        spoken = speak_pieces(pieces, read, speed)
        if abs(frames_of(spoken) / room - 1) >= abs(ratio - 1):
            break
        best = spoken
    return fit_to_length(best, room, SAMPLE_RATE_HZ, warnings) if frames_of(best) else best
