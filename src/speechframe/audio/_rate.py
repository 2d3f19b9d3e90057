"""Conversion to another sample rate in pieces, so that long audio is in memory at only one rate."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from speechframe.audio._samples import Samples, convert_seconds_to_frames, fit_length
from speechframe.errors import AudioError


class StreamResampler:
    """Resampler of a stream. The joined output is the same as the output for the whole audio at once."""

    def __init__(self, input_rate_hz: int, output_rate_hz: int) -> None:
        self._rates_hz = input_rate_hz, output_rate_hz
        self._stream: Any = None
        self._shape: tuple[int, ...] = ()
        self.frames_in = self._frames_out = 0

    def add(self, samples: Samples) -> Samples:
        """Convert samples, and return the output that does not depend on later samples."""
        if not self.frames_in:
            self._open(samples)
        elif samples.shape[1:] != self._shape:
            raise AudioError("the number of channels of a stream must not change")
        self.frames_in += len(samples)
        return self._convert(samples, last=False)

    def finish(self) -> Samples:
        """Return the remaining output. The total output then has exactly the length of the input."""
        missing = self._count_output_frames() - self._frames_out
        return fit_length(self._convert(np.zeros((0, *self._shape), np.float32), last=True), missing)

    def _open(self, samples: Samples) -> None:
        self._shape = samples.shape[1:]
        rate_in_hz, rate_out_hz = self._rates_hz
        if rate_in_hz == rate_out_hz:
            return
        try:
            import soxr
        except ModuleNotFoundError as error:
            raise AudioError("soxr is needed to resample: pip install 'speechframe[local]'") from error
        self._stream = soxr.ResampleStream(rate_in_hz, rate_out_hz, *(self._shape or (1,)), dtype="float32")

    def _convert(self, samples: Samples, *, last: bool) -> Samples:
        if self._stream is None:
            changed = samples
        else:
            # In total, return no more frames than the input so far has at the output rate.
            converted = self._stream.resample_chunk(np.ascontiguousarray(samples), last=last)
            changed = converted[: self._count_output_frames() - self._frames_out]
        self._frames_out += len(changed)
        return changed

    def _count_output_frames(self) -> int:
        rate_in_hz, rate_out_hz = self._rates_hz
        return max(1, convert_seconds_to_frames(self.frames_in / rate_in_hz, rate_out_hz))


def resample_in_blocks(
    samples: Samples, rates_hz: tuple[int, int], frames: int, size: int
) -> Iterator[Samples]:
    """Yield samples at another rate in blocks of `size` frames, in total exactly `frames` frames.

    Further output is dropped, and missing output is silence. `rates_hz` has the input and the output rate.
    `size` and `frames` count frames at the output rate. The last block may be shorter. `samples` must have at
    least one frame.
    """
    resampler = StreamResampler(*rates_hz)

    def convert_and_pad() -> Iterator[Samples]:
        for start in range(0, len(samples), size):
            yield resampler.add(samples[start : start + size])
        yield resampler.finish()
        while True:
            yield np.zeros((size, *samples.shape[1:]), np.float32)

    waiting, left = samples[:0], frames
    for some in convert_and_pad():
        waiting = np.concatenate([waiting, some])
        while len(waiting) >= min(size, left):
            yield waiting[: min(size, left)]
            if left <= size:
                return
            left -= size
            waiting = waiting[size:]
