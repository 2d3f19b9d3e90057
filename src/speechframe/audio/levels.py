"""Measurement of the level of audio, fast enough to check every answer of a run.

16-bit samples are not converted to floats as a whole. Of long FLAC and OGG files, only two windows are
decoded at first. If the windows look wrong, the whole file is decoded.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from math import isfinite, log10
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from speechframe.audio import _headers, codec
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

_USUAL_BITS, _FULL_SCALE = 16, 32767
_FULL_SCALE_OF_16_BITS = _FULL_SCALE / (_FULL_SCALE + 1)
_FULL_SCALE_OF_LOSSY = dict.fromkeys(
    ("MPEG_LAYER_I", "MPEG_LAYER_II", "MPEG_LAYER_III", "VORBIS", "OPUS"), 0.99
)
_FULL_SCALE_BY_SUBTYPE = {"PCM_U8": 127 / 128, **_FULL_SCALE_OF_LOSSY}
"""Full scale by subtype of file, on a scale up to 1. Other subtypes have `_FULL_SCALE_OF_16_BITS`.

The largest positive integer is a little below 1. Lossy formats round off clipped peaks, so their full scale
is lower.
"""
_WINDOW_FRAMES = 4096
"""Number of frames of a window."""
_MAX_SHORT_FRAMES = 4 * _WINDOW_FRAMES
"""Files up to this number of frames are decoded completely."""
_BLOCK_SAMPLES = 1 << 16
"""Number of samples that are measured at a time."""
_PRODUCT_SAMPLES = 10_000
"""Number of samples of a dot product. OpenBLAS uses threads for longer products, which is slower."""
_LARGE_SAMPLE = 1e12
"""Larger float samples are summed in 64 bits, because 32 bits would overflow."""
_CLIPPED_RUN_SAMPLES = 3
"""Number of consecutive samples at full scale that count as clipped. Fewer samples may be a normal peak."""
_MIN_NORMAL_PEAK_DB = -40.0
_MAX_NORMAL_PEAK_DB = -0.09
"""Range of the peak in dB of windows that look normal. Other windows are silent or at full scale."""
_MIN_CORRELATION = 0.1
"""Least correlation of windows that look normal. Other windows are noise."""
_SILENT_POWER = 1e-12
"""Least power in a logarithm, which is -120 dB."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of audio.

    Attributes
    ----------
    peak_db, rms_db
        Largest and mean level in dB relative to full scale. -120 for silence.
    clipped_fraction
        Share of samples, 0 to 1, that are at full scale like the two samples before them.
    correlation
        Correlation of a sample with the next one, -1 to 1. Near 1 in voices, 0 in white noise, 1 in silence.
    seen_fraction
        Share of the samples that were measured, 0 to 1.
    """

    peak_db: float
    rms_db: float
    clipped_fraction: float
    correlation: float
    seen_fraction: float


def measure_levels(
    data: bytes, *, format: Format, channels: int = 1, most_samples: int | None = None
) -> Levels:
    """Return the level of encoded audio.

    WAV, PCM, ALAW, ULAW and MP3 are measured completely. If FLAC or OGG is longer than 16384 frames, only two
    windows of 4096 frames are decoded, in the middle and at the end. If these are silent, noise, or at full
    scale, the whole file is decoded. So a click, a gap or damage outside of the windows may be missed.

    Parameters
    ----------
    data
        A WAV, MP3, FLAC or OGG file, or raw samples.
    format
        Format of the data.
    channels
        Number of channels of raw samples (default 1). Files contain their own number.
    most_samples
        Largest number of samples to decode from a file, counted over all channels. Faults after these samples
        are not found. None (the default) has no limit. A limit saves time, because a few bytes may contain
        hours.

    Raises
    ------
    AudioError
        There is no audio, or fewer frames can be decoded than the header states.

    Examples
    --------
    >>> tone = 0.1 * np.sin(np.arange(8000) / 4, dtype=np.float32)
    >>> found = measure_levels(codec.encode(tone, 8000, format=Format.WAV), format=Format.WAV)
    >>> round(found.peak_db), round(found.rms_db), found.clipped_fraction
    (-20, -23, 0.0)
    """
    if format is Format.OGG:
        _headers.refuse_truncated(data, format)
    if format in {Format.OGG, Format.FLAC}:
        return _measure_windows(data, format, most_samples)
    if format is Format.MP3:
        return _measure_file(data, format, most_samples)
    if format is Format.WAV:
        wav = _headers.read_plain_wav(data)
        if wav is None or wav.bits != _USUAL_BITS:
            codec.inspect_audio(data, format=format)  # raises if the file cannot be read
            _headers.refuse_truncated(data, format)
            return _measure_file(data, format, most_samples)
        samples, channels = np.frombuffer(data, "<i2", wav.size // 2, wav.start), wav.channels
    elif format is Format.PCM:
        samples = np.frombuffer(data, "<i2", count=len(data) // 2)
    else:
        samples = _make_g711_table(format)[np.frombuffer(data, np.uint8)]
        return _measure_blocks(
            _split_blocks(samples, channels), channels, full=float(_make_g711_table(format).max())
        )
    return _measure_blocks(_split_blocks(samples, channels), channels)


def _measure_windows(data: bytes, format: Format, most_samples: int | None) -> Levels:
    """Return the level of two windows of a file. If it is short or the windows look wrong, measure it all."""
    try:
        with codec.open_encoded(data, format) as file:
            frames, channels = file.frames, file.channels
            if frames > _MAX_SHORT_FRAMES:
                windows = []
                for share in (1 / 2, 1.0):
                    file.seek(int((frames - _WINDOW_FRAMES) * share))
                    windows.append(file.read(_WINDOW_FRAMES, dtype="float32", always_2d=True))
                samples = np.concatenate(windows)
                # After an inexact seek, the last window may be short. Then measure the whole file, which
                # finds missing samples.
                if len(samples) == len(windows) * _WINDOW_FRAMES:
                    full = _FULL_SCALE_BY_SUBTYPE.get(file.subtype, _FULL_SCALE_OF_16_BITS)
                    seen = [samples.reshape(-1)]
                    found = _measure_blocks(seen, channels, full=full, unit=1.0, claimed=frames * channels)
                    if (
                        _MIN_NORMAL_PEAK_DB <= found.peak_db <= _MAX_NORMAL_PEAK_DB
                        and abs(found.correlation) >= _MIN_CORRELATION
                    ):
                        return found
    except soundfile.LibsndfileError as error:
        raise AudioError("the audio is damaged or truncated") from error
    return _measure_file(data, format, most_samples)


def _measure_file(data: bytes, format: Format, most_samples: int | None) -> Levels:
    """Return the level of a file, decoded from its start to its end or up to `most_samples`."""
    try:
        with codec.open_encoded(data, format) as file:
            claimed, channels = file.frames, file.channels
            most = claimed if most_samples is None else min(claimed, max(1, most_samples // channels))
            full = _FULL_SCALE_BY_SUBTYPE.get(file.subtype, _FULL_SCALE_OF_16_BITS)
            return _measure_blocks(
                _read_samples(file, most), channels, full=full, unit=1.0, claimed=claimed * channels
            )
    except soundfile.LibsndfileError as error:
        raise AudioError("the audio is damaged, or the data is not audio") from error


def _read_samples(file: soundfile.SoundFile, most: int) -> Iterator[NDArray[np.float32]]:
    """Yield samples in pieces, because the samples of a file may need more memory than there is."""
    at_once = max(1, _BLOCK_SAMPLES // file.channels)
    for first in range(0, most, at_once):
        wanted = min(at_once, most - first)
        block = file.read(wanted, dtype="float32", always_2d=True)
        if len(block) < wanted:
            decoded = first + len(block)
            raise AudioError(f"the audio is truncated: {decoded} of {file.frames} frames can be decoded")
        yield block.reshape(-1)


@cache
def _make_g711_table(format: Format) -> NDArray[np.int16]:
    """Return the 16-bit sample for each of the 256 bytes of ALAW or ULAW."""
    audio = codec.decode(bytes(range(256)), format=format)
    return np.asarray(np.rint(audio.samples * (_FULL_SCALE + 1)), np.int16)


def _split_blocks(samples: NDArray[Any], channels: int) -> list[NDArray[Any]]:
    at_once = max(1, _BLOCK_SAMPLES // channels) * channels
    return [samples[first : first + at_once] for first in range(0, len(samples), at_once)]


def _measure_blocks(
    blocks: Iterable[NDArray[Any]],
    channels: int,
    *,
    full: float = _FULL_SCALE,
    unit: float = _FULL_SCALE + 1.0,
    claimed: int | None = None,
) -> Levels:
    """Return the level of consecutive blocks of samples.

    Blocks have whole frames with interleaved channels. `full` is the value from which a sample is at full
    scale. `unit` is the value of 0 dB. `claimed` is the number of samples of the whole audio.
    """
    largest = power = next_products = 0.0
    clipped = count = 0
    before = None  # the last samples of the block before, for clipped samples across blocks
    for block in blocks:
        peak = max(float(block.max()), -float(block.min()))
        if not isfinite(peak):
            raise AudioError("samples have NaN or infinite values")
        largest = max(largest, peak)
        floats = block.astype(np.float32 if peak < _LARGE_SAMPLE else np.float64, copy=False)
        # Sum the products of samples with themselves, and with the next sample of the same channel.
        later = floats[channels:]
        for first in range(0, len(floats), _PRODUCT_SAMPLES):
            here = floats[first : first + _PRODUCT_SAMPLES]
            next_ones = later[first : first + len(here)]
            power += float(here.dot(here))
            next_products += float(next_ones.dot(here[: len(next_ones)]))
        joined = block
        if before is not None:
            ends = before[-channels:].astype(np.float64)
            begins = floats[:channels]
            next_products += float(begins.dot(ends[: len(begins)]))
            joined = np.concatenate((before, block)) if peak >= full else block
        if peak >= full:
            clipped += _count_clipped_samples(joined, channels, full)
        before = block[-(_CLIPPED_RUN_SAMPLES - 1) * channels :]
        count += len(block)
    if not count:
        raise AudioError("no audio: there are no samples")
    return Levels(
        peak_db=10 * log10(max(_SILENT_POWER, (largest / unit) ** 2)),
        rms_db=10 * log10(max(_SILENT_POWER, power / count / unit**2)),
        clipped_fraction=clipped / count,
        correlation=next_products / power if power else 1.0,
        seen_fraction=count / (claimed or count),
    )


def _count_clipped_samples(samples: NDArray[Any], channels: int, full: float) -> int:
    at_full = (samples >= full) | (samples <= -full)
    later = (_CLIPPED_RUN_SAMPLES - 1) * channels
    runs = at_full[later:] & at_full[channels:-channels] & at_full[:-later]
    return int(np.count_nonzero(runs))
