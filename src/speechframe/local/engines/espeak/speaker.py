"""Speak with the formant voices of espeak-ng in more than 70 locales.

The voices are not beautiful, but fast and reliable. A second of speech takes 3 ms.
Word times and lengths are exact, and equal requests give equal bytes. espeak-ng is
GPL-3 and keeps global state, so the service runs it in worker processes. See
:mod:`speechframe.local.engines.espeak.library`.
"""

from collections.abc import Sequence
from dataclasses import replace

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
"""Largest number of changes of the speed to reach a requested length."""
_CLOSE_ENOUGH = 0.004
"""Relative error of a length below which the speed is not changed again."""

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

    @property
    def version(self) -> str:
        """The library's version and :data:`REVISION`. Raises EngineFault if it is not installed."""
        return f"{espeak_library.engine_version()}+{REVISION}{japanese.version_mark()}"

    def voices(self) -> Sequence[EngineVoice]:
        """Return all voices of both catalogues, gen2 and falcon-2."""
        return engine_voices()

    def speak(self, utterance: Utterance) -> Speech:
        """Return the speech of an utterance at 22050 Hz. Equal utterances give equal bytes.

        Raises
        ------
        EngineError
            The voice lacks the locale or style, no character of the text can be spoken, a pronunciation has
            unknown symbols, or the requested length leaves no time for speech.
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
    """Return the pieces and pauses of an utterance, the settings, and the warnings for the caller."""
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
    """Return the speech of an utterance before its loudness is levelled."""
    parts, read, planned_warnings = _planned(utterance)
    warnings = list(planned_warnings)
    chunks = _speech_and_silence(parts, utterance, read, warnings)
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return Speech(samples, SAMPLE_RATE_HZ, word_entries(chunks, SAMPLE_RATE_HZ), tuple(warnings))


def _find_voice(utterance: Utterance) -> tuple[EspeakVoice, str]:
    """Return the voice and the name of the style. Raise EngineError if either is unknown."""
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
    """Return the audio of each part, in order. Fit it to the requested length, if there is one."""
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
    """Speak the pieces in exactly the frames that remain without the pauses.

    The speed is changed in a few rounds, because the pauses of the engine do not change in proportion. The
    remaining difference, usually below 1 %, is stretched.
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
