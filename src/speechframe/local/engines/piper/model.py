"""Run a Piper model in two repeatable steps: first the lengths of the phonemes, then the sound.

A published model draws new noise at each call, and returns only the sound. Here
the graph is cut in memory at the phoneme lengths and at the noise, so that the
caller supplies both. Then equal seeds give equal speech, lengths are exact to the
frame, and the time of each phoneme is known.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speechframe.errors import EngineFault
from speechframe.local.engines.neural.chunks import Draft
from speechframe.local.engines.neural.onnx_graph import Graph
from speechframe.local.engines.neural.prosody import NeuralReading

Array = NDArray[np.float32]

_PROBE_PHONEMES = 3
"""Number of phonemes in the short sound that measures the shape of the noise."""
_NOISE_OPERATOR, _ROUNDING_OPERATOR, _SOUND_TENSOR = "RandomNormalLike", "Ceil", "output"
"""Operators of the graph that draw noise and that round lengths, and the name of the sound's tensor."""


class PiperModel:
    """A loaded model.

    Parameters
    ----------
    path
        The ``.onnx`` file.
    settings
        The content of the settings file beside it.

    Raises
    ------
    EngineFault
        The file is not a Piper model.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        inference = settings.get("inference", {})
        self.sample_rate_hz = int(settings["audio"]["sample_rate"])
        self.hop_frames = int(settings.get("hop_length", 256))
        """Samples in one step, the unit of the length of a phoneme."""
        self._noise = float(inference.get("noise_scale", 0.667))
        self._rhythm_noise = float(inference.get("noise_w", 0.8))
        self._length = float(inference.get("length_scale", 1.0))
        self._speaker = (
            int(settings.get("default_speaker_id", 0)) if int(settings["num_speakers"]) > 1 else None
        )
        graph = Graph([path])
        # Keep only the names of tensors, because the graph contains all weights a second time.
        self._names = _find_tensors(graph, path)
        self._lengths = graph.open_session([self._names.lengths], [self._names.rhythm_noise])
        self._sound = graph.open_session(
            [_SOUND_TENSOR, self._names.sound_like], [self._names.sound_noise, self._names.rounded]
        )
        self._channels = self._find_channels()

    def draft(self, ids: Sequence[int], reading: NeuralReading, rng: np.random.Generator) -> Draft:
        """Return the length of each phoneme in steps. The noise of the sound is not drawn yet."""
        drawn = rng.standard_normal((1, 2, len(ids)), np.float32)
        noise = self._rhythm_noise * reading.rhythm_noise
        given = self._make_inputs(ids, noise=0.0, rhythm_noise=noise) | {self._names.rhythm_noise: drawn}
        (found,) = self._lengths.run([self._names.lengths], given)
        lengths = np.ceil(np.asarray(found, np.float32).reshape(-1)).astype(np.int64)
        return Draft(ids, lengths, self._noise * reading.noise)

    def synthesise(self, draft: Draft, steps: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Return the samples of the phonemes, mono float32, with ``hop_frames`` samples for each step."""
        count = int(steps.sum())
        if not count:
            return np.zeros(0, np.float32)
        drawn = rng.standard_normal((1, self._channels, count), np.float32)
        given = self._make_inputs(draft.ids, noise=draft.given, rhythm_noise=0.0) | {
            self._names.sound_noise: drawn,
            self._names.rounded: steps.astype(np.float32).reshape(1, 1, -1),
        }
        (found,) = self._sound.run([_SOUND_TENSOR], given)
        return np.asarray(found, np.float32).reshape(-1)

    def _make_inputs(
        self, ids: Sequence[int], *, noise: float, rhythm_noise: float
    ) -> dict[str, NDArray[Any]]:
        given: dict[str, NDArray[Any]] = {
            "input": np.array([list(ids)], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([noise, self._length, rhythm_noise], np.float32),
        }
        return given if self._speaker is None else given | {"sid": np.array([self._speaker], np.int64)}

    def _find_channels(self) -> int:
        # No file contains the size of the noise, so compute one short sound to measure the size.
        given = self._make_inputs([0] * _PROBE_PHONEMES, noise=0.0, rhythm_noise=0.0) | {
            self._names.sound_noise: np.zeros((1, 1, 1), np.float32),
            self._names.rounded: np.ones((1, 1, _PROBE_PHONEMES), np.float32),
        }
        (like,) = self._sound.run([self._names.sound_like], given)
        return int(like.shape[1])


class _GraphTensors(NamedTuple):
    """The names of the tensors at which a graph is cut.

    Attributes
    ----------
    lengths, rounded
        Lengths of the phonemes before and after rounding.
    rhythm_noise, sound_noise
        Noise of the lengths and of the sound.
    sound_like
        A tensor with the shape of `sound_noise`.
    """

    lengths: str
    rounded: str
    rhythm_noise: str
    sound_noise: str
    sound_like: str


def _find_tensors(graph: Graph, path: Path) -> _GraphTensors:
    """Return the names of the tensors at which a Piper model is cut. Raise EngineFault for other models."""
    rounding = graph.find_nodes(_ROUNDING_OPERATOR)
    if len(rounding) != 1 or _SOUND_TENSOR not in graph.makers:
        raise EngineFault(f"{path} is not a Piper model: it contains no lengths of phonemes")
    lengths = rounding[0].input[0]
    before = graph.find_needed_names([lengths], ())
    noises = graph.find_nodes(_NOISE_OPERATOR)
    rhythm = [node for node in noises if node.output[0] in before]
    sound = [node for node in noises if node.output[0] not in before]
    if len(rhythm) != 1 or len(sound) != 1:
        raise EngineFault(f"{path} is not a Piper model that is known here: its noise is drawn otherwise")
    return _GraphTensors(
        lengths, rounding[0].output[0], rhythm[0].output[0], sound[0].output[0], sound[0].input[0]
    )
