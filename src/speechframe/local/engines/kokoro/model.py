"""Run the model Kokoro-82M in two steps: first the lengths of the phonemes, then the sound.

The graph is cut in memory after the rounding of the lengths, so that lengths can
be read and set. A step (the unit of a length) is 600 samples. The graph does not
draw random numbers.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speechframe.errors import EngineFault
from speechframe.local.engines.neural.chunks import Draft
from speechframe.local.engines.neural.onnx_graph import Graph
from speechframe.local.engines.neural.prosody import NeuralReading

Array = NDArray[np.float32]

STYLE_SHAPE = (510, 256)
"""Shape of a style: one vector for each number of phonemes in a sentence, up to 510."""

_IDS_TENSOR, _STYLE_TENSOR, _SPEED_TENSOR, _SOUND_TENSOR = "tokens", "style", "speed", "audio"
"""Names of the inputs of the graph, and of its output."""
_ROUNDING_OPERATOR = "Round"
"""The operator that rounds the lengths."""
_STYLE_NOISE = 0.1
"""Standard deviation of the noise of a style, as a share of its mean size, if the rhythm noise is 1."""


class KokoroModel:
    """The loaded weights, for every voice.

    Parameters
    ----------
    parts
        The ``.onnx`` file, or its parts in order.

    Raises
    ------
    EngineFault
        The file is not a Kokoro model.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        graph = Graph(parts)
        rounding = graph.find_nodes(_ROUNDING_OPERATOR)
        if len(rounding) != 1 or _SOUND_TENSOR not in graph.makers:
            raise EngineFault(f"{parts[0]} is not a Kokoro model: it contains no lengths of phonemes")
        lengths = rounding[0].output[0]
        after, of_ids = graph.find_following(lengths), graph.find_following(_IDS_TENSOR)
        # The tensors that the sound needs in addition to the lengths of the phonemes.
        between = sorted(
            {
                name
                for node in graph.makers.values()
                if node is not rounding[0]
                if not after.isdisjoint(node.output)
                for name in node.input
                if name in of_ids - after
            }
        )
        self._drafted = [lengths, *between]
        self._draft = graph.open_session(self._drafted, [])
        self._sound = graph.open_session([_SOUND_TENSOR], self._drafted)

    def draft(self, ids: Sequence[int], style: Array) -> list[Array]:
        """Return the lengths of the phonemes in steps, ``(1, ids)``, and the other inputs of the sound."""
        given = {
            _IDS_TENSOR: np.array([list(ids)], np.int64),
            _STYLE_TENSOR: style,
            _SPEED_TENSOR: np.ones(1, np.float32),
        }
        return [np.asarray(found) for found in self._draft.run(self._drafted, given)]

    def synthesise(self, drafted: Sequence[Array], style: Array) -> Array:
        """Return the samples of a draft, mono float32."""
        given = dict(zip(self._drafted, drafted, strict=True)) | {_STYLE_TENSOR: style}
        (found,) = self._sound.run([_SOUND_TENSOR], given)
        return np.asarray(found, np.float32).reshape(-1)


class KokoroVoice:
    """A voice. See :class:`speechframe.local.engines.neural.chunks.NeuralModel`.

    Parameters
    ----------
    model
        The weights.
    styles
        The voice's style vectors, :data:`STYLE_SHAPE`.
    """

    sample_rate_hz = 24_000
    hop_frames = 600

    def __init__(self, model: KokoroModel, styles: Array) -> None:
        self._model = model
        self._styles = styles

    def draft(self, ids: Sequence[int], reading: NeuralReading, rng: np.random.Generator) -> Draft:
        """Return the length of each phoneme in steps."""
        phonemes = len(ids) - 2
        style = self._styles[min(phonemes, len(self._styles)) - 1][np.newaxis]
        jitter = _STYLE_NOISE * reading.rhythm_noise * np.abs(style).mean()
        style = style + jitter * rng.standard_normal(style.shape, np.float32)
        steps, *others = self._model.draft(ids, style)
        return Draft(ids, steps.reshape(-1).astype(np.int64), (others, style))

    def synthesise(self, draft: Draft, steps: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Return the samples of the phonemes, mono float32, with ``hop_frames`` samples for each step."""
        del rng
        if not steps.any():
            return np.zeros(0, np.float32)
        others, style = draft.given
        return self._model.synthesise([steps.astype(np.float32)[np.newaxis], *others], style)
