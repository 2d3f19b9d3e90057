"""Speak with the neural voices of Piper, with exact word times and repeatable results.

A voice is a file of some 60 MB. One core computes a second of speech in 0.1 s.
The package piper-tts is GPL-3 and its phonemiser keeps global state, so the service
runs it in worker processes. A published model draws new noise at each call. Here,
the noise depends on the utterance. See :mod:`speechframe.local.engines.piper.model`.
"""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from speechframe.engines.base import EngineVoice, Utterance
from speechframe.errors import EngineFault
from speechframe.local.engines.neural.prosody import STYLES
from speechframe.local.engines.neural.speaker import load_cached, make_ready
from speechframe.local.engines.piper.model import PiperModel
from speechframe.local.engines.piper.phonemes import PiperPhonemiser
from speechframe.local.engines.piper.voices import (
    INSTALL_COMMAND,
    PiperFile,
    choose_reading_locale,
    is_installed,
    list_engine_voices,
    list_left_out,
    list_piper_voices,
)
from speechframe.local.engines.reading.pieces import choose_style
from speechframe.local.engines.reading.speaker import PieceSpeaker, ReadyVoice

REVISION = 4
"""Incremented whenever an equal request sounds different, because a run must not mix two revisions."""


class PiperSpeaker(PieceSpeaker):
    """The Piper engine. See :class:`speechframe.engines.base.Speaker`.

    Its voices are the packaged voice, and the voices in the folders of the environment
    variable ``SPEECHFRAME_VOICES``.

    Examples
    --------
    >>> speech = PiperSpeaker().speak(Utterance("Hello there", voice_id="en-US-joe", locale="en-US"))
    >>> [word.word for word in speech.words]
    ['Hello', 'there']
    """

    name = "piper"
    licence = "GPL-3.0-or-later; each voice has its own"

    @property
    def version(self) -> str:
        """Piper's version and :data:`REVISION`. Raises EngineFault if Piper is not installed."""
        _refuse_missing()
        try:
            return f"{version('piper-tts')}+{REVISION}"
        except PackageNotFoundError as error:
            raise EngineFault(f"Piper is not installed as a package: {INSTALL_COMMAND}") from error

    def voices(self) -> Sequence[EngineVoice]:
        """Return every usable voice. The list is empty if Piper is not installed."""
        return list_engine_voices()

    def left_out(self) -> Sequence[str]:
        """Return a sentence for each file that :meth:`voices` leaves out."""
        return list_left_out()

    def files(self) -> Sequence[Path]:
        """Return the files of every voice."""
        return tuple(path for file in list_piper_voices().values() for path in (file.model, file.settings))

    def _get_voice(self, utterance: Utterance) -> ReadyVoice:
        _refuse_missing()
        file = list_piper_voices().get(utterance.voice_id)
        if file is None:
            raise EngineFault(f"piper has no voice {utterance.voice_id!r}")
        style = choose_style(utterance, [file.locale], list(STYLES))
        model, phonemiser = _get_loaded_voice(file)
        return make_ready(utterance, model, phonemiser, choose_reading_locale(file.locale), style)


def _refuse_missing() -> None:
    if not is_installed():
        raise EngineFault(f"Piper is not installed: {INSTALL_COMMAND}")


def _get_loaded_voice(file: PiperFile) -> tuple[PiperModel, PiperPhonemiser]:
    """Return the model and the phonemiser of a voice. The hashes of packaged files are checked each time."""
    if (package := file.package) is not None:
        for name in package.sha256:
            package.get_file(name)
    return load_cached(_load_voice, (file.model, file.settings))


def _load_voice(files: tuple[Path, ...]) -> tuple[PiperModel, PiperPhonemiser]:
    model, settings_file = files
    settings = json.loads(settings_file.read_text(encoding="utf-8"))
    return PiperModel(model, settings), PiperPhonemiser(settings)
