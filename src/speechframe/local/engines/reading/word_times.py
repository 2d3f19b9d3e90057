"""Compute the time of each word from the engine's events and from the sound.

An event has the index in the text and the frame in the audio at which a word
begins. Engines merge function words ("so that a"), split numbers, and let a word
last into the pause after it. So events are matched to the words of the text, and
words beside a silence end and begin with the sound.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.engines.words import Token

_SHORTEST_GAP_STEPS = 6
"""Steps (5 ms each) of the shortest silence between words. Shorter silences are inside words."""
_SHORTEST_SIGN_STEPS = 10
"""Steps of the shortest sign that is spoken. Shorter sound belongs to a neighbouring word."""
_LATE_STEPS = 2
"""Steps by which an event may come after the beginning of its sound."""


@dataclass(frozen=True, slots=True)
class TimedToken:
    """A token with the first frame and the end frame of its sound. Both are equal if it is not spoken."""

    token: Token
    start: int
    end: int


def time_tokens(
    tokens: Sequence[Token],
    events: Sequence[tuple[int, int]],
    active: NDArray[np.bool_],
    frames_per_step: int,
    frames: int,
) -> list[TimedToken]:
    """Return the span of each token in frames.

    A token begins with the first event inside it. A token without an event shares the span of the token
    before, in proportion to their numbers of letters. A span ends when the next span begins, or when the
    sound ends.

    Parameters
    ----------
    tokens
        The tokens, in order.
    events
        Index into the text and frame of each event, in order of time.
    active
        Mask of the steps with sound.
    frames_per_step
        Number of frames in a step of `active`.
    frames
        Number of frames of the audio.
    """
    heard: list[TimedToken] = []
    if not tokens:
        return heard
    for group, start, end in _group_tokens(tokens, events, frames, _find_gaps(active, frames_per_step)):
        first, last = _trim_span(start, end, active, frames_per_step)
        if (
            not any(token.certain for token in group)
            and last - first < _SHORTEST_SIGN_STEPS * frames_per_step
        ):
            last = first
        heard.extend(_share_span(group, first, last))
    return heard


@dataclass(frozen=True, slots=True)
class _Gaps:
    """The silences of the audio.

    Attributes
    ----------
    starts, ends
        Start and end of each silence in frames.
    near
        Tolerance in frames: one step.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    near: int

    def find_around(self, frame: int) -> tuple[int, int]:
        """Return the end of the word before an event at `frame`, and the beginning of the word after.

        Inside a silence, or close to it, these are the two ends of the silence. Otherwise both are `frame`.
        """
        index = int(np.searchsorted(self.starts, frame + self.near)) - 1
        if index >= 0 and frame <= self.ends[index] + _LATE_STEPS * self.near:
            return int(self.starts[index]), int(self.ends[index])
        return frame, frame


def _group_tokens(
    tokens: Sequence[Token], events: Sequence[tuple[int, int]], frames: int, gaps: _Gaps
) -> Iterator[tuple[list[Token], int, int]]:
    """Yield each group of tokens that share a span, and the start and end of the span in frames."""
    anchors = _find_anchors(tokens, events)
    starts = [index for index, frame in enumerate(anchors) if frame is not None]
    if not starts:
        yield list(tokens), 0, frames
        return
    # The first group also contains the tokens before the first event.
    bounds = [*starts[1:], len(tokens)]
    first = 0
    _, begin = gaps.find_around(anchors[starts[0]] or 0)
    for bound in bounds:
        until, following = gaps.find_around(anchors[bound] or 0) if bound < len(tokens) else (frames, frames)
        yield list(tokens[first:bound]), min(begin, until), until
        first, begin = bound, following


def _find_anchors(tokens: Sequence[Token], events: Sequence[tuple[int, int]]) -> list[int | None]:
    anchors: list[int | None] = [None] * len(tokens)
    begins = [token.start for token in tokens]
    last_index, last_frame = -1, 0
    for position, frame in events:
        index = bisect_right(begins, position) - 1
        if index > last_index and position < tokens[index].end:
            anchors[index] = last_frame = max(frame, last_frame)
            last_index = index
    return anchors


def _find_gaps(active: NDArray[np.bool_], step: int) -> _Gaps:
    edges = np.flatnonzero(np.diff(np.concatenate([[True], active, [True]]).astype(np.int8))).reshape(-1, 2)
    long_enough = edges[edges[:, 1] - edges[:, 0] >= _SHORTEST_GAP_STEPS] * step
    return _Gaps(long_enough[:, 0], long_enough[:, 1], near=step)


def _trim_span(start: int, end: int, active: NDArray[np.bool_], step: int) -> tuple[int, int]:
    """Return the span without the silence at its ends, in frames. An all-silent span becomes empty."""
    steps = np.flatnonzero(active[start // step : -(-end // step)]) + start // step
    if not len(steps):
        return start, start
    return max(start, int(steps[0]) * step), min(end, (int(steps[-1]) + 1) * step)


def _share_span(tokens: Sequence[Token], start: int, end: int) -> Iterator[TimedToken]:
    """Yield each token with its share of a span, by its number of letters.

    Tokens that are not certain, such as signs, get an empty share if the span has a certain token.
    """
    sharing = [token for token in tokens if token.certain] or list(tokens[:1])
    lengths = [max(1, sum(character.isalnum() for character in token.shown)) for token in sharing]
    bounds = np.rint(start + (end - start) * np.cumsum([0, *lengths]) / sum(lengths)).astype(int)
    spans = dict(zip(sharing, zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True), strict=True))
    at = start
    for token in tokens:
        first, last = spans.get(token, (at, at))
        yield TimedToken(token, first, last)
        at = last
