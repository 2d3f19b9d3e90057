"""How loud audio is, at a glance: cheap enough to look at every answer of a run.

Samples are looked at as they are stored, in 16-bit integers where they are
such, without a copy in floats of everything. Compressed audio that is long is
looked at in places, and as a whole only where these look wrong.
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

_BITS, _FULL_SCALE = 16, 32767
_LARGEST_OF_16_BITS = _FULL_SCALE / (_FULL_SCALE + 1)
_LOSSY = dict.fromkeys(("MPEG_LAYER_I", "MPEG_LAYER_II", "MPEG_LAYER_III", "VORBIS", "OPUS"), 0.99)
_FULL = {"PCM_U8": 127 / 128, **_LOSSY}
"""What counts as full scale in files that are decoded to numbers up to 1: the largest there can be, for there
is room for one more below zero than above; of lossy audio less, as what was cut off flat comes back a little
round. Of all others it is the largest number of 16 bits."""
_WINDOW_FRAMES = 4096
_WHOLE_FRAMES = 4 * _WINDOW_FRAMES
_BLOCK_SAMPLES = 1 << 16
_PRODUCT_SAMPLES = 10_000
"""What is multiplied at once: OpenBLAS shares more among threads, which cost more than they save."""
_LARGE = 1e12
"""Samples in floats may be larger; of these the sums of products do not fit into 32 bits."""
_RUN = 3
"""Samples in a row; one at full scale is a peak, three are a flat top."""
_HEARD_DB = -40.0
_FULL_DB = -0.09
_NOISE = 0.1
_SILENT_POWER = 1e-12


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of audio.

    Parameters
    ----------
    peak_db, rms_db
        Largest and mean level in decibels below full scale; -120 for total silence.
    clipped_fraction
        Share of samples that are, with the two before them, at full scale: 0 to 1.
    correlation
        How much a sample says about the next one, -1 to 1: near 1 in voices, 0 in white noise, 1 in silence.
    seen_fraction
        Share of the samples that were looked at.
    """

    peak_db: float
    rms_db: float
    clipped_fraction: float
    correlation: float
    seen_fraction: float


def levels(data: bytes, *, format: Format, channels: int = 1, most_samples: int | None = None) -> Levels:
    """Return the level of encoded audio.

    WAV, PCM, ALAW, ULAW and MP3 are looked at as a whole. Of FLAC and OGG longer
    than 16384 frames two windows of 4096 are decoded, in the middle and at the end.
    Where these are silent, noise, or at full scale, everything is decoded. Not seen
    is what lies between and shows in none of them: a click, a gap, damage to a part
    that was not decoded. However long the audio is, no more than a block of it is
    held at a time.

    Parameters
    ----------
    data
        A WAV, MP3, FLAC or OGG file, or raw samples.
    format
        What it is.
    channels
        Of raw samples; files say it themselves.
    most_samples
        How many samples of a file are decoded in a row at most, those of all channels counted; what comes
        after them is not seen, nor whether it comes. None for all: a few bytes can stand for hours.

    Raises
    ------
    AudioError
        No audio, or audio that does not decode as far as its header says.

    Examples
    --------
    >>> tone = 0.1 * np.sin(np.arange(8000) / 4, dtype=np.float32)
    >>> found = levels(codec.encode(tone, 8000, format=Format.WAV), format=Format.WAV)
    >>> round(found.peak_db), round(found.rms_db), found.clipped_fraction
    (-20, -23, 0.0)
    """
    if format is Format.OGG:
        _headers.refuse_truncated(data, format)
    if format in {Format.OGG, Format.FLAC}:
        return _in_places(data, format, most_samples)
    if format is Format.MP3:
        return _of_file(data, format, most_samples)
    if format is Format.WAV:
        wav = _headers.plain_wav(data)
        if wav is None or wav.bits != _BITS:
            codec.inspect(data, format=format)  # refuses what is not read here
            _headers.refuse_truncated(data, format)
            return _of_file(data, format, most_samples)
        samples, channels = np.frombuffer(data, "<i2", wav.size // 2, wav.start), wav.channels
    elif format is Format.PCM:
        samples = np.frombuffer(data, "<i2", count=len(data) // 2)
    else:
        samples = _g711_table(format)[np.frombuffer(data, np.uint8)]
        return _measured(_in_blocks(samples, channels), channels, full=float(_g711_table(format).max()))
    return _measured(_in_blocks(samples, channels), channels)


def _in_places(data: bytes, format: Format, most_samples: int | None) -> Levels:
    """Return the level of two windows of a long file; where these look wrong, or it is short, of all."""
    try:
        with codec.opened(data, format) as file:
            frames, channels = file.frames, file.channels
            if frames > _WHOLE_FRAMES:
                windows = []
                for place in (1 / 2, 1.0):
                    file.seek(int((frames - _WINDOW_FRAMES) * place))
                    windows.append(file.read(_WINDOW_FRAMES, dtype="float32", always_2d=True))
                samples = np.concatenate(windows)
                # A seek may land a block behind where it was to, and so come short of the last window: the
                # whole tells whether something is missing.
                if len(samples) == len(windows) * _WINDOW_FRAMES:
                    full = _FULL.get(file.subtype, _LARGEST_OF_16_BITS)
                    seen = [samples.reshape(-1)]
                    found = _measured(seen, channels, full=full, unit=1.0, claimed=frames * channels)
                    if _HEARD_DB <= found.peak_db <= _FULL_DB and abs(found.correlation) >= _NOISE:
                        return found
    except soundfile.LibsndfileError as error:
        raise AudioError("the audio is damaged or truncated") from error
    return _of_file(data, format, most_samples)


def _of_file(data: bytes, format: Format, most_samples: int | None) -> Levels:
    """Return the level of a file that is decoded from its beginning, to its end or as far as told."""
    try:
        with codec.opened(data, format) as file:
            claimed, channels = file.frames, file.channels
            most = claimed if most_samples is None else min(claimed, max(1, most_samples // channels))
            full = _FULL.get(file.subtype, _LARGEST_OF_16_BITS)
            return _measured(_decoded(file, most), channels, full=full, unit=1.0, claimed=claimed * channels)
    except soundfile.LibsndfileError as error:
        raise AudioError("the audio is damaged, or none at all") from error


def _decoded(file: soundfile.SoundFile, most: int) -> Iterator[NDArray[np.float32]]:
    """Yield samples piece by piece: a file may claim, or unpack to, more frames than memory holds."""
    at_once = max(1, _BLOCK_SAMPLES // file.channels)
    for first in range(0, most, at_once):
        wanted = min(at_once, most - first)
        block = file.read(wanted, dtype="float32", always_2d=True)
        if len(block) < wanted:
            decoded = first + len(block)
            raise AudioError(f"the audio is truncated: {decoded} of {file.frames} frames can be decoded")
        yield block.reshape(-1)


@cache
def _g711_table(format: Format) -> NDArray[np.int16]:
    """Return the sample that each byte stands for."""
    audio = codec.decode(bytes(range(256)), format=format)
    return np.asarray(np.rint(audio.samples * (_FULL_SCALE + 1)), np.int16)


def _in_blocks(samples: NDArray[Any], channels: int) -> list[NDArray[Any]]:
    at_once = max(1, _BLOCK_SAMPLES // channels) * channels
    return [samples[first : first + at_once] for first in range(0, len(samples), at_once)]


def _measured(
    blocks: Iterable[NDArray[Any]],
    channels: int,
    *,
    full: float = _FULL_SCALE,
    unit: float = _FULL_SCALE + 1.0,
    claimed: int | None = None,
) -> Levels:
    """Return the level of blocks of samples, each beside the end of the one before it.

    Blocks are whole frames, channels interleaved. `full` is what counts as full scale, `unit` the number that
    stands for 1, `claimed` how many samples there are in all.
    """
    highest = power = following = 0.0
    flat = count = 0
    before = None  # the samples before the next: as many as a flat top needs to be one
    for block in blocks:
        peak = max(float(block.max()), -float(block.min()))
        if not isfinite(peak):
            raise AudioError("samples hold NaN or infinite values")
        highest = max(highest, peak)
        floats = block.astype(np.float32 if peak < _LARGE else np.float64, copy=False)
        # Samples times themselves, and times what follows in their channel.
        later = floats[channels:]
        for first in range(0, len(floats), _PRODUCT_SAMPLES):
            here = floats[first : first + _PRODUCT_SAMPLES]
            next_ones = later[first : first + len(here)]
            power += float(here.dot(here))
            following += float(next_ones.dot(here[: len(next_ones)]))
        joined = block
        if before is not None:
            ends = before[-channels:].astype(np.float64)
            begins = floats[:channels]
            following += float(begins.dot(ends[: len(begins)]))
            joined = np.concatenate((before, block)) if peak >= full else block
        if peak >= full:
            flat += _flat_tops(joined, channels, full)
        before = block[-(_RUN - 1) * channels :]
        count += len(block)
    if not count:
        raise AudioError("no audio: there are no samples")
    return Levels(
        peak_db=10 * log10(max(_SILENT_POWER, (highest / unit) ** 2)),
        rms_db=10 * log10(max(_SILENT_POWER, power / count / unit**2)),
        clipped_fraction=flat / count,
        correlation=following / power if power else 1.0,
        seen_fraction=count / (claimed or count),
    )


def _flat_tops(samples: NDArray[Any], channels: int, full: float) -> int:
    at_full = (samples >= full) | (samples <= -full)
    later = (_RUN - 1) * channels
    runs = at_full[later:] & at_full[channels:-channels] & at_full[:-later]
    return int(np.count_nonzero(runs))
