"""When each word is heard: the engine's events on the one side, the sound itself on the other.

The engine tells where in the text and in the audio a word begins. It merges
function words ("so that a"), splits numbers, and lets a word run into the pause
behind it. So events are laid onto the words of the text, and the ends of words
beside a silence onto the sound.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.engines.words import Token

__all__ = ["Heard", "time_tokens"]

_SHORTEST_GAP_STEPS = 6
"""Of 5 ms: shorter silences are inside sounds."""
_SHORTEST_SIGN_STEPS = 10
"""A sign that is heard takes longer; less is the edge of a neighbour."""
_LATE_STEPS = 2
"""An event may come this much after the sound it announces."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A token and the frames in which it is heard; as many at the end as at the start when it is not."""

    token: Token
    start: int
    end: int


def time_tokens(
    tokens: Sequence[Token],
    events: Sequence[tuple[int, int]],
    active: NDArray[np.bool_],
    frames_per_step: int,
    frames: int,
) -> list[Heard]:
    """Return when each token is heard.

    A token begins with the first event inside it; tokens without one share the
    span of the token before by their length; a span ends where the next begins,
    or where sound ends before that.

    Parameters
    ----------
    tokens
        In order.
    events
        Index into the text and frame, in order of time.
    active
        Whether there is sound, step by step.
    frames_per_step
        How many frames a step of ``active`` is.
    frames
        The length of the audio.
    """
    heard: list[Heard] = []
    if not tokens:
        return heard
    for group, start, end in _groups(tokens, events, frames, _gaps(active, frames_per_step)):
        first, last = _trimmed(start, end, active, frames_per_step)
        if (
            not any(token.certain for token in group)
            and last - first < _SHORTEST_SIGN_STEPS * frames_per_step
        ):
            last = first
        heard.extend(_shared(group, first, last))
    return heard


@dataclass(frozen=True, slots=True)
class _Gaps:
    """The silences of the audio: where each starts and ends, in frames."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    near: int

    def around(self, frame: int) -> tuple[int, int]:
        """Return where the word before ``frame`` ends and the one after begins.

        The same frame as a rule; in a silence, or just after one, its two ends.
        """
        index = int(np.searchsorted(self.starts, frame + self.near)) - 1
        if index >= 0 and frame <= self.ends[index] + _LATE_STEPS * self.near:
            return int(self.starts[index]), int(self.ends[index])
        return frame, frame


def _groups(
    tokens: Sequence[Token], events: Sequence[tuple[int, int]], frames: int, gaps: _Gaps
) -> Iterator[tuple[list[Token], int, int]]:
    """Yield tokens that share a span, with the span."""
    anchors = _anchors(tokens, events)
    starts = [index for index, frame in enumerate(anchors) if frame is not None]
    if not starts:
        yield list(tokens), 0, frames
        return
    # The first group takes what stands before the first event, too.
    bounds = [*starts[1:], len(tokens)]
    first = 0
    _, begin = gaps.around(anchors[starts[0]] or 0)
    for bound in bounds:
        until, following = gaps.around(anchors[bound] or 0) if bound < len(tokens) else (frames, frames)
        yield list(tokens[first:bound]), min(begin, until), until
        first, begin = bound, following


def _anchors(tokens: Sequence[Token], events: Sequence[tuple[int, int]]) -> list[int | None]:
    anchors: list[int | None] = [None] * len(tokens)
    begins = [token.start for token in tokens]
    last_index, last_frame = -1, 0
    for position, frame in events:
        index = bisect_right(begins, position) - 1
        if index > last_index and position < tokens[index].end:
            anchors[index] = last_frame = max(frame, last_frame)
            last_index = index
    return anchors


def _gaps(active: NDArray[np.bool_], step: int) -> _Gaps:
    edges = np.flatnonzero(np.diff(np.concatenate([[True], active, [True]]).astype(np.int8))).reshape(-1, 2)
    long_enough = edges[edges[:, 1] - edges[:, 0] >= _SHORTEST_GAP_STEPS] * step
    return _Gaps(long_enough[:, 0], long_enough[:, 1], near=step)


def _trimmed(start: int, end: int, active: NDArray[np.bool_], step: int) -> tuple[int, int]:
    """Return a span without the silence at its ends."""
    steps = np.flatnonzero(active[start // step : -(-end // step)]) + start // step
    if not len(steps):
        return start, start
    return max(start, int(steps[0]) * step), min(end, (int(steps[-1]) + 1) * step)


def _shared(tokens: Sequence[Token], start: int, end: int) -> Iterator[Heard]:
    """Yield each token with its share of a span, by length; signs have one only when they are alone."""
    sharing = [token for token in tokens if token.certain] or list(tokens[:1])
    lengths = [max(1, sum(character.isalnum() for character in token.shown)) for token in sharing]
    bounds = np.rint(start + (end - start) * np.cumsum([0, *lengths]) / sum(lengths)).astype(int)
    spans = dict(zip(sharing, zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True), strict=True))
    at = start
    for token in tokens:
        first, last = spans.get(token, (at, at))
        yield Heard(token, first, last)
        at = last
