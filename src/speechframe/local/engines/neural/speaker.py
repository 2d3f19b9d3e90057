"""Make the loaded voices of neural speech engines ready, and keep the last loaded model."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from speechframe.engines.base import Utterance
from speechframe.engines.faults import read_file_facts
from speechframe.errors import EngineFault
from speechframe.local.engines.neural.chunks import NeuralModel, NeuralPlan
from speechframe.local.engines.neural.phonemes import Phonemiser
from speechframe.local.engines.neural.prosody import STYLES, compute_reading
from speechframe.local.engines.reading.locales import EspeakLocale
from speechframe.local.engines.reading.speaker import ReadyVoice

_Model = TypeVar("_Model")


def make_ready(
    utterance: Utterance,
    model: NeuralModel,
    phonemiser: Phonemiser,
    locale: EspeakLocale,
    style: str,
    lufs: float | None = None,
) -> ReadyVoice:
    """Return a loaded voice that is ready to speak an utterance in a style of :data:`STYLES`."""
    reading = compute_reading(utterance, STYLES[style])
    return ReadyVoice(
        model.sample_rate_hz,
        locale,
        phonemiser.convert_ipa,
        lambda pieces: NeuralPlan(pieces, phonemiser, model, reading),
        lufs,
        model,
    )


def load_cached(load: Callable[[tuple[Path, ...]], _Model], files: tuple[Path, ...]) -> _Model:
    """Return the model that `load` returns for files. The model is loaded again only if a file has changed.

    Only the last model of all engines is cached, because a model may need several hundred MB.

    Raises
    ------
    EngineFault
        A file cannot be read, or `load` fails.
    """
    facts = tuple((found.st_size, found.st_mtime_ns) for found in map(read_file_facts, files))
    try:
        model: _Model = _load_once(load, files, facts)
    except EngineFault:
        raise
    except Exception as error:  # libraries that read models raise errors of many types
        raise EngineFault(f"{files[0]} cannot be loaded: {type(error).__name__}: {error}") from error
    return model


@lru_cache(maxsize=1)
def _load_once(
    load: Callable[[tuple[Path, ...]], Any], files: tuple[Path, ...], facts: tuple[tuple[int, int], ...]
) -> Any:
    del facts
    return load(files)
