"""Clips of a run: each is looked at before anything is spent, and read again when it is sent.

A file stays where it is. A clip without a file of its own (bytes, an array, a URL) is kept in the run's
folder as ``clips/<sha256>.<ending>``.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from speechframe.client.upload import Upload, file_of_samples, upload_of, upload_of_bytes
from speechframe.errors import AudioError
from speechframe.spec.chosen import MAX_UPLOAD_BYTES

CLIPS_FOLDER = "clips"
_SUFFIXES = "wav flac mp3 ogg oga opus aif aiff au caf w64 m4a mp4 aac webm mkv mov 3gp amr wma"
AUDIO_SUFFIXES = frozenset(f".{suffix}" for suffix in _SUFFIXES.split())
FETCH_S = 60.0  # how long one URL may take
_MOST_REMEMBERED = 50_000


class ClipTaker:
    """Looks at clips of every kind; the same path or URL once. Relative paths are relative to `base`."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._known: dict[str, Upload | AudioError] = {}

    def take(self, value: Any, folder: Path | None) -> Upload | None:
        """Return a clip to be sent, or None where there is none; the path of a kept one is relative.

        It may be a path, a URL, bytes, a pair of an array and its rate in Hz, or a mapping with ``bytes``,
        ``path``, or ``array`` and ``sampling_rate``, as Hugging Face datasets and earlier runs have it. What
        cannot be sent raises AudioError. Without a `folder`, nothing is kept.
        """
        if isinstance(value, Mapping):
            array = value.get("array")
            pair = None if array is None else (array, value.get("sampling_rate"))
            value = next((v for v in (value.get("bytes"), pair, value.get("path")) if v is not None), None)
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

    def _of_text(self, text: str, folder: Path | None) -> Upload | None:
        if not text.strip():
            return None
        if text not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            try:
                self._known[text] = self._looked_up(text, folder)
            except AudioError as error:
                self._known[text] = error
        if isinstance(found := self._known[text], AudioError):
            raise found
        return found

    def _looked_up(self, text: str, folder: Path | None) -> Upload:
        scheme = text.strip().lower().partition("://")[0] if "://" in text else ""
        if scheme in {"http", "https"}:
            try:
                # In a loop of its own, as rows are checked in a thread.
                data = asyncio.run(_download(text.strip()))
            except TimeoutError:
                raise AudioError(f"cannot be fetched: no whole answer within {FETCH_S:g} s") from None
            except (aiohttp.ClientError, ValueError, OSError) as error:
                raise AudioError(f"cannot be fetched: {str(error) or type(error).__name__}") from None
            return _kept(data, folder)
        if scheme:
            raise AudioError(f"{scheme}:// is not fetched; allowed: a path, http:// or https://")
        return upload_of(self._base / Path(text).expanduser())


def _kept(data: bytes, folder: Path | None) -> Upload:
    """Keep a clip in the run's folder, once, and return it."""
    found = upload_of_bytes(data)
    name = f"{CLIPS_FOLDER}/{found.sha256}{Path(found.name).suffix}"
    if folder is not None and not (folder / name).is_file():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(data)
        temporary.replace(path)
    return replace(found, path=Path(name), data=b"")


async def _download(address: str) -> bytes:
    limit, url = aiohttp.ClientTimeout(total=FETCH_S), URL(address, encoded=address.isascii())
    async with (
        aiohttp.ClientSession(timeout=limit, trust_env=True) as session,
        session.get(url, max_redirects=5, headers={"Accept-Encoding": "identity"}) as reply,
    ):
        if reply.status != 200:  # noqa: PLR2004 - anything else is no whole file
            raise AudioError(f"cannot be fetched: {reply.url.host} answered {reply.status}")
        data = bytearray()
        async for piece in reply.content.iter_chunked(1 << 16):
            data += piece
            if len(data) > MAX_UPLOAD_BYTES:
                raise AudioError(f"has more than {MAX_UPLOAD_BYTES:,} bytes, the most that are taken")
        return bytes(data)
