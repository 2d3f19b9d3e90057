"""Conversion of samples to bytes and back, in seven formats (sections 2.1 and 2.2 of the service document).

Equal samples give equal bytes, because files contain no random values and no dates. Raw formats have no
header. PCM is signed 16-bit little-endian. ALAW and ULAW are G.711 bytes, mono at 8000 Hz.
"""

import errno
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import soundfile
from numpy.typing import ArrayLike, NDArray

from speechframe.audio import _headers, _mp3, _ogg
from speechframe.audio._rate import StreamResampler, resample_in_blocks
from speechframe.audio._samples import Samples, average_channels, check_samples, convert_seconds_to_frames
from speechframe.errors import AudioError
from speechframe.spec.chosen import RAW_G711_RATE_HZ
from speechframe.spec.speech import ChannelType, Format
from speechframe.writing.words import format_count

# Names of other modules that callers import from here.
__all__ = ["Samples", "convert_seconds_to_frames"]

PEAK_CEILING = 0.99
"""Highest peak in a written file. Louder audio is reduced as a whole, so that no sample is clipped."""

MAX_DECODED_BYTES = 1 << 30
"""Largest size of decoded samples in bytes, for an hour and a half of mono at 44100 Hz."""

_SUBTYPES_BY_FORMAT = {
    Format.WAV: "PCM_16",
    Format.FLAC: "PCM_16",
    Format.MP3: "MPEG_LAYER_III",
    Format.OGG: "VORBIS",  # Opus has no rate of 44100 Hz
    Format.PCM: "PCM_16",
    Format.ALAW: "ALAW",
    Format.ULAW: "ULAW",
}
_RAW_FORMATS = frozenset({Format.PCM, Format.ALAW, Format.ULAW})
_G711_FORMATS = frozenset({Format.ALAW, Format.ULAW})
_FULL_SCALE = 32767
_BLOCK_FRAMES = 1 << 16
"""Number of frames that are read or written at a time, which limits the memory."""
_MAX_KEPT_FRAMES = 1 << 21
"""Audio of up to this many frames (44 s at 48000 Hz) is kept in memory at the output rate."""
ALLOWED_RATES_HZ = range(1000, 384_001)
_MAX_CHANNELS = 8


@dataclass(frozen=True, eq=False, slots=True)
class Audio:
    """Decoded samples (float32 in [-1, 1], ``(frames,)`` or ``(frames, channels)``) and their rate in Hz."""

    samples: Samples
    sample_rate_hz: int

    @property
    def channels(self) -> int:
        """Number of channels."""
        return 1 if self.samples.ndim == 1 else int(self.samples.shape[1])

    @property
    def audio_seconds(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.sample_rate_hz


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """Content of the headers of a file: format, sample rate in Hz, channels and length in seconds."""

    format: Format
    sample_rate_hz: int
    channels: int
    audio_seconds: float


class SequentialSoundFile(soundfile.SoundFile):  # type: ignore[misc]  # the library is untyped
    """A SoundFile that is read once, block after block.

    After each read of a seekable file, soundfile seeks to the current position. This takes time and damages
    MP3. An MP3 frame needs data of earlier frames, so each block would begin with noise, and the decoder
    would print a message.
    """

    def seekable(self) -> bool:
        """Return False, so that soundfile does not seek after a read."""
        return False


def open_encoded(data: bytes, found: Format) -> SequentialSoundFile:
    """Open a file for decoding, with its correct length even if its header has no length.

    Raise AudioError if the headers show a fault, such as a truncated MP3 file. Raise
    soundfile.LibsndfileError if the decoder cannot read the file.
    """
    mp3 = _mp3.read_mp3(data) if found is Format.MP3 else None
    return SequentialSoundFile(
        io.BytesIO(_headers.write_length(data, found) if mp3 is None else mp3.make_decodable(data))
    )


def get_file_type(format: Format) -> dict[str, str]:
    """Return the arguments ``format`` and ``subtype`` of :class:`soundfile.SoundFile` for a format."""
    container = "RAW" if format in _RAW_FORMATS else format.value
    return {"format": container, "subtype": _SUBTYPES_BY_FORMAT[format]}


def get_forced_shape(
    format: Format,
    channel_type: ChannelType = ChannelType.MONO,
    output_rate_hz: int = RAW_G711_RATE_HZ,
) -> tuple[ChannelType, int]:
    """Return the channel type and rate in Hz of a file. ALAW and ULAW are always mono at 8000 Hz.

    All other formats keep the given channel type and rate.

    Examples
    --------
    >>> get_forced_shape(Format.ULAW, ChannelType.STEREO, 44100)
    (<ChannelType.MONO: 'MONO'>, 8000)
    """
    return (ChannelType.MONO, RAW_G711_RATE_HZ) if format in _G711_FORMATS else (channel_type, output_rate_hz)


def encode(
    samples: ArrayLike,
    sample_rate_hz: int,
    *,
    format: Format,
    channel_type: ChannelType = ChannelType.MONO,
    output_rate_hz: int | None = None,
    audio_seconds: float | None = None,
) -> bytes:
    """Encode samples as a file. They are resampled, and mixed to mono or doubled to stereo, if necessary.

    Samples above :data:`PEAK_CEILING` are not clipped. The whole audio is reduced instead.

    Parameters
    ----------
    samples
        float32 in [-1, 1], shape ``(frames,)`` or ``(frames, channels)``.
    sample_rate_hz
        Sample rate of `samples` in Hz.
    format
        One of the seven formats. ALAW and ULAW always give mono at 8000 Hz (see :func:`get_forced_shape`).
    channel_type
        MONO mixes the channels. STEREO doubles a single channel.
    output_rate_hz
        Sample rate of the result in Hz (default: `sample_rate_hz`).
    audio_seconds
        Exact length of the result in seconds (default: the length of `samples`). Longer audio is cut, and
        shorter audio is filled with silence.

    Raises
    ------
    AudioError
        The samples are empty or invalid, or the format does not support the rate.

    Examples
    --------
    >>> data = encode(np.zeros(2205, np.float32), 22050, format=Format.WAV, output_rate_hz=8000)
    >>> inspect_audio(data)
    AudioInfo(format=<Format.WAV: 'WAV'>, sample_rate_hz=8000, channels=1, audio_seconds=0.1)
    """
    buffer = io.BytesIO()
    write_encoded(
        buffer,
        samples,
        sample_rate_hz,
        format=format,
        channel_type=channel_type,
        output_rate_hz=output_rate_hz,
        audio_seconds=audio_seconds,
    )
    return buffer.getvalue()


def write_encoded(
    file: BinaryIO,
    samples: ArrayLike,
    sample_rate_hz: int,
    *,
    format: Format,
    channel_type: ChannelType = ChannelType.MONO,
    output_rate_hz: int | None = None,
    audio_seconds: float | None = None,
) -> None:
    """Encode samples into an open file, as :func:`encode`, in pieces that need little memory.

    Parameters
    ----------
    file
        Empty file, open for reading and writing bytes. The function does not close it.
    samples, sample_rate_hz, format, channel_type, output_rate_hz, audio_seconds
        As in :func:`encode`.

    Raises
    ------
    AudioError
        As in :func:`encode`. The file may then contain some bytes.

    Examples
    --------
    >>> file = io.BytesIO()
    >>> write_encoded(file, np.zeros(800, np.float32), 8000, format=Format.PCM)
    >>> len(file.getvalue())
    1600
    """
    channel_type, rate_hz = get_forced_shape(format, channel_type, output_rate_hz or sample_rate_hz)
    # Keep the channels if their number is correct. Otherwise mix them to one channel, which is repeated
    # later.
    array, channels = np.asarray(samples), channel_type.channels
    given = (
        check_samples(array) if channels > 1 and array.shape[1:] == (channels,) else average_channels(array)
    )
    _refuse_rates(sample_rate_hz, rate_hz)
    seconds = len(given) / sample_rate_hz if audio_seconds is None else audio_seconds
    frames = max(1, convert_seconds_to_frames(seconds, rate_hz))

    def iter_resampled_blocks() -> Iterator[Samples]:
        return resample_in_blocks(given, (sample_rate_hz, rate_hz), frames, _BLOCK_FRAMES)

    # The peak must be known before writing. So long audio is resampled twice, and short audio is kept.
    kept = list(iter_resampled_blocks()) if frames <= _MAX_KEPT_FRAMES else None
    peak = max(np.abs(block).max() for block in kept or iter_resampled_blocks())
    gain = np.float32(PEAK_CEILING / peak if peak > PEAK_CEILING else 1.0)
    blocks = kept or iter_resampled_blocks()
    # Lossy encoders get floats, because libsndfile 1.2 damages interleaved integers for MP3.
    lossy = format in {Format.MP3, Format.OGG}
    scaled = (
        block * gain if lossy else np.rint(block * (gain * _FULL_SCALE)).astype("<i2") for block in blocks
    )
    _write_blocks(file, scaled, rate_hz, format, channels)


def decode(
    data: bytes,
    *,
    format: Format | None = None,
    sample_rate_hz: int | None = None,
    channels: int = 1,
) -> Audio:
    """Decode bytes of any of the seven formats.

    Parameters
    ----------
    data
        A WAV, MP3, FLAC or OGG file, or raw samples.
    format
        Required for raw samples (PCM, ALAW, ULAW), which have no header. For a file, the expected format.
    sample_rate_hz, channels
        Rate and number of channels of raw samples. PCM requires the rate. ALAW and ULAW have 8000 Hz by
        default. The default is mono. Files contain their own values.

    Raises
    ------
    AudioError
        There are no bytes or no samples, the file does not have the format `format`, or it is truncated.

    Examples
    --------
    >>> decode(bytes(8000), format=Format.ULAW).audio_seconds
    1.0
    """
    if format is not None and format in _RAW_FORMATS:
        opened_file = _open_raw(data, format, sample_rate_hz, channels)
    else:
        opened_file = _open_file(data, _headers.recognise_format(data, format))
    with opened_file as file:
        try:
            blocks = list(_read_blocks(file))
        except soundfile.LibsndfileError as error:
            raise AudioError(f"the {file.format} data is damaged or truncated") from error
        samples = np.concatenate(blocks) if blocks else np.zeros((0, file.channels), np.float32)
        if len(samples) < file.frames:
            raise AudioError(
                f"the {file.format} file is truncated: it has {len(samples)} of {file.frames} frames"
            )
        if not len(samples):
            raise AudioError(f"no audio: the {file.format} file has no samples")
        return Audio(check_samples(samples[:, 0] if file.channels == 1 else samples), file.samplerate)


def convert_container(data: bytes, source: Format, target: Format) -> bytes | None:
    """Return a WAV or FLAC file of 16 bits in the other of these formats, with the same samples.

    Return None if the samples do not have 16 bits, or if a format is another one.

    Raises
    ------
    AudioError
        The file is damaged or truncated, or has no samples.
    """
    if not {source, target} <= {Format.WAV, Format.FLAC}:
        return None
    with _open_file(data, source) as file:
        if file.subtype != "PCM_16":
            return None
        try:
            samples = file.read(file.frames, dtype="int16")
        except soundfile.LibsndfileError as error:
            raise AudioError(f"the {file.format} data is damaged or truncated") from error
        if not len(samples) == file.frames > 0:
            raise AudioError(f"the {file.format} file has {len(samples)} of {file.frames} frames")
        written = io.BytesIO()
        _write_blocks(written, [samples], file.samplerate, target, file.channels)
        return written.getvalue()


def inspect_audio(
    data: bytes,
    *,
    format: Format | None = None,
    sample_rate_hz: int | None = None,
    channels: int = 1,
) -> AudioInfo:
    """Return format, rate, channels and length of a file or of raw samples, without decoding them.

    Parameters and errors are those of :func:`decode`. Truncated files and damaged OGG pages raise an error.
    Only :func:`decode` finds damaged samples of WAV, MP3 and FLAC.

    Examples
    --------
    >>> inspect_audio(bytes(4000), format=Format.ALAW).audio_seconds
    0.5
    """
    if format is not None and format in _RAW_FORMATS:
        rate_hz, frame_bytes = _read_raw_shape(data, format, sample_rate_hz, channels)
        return AudioInfo(format, rate_hz, channels, len(data) // frame_bytes / rate_hz)
    found = _headers.recognise_format(data, format)
    shape = _headers.read_shape(data, found)
    if shape is None:
        with _open_file(data, found) as file:
            shape = _headers.HeaderFacts(file.samplerate, file.channels, file.frames)
    else:
        _refuse_unusual_shape(shape.sample_rate_hz, shape.channels)
    return AudioInfo(found, shape.sample_rate_hz, shape.channels, shape.frames / shape.sample_rate_hz)


def write_length(data: bytes) -> bytes:
    """Return a WAV or FLAC file with its length in its header.

    The header of a stream is written before the length is known, but many readers need the length. Other
    files, and files whose header has the length, are returned unchanged.

    Raises
    ------
    AudioError
        There are no bytes, or the bytes are not a WAV, FLAC, MP3 or OGG file.

    Examples
    --------
    >>> from speechframe.audio.streams import StreamEncoder
    >>> encoder = StreamEncoder(Format.WAV, ChannelType.MONO, 8000)
    >>> streamed = encoder.add(np.zeros(800, np.float32)) + encoder.finish()
    >>> write_length(streamed) == encode(np.zeros(800, np.float32), 8000, format=Format.WAV)
    True
    """
    return _headers.write_length(data, _headers.recognise_format(data))


def resample(samples: ArrayLike, rate_in_hz: int, rate_out_hz: int) -> Samples:
    """Resample samples. The length in seconds stays the same, rounded to a frame.

    Raises
    ------
    AudioError
        The samples are invalid, a rate is outside 1000 to 384000 Hz, or soxr is needed and not installed.

    Examples
    --------
    >>> resample(np.zeros(22050, np.float32), 22050, 8000).shape
    (8000,)
    """
    array = check_samples(samples)
    _refuse_rates(rate_in_hz, rate_out_hz)
    rate = StreamResampler(rate_in_hz, rate_out_hz)
    return np.concatenate([rate.add(array), rate.finish()])


def _refuse_rates(*rates_hz: int) -> None:
    for rate_hz in rates_hz:
        if rate_hz not in ALLOWED_RATES_HZ:
            raise AudioError(f"the sample rate {rate_hz} Hz is not possible. Allowed: 1000 to 384000.")


def _write_blocks(
    file: BinaryIO, blocks: Iterable[NDArray[np.int16] | Samples], rate_hz: int, format: Format, channels: int
) -> None:
    """Write blocks of samples to a file in a format. A mono block is repeated in each channel."""
    shaped = (
        np.repeat(block[:, None], channels, axis=1) if channels > block.ndim else block for block in blocks
    )
    if format is Format.PCM:
        file.writelines(block.tobytes() for block in shaped)
        return
    # Write OGG to memory first, because its pages are rewritten at the end. OGG files are small.
    target = io.BytesIO() if format is Format.OGG else file
    shape = {"samplerate": rate_hz, "channels": channels, **get_file_type(format)}
    try:
        with soundfile.SoundFile(target, "w", **shape) as encoder:
            # Write in blocks, because the Vorbis encoder overflows its stack on minutes of audio at once.
            for block in shaped:
                encoder.write(block)
    except (soundfile.LibsndfileError, AssertionError):  # soundfile asserts that all frames were written
        try:
            soundfile.SoundFile(io.BytesIO(), "w", **shape).close()
        except soundfile.LibsndfileError as error:
            raise AudioError(
                f"{format} cannot have {format_count(channels, 'channel')} at {rate_hz} Hz"
            ) from error
        # The encoder works in memory, so the system refused to write. soundfile does not report the reason.
        raise OSError(errno.ENOSPC, "the audio cannot be written, the disk may be full") from None
    if isinstance(target, io.BytesIO) and target is not file:
        file.write(_ogg.rewrite_serial(target.getvalue()))


def _open_file(data: bytes, found: Format) -> soundfile.SoundFile:
    _headers.refuse_truncated(data, found)
    try:
        file = open_encoded(data, found)
    except soundfile.LibsndfileError as error:
        raise AudioError(f"the bytes begin like {found}, but no audio can be read from them") from error
    try:
        _refuse_unusual_shape(file.samplerate, file.channels)
    except AudioError:
        file.close()
        raise
    return file


def _refuse_unusual_shape(rate_hz: int, channels: int) -> None:
    if rate_hz not in ALLOWED_RATES_HZ or not 0 < channels <= _MAX_CHANNELS:
        raise AudioError(
            f"{channels} channels at {rate_hz} Hz cannot be read. "
            f"Allowed: 1 to {_MAX_CHANNELS} channels at {ALLOWED_RATES_HZ[0]} to {ALLOWED_RATES_HZ[-1]} Hz."
        )


def _open_raw(data: bytes, asked: Format, sample_rate_hz: int | None, channels: int) -> soundfile.SoundFile:
    rate_hz, _ = _read_raw_shape(data, asked, sample_rate_hz, channels)
    return SequentialSoundFile(
        io.BytesIO(data),
        samplerate=rate_hz,
        channels=channels,
        **get_file_type(asked),
        endian="LITTLE",
    )


def _read_raw_shape(data: bytes, asked: Format, sample_rate_hz: int | None, channels: int) -> tuple[int, int]:
    """Return the sample rate in Hz and the bytes of a frame of raw samples, after a check of the data."""
    _headers.refuse_container(data, asked)
    if sample_rate_hz is None:
        if asked is Format.PCM:
            raise AudioError("raw PCM has no header with its sample rate. Give sample_rate_hz.")
        sample_rate_hz = RAW_G711_RATE_HZ
    frame_bytes = channels * (2 if asked is Format.PCM else 1)
    if len(data) % frame_bytes:
        raise AudioError(f"the {asked} data is truncated: {len(data)} bytes in frames of {frame_bytes}")
    return sample_rate_hz, frame_bytes


def _read_blocks(file: soundfile.SoundFile) -> Iterator[Samples]:
    # Read in blocks up to a limit. A header may state more frames than fit into memory, and a kilobyte of
    # FLAC may contain hours of silence.
    size = 0
    while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
        size += block.nbytes
        if size > MAX_DECODED_BYTES:
            bound = f"{MAX_DECODED_BYTES:,} bytes of samples"
            raise AudioError(f"the {file.format} data unpacks to more than {bound}. Split it.")
        yield block
