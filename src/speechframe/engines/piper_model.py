"""A Piper model as two steps that can be repeated: how long each phoneme is, and how that sounds.

The model as published draws its noise inside, anew at each call, and returns
the sound alone. Here its graph is cut, in memory, at the lengths of the
phonemes and at the noise: both come from outside. So speech is the same for
the same seed, its length can be chosen to the frame, and where each phoneme
is heard is known and not estimated.
"""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speechframe.errors import EngineError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["PiperModel"]

Array = NDArray[np.float32]

_ERRORS_ONLY = 3
_SHORTEST = 3
_NOISE, _ROUNDING, _SOUND = "RandomNormalLike", "Ceil", "output"


class PiperModel:
    """A loaded model.

    Parameters
    ----------
    path
        The ``.onnx`` file.
    settings
        What stands in the settings file beside it.

    Raises
    ------
    EngineError
        When the file is no Piper model.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        inference = settings.get("inference", {})
        self.sample_rate_hz = int(settings["audio"]["sample_rate"])
        self.hop_frames = int(settings.get("hop_length", 256))
        """How many frames of audio one step of a phoneme's length is."""
        self.noise = float(inference.get("noise_scale", 0.667))
        """How much chance there is in the sound, as the voice's makers chose."""
        self.rhythm_noise = float(inference.get("noise_w", 0.8))
        """The same in the lengths."""
        self._length = float(inference.get("length_scale", 1.0))
        self._speaker = int(settings.get("default_speaker_id", 0)) if settings["num_speakers"] > 1 else None
        graph = _Graph(path)
        # The names alone: the graph holds all weights a second time.
        self._names = graph.names
        self._lengths = graph.session([self._names.lengths], [self._names.rhythm_noise])
        self._sound = graph.session(
            [_SOUND, self._names.sound_like], [self._names.sound_noise, self._names.rounded]
        )
        self._channels = self._found_channels()

    def lengths(self, ids: Collection[int], *, noise: float, chance: np.random.Generator) -> Array:
        """Return how long each phoneme is to be, in steps of ``hop_frames``, not yet whole ones.

        Parameters
        ----------
        ids
            The phonemes.
        noise
            How much chance; 0 is none.
        chance
            Where it comes from.
        """
        drawn = chance.standard_normal((1, 2, len(ids)), np.float32)
        given = self._given(ids, noise=0.0, rhythm_noise=noise) | {self._names.rhythm_noise: drawn}
        (found,) = self._lengths.run([self._names.lengths], given)
        return np.asarray(found, np.float32).reshape(-1)

    def sound(
        self, ids: Collection[int], lengths: NDArray[np.int64], *, noise: float, chance: np.random.Generator
    ) -> Array:
        """Return the phonemes as samples, ``hop_frames`` for each step of their lengths."""
        steps = int(lengths.sum())
        if not steps:
            return np.zeros(0, np.float32)
        drawn = chance.standard_normal((1, self._channels, steps), np.float32)
        given = self._given(ids, noise=noise, rhythm_noise=0.0) | {
            self._names.sound_noise: drawn,
            self._names.rounded: lengths.astype(np.float32).reshape(1, 1, -1),
        }
        (found,) = self._sound.run([_SOUND], given)
        return np.asarray(found, np.float32).reshape(-1)

    def _given(self, ids: Collection[int], *, noise: float, rhythm_noise: float) -> dict[str, NDArray[Any]]:
        given: dict[str, NDArray[Any]] = {
            "input": np.array([list(ids)], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([noise, self._length, rhythm_noise], np.float32),
        }
        return given if self._speaker is None else given | {"sid": np.array([self._speaker], np.int64)}

    def _found_channels(self) -> int:
        # The size of the noise stands in no file: one short sound tells it.
        given = self._given([0] * _SHORTEST, noise=0.0, rhythm_noise=0.0) | {
            self._names.sound_noise: np.zeros((1, 1, 1), np.float32),
            self._names.rounded: np.ones((1, 1, _SHORTEST), np.float32),
        }
        (like,) = self._sound.run([self._names.sound_like], given)
        return int(like.shape[1])


class _Names(NamedTuple):
    """The tensors a graph is cut at; ``sound_like`` has the shape that the noise of the sound must have."""

    lengths: str
    rounded: str
    rhythm_noise: str
    sound_noise: str
    sound_like: str


class _Graph:
    """A model's graph, and the names of the tensors it is cut at."""

    def __init__(self, path: Path) -> None:
        import onnx

        try:
            self._model = onnx.load(str(path))
        except Exception as error:  # the parser of protocol buffers has errors of its own
            raise EngineError(
                f"{path} is no model that can be read: {type(error).__name__}: {error}"
            ) from error
        self._makers = {name: node for node in self._model.graph.node for name in node.output}
        rounding = self._nodes(_ROUNDING)
        noises = self._nodes(_NOISE)
        if len(rounding) != 1 or _SOUND not in self._makers:
            raise EngineError(f"{path} is no Piper model: it has no lengths of phonemes in it")
        lengths = rounding[0].input[0]
        before = self._needed([lengths], ())
        rhythm = [node for node in noises if node.output[0] in before]
        sound = [node for node in noises if node.output[0] not in before]
        if len(rhythm) != 1 or len(sound) != 1:
            raise EngineError(f"{path} is no Piper model that is known here: its noise is drawn otherwise")
        self.names = _Names(
            lengths, rounding[0].output[0], rhythm[0].output[0], sound[0].output[0], sound[0].input[0]
        )

    def session(self, outputs: Collection[str], inputs: Collection[str]) -> "InferenceSession":
        """Return what makes some tensors from others; the model's own inputs stay as far as they are used."""
        import onnx
        import onnxruntime

        whole = self._model.graph
        needed = self._needed(outputs, inputs)
        number = onnx.TensorProto.FLOAT
        graph = onnx.helper.make_graph(
            [node for node in whole.node if node.output[0] in needed and node.output[0] not in inputs],
            "cut",
            [value for value in whole.input if value.name in needed]
            + [onnx.helper.make_tensor_value_info(name, number, None) for name in inputs],
            [onnx.helper.make_tensor_value_info(name, number, None) for name in outputs],
            [tensor for tensor in whole.initializer if tensor.name in needed],
        )
        cut = onnx.helper.make_model(
            graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version
        )
        options = onnxruntime.SessionOptions()
        # More threads would make neither the bytes nor the time of others certain.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        return onnxruntime.InferenceSession(
            cut.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def _nodes(self, kind: str) -> list[Any]:
        return [node for node in self._model.graph.node if node.op_type == kind]

    def _needed(self, outputs: Collection[str], inputs: Collection[str]) -> set[str]:
        """Return every tensor it takes to make ``outputs`` when ``inputs`` are given."""
        needed: set[str] = set()
        open_names = list(outputs)
        while open_names:
            name = open_names.pop()
            if name in needed:
                continue
            needed.add(name)
            if name in self._makers and name not in inputs:
                node = self._makers[name]
                needed.update(node.output)
                open_names.extend(given for given in node.input if given)
        return needed
