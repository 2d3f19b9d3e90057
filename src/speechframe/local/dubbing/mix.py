"""Mix dubbed lines with the original audio of a media file.

The original is lowered during speech, by one constant gain with short ramps. Outside speech its samples stay
unchanged. A limiter lowers the mix briefly if it would exceed full scale.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from speechframe.audio._samples import Samples, convert_seconds_to_frames
from speechframe.audio.codec import resample
from speechframe.local.dubbing.folder import write_atomically
from speechframe.local.dubbing.media import RATE_HZ, Track
from speechframe.spec.chosen import ORIGINAL_GAIN_DB_RANGE

RAMP_SECONDS = 0.05
"""Length of the fade of the original before a lowered span, and of the fade back after the span."""
_FULL_SCALE = 32768
"""The int16 value of a sample of 1.0."""
_LOOK_AHEAD_FRAMES = RATE_HZ // 100
"""Frames that the limiter looks ahead: 10 ms."""
_MAX_FALL_DB = 20 / _LOOK_AHEAD_FRAMES
"""Largest fall of the limiter's gain in dB per frame: 20 dB within the look-ahead."""
_MAX_RISE_DB = 60 / RATE_HZ
"""Largest rise of the limiter's gain in dB per frame: 60 dB a second, slow enough not to buzz."""


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A dubbed line: a mono audio file and its start in the media file. The file is read only when needed."""

    start_s: float
    path: Path

    def read_samples(self) -> Samples:
        """Return the line at 48000 Hz, mono float32."""
        sound, rate_hz = soundfile.read(self.path, dtype="float32")
        return resample(sound, rate_hz, RATE_HZ)


def mix(
    track: Track,
    lines: Iterable[PlacedLine],
    target: Path,
    *,
    lowered: Iterable[tuple[float, float]],
    gain_db: float = ORIGINAL_GAIN_DB_RANGE.default or 0.0,
) -> None:
    """Write the mix as a WAV file (int16, 48000 Hz) with the channels and the length of the original.

    Parameters
    ----------
    track
        The original audio.
    lines
        The dubbed lines. Each is added to all channels equally.
    target
        Path of the WAV file. If an error occurs, no file appears there.
    lowered
        Start and end in seconds of the spans in which the original is lowered. They may overlap.
    gain_db
        Gain of the original in these spans.
    """
    with (
        soundfile.SoundFile(track.sound_path) as original,
        write_atomically(target) as beside,
        soundfile.SoundFile(beside, "w", RATE_HZ, original.channels, "PCM_16", format="WAV") as file,
    ):
        for block in _limit_peaks(_mix_blocks(original, lines, _compute_gain_points(lowered, gain_db))):
            whole = np.rint(block * _FULL_SCALE)
            file.write(np.clip(whole, -_FULL_SCALE, _FULL_SCALE - 1).astype(np.int16))


def _compute_gain_points(
    spans: Iterable[tuple[float, float]], gain_db: float
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the factor of the original as points to interpolate: times in seconds, and factors."""
    factor = 10 ** (gain_db / 20)
    times_s: list[float] = []
    for start_s, end_s in sorted(spans):
        if times_s and start_s - RAMP_SECONDS <= times_s[-1]:
            # The gap is too short to fade back and down again, so join the spans.
            times_s[-2:] = [max(end_s, times_s[-2]), max(end_s, times_s[-2]) + RAMP_SECONDS]
        else:
            times_s += [start_s - RAMP_SECONDS, start_s, end_s, end_s + RAMP_SECONDS]
    return [-1.0, *times_s], [1.0, *[1.0, factor, factor, 1.0] * (len(times_s) // 4)]


def _mix_blocks(
    original: soundfile.SoundFile, lines: Iterable[PlacedLine], gain: tuple[Sequence[float], Sequence[float]]
) -> Iterator[Samples]:
    """Yield the sum of original and lines in blocks of a second, float32, ``(frames, channels)``.

    Only the lines that sound in the current block are in memory.
    """
    coming = sorted(lines, key=lambda line: line.start_s, reverse=True)
    speaking: list[tuple[int, Samples]] = []
    start = 0
    for block in original.blocks(RATE_HZ, dtype="float32", always_2d=True):
        end = start + len(block)
        factors = np.interp(np.arange(start, end) / RATE_HZ, *gain).astype(np.float32)
        total: Samples = block * factors[:, None]
        while coming and convert_seconds_to_frames(coming[-1].start_s, RATE_HZ) < end:
            line = coming.pop()
            speaking.append((convert_seconds_to_frames(line.start_s, RATE_HZ), line.read_samples()))
        for at, samples in speaking:
            here = samples[max(0, start - at) : end - at]
            first = max(0, at - start)
            total[first : first + len(here)] += here[:, None]
        speaking = [(at, samples) for at, samples in speaking if at + len(samples) > end]
        start = end
        yield total


def _limit_peaks(sums: Iterator[Samples]) -> Iterator[Samples]:
    """Yield each block with its peaks limited to 1. A block waits for the next block, to look ahead."""
    held = next(sums, None)
    gain_db = 0.0
    while held is not None:
        following = next(sums, None)
        ahead = held if following is None else np.concatenate([held, following[:_LOOK_AHEAD_FRAMES]])
        peaks = np.abs(ahead)
        if gain_db == 0 and peaks.max() <= 1:
            yield held
        else:
            gains_db = _compute_gains_db(peaks.max(axis=1), gain_db)[: len(held)]
            gain_db = gains_db[-1]
            yield held * (10 ** (gains_db / 20)).astype(np.float32)[:, None]
        held = following


def _compute_gains_db(peaks: npt.NDArray[np.float32], before_db: float) -> npt.NDArray[np.float64]:
    """Return the highest gain in dB per frame that keeps peaks at or below 1 and obeys both slope limits.

    Each peak needs a certain gain. This bound rises by the allowed slope with the distance from the peak. The
    gain of a frame is the lowest bound of all peaks.

    Parameters
    ----------
    peaks
        Largest absolute sample of each frame.
    before_db
        Gain of the frame before the first.
    """
    at = np.arange(len(peaks))
    needed = -20 * np.log10(np.maximum(peaks.astype(np.float64), 1.0))
    down = np.minimum.accumulate((needed + _MAX_FALL_DB * at)[::-1])[::-1] - _MAX_FALL_DB * at
    down[0] = min(down[0], before_db + _MAX_RISE_DB)
    up: npt.NDArray[np.float64] = np.minimum.accumulate(down - _MAX_RISE_DB * at) + _MAX_RISE_DB * at
    return np.minimum(up, 0.0)
