"""Kokoro-82M in two steps: the lengths of the phonemes, and the sound of phonemes of such lengths.

The graph is cut, in memory, at the rounding of the lengths, so that lengths can
be read and set. A step is 600 frames, and the steps add up to the audio. The
graph draws no random numbers.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speechframe.errors import EngineFault
from speechframe.local.engines.neural.chunks import Draft
from speechframe.local.engines.neural.onnx_graph import Graph
from speechframe.local.engines.neural.prosody import NeuralReading

__all__ = ["STYLE_SHAPE", "KokoroModel", "KokoroVoice"]

Array = NDArray[np.float32]

STYLE_SHAPE = (510, 256)
"""A style has one vector for each number of phonemes in a sentence."""

_IDS, _STYLE, _SPEED, _SOUND = "tokens", "style", "speed", "audio"
_ROUNDING = "Round"
_STYLE_NOISE = 0.1
"""Distance that one step of variation moves a style, as a share of the style's size."""


class KokoroModel:
    """The loaded weights, for every voice.

    Parameters
    ----------
    parts
        The ``.onnx`` file, or the files that are one when joined.

    Raises
    ------
    EngineFault
        The file is not a Kokoro model.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        graph = Graph(parts)
        rounding = graph.nodes(_ROUNDING)
        if len(rounding) != 1 or _SOUND not in graph.makers:
            raise EngineFault(f"{parts[0]} is not a Kokoro model: it contains no lengths of phonemes")
        lengths = rounding[0].output[0]
        after, of_ids = graph.following(lengths), graph.following(_IDS)
        # The tensors that the sound needs beside the lengths of the phonemes.
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
        self._draft = graph.session(self._drafted, [])
        self._sound = graph.session([_SOUND], self._drafted)

    def draft(self, ids: Sequence[int], style: Array) -> list[Array]:
        """Return the lengths of the phonemes in steps, ``(1, ids)``, and the other inputs of the sound."""
        given = {
            _IDS: np.array([list(ids)], np.int64),
            _STYLE: style,
            _SPEED: np.ones(1, np.float32),
        }
        return [np.asarray(found) for found in self._draft.run(self._drafted, given)]

    def sound(self, drafted: Sequence[Array], style: Array) -> Array:
        """Return a draft as samples."""
        given = dict(zip(self._drafted, drafted, strict=True)) | {_STYLE: style}
        (found,) = self._sound.run([_SOUND], given)
        return np.asarray(found, np.float32).reshape(-1)


class KokoroVoice:
    """One voice; see :class:`speechframe.local.engines.neural.chunks.NeuralModel`.

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

    def draft(self, ids: Sequence[int], read: NeuralReading, rng: np.random.Generator) -> Draft:
        """Return the length of each phoneme."""
        phonemes = len(ids) - 2
        style = self._styles[min(phonemes, len(self._styles)) - 1][np.newaxis]
        jitter = _STYLE_NOISE * read.rhythm_noise * np.abs(style).mean()
        style = style + jitter * rng.standard_normal(style.shape, np.float32)
        steps, *others = self._model.draft(ids, style)
        return Draft(ids, steps.reshape(-1).astype(np.int64), (others, style))

    def sound(self, draft: Draft, steps: NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Return the phonemes as samples, ``hop_frames`` for each step of their lengths."""
        del rng
        if not steps.any():
            return np.zeros(0, np.float32)
        others, style = draft.given
        return self._model.sound([steps.astype(np.float32)[np.newaxis], *others], style)
