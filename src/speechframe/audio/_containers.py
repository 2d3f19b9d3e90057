"""What bytes say about themselves before anything decodes them: which container, and whether it is whole."""

import struct
from collections.abc import Iterator

from speechframe.audio import _ogg
from speechframe.audio._ogg import JOINED
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

UNKNOWN_LENGTH = 0x7FFF_0000
"""A stream's header cannot know its length: whoever writes one puts a size near the largest there is."""

MATROSKA = b"\x1a\x45\xdf\xa3"
"""How MKV and WebM begin: the identifier of their head, an element like all that follow."""

MAGIC_BYTES = 12
"""Beginning of a file that tells its format."""

_MAX_CHUNKS = 10_000
_SEGMENT = b"\x18\x53\x80\x67"
_FLAC_START = b"fLaC\x00\x00\x00\x22"

_READABLE = "WAV, MP3, FLAC and OGG, or raw PCM, ALAW and ULAW when the format is given"


def recognise(data: bytes) -> Format:
    """Return the format of a file by its first bytes.

    Raises
    ------
    AudioError
        No bytes, or bytes that are none of the containers that are read here.
    """
    if not data:
        raise AudioError("no audio: there are no bytes")
    found = container(data)
    if found is None:
        start = data[:MAGIC_BYTES].decode("ascii", "backslashreplace")
        raise AudioError(f"no audio that can be read: the bytes begin with {start!r}. Read are {_READABLE}")
    return found


def refuse_container(data: bytes, asked: Format) -> None:
    """Raise when bytes that are to be read as raw samples are a file of another format."""
    if not data:
        raise AudioError("no audio: there are no bytes")
    found = container(data)
    if found is not None and found is not Format.MP3:  # two bytes of MP3 sync also occur in raw samples
        raise AudioError(f"asked to read raw {asked} samples, but the bytes are a {found} file")


def refuse_truncated(data: bytes, found: Format) -> None:
    """Raise when a container ends before its own headers say so.

    The decoder would hand over what there is and keep quiet; so it would of OGG and FLAC that were joined.
    FLAC and MP3 say their length in frames, which :mod:`speechframe.audio.codec` compares.
    """
    if found is Format.WAV:
        for name, _, size, present in wav_chunks(data):
            if name == b"data" and present < size < UNKNOWN_LENGTH:
                raise AudioError(
                    f"the WAV file is truncated: {present} bytes of samples where its header says {size}"
                )
    elif found is Format.OGG:
        _ogg.refuse_damaged(data)
    elif found is Format.FLAC and data.find(_FLAC_START, len(_FLAC_START)) > 0:
        raise AudioError(f"the FLAC data is {JOINED}")


def refuse_truncated_matroska(data: bytes) -> None:
    """Raise when MKV or WebM ends before its segment, which holds everything, says so; streams do not say."""
    head_end = _element_end(data, len(MATROSKA))
    if head_end is None or data[head_end : head_end + len(_SEGMENT)] != _SEGMENT:
        return
    end = _element_end(data, head_end + len(_SEGMENT))
    if end is not None and end > len(data):
        raise AudioError(f"the file is truncated: {len(data)} bytes where its header says {end}")


def _element_end(data: bytes, at: int) -> int | None:
    """Return where an element ends whose size stands at a place; None for a size that is none or unknown."""
    width = 9 - data[at].bit_length() if at < len(data) else 9
    if width > 8 or at + width > len(data):  # noqa: PLR2004  (bytes that a size has at most)
        return None
    highest = (1 << 7 * width) - 1
    size = int.from_bytes(data[at : at + width], "big") & highest
    return None if size == highest else at + width + size


def container(data: bytes) -> Format | None:
    """Return the format of a file by its first bytes, :data:`MAGIC_BYTES` of them; None for any other."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return Format.WAV
    if data[:4] == b"fLaC":
        return Format.FLAC
    if data[:4] == b"OggS":
        return Format.OGG
    # MPEG audio, layer III: eleven bits of sync, then a version and layer that exist.
    mp3_frame = len(data) > 3 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2 and data[1] & 0x18 != 0x08  # noqa: PLR2004
    return Format.MP3 if data[:3] == b"ID3" or mp3_frame else None


def wav_chunks(data: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield name, start, declared size and present size of every chunk.

    Raises
    ------
    AudioError
        More chunks than any writer makes: looking at millions of empty ones takes minutes.
    """
    at = 12
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            return
        name, size = struct.unpack_from("<4sI", data, at)
        yield name, at + 8, size, min(size, len(data) - at - 8)
        at += 8 + size + size % 2
    raise AudioError(f"the WAV file is damaged: it has more than {_MAX_CHUNKS:,} chunks")
