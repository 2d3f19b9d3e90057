"""What came of a file whose end did not come, as a file that ends there.

Of a turn that goes on over a new connection the file before it has no end: its encoder was to say more.
"""

import struct

from speechframe.audio import _ogg
from speechframe.audio._headers import wav_chunks
from speechframe.spec.speech import Format

__all__ = ["ended"]

_UNKNOWN = struct.pack("<I", 0xFFFF_FFFF)


def ended(data: bytes, format: Format) -> bytes:
    """Return what came of a file as one that is whole; nothing where no sample of it came.

    OGG and WAV are meant: of the others a part is read like the whole, and comes back as it is.

    Raises
    ------
    AudioError
        What came is damaged.

    Examples
    --------
    >>> from speechframe.audio import codec
    >>> data = codec.encode([0.0] * 8000, 8000, format=Format.WAV)
    >>> codec.inspect(ended(data[:-8000], Format.WAV)).audio_seconds
    0.5
    """
    if format is Format.OGG:
        return _ogg.ended(data)
    return _ended_wav(data) if format is Format.WAV else data


def _ended_wav(data: bytes) -> bytes:
    for name, start, size, present in wav_chunks(data):
        if name == b"data" and present:
            # As a stream has it that does not know its length yet.
            return data if present == size else data[: start - 4] + _UNKNOWN + data[start:]
    return b""
