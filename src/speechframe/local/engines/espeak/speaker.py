"""Speak with the formant voices of espeak-ng in more than 70 locales.

The voices are not beautiful, but fast and reliable. A second of speech takes 3 ms.
Word times and lengths are exact, and equal requests give equal bytes. espeak-ng is
GPL-3 and keeps global state, so the service runs it in worker processes. See
:mod:`speechframe.local.engines.espeak.library`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from speechframe.engines.base import EngineVoice, Utterance
from speechframe.errors import EngineFault
from speechframe.local.engines.espeak import library as espeak_library
from speechframe.local.engines.espeak.chunks import SAMPLE_RATE_HZ, EspeakPlan
from speechframe.local.engines.espeak.phonemes import convert_ipa
from speechframe.local.engines.espeak.prosody import compute_reading
from speechframe.local.engines.espeak.voices import compute_lufs, list_engine_voices, list_espeak_voices
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.reading.pieces import Piece, choose_style
from speechframe.local.engines.reading.speaker import PieceSpeaker, ReadyVoice

REVISION = 4
"""Incremented whenever an equal request sounds different, because a run must not mix two revisions."""


class EspeakSpeaker(PieceSpeaker):
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

    def _get_voice(self, utterance: Utterance) -> ReadyVoice:
        voice = list_espeak_voices().get(utterance.voice_id)
        if voice is None:
            raise EngineFault(f"espeak has no voice {utterance.voice_id!r}")
        style = choose_style(utterance, voice.supported_locales, voice.list_styles(utterance.locale))
        locale = LOCALES[utterance.locale]

        def make_plan(pieces: Sequence[Piece]) -> EspeakPlan:
            readable = [_make_kana_readable(piece) for piece in pieces] if locale.has_readings else pieces
            return EspeakPlan(readable, compute_reading(utterance, voice.timbre, style))

        return ReadyVoice(
            SAMPLE_RATE_HZ,
            locale,
            lambda ipa: convert_ipa(ipa, locale.language),
            make_plan,
            compute_lufs(voice, utterance.locale),
        )


def _make_kana_readable(piece: Piece) -> Piece:
    text, origins = japanese.insert_breaks(piece.spoken.text, piece.spoken.origins)
    return replace(piece, spoken=replace(piece.spoken, text=text, origins=tuple(origins)))
