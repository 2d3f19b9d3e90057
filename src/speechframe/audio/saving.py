"""Writing of encoded audio to files, with conversion if necessary."""

from os import PathLike
from pathlib import Path

from speechframe.audio import codec
from speechframe.errors import AudioError
from speechframe.spec.speech import ChannelType, Format
from speechframe.writing.files import write_new

PLAYABLE_FORMATS = frozenset({Format.WAV, Format.MP3, Format.FLAC, Format.OGG})
"""Formats with headers, which other programs can open. Audio in any format can be converted to them."""


def save_audio(
    path: str | PathLike[str], data: bytes, *, format: Format, sample_rate_hz: int, channels: int
) -> Path:
    """Write audio to a file and return its path.

    Parameters
    ----------
    path
        If the path ends with `format`, the bytes are written, with their length in the header. With the other
        endings ``.wav``, ``.flac``, ``.mp3`` and ``.ogg`` the audio is converted. In both cases an existing
        file is replaced. A path without an ending gets the ending of `format`. If that file exists with other
        content, the name gets a number too.
    data, format, sample_rate_hz, channels
        Encoded audio, its format, its sample rate in Hz, and its number of channels.

    Raises
    ------
    AudioError
        The ending is not an audio format, or the bytes cannot be converted.
    """
    target = Path(path)
    wanted = target.suffix[1:].upper()
    if wanted not in {"", format.value}:
        data = convert_audio(data, wanted, format=format, sample_rate_hz=sample_rate_hz, channels=channels)
    elif format in PLAYABLE_FORMATS:
        data = codec.write_length(data)
    if not wanted:
        return write_new(target.parent, target.name, {f".{format.value.lower()}": data})[0]
    target.write_bytes(data)
    return target


def convert_audio(data: bytes, wanted: str, *, format: Format, sample_rate_hz: int, channels: int) -> bytes:
    """Convert encoded audio to the format `wanted`, such as "WAV".

    The other parameters are those of :func:`save_audio`.

    Raises
    ------
    AudioError
        Audio cannot be saved in the format, or the bytes are not audio.
    """
    if wanted not in {one.value for one in PLAYABLE_FORMATS}:
        allowed = ", ".join(sorted(f".{one.value.lower()}" for one in {*PLAYABLE_FORMATS, format}))
        raise AudioError(f"audio cannot be saved as .{wanted.lower()}; allowed: {allowed}")
    audio = codec.decode(data, format=format, sample_rate_hz=sample_rate_hz, channels=channels)
    channel_type = ChannelType.STEREO if audio.channels == ChannelType.STEREO.channels else ChannelType.MONO
    return codec.encode(
        audio.samples,
        audio.sample_rate_hz,
        format=Format(wanted),
        channel_type=channel_type,
        output_rate_hz=audio.sample_rate_hz,
    )
