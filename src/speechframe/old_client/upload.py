"""A clip to be sent: known by its hash, and read when it is sent, piece by piece."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import IO, Literal, Protocol

from speechframe.errors import AudioError
from speechframe.wire.changer import Form

__all__ = ["PIECE_BYTES", "Body", "Readable", "Upload"]

PIECE_BYTES = 256 * 1024
"""What is in memory of a file on its way."""

_ENDINGS = {"mpeg": "mp3", "mp4": "m4a"}


class Readable(Protocol):
    """A file, such as a path; its text is what people read of it."""

    @property
    def open(self) -> Callable[[Literal["rb"]], IO[bytes]]:
        """Opens it to be read."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A clip by reference.

    Parameters
    ----------
    sha256
        Of its bytes, 64 hex digits.
    size_bytes
        Their number.
    audio_seconds
        Its length: what is paid for.
    media_type
        Such as ``audio/wav``.
    path
        The file; None where the bytes themselves are here.
    data
        The bytes of a clip without a file.

    Examples
    --------
    >>> Upload("ab" * 32, 4, 0.1, "audio/mpeg", data=b"...").name
    'clip.mp3'
    """

    sha256: str
    size_bytes: int
    audio_seconds: float
    media_type: str
    path: Readable | None = None
    data: bytes = field(default=b"", repr=False)

    @property
    def name(self) -> str:
        """What a form calls the file: nothing of the caller's machine, and the same for equal clips."""
        kind = self.media_type.rpartition("/")[2].removeprefix("x-")
        return f"clip.{_ENDINGS.get(kind, kind)}"

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes; the last of them only when all are those that the hash was made of.

        Raises
        ------
        AudioError
            When the file is gone or has changed: the request stays incomplete, and no service carries it out.
        """
        digest, size, held = hashlib.sha256(), 0, b""
        async for piece in self._read():
            if held:
                yield held
            digest.update(piece)
            size += len(piece)
            if size > self.size_bytes:
                break
            held = piece
        if size != self.size_bytes or digest.hexdigest() != self.sha256:
            raise AudioError(
                f"{self.path or 'the clip'} has changed since it was looked at, and was not sent: give it "
                "again, and it is taken as it is now"
            )
        yield held

    async def _read(self) -> AsyncIterator[bytes]:
        if self.path is None:
            for start in range(0, len(self.data), PIECE_BYTES):
                yield self.data[start : start + PIECE_BYTES]
            return
        try:
            file = await asyncio.to_thread(self.path.open, "rb")
            with file:
                while piece := await self._piece(file):
                    yield piece
        except OSError as error:
            raise AudioError(f"{self.path} cannot be read: {error.strerror or error}") from None

    async def _piece(self, file: IO[bytes]) -> bytes:
        return await asyncio.to_thread(file.read, PIECE_BYTES)


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request that is written piece by piece: a file and what stands around it.

    Parameters
    ----------
    upload
        The file.
    form
        What stands around it.
    """

    upload: Upload
    form: Form = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """What ``Content-Length`` says."""
        return len(self.form.head) + self.upload.size_bytes + len(self.form.tail)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes in order; see :meth:`Upload.pieces`."""
        yield self.form.head
        async for piece in self.upload.pieces():
            yield piece
        yield self.form.tail
