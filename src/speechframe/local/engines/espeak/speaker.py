"""Speak with the formant voices of espeak-ng in more than 70 locales.

The voices are not beautiful, but fast and reliable. A second of speech takes 3 ms.
Word times and lengths are exact, and equal requests give equal bytes. espeak-ng is
GPL-3 and keeps global state, so the service runs it in worker processes. See
:mod:`speechframe.local.engines.espeak.library`.
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
from speechframe.local.engines.espeak.phonemes import convert_ipa
from speechframe.local.engines.espeak.prosody import EspeakReading, compute_reading
from speechframe.local.engines.espeak.voices import (
    EspeakVoice,
    compute_gain_db,
    list_engine_voices,
    list_espeak_voices,
)
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.reading.pieces import (
    Chunk,
    Piece,
    build_words,
    check_letters,
    choose_style,
    compute_speech_frames,
    count_frames,
    count_silent_frames,
    fit_to_length,
    join_with_pauses,
    refuse_unspeakable,
    split_pieces,
)
from speechframe.spec.texts import Pause, find_text_warnings

__all__ = ["EspeakSpeaker"]

_MAX_ROUNDS = 3
"""Largest number of changes of the speed to reach a requested length."""
_LENGTH_TOLERANCE = 0.004
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
    licence = "GPL-3.0-or-later"

    @property
    def version(self) -> str:
        """The library's version and :data:`REVISION`. Raises EngineFault if it is not installed."""
        return f"{espeak_library.find_engine_version()}+{REVISION}{japanese.get_version_suffix()}"

    def voices(self) -> Sequence[EngineVoice]:
        """Return all voices of both catalogues, gen2 and falcon-2."""
        return list_engine_voices()

    def files(self) -> Sequence[Path]:
        """Return the library and the folder of its dictionaries and voices."""
        return espeak_library.find_files()

    def speak(self, utterance: Utterance) -> Speech:
        """Return the speech of an utterance at 22050 Hz. Equal utterances give equal bytes.

        Raises
        ------
        EngineError
            The voice lacks the locale or style, no character of the text can be spoken, a pronunciation has
            unknown symbols, or the requested length leaves no time for speech.
        """
        return self._speak_at_gain(utterance)

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings for a whole text. Raise EngineError if the text cannot be spoken."""
        parts, _, warnings = _plan_speech(utterance)
        return (*warnings, *check_letters(parts, utterance, LOCALES[utterance.locale]))

    def _speak_unlevelled(self, utterance: Utterance) -> Speech:
        return _speak_parts(utterance)

    def _compute_gain_db(self, utterance: Utterance) -> float:
        return compute_gain_db(_find_voice(utterance)[0], utterance.locale)


def _plan_speech(utterance: Utterance) -> tuple[list[Piece | Pause], EspeakReading, tuple[str, ...]]:
    """Return the pieces and pauses of an utterance, the settings, and the warnings for the caller."""
    voice, style = _find_voice(utterance)
    warnings = list(find_text_warnings(utterance.text))
    locale = LOCALES[utterance.locale]
    parts = split_pieces(utterance, locale, lambda ipa: convert_ipa(ipa, locale.language), warnings)
    if locale.has_readings:
        parts = [_make_kana_readable(part) if isinstance(part, Piece) else part for part in parts]
    return parts, compute_reading(utterance, voice.timbre, style), tuple(warnings)


def _make_kana_readable(piece: Piece) -> Piece:
    text, origins = japanese.insert_breaks(piece.spoken.text, piece.spoken.origins)
    return replace(piece, spoken=replace(piece.spoken, text=text, origins=tuple(origins)))


def _speak_parts(utterance: Utterance) -> Speech:
    """Return the speech of an utterance before its loudness is levelled."""
    parts, reading, planned_warnings = _plan_speech(utterance)
    warnings = list(planned_warnings)
    chunks = _speak_and_pause(parts, utterance, reading, warnings)
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return Speech(samples, SAMPLE_RATE_HZ, build_words(chunks, SAMPLE_RATE_HZ), tuple(warnings))


def _find_voice(utterance: Utterance) -> tuple[EspeakVoice, str]:
    """Return the voice and the name of the style. Raise EngineError if either is unknown."""
    voice = list_espeak_voices().get(utterance.voice_id)
    if voice is None:
        raise EngineFault(f"espeak has no voice {utterance.voice_id!r}")
    styles = voice.list_styles(utterance.locale) if utterance.locale in voice.supported_locales else ()
    return voice, choose_style(
        voice.voice_id, utterance.locale, utterance.style, voice.supported_locales, styles
    )


def _speak_and_pause(
    parts: Sequence[Piece | Pause], utterance: Utterance, reading: EspeakReading, warnings: list[str]
) -> list[Chunk]:
    """Return the audio of each part, in order. Fit it to the requested length, if there is one."""
    pieces = [part for part in parts if isinstance(part, Piece)]
    if utterance.audio_duration_s:
        silent = count_silent_frames(parts, SAMPLE_RATE_HZ)
        spoken = _fit_pieces(pieces, reading, utterance.audio_duration_s, silent, warnings)
    else:
        spoken = speak_pieces(pieces, reading, 1.0)
    if not any(len(chunk.samples) for chunk in spoken):
        refuse_unspeakable(utterance.locale)
    return join_with_pauses(parts, spoken, SAMPLE_RATE_HZ)


def _fit_pieces(
    pieces: Sequence[Piece], reading: EspeakReading, seconds: float, silent: int, warnings: list[str]
) -> list[Chunk]:
    """Speak the pieces in exactly the frames that remain without the pauses.

    The speed is changed in a few rounds, because the pauses of the engine do not change in proportion. The
    remaining difference, usually below 1 %, is stretched.
    """
    room = compute_speech_frames(seconds, silent, SAMPLE_RATE_HZ)
    speed = 1.0
    best = speak_pieces(pieces, reading, speed)
    for _ in range(_MAX_ROUNDS):
        ratio = count_frames(best) / room
        if (
            not ratio
            or abs(ratio - 1) < _LENGTH_TOLERANCE
            or reading.build_setting(speed * ratio) == reading.build_setting(speed)
        ):
            break
        speed *= ratio
        spoken = speak_pieces(pieces, reading, speed)
        if abs(count_frames(spoken) / room - 1) >= abs(ratio - 1):
            break
        best = spoken
    return fit_to_length(best, room, SAMPLE_RATE_HZ, warnings) if count_frames(best) else best
