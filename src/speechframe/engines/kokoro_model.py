"""Kokoro-82M as two steps: how long each phoneme is, and how phonemes of such lengths sound.

Its graph is cut, in memory, where the lengths are rounded, so that they can be
read and be given: a step is 600 frames, and the steps add up to the audio. The
graph holds no chance of its own.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speechframe.engines.neural_chunks import Draft
from speechframe.engines.neural_prosody import Reading
from speechframe.engines.onnx_graph import Graph
from speechframe.errors import EngineError

__all__ = ["STYLE_SHAPE", "KokoroModel", "KokoroVoice"]

Array = NDArray[np.float32]

STYLE_SHAPE = (510, 256)
"""A style has one vector for each number of phonemes that is spoken at once."""

_IDS, _STYLE, _SPEED, _SOUND = "tokens", "style", "speed", "audio"
_ROUNDING = "Round"
_STYLE_NOISE = 0.1
"""How far one step of variation moves a style, as a share of its own size."""


class KokoroModel:
    """The loaded weights, for every voice.

    Parameters
    ----------
    parts
        The ``.onnx`` file, or the files that are one when joined.

    Raises
    ------
    EngineError
        When it is no Kokoro model.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        graph = Graph(parts)
        rounding = graph.nodes(_ROUNDING)
        if len(rounding) != 1 or _SOUND not in graph.makers:
            raise EngineError(f"{parts[0]} is no Kokoro model: it has no lengths of phonemes in it")
        lengths = rounding[0].output[0]
        after, of_ids = graph.following(lengths), graph.following(_IDS)
        # What the sound needs of the phonemes beside their lengths.
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
        """Return the lengths of the phonemes in steps, ``(1, ids)``, and what else makes the sound."""
        given = {
            _IDS: np.array([list(ids)], np.int64),
            _STYLE: style,
            _SPEED: np.ones(1, np.float32),
        }
        return [np.asarray(found) for found in self._draft.run(self._drafted, given)]

    def sound(self, drafted: Sequence[Array], style: Array) -> Array:
        """Return what was drafted as samples."""
        given = dict(zip(self._drafted, drafted, strict=True)) | {_STYLE: style}
        (found,) = self._sound.run([_SOUND], given)
        return np.asarray(found, np.float32).reshape(-1)


class KokoroVoice:
    """One voice; see :class:`speechframe.engines.neural_chunks.NeuralModel`.

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

    def draft(self, ids: Sequence[int], read: Reading, chance: np.random.Generator) -> Draft:
        """Return how long each phoneme is to be."""
        phonemes = len(ids) - 2
        style = self._styles[min(phonemes, len(self._styles)) - 1][np.newaxis]
        strays = _STYLE_NOISE * read.rhythm_noise * np.abs(style).mean()
        style = style + strays * chance.standard_normal(style.shape, np.float32)
        steps, *others = self._model.draft(ids, style)
        return Draft(ids, steps.reshape(-1).astype(np.int64), (others, style))

    def sound(self, draft: Draft, steps: NDArray[np.int64], chance: np.random.Generator) -> Array:
        """Return the phonemes as samples, ``hop_frames`` for each step of their lengths."""
        del chance
        if not steps.any():
            return np.zeros(0, np.float32)
        others, style = draft.given
        return self._model.sound([steps.astype(np.float32)[np.newaxis], *others], style)
