"""Clips of a run: each is looked at before anything is spent, and read again when it is sent.

A file stays where it is: its path, hash, size and time are written down. A clip without a file of its own
(bytes, an array, a URL) is kept in the run's folder as ``clips/<sha256>.<ending>``.
"""

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from speechframe.client.upload import Upload, file_of_samples, upload_of_bytes
from speechframe.errors import AudioError
from speechframe.spec.chosen import MAX_UPLOAD_BYTES
from speechframe.tables.files import regular_file

CLIPS_FOLDER = "clips"
AUDIO_SUFFIXES = frozenset(
    {
        *(".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".aif", ".aiff", ".au", ".caf", ".w64"),
        *(".m4a", ".mp4", ".aac", ".webm", ".mkv", ".mov", ".3gp", ".amr", ".wma"),
    }
)
FETCH_S = 60.0
"""How long one URL may take."""

_REDIRECTS = 5
_PIECE_BYTES = 1 << 16
_MOST_REMEMBERED = 50_000


@dataclass(frozen=True, slots=True)
class ClipReference:
    """A clip as the body of a request names it.

    Parameters
    ----------
    path
        Where it is; below the run's folder if it `is_kept` there.
    sha256, size_bytes, mtime_ns
        Of the file when it was looked at.
    audio_seconds
        Its length: what is paid for.
    media_type
        Such as ``audio/wav``.
    """

    path: str
    is_kept: bool
    sha256: str
    size_bytes: int
    mtime_ns: int
    audio_seconds: float
    media_type: str

    def upload(self, folder: Path | None) -> Upload:
        """Return the clip to be sent."""
        return Upload(
            self.sha256, self.size_bytes, self.audio_seconds, self.media_type, path=self._file(folder)
        )

    def check_unchanged(self, folder: Path | None) -> None:
        """Raise AudioError where the file is gone, or is another one than when it was looked at."""
        path = self._file(folder)
        try:
            now = path.stat()
            if now.st_size == self.size_bytes and (self.is_kept or now.st_mtime_ns == self.mtime_ns):
                return
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == self.sha256:
                    return
        except OSError as error:
            raise AudioError(f"{path} cannot be read: {error.strerror or error}") from None
        raise AudioError(
            f"{path} has changed since it was looked at, and was not sent: give it again to use it as it is"
        )

    def _file(self, folder: Path | None) -> Path:
        return folder / self.path if self.is_kept and folder is not None else Path(self.path)


class ClipTaker:
    """Looks at clips of every kind; the same path or URL once.

    Parameters
    ----------
    base
        What relative paths are relative to.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._known: dict[str, ClipReference | AudioError] = {}

    def take(self, value: Any, folder: Path | None) -> ClipReference | None:
        """Return the reference of a clip; None where there is none.

        Parameters
        ----------
        value
            A path, a URL, bytes, a pair of an array and its rate in Hz, or a mapping with ``bytes``,
            ``path``, or ``array`` and ``sampling_rate``.
        folder
            The run's folder; None to keep nothing.

        Raises
        ------
        AudioError
            When it is no clip that could be sent.
        """
        if isinstance(value, Mapping):
            value = _of_mapping(value)
        if isinstance(value, (str, os.PathLike)):
            return self._of_text(os.fspath(value), folder)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _kept(bytes(value), folder)
        if isinstance(value, Sequence) and len(value) == 2:  # noqa: PLR2004 - a pair
            return _kept(file_of_samples(*value), folder)
        if value is None:
            return None
        raise AudioError(
            f"is {type(value).__name__}; a path, a URL, bytes or an array with its rate is needed"
        )

    def _of_text(self, text: str, folder: Path | None) -> ClipReference | None:
        if not text.strip():
            return None
        if text not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            try:
                self._known[text] = self._looked_up(text, folder)
            except AudioError as error:
                self._known[text] = error
        found = self._known[text]
        if isinstance(found, AudioError):
            raise found
        return found

    def _looked_up(self, text: str, folder: Path | None) -> ClipReference:
        scheme = _scheme(text)
        if scheme in {"http", "https"}:
            return _kept(_fetched(text), folder)
        if len(scheme) > 1 and "://" in text:
            raise AudioError(f"{scheme}:// is not fetched; allowed: a path, http:// or https://")
        return _of_file(self._base / Path(text).expanduser())


def _of_mapping(value: Mapping[str, Any]) -> Any:
    """Return the clip in a mapping as Hugging Face datasets and earlier runs have it."""
    if value.get("bytes") is not None:
        return value["bytes"]
    if value.get("array") is not None:
        return value["array"], value.get("sampling_rate")
    return value.get("path")


def _of_file(path: Path) -> ClipReference:
    try:
        # Looked at before it is opened: a pipe would be waited for, and /dev/zero never ends.
        path = regular_file(path.absolute(), MAX_UPLOAD_BYTES)
        mtime_ns, data = path.stat().st_mtime_ns, path.read_bytes()
    except ValueError as error:
        raise AudioError(str(error)) from None
    except OSError as error:
        raise AudioError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        found = upload_of_bytes(data)
    except AudioError as error:
        raise AudioError(f"{path}: {error}") from None
    return _reference(found, str(path), mtime_ns=mtime_ns, is_kept=False)


def _kept(data: bytes, folder: Path | None) -> ClipReference:
    """Keep a clip in the run's folder, once, and return its reference."""
    _check_size(len(data))
    found = upload_of_bytes(data)
    name = f"{CLIPS_FOLDER}/{found.sha256}{Path(found.name).suffix}"
    if folder is not None and not (folder / name).is_file():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(data)
        temporary.replace(path)
    return _reference(found, name, mtime_ns=0, is_kept=True)


def _reference(found: Upload, path: str, *, mtime_ns: int, is_kept: bool) -> ClipReference:
    return ClipReference(
        path, is_kept, found.sha256, found.size_bytes, mtime_ns, found.audio_seconds, found.media_type
    )


def _check_size(size_bytes: int) -> None:
    if size_bytes > MAX_UPLOAD_BYTES:
        raise AudioError(f"has {size_bytes:,} bytes; at most {MAX_UPLOAD_BYTES:,} bytes are taken")


def _scheme(text: str) -> str:
    """Return the scheme of an address, empty for a path."""
    try:
        return urlsplit(text.strip()[:20]).scheme.lower()
    except ValueError:
        return ""


def _fetched(address: str) -> bytes:
    """Return what lies at a URL of the caller; in a loop of its own, as rows are checked in a thread."""
    try:
        return asyncio.run(_download(address.strip()))
    except TimeoutError:
        raise AudioError(f"cannot be fetched: no whole answer within {FETCH_S:g} s") from None
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise AudioError(f"cannot be fetched: {str(error) or type(error).__name__}") from None


async def _download(address: str) -> bytes:
    url = URL(address, encoded=address.isascii())
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=FETCH_S), trust_env=True) as session,
        session.get(url, max_redirects=_REDIRECTS, headers={"Accept-Encoding": "identity"}) as reply,
    ):
        if reply.status != 200:  # noqa: PLR2004 - anything else is no whole file
            raise AudioError(f"cannot be fetched: {reply.url.host} answered {reply.status}")
        data = bytearray()
        async for piece in reply.content.iter_chunked(_PIECE_BYTES):
            data += piece
            _check_size(len(data))
        return bytes(data)
