"""Files that are read once from begin to end, as decoders read them best."""

import io

import soundfile

from speechframe.audio import _headers, _mp3
from speechframe.spec.speech import Format

__all__ = ["OnePass", "opened"]


class OnePass(soundfile.SoundFile):  # type: ignore[misc]  # the library is untyped
    """A file that is read once, block behind block.

    After every read of a file in which it can seek, the library seeks to where it is already. That takes
    time, and MP3 does not stand it: a frame needs what the decoder knows from those before, so each block
    began with noise and with a complaint on the error stream.
    """

    def seekable(self) -> bool:
        """Return False, whatever the file is."""
        return False


def opened(data: bytes, found: Format) -> OnePass:
    """Open a file that knows its length, and all of it, even where its header does not.

    Raises
    ------
    AudioError
        What can be told without decoding: MP3 that is cut off, WAV of countless chunks.
    soundfile.LibsndfileError
        The decoder cannot read it.
    """
    mp3 = _mp3.read(data) if found is Format.MP3 else None
    return OnePass(io.BytesIO(_headers.with_length(data, found) if mp3 is None else mp3.whole(data)))
