"""Choice of the audio track of a media file in PyAV, and the times of its sound.

As in players, time zero is the time of the first sound or picture in the file.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from speechframe.errors import AudioError
from speechframe.spec.locales import get_language, get_three_letter_code

_MAX_ROUNDING_SECONDS = 0.05
"""Gaps and overlaps of blocks below this length are rounding errors of containers such as MKV."""
_BLOCK_FRAMES = 48_000
"""Largest number of frames in a block of silence."""
_MAX_SHOWN_TRACKS = 8
"""Largest number of tracks in a message."""


def find_video_stream(source: Any) -> Any:
    """Return the video stream of a PyAV container. Return None if there is only sound or a cover picture."""
    from av.stream import Disposition

    return next(
        (each for each in source.streams.video if not each.disposition & Disposition.attached_pic), None
    )


def list_audio_tracks(source: Any) -> list[Any]:
    """Return the audio streams of a PyAV container that can be decoded."""
    return [each for each in source.streams.audio if each.codec_context is not None]


def choose_audio_track(source: Any, locale: str | None = None) -> Any:
    """Return the audio stream in the language of `locale`, else the default stream, else the first.

    Among streams with equal language and default flag, commentaries and descriptions of the pictures come
    last.
    """
    from av.stream import Disposition

    beside = Disposition.comment | Disposition.visual_impaired | Disposition.descriptions
    return max(
        list_audio_tracks(source),
        key=lambda each: (
            locale is not None and _read_language(each) in _list_language_codes(locale),
            bool(each.disposition & Disposition.default),
            not each.disposition & beside,
        ),
    )


def make_track_warning(source: Any, locale: str | None, *, use: str, instead: str) -> str | None:
    """Return a warning that names the chosen track if the file has several audio tracks, else None.

    `use` is a past participle, such as "read" in "track 2 was read". `instead` is an instruction for the use
    of another track.
    """
    tracks = source.streams.audio
    if len(tracks) < 2:  # noqa: PLR2004 - several
        return None
    chosen = choose_audio_track(source, locale)
    names = ", ".join(
        _describe_track(number, each) for number, each in enumerate(tracks[:_MAX_SHOWN_TRACKS], 1)
    )
    number = list(tracks).index(chosen) + 1
    why = "the default or first one"
    if locale is not None and _read_language(chosen) in _list_language_codes(locale):
        why = f"in the language of {locale}"
    return (
        f"the media file has {len(tracks)} audio tracks ({names}); track {number}, {why}, was {use}. To "
        f"use another one, {instead}"
    )


def _describe_track(number: int, track: Any) -> str:
    parts = [_read_language(track) or "language unknown"]
    if title := track.metadata.get("title"):
        parts.append(repr(title[:40]))
    return f"{number}: {' '.join(parts)}"


def _read_language(track: Any) -> str:
    """Return the language code of a track with two or three letters, or an empty string if unknown."""
    language = (track.language or track.metadata.get("language") or "").lower().partition("-")[0]
    return "" if language == "und" else language


def _list_language_codes(locale: str) -> Sequence[str]:
    return (
        get_language(locale),
        get_three_letter_code(locale),
        get_three_letter_code(locale, bibliographic=True),
    )


def measure_start_seconds(source: Any) -> float:
    """Return the time of the first sound or picture of a PyAV container, in seconds.

    Some recorders write files in which this time is not zero. The time before it is not part of the length.
    """
    video = find_video_stream(source)
    starts = [
        float(each.start_time * each.time_base)
        for each in (*source.streams.audio, *([] if video is None else [video]))
        if each.start_time is not None and each.time_base is not None
    ]
    # In a file with pictures, players skip samples of MP3 and Opus before time zero.
    return min(starts, default=0.0) if video is None else max(0.0, min(starts, default=0.0))


def decode_with_positions(source: Any, track: Any, converter: Any, rate_hz: int) -> Iterator[tuple[int, Any]]:
    """Decode a track, and yield pairs of a position and a block of samples.

    The position is the number of frames from time zero. Blocks have the shape ``(frames, channels)``. `track`
    is an audio stream of the PyAV container `source`. `converter` is an ``av.AudioResampler`` to a packed
    format at `rate_hz`. Raise AudioError if the audio is damaged.
    """
    import av

    zero = round(measure_start_seconds(source) * rate_hz)
    end = 0
    try:
        for frame in itertools.chain(source.decode(track), (None,)):
            for converted in converter.resample(frame):
                samples = converted.to_ndarray().reshape(-1, converted.layout.nb_channels)
                at = end if converted.time is None else round(converted.time * rate_hz) - zero
                if abs(at - end) < _MAX_ROUNDING_SECONDS * rate_hz:
                    at = end
                end = at + len(samples)
                if end > 0:
                    yield max(at, 0), samples[max(-at, 0) :]
    except (av.error.FFmpegError, ValueError) as error:
        raise AudioError("the audio is damaged or truncated") from error


def fill_gaps(
    blocks: Iterable[tuple[int, npt.NDArray[Any]]], frames: int | None = None
) -> Iterator[npt.NDArray[Any]]:
    """Yield blocks without their positions, and silence in gaps between them.

    Samples after the first `frames` frames are dropped. None (the default) keeps all.
    """
    end = 0
    for at, samples in blocks:
        start = at if frames is None else min(at, frames)
        silence = np.zeros((_BLOCK_FRAMES if start > end else 0, *samples.shape[1:]), samples.dtype)
        while end < start:
            yield silence[: start - end]
            end = min(start, end + _BLOCK_FRAMES)
        # Skip samples that overlap with the block before.
        rest = samples[end - start : None if frames is None else frames - start]
        if len(rest):
            yield rest
            end += len(rest)
