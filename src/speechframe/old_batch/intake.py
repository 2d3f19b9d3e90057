"""Clips as they come in a table: each is looked at, measured and hashed before anything is spent.

Taken: paths (relative to the table's file, or to where the process is), http(s)
URLs, bytes, ``struct<bytes, path>`` as Hugging Face datasets and earlier runs
have it, and arrays with their rate (``{"array", "sampling_rate"}`` or a pair).
A file stays where it is: the run knows its path and its hash. Whatever has no
file of its own is kept in the run folder, so that a resume needs nothing from
the caller.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from yarl import URL

from speechframe.errors import AudioError, InvalidRows, SpeechframeError
from speechframe.old_batch.table import PlanningStopped, problem
from speechframe.old_batch.table_files import at_home, is_table_file
from speechframe.old_client.clips import file_of_samples, upload_of_bytes, upload_of_path
from speechframe.old_client.transport import AiohttpTransport
from speechframe.old_client.upload import Upload
from speechframe.old_store import RunFolder
from speechframe.old_store.clips import REFERENCE, KeptClip, keep
from speechframe.spec.chosen import MAX_UPLOAD_BYTES
from speechframe.spec.codes import Status

__all__ = ["ClipTaker", "clip_files", "upload_from"]

AUDIO_SUFFIXES = frozenset(
    {
        *(".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".aif", ".aiff", ".au", ".caf", ".w64"),
        *(".m4a", ".mp4", ".aac", ".webm", ".mkv", ".mov", ".3gp", ".amr", ".wma"),
    }
)
FETCH_S = 60.0
"""How long one URL may take."""

_FETCHES = 8
_LOOK_S = 0.1
_REDIRECTS = 5
_REMEMBERED = 50_000
_ERROR_BYTES = 4096
_FETCH_HEADERS = MappingProxyType({"Accept": "audio/*, */*;q=0.5", "Accept-Encoding": "identity"})

_Reference = dict[str, Any]
T = TypeVar("T")


def upload_from(reference: Mapping[str, Any], folder: RunFolder | None) -> Upload:
    """Return the clip of a reference, to be sent."""
    path = reference["path"]
    kept = reference["is_kept"] and folder is not None
    return Upload(
        sha256=reference["sha256"],
        size_bytes=reference["size_bytes"],
        audio_seconds=reference["audio_seconds"],
        media_type=reference["media_type"],
        path=KeptClip(folder.path, path) if kept and folder is not None else Path(path or ""),
    )


def clip_files(table: str | PathLike[str]) -> list[str] | None:
    """Return the audio files that a path handed in as a table means; None where it is a table's.

    Raises
    ------
    InvalidRows
        For a folder without any.

    Examples
    --------
    >>> clip_files("voice.wav"), clip_files("clips.csv")
    (['voice.wav'], None)
    """
    path = at_home(table)
    if RunFolder.exists(path):
        return None
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in AUDIO_SUFFIXES and p.is_file())
        if not found:
            allowed = f"a folder with files that end in {', '.join(sorted(AUDIO_SUFFIXES))}"
            raise InvalidRows([problem("table", f"{path} holds no audio files", allowed=allowed)])
        return [str(p) for p in found]
    return None if is_table_file(path) or path.suffix.lower() not in AUDIO_SUFFIXES else [str(path)]


@dataclass
class ClipTaker:
    """Looks at clips and gives references.

    Parameters
    ----------
    base
        What relative paths are relative to.
    """

    base: Path
    type: pa.DataType = REFERENCE
    _known: dict[str, _Reference] = field(default_factory=dict)

    def take(
        self, values: Iterable[Any], folder: RunFolder | None, is_stopped: Callable[[], bool] = bool
    ) -> "pa.Array[Any]":
        """Return a reference for each clip; see :class:`speechframe.old_batch.table.Taker`."""
        references = []
        for value in values:
            if is_stopped():
                raise PlanningStopped
            references.append(self._of(value, folder))
        wanted = list(dict.fromkeys(r for r in references if isinstance(r, str)))
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        fetched = asyncio.run(_unless_stopped(_fetched(wanted, folder), is_stopped)) if wanted else {}
        self._known |= fetched
        found = [fetched[r] if isinstance(r, str) else r for r in references]
        return pa.array(found, self.type)

    def _of(self, value: Any, folder: RunFolder | None) -> _Reference | str | None:
        """Return a clip's reference, or the URL that is to be fetched for it."""
        if value is None or (isinstance(value, float) and value != value):  # noqa: PLR0124 - NaN is no value
            return None
        if isinstance(value, Mapping):
            return self._of_mapping(value, folder)
        if isinstance(value, (str, PathLike)):
            return self._of_text(str(value))
        try:
            if isinstance(value, (bytes, bytearray, memoryview)):
                return _kept(bytes(value), folder)
            if isinstance(value, Sequence) and len(value) == 2:  # noqa: PLR2004 - a pair
                return _kept(file_of_samples(*value), folder)
        except AudioError as error:
            return _problem(str(error))
        return _problem(
            f"is {type(value).__name__}; a path, a URL, bytes or an array with its rate is needed"
        )

    def _of_mapping(self, value: Mapping[str, Any], folder: RunFolder | None) -> _Reference | str | None:
        data, path, samples = value.get("bytes"), value.get("path"), value.get("array")
        if data is not None:
            return self._of(data, folder)
        if samples is not None:
            return self._of((samples, value.get("sampling_rate")), folder)
        return None if path is None else self._of(path, folder)

    def _of_text(self, text: str) -> _Reference | str | None:
        if not text.strip():
            return None
        if text not in self._known:
            if _scheme(text) in {"http", "https"}:
                return text
            self._known[text] = self._of_path(text)
        return self._known[text]

    def _of_path(self, text: str) -> _Reference:
        scheme = _scheme(text)
        if len(scheme) > 1 and "://" in text:
            return _problem(f"{scheme}:// is not fetched; allowed: a path, http:// or https://")
        try:
            upload = upload_of_path(self.base / Path(text).expanduser())
        except AudioError as error:
            return _problem(str(error))
        return _reference(upload, str(upload.path), is_kept=False)


def _scheme(text: str) -> str:
    """Return the scheme of an address, empty for a path."""
    try:
        return urlsplit(text.strip()[:20]).scheme.lower()
    except ValueError:
        return ""


def _problem(words: str) -> _Reference:
    return {"problem": words}


def _reference(upload: Upload, path: str | None, *, is_kept: bool) -> _Reference:
    return {
        "path": path,
        "is_kept": is_kept,
        "sha256": upload.sha256,
        "size_bytes": upload.size_bytes,
        "audio_seconds": upload.audio_seconds,
        "media_type": upload.media_type,
        "problem": None,
    }


def _kept(data: bytes, folder: RunFolder | None) -> _Reference:
    upload = upload_of_bytes(data)
    name = None if folder is None else keep(folder.path, upload.sha256, data)
    return _reference(upload, name, is_kept=True)


async def _unless_stopped(work: Coroutine[Any, Any, T], is_stopped: Callable[[], bool]) -> T:
    task = asyncio.create_task(work)
    while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
        if is_stopped():
            task.cancel()
            await asyncio.wait({task})
            raise PlanningStopped
    return task.result()


async def _fetched(urls: Sequence[str], folder: RunFolder | None) -> dict[str, _Reference]:
    places = asyncio.Semaphore(_FETCHES)
    transport = AiohttpTransport()

    async def one(url: str) -> _Reference:
        async with places:
            try:
                data = await _behind(transport, url)
            except TimeoutError:
                return _problem(f"cannot be fetched: nothing came within {FETCH_S:g} s")
            except (SpeechframeError, ValueError) as error:
                return _problem(f"cannot be fetched: {error}")
        try:
            # Here, not in a thread: two URLs may have the same clip, and it is kept under one name.
            return _kept(data, folder)
        except AudioError as error:
            return _problem(str(error))

    try:
        return dict(zip(urls, await asyncio.gather(*map(one, urls)), strict=True))
    finally:
        await transport.close()


async def _behind(transport: AiohttpTransport, address: str) -> bytes:
    """Return what lies at a URL that the caller named; the service's key is not in play here."""
    url = URL(address.strip(), encoded=address.strip().isascii())
    async with asyncio.timeout(FETCH_S):
        for _ in range(_REDIRECTS + 1):
            if url.scheme not in {"http", "https"} or not url.host:
                raise AudioError("it leads to an address that is neither http nor https")
            reply = await transport.exchange(
                "GET", url, headers=_FETCH_HEADERS, timeout_s=FETCH_S,
                max_bytes=MAX_UPLOAD_BYTES, max_error_bytes=_ERROR_BYTES,
            )  # fmt: skip
            if reply.ok:
                return reply.body
            target = reply.headers.get("Location")
            if reply.status // 100 != 3 or not target:  # noqa: PLR2004 - a redirect
                known = Status.of(reply.status)
                raise AudioError(
                    f"{url.host} answered {reply.status}{f' ({known.meaning})' if known else ''}"
                )
            url = url.join(URL(target, encoded=target.isascii()))
    raise AudioError(f"more than {_REDIRECTS} redirects")
