"""How loud audio is, at a glance: cheap enough to look at every answer of a run.

Samples are looked at as they are stored, in 16-bit integers where they are
such, without a copy in floats of everything. Compressed audio that is long is
looked at in places, and as a whole only where these look wrong.
"""

import io
import struct
from dataclasses import dataclass
from functools import cache
from math import isfinite, log10
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from speechframe.audio import _containers, _flac, codec
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

__all__ = ["Levels", "levels"]

_FULL_SCALE = 32767
_LOSSY_FULL = 0.99
"""Of lossy audio: what was cut off flat comes back a little round."""
_WINDOW_FRAMES = 4096
_WHOLE_FRAMES = 4 * _WINDOW_FRAMES
_BLOCK_FRAMES = 1 << 16
_PRODUCT_SAMPLES = 8192
"""What is multiplied at once: too little for several threads to share."""
_RUN = 3
"""Samples in a row; one at full scale is a peak, three are a flat top."""
_HEARD_DB = -40.0
_FULL_DB = -0.09
_NOISE = 0.1

_WAV_PCM, _WAV_EXTENSIBLE = 1, 0xFFFE
_WAV_HEAD = struct.Struct("<4sI4s4sIHHIIHH")


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


def levels(data: bytes, *, format: Format, channels: int = 1) -> Levels:
    """Return the level of encoded audio.

    WAV, PCM, ALAW, ULAW and MP3 are looked at as a whole. Of FLAC longer than four
    of its frames (of 4096 samples as a rule) the last is decoded, and of five in
    the middle the one with most bytes; of OGG longer than 16384 samples three
    windows of 4096, the last at the end. Where these are silent, noise, or at full
    scale, everything is decoded. Not seen is what lies between and shows in
    none of them: a click, a gap, damage to a frame that was not decoded.

    Parameters
    ----------
    data
        A WAV, MP3, FLAC or OGG file, or raw samples.
    format
        What it is.
    channels
        Of raw samples; files say it themselves.

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
        return _of_ogg(data)
    if format is Format.MP3:
        # Its decoder complains on the error stream whenever it is made to seek.
        return _measured(*_read(data, "float32"), full=_LOSSY_FULL, unit=1.0)
    if format is Format.FLAC:
        return _of_flac(data)
    if format is Format.WAV:
        found = _wav_samples(data)
        if found is None:
            _containers.refuse_truncated(data, format)
            audio = codec.decode(data, format=format)
            return _measured(audio.samples.reshape(-1), audio.channels, full=1.0, unit=1.0)
        samples, channels = found
    elif format is Format.PCM:
        samples = np.frombuffer(data, "<i2", count=len(data) // 2)
    else:
        samples = _g711_table(format)[np.frombuffer(data, np.uint8)]
        return _measured(samples, channels, full=float(_g711_table(format).max()))
    return _measured(samples, channels)


class _Forward(soundfile.SoundFile):  # type: ignore[misc]  # the library is untyped
    """A file that is read once from begin to end: it need not seek to where it is after every read."""

    def seekable(self) -> bool:
        return False


def _of_flac(data: bytes) -> Levels:
    excerpt = _flac.excerpt(data)
    if excerpt is not None:
        try:
            samples, channels = _read(excerpt, "int16")
        except AudioError:
            pass  # what looked like a frame may be none: only the whole can be damaged
        else:
            seen = len(samples) / channels / _flac.total_frames(data)
            found = _measured(samples, channels, seen=seen)
            if not _looks_wrong(found):
                return found
    return _measured(*_read(data, "int16"))


def _of_ogg(data: bytes) -> Levels:
    _containers.refuse_truncated(data, Format.OGG)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            frames, channels = file.frames, file.channels
            if frames > _WHOLE_FRAMES:
                windows = [_window(file, place) for place in (1 / 3, 2 / 3, 1.0)]
                samples = np.concatenate(windows)
                # Vorbis may land a block behind where it was to seek, and so come short of the last window:
                # whether something is missing is told by the whole.
                if len(samples) == len(windows) * _WINDOW_FRAMES:
                    seen = len(samples) / frames
                    found = _measured(samples.reshape(-1), channels, full=_LOSSY_FULL, unit=1.0, seen=seen)
                    if not _looks_wrong(found):
                        return found
    except soundfile.LibsndfileError as error:
        raise AudioError("the audio is damaged or truncated") from error
    return _measured(*_read(data, "float32"), full=_LOSSY_FULL, unit=1.0)


def _window(file: soundfile.SoundFile, place: float) -> NDArray[np.float32]:
    file.seek(int((file.frames - _WINDOW_FRAMES) * place))
    window: NDArray[np.float32] = file.read(_WINDOW_FRAMES, dtype="float32", always_2d=True)
    return window


def _looks_wrong(found: Levels) -> bool:
    return found.peak_db < _HEARD_DB or found.peak_db > _FULL_DB or abs(found.correlation) < _NOISE


def _read(data: bytes, dtype: str) -> tuple[NDArray[Any], int]:
    """Return all samples, channels interleaved, and the number of channels."""
    try:
        with _Forward(io.BytesIO(data)) as file:
            claimed, channels = file.frames, file.channels
            blocks: list[NDArray[Any]] = []
            left = claimed
            # In pieces, because a header may claim more frames than memory holds.
            while left > 0:
                wanted = min(left, _BLOCK_FRAMES)
                blocks.append(file.read(wanted, dtype=dtype, always_2d=True))
                left = left - wanted if len(blocks[-1]) == wanted else 0
    except soundfile.LibsndfileError as error:
        raise AudioError("the audio is damaged, or none at all") from error
    if not blocks:
        raise AudioError("no audio: there are no samples")
    samples = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    if len(samples) < claimed:
        raise AudioError(f"the audio is truncated: {len(samples)} of {claimed} frames can be decoded")
    return samples.reshape(-1), channels


def _wav_samples(data: bytes) -> tuple[NDArray[np.int16], int] | None:
    """Return a view of the samples of a whole 16-bit WAV file and its channels; None for any other file."""
    if len(data) < _WAV_HEAD.size + 8:
        return None
    riff, _, wave, first, _, kind, channels, _, _, width, bits = _WAV_HEAD.unpack_from(data)
    plain = kind in {_WAV_PCM, _WAV_EXTENSIBLE} and (bits, width) == (16, 2 * channels) and channels
    if (riff, wave, first) != (b"RIFF", b"WAVE", b"fmt ") or not plain:
        return None
    for name, start, size, present in _containers.wav_chunks(data):
        if name == b"data":
            is_whole = present == size or size >= _containers.UNKNOWN_LENGTH
            return (np.frombuffer(data, "<i2", present // 2, start), channels) if is_whole else None
    return None


@cache
def _g711_table(format: Format) -> NDArray[np.int16]:
    """Return the sample that each byte stands for."""
    audio = codec.decode(bytes(range(256)), format=format)
    return np.asarray(np.rint(audio.samples * (_FULL_SCALE + 1)), np.int16)


def _measured(
    samples: NDArray[Any],
    channels: int,
    *,
    full: float = _FULL_SCALE,
    unit: float = 32768.0,
    seen: float = 1.0,
) -> Levels:
    if not len(samples):
        raise AudioError("no audio: there are no samples")
    peak = max(float(samples.max()), -float(samples.min()))
    power, following = _products(samples, channels)
    if not isfinite(power):
        raise AudioError("samples hold NaN or infinite values")
    return Levels(
        peak_db=_decibels((peak / unit) ** 2),
        rms_db=_decibels(power / len(samples) / unit**2),
        clipped_fraction=_flat_tops(samples, channels, full) if peak >= full else 0.0,
        correlation=following / power if power else 1.0,
        seen_fraction=min(1.0, seen),
    )


def _products(samples: NDArray[Any], channels: int) -> tuple[float, float]:
    """Return the sums of all samples times themselves, and times what follows in their channel."""
    power = following = 0.0
    for start in range(0, len(samples), _BLOCK_FRAMES):
        # With those that follow the last: they are counted in the next block.
        floats = samples[start : start + _BLOCK_FRAMES + channels].astype(np.float32, copy=False)
        later = floats[channels:]
        for first in range(0, min(len(floats), _BLOCK_FRAMES), _PRODUCT_SAMPLES):
            here = floats[first : min(first + _PRODUCT_SAMPLES, _BLOCK_FRAMES)]
            next_ones = later[first : first + len(here)]
            power += float(here.dot(here))
            following += float(next_ones.dot(here[: len(next_ones)]))
    return power, following


def _flat_tops(samples: NDArray[Any], channels: int, full: float) -> float:
    at_full = (samples >= full) | (samples <= -full)
    later = (_RUN - 1) * channels
    runs = at_full[later:] & at_full[channels:-channels] & at_full[:-later]
    return float(np.count_nonzero(runs)) / len(samples)


def _decibels(power: float) -> float:
    return 10 * log10(max(power, 1e-12))
