"""Neural voices: Piper models, with exact word times and takes that can be had again.

A voice is a file of some 60 MB; one core makes a second of speech in a tenth.
piper-tts is GPL-3 and its phonemiser keeps global state, so the service runs it
in worker processes. A model draws its noise anew for each call: here the noise
comes from the utterance, see :mod:`speechframe.engines.piper_model`.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from speechframe.engines.base import EngineVoice, Speech, Utterance
from speechframe.engines.pieces import (
    Chunk,
    Piece,
    chosen_style,
    filling,
    frames_of,
    in_order,
    pieces_and_pauses,
    refuse_unspeakable,
    room_to_speak,
    silent_frames,
    told_of_letters,
    word_entries,
)
from speechframe.engines.piper_chunks import PlannedPiece, plan, planned_frames, speak
from speechframe.engines.piper_model import PiperModel
from speechframe.engines.piper_phonemes import Phonemiser
from speechframe.engines.piper_prosody import Reading, reading
from speechframe.engines.piper_voices import (
    INSTALL,
    STYLES,
    PiperFile,
    engine_voices,
    is_installed,
    piper_voices,
    reading_locale,
)
from speechframe.engines.streaming import SentenceSpeaker, measured_gain_db
from speechframe.errors import EngineError
from speechframe.spec.pauses import Pause, pause_warnings

__all__ = ["PiperSpeaker"]

_SLOWEST, _FASTEST = 2.0, 0.5
"""How far the phonemes themselves may be lengthened to fit a length; the rest is stretched."""
_HELD = 2
"""Loaded voices a process keeps; each takes some 150 MB."""

REVISION = 3
"""Goes up whenever an equal request sounds different: a run never mixes two ways of speaking."""


class _Voice(NamedTuple):
    model: PiperModel
    phonemiser: Phonemiser


class PiperSpeaker(SentenceSpeaker):
    """The Piper engine; see :class:`speechframe.engines.base.Speaker`.

    Its voices are the packaged one and those in the folders of the environment
    variable ``SPEECHFRAME_VOICES``.

    Examples
    --------
    >>> speech = PiperSpeaker().speak(Utterance("Hello there", voice_id="en-US-joe", locale="en-US"))
    >>> [word.word for word in speech.words]
    ['Hello', 'there']
    """

    name = "piper"

    @property
    def version(self) -> str:
        """Piper's version and our :data:`REVISION`; raises EngineError when it is not installed."""
        _refuse_missing()
        try:
            return f"{version('piper-tts')}+{REVISION}"
        except PackageNotFoundError as error:
            raise EngineError(f"Piper is not installed as a package: {INSTALL}") from error

    def voices(self) -> Sequence[EngineVoice]:
        """Return every voice; none when Piper is not installed.

        Raises
        ------
        EngineError
            When a folder of ``SPEECHFRAME_VOICES`` is missing or holds a broken voice.
        """
        return engine_voices()

    def speak(self, utterance: Utterance) -> Speech:
        """Return an utterance as speech at the voice's own rate; equal utterances give equal bytes.

        Raises
        ------
        EngineError
            Piper is not installed; a voice, locale or style that does not exist together; a text without
            anything speakable; a pronunciation in unknown symbols; a length that the pauses alone exceed; a
            model that is not the file it should be, or none.
        """
        return self._levelled(utterance)

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings of a whole text; raises EngineError for one that is not to be spoken."""
        _, parts, warnings, _ = _prepared(utterance)
        return (*warnings, *told_of_letters(parts, utterance, reading_locale(utterance.locale)))

    def _spoken(self, utterance: Utterance) -> Speech:
        return _spoken(utterance)

    def _gain_db(self, utterance: Utterance) -> float:
        model = _loaded(_found(utterance)[0]).model
        if model not in _gains_db:
            _gains_db[model] = measured_gain_db(utterance, _spoken)
        return _gains_db[model]


def _prepared(utterance: Utterance) -> tuple[_Voice, list[Piece | Pause], tuple[str, ...], str]:
    """Return the voice, what it is to speak, what the caller should know, and the style."""
    file, style = _found(utterance)
    warnings = list(pause_warnings(utterance.text))
    voice = _loaded(file)
    parts = pieces_and_pauses(utterance, reading_locale(file.locale), voice.phonemiser.pronounced, warnings)
    return voice, parts, tuple(warnings), style


def _spoken(utterance: Utterance) -> Speech:
    """Return an utterance as loud as the model speaks."""
    voice, parts, planned_warnings, style = _prepared(utterance)
    warnings = list(planned_warnings)
    chunks = _speech_and_silence(parts, utterance, voice, reading(utterance, style), warnings)
    samples = np.concatenate([chunk.samples for chunk in chunks])
    rate_hz = voice.model.sample_rate_hz
    return Speech(samples, rate_hz, word_entries(chunks, rate_hz), tuple(warnings))


_gains_db: WeakKeyDictionary[PiperModel, float] = WeakKeyDictionary()
"""Of each loaded model; one that was replaced is measured again."""


def _refuse_missing() -> None:
    if not is_installed():
        raise EngineError(f"Piper is not installed: {INSTALL}")


def _found(utterance: Utterance) -> tuple[PiperFile, str]:
    """Return the voice's files and the style's name, or say what there is instead."""
    _refuse_missing()
    voice = piper_voices().get(utterance.voice_id)
    if voice is None:
        raise EngineError(f"piper has no voice {utterance.voice_id!r}")
    style = chosen_style(voice.voice_id, utterance.locale, utterance.style, [voice.locale], list(STYLES))
    return voice, style


def _loaded(file: PiperFile) -> _Voice:
    """Return a voice ready to speak; its files are looked at before every text, and loaded once."""
    package = file.package
    if package is not None:
        for name in package.sha256:
            package.file(name)
    try:
        facts = [(path.stat().st_size, path.stat().st_mtime_ns) for path in (file.model, file.settings)]
    except OSError as error:
        raise EngineError(f"the voice {file.model} cannot be read: {error.strerror}") from error
    return _load(file, tuple(facts))


@lru_cache(maxsize=_HELD)
def _load(file: PiperFile, facts: tuple[tuple[int, int], ...]) -> _Voice:
    # A file that was replaced is loaded again.
    del facts
    settings = json.loads(file.settings.read_text(encoding="utf-8"))
    return _Voice(PiperModel(file.model, settings), Phonemiser(settings))


def _speech_and_silence(
    parts: Sequence[Piece | Pause], utterance: Utterance, voice: _Voice, read: Reading, warnings: list[str]
) -> list[Chunk]:
    """Return every part as audio, in order, of the asked length if one is asked."""
    rate_hz = voice.model.sample_rate_hz
    pieces = [part for part in parts if isinstance(part, Piece)]
    planned = plan(pieces, voice.phonemiser, voice.model, read)
    if not any(piece.sentences for piece in planned):
        refuse_unspeakable(utterance.locale)
    if utterance.audio_duration_s:
        room = room_to_speak(utterance.audio_duration_s, silent_frames(parts, rate_hz), rate_hz)
        chunks = _fitted(planned, voice.model, read, room, warnings)
    else:
        chunks = list(speak(planned, voice.model, read))
    return in_order(parts, chunks, rate_hz)


def _fitted(
    planned: Sequence[PlannedPiece], model: PiperModel, read: Reading, room: int, warnings: list[str]
) -> list[Chunk]:
    """Return a plan spoken in exactly ``room`` frames: a model speaks phonemes of any length it is told."""
    wanted = room / planned_frames(planned, model, read)
    chunks = list(speak(planned, model, read, min(max(wanted, _FASTEST), _SLOWEST)))
    return filling(chunks, room, model.sample_rate_hz, warnings) if frames_of(chunks) else chunks
