"""Read the clips of a table's rows: files, URLs, bytes, arrays, or the audio of an earlier run."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
from yarl import URL

from speechframe.backends.files import find_files, store_clip
from speechframe.client.upload import Upload, encode_wav, make_upload, read_clip
from speechframe.errors import AudioError
from speechframe.spec.chosen import MAX_UPLOAD_BYTES
from speechframe.store.folder import RUN_FILE
from speechframe.store.reader import StoredRun, open_folder
from speechframe.store.rows import Rows
from speechframe.store.schema import AUDIO_COLUMN

# Extensions of the files that count as clips in a folder.
_SUFFIX_WORDS = "wav flac mp3 ogg oga opus aif aiff au caf w64 m4a mp4 aac webm mkv mov 3gp amr wma"
_AUDIO_SUFFIXES = frozenset(f".{suffix}" for suffix in _SUFFIX_WORDS.split())
_DOWNLOAD_LIMIT_S = 60.0  # time limit of one download in seconds
_FACTS = ("request_key", "status", "locale", "voice_id")  # of the row to which a reference leads
_MAX_CACHED_CLIPS = 50_000  # paths and URLs whose clips are cached


class ClipReader:
    """Reads the clips of the rows of one table."""

    def __init__(self) -> None:
        self._base = Path.cwd()  # folder in which relative paths begin
        self._looked_up = lru_cache(_MAX_CACHED_CLIPS)(self._look_up)  # reads each path or URL once

    def open_source(self, table: Any) -> Any:
        """Return the table, or a table of the audio files if `table` is a folder or an audio file.

        Relative paths in the file of a table begin at the folder of this file. Subfolders are read, too.
        """
        source, self._base = find_files(table, _AUDIO_SUFFIXES, "audio", has_subfolders=True)
        is_folder = source is not table and Path(table).expanduser().is_dir()
        return FolderClips(Path(table).expanduser(), source) if is_folder else source

    def read(self, value: Any, folder: Path | None) -> Upload:
        """Return the clip of a row's value. A clip without a file is stored in the run's `folder`.

        The value may be a path, a URL, bytes, or a pair of an array and its rate in Hz. It may also be a
        mapping with ``bytes``, ``path``, or ``array`` and ``sampling_rate``. Hugging Face datasets and
        earlier runs contain such mappings. Any other value raises AudioError.
        """
        if isinstance(value, Mapping):
            array = value.get("array")
            pair = None if array is None else (array, value.get("sampling_rate"))
            value = next((v for v in (value.get("bytes"), pair, value.get("path")) if v is not None), None)
        if isinstance(value, (str, os.PathLike)):
            found = self._looked_up(os.fspath(value), folder)
            if isinstance(found, AudioError):
                raise AudioError(str(found))
            return found
        if isinstance(value, (bytes, bytearray, memoryview)):
            return store_clip(folder, make_upload(bytes(value)))
        if isinstance(value, Sequence) and len(value) == 2:  # noqa: PLR2004 - a pair
            return store_clip(folder, make_upload(encode_wav(*value)))
        kind = "missing" if value is None else type(value).__name__
        raise AudioError(f"is {kind}; allowed: a path, a URL, bytes or an array with its rate")

    def _look_up(self, text: str, folder: Path | None) -> Upload | AudioError:
        """Return the clip at a path or URL, or its error. Do not raise, so that errors are cached, too."""
        scheme = text.strip().lower().partition("://")[0] if "://" in text else ""
        try:
            if scheme in {"http", "https"}:
                # Rows are checked in a thread without an event loop, so run a new loop.
                return store_clip(folder, make_upload(asyncio.run(_download(text.strip()))))
            if scheme:
                return AudioError(f"{scheme}:// is not supported; allowed: a path, http:// or https://")
            if not text.strip():
                return AudioError("is missing")
            return read_clip(self._base / Path(text).expanduser())
        except AudioError as error:
            return error


async def _download(address: str) -> bytes:
    """Return the bytes at a URL, or raise AudioError."""
    try:
        limit, url = aiohttp.ClientTimeout(total=_DOWNLOAD_LIMIT_S), URL(address, encoded=address.isascii())
        async with (
            aiohttp.ClientSession(timeout=limit, trust_env=True) as session,
            session.get(url, max_redirects=5, headers={"Accept-Encoding": "identity"}) as reply,
        ):
            if reply.status != 200:  # noqa: PLR2004 - every other status lacks the whole file
                raise AudioError(f"cannot be fetched: {reply.url.host} answered {reply.status}")
            data = bytearray()
            async for piece in reply.content.iter_chunked(1 << 16):
                data += piece
                if len(data) > MAX_UPLOAD_BYTES:
                    raise AudioError(f"has more than {MAX_UPLOAD_BYTES:,} bytes, the largest size allowed")
            return bytes(data)
    except TimeoutError:
        raise AudioError(f"cannot be fetched within {_DOWNLOAD_LIMIT_S:g} s") from None
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise AudioError(f"cannot be fetched: {str(error) or type(error).__name__}") from None


class FolderClips:
    """Audio files below a folder as a table. Row ids are the paths of the files relative to the folder."""

    def __init__(self, folder: Path, files: Sequence[str]) -> None:
        self._folder, self._files = folder, files

    def as_batches(
        self, named: Iterable[str] = (), batch_rows: int | None = None
    ) -> tuple[pa.Schema, Iterator[tuple[pa.RecordBatch, list[Any]]]]:
        """Return the paths as one batch, with the ids of its rows."""
        del named, batch_rows
        batch = pa.RecordBatch.from_pydict({AUDIO_COLUMN: [*self._files]})
        ids = [Path(file).relative_to(self._folder).as_posix() for file in self._files]
        return batch.schema, iter([(batch, ids)])


class RunClips:
    """Rows of a run as a table. Its column of audio refers to the stored clips instead of containing them.

    The column is named ``audio``, or as the run names its audio. It hides a column ``audio`` of the run's own
    table. A value has the run's path as ``run``, and the row's ``request_key``, ``status``, ``locale`` and
    ``voice_id``.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._run: Any = getattr(rows, "run", rows)

    def as_batches(
        self, named: Iterable[str] = (), batch_rows: int | None = None
    ) -> tuple[pa.Schema, Iterator[tuple[pa.RecordBatch, list[Any]]]]:
        """Return the rows as :meth:`Rows.as_batches` returns them, with references in the column of audio."""
        added = {AUDIO_COLUMN, self._run.name_of(AUDIO_COLUMN)}.intersection(named)
        facts = {name: self._run.name_of(name) for name in _FACTS}
        schema, batches = self._rows.as_batches({*named, *facts.values()} - added, batch_rows)
        hidden = {facts["request_key"], facts["status"], facts["voice_id"], *added}

        def refer(batch: pa.RecordBatch) -> pa.RecordBatch:
            values = [batch.column(name) for name in facts.values()]
            runs = pa.array([str(self._run.path)] * batch.num_rows, pa.string())
            clips: Any = pa.StructArray.from_arrays([runs, *values], names=["run", *facts])
            batch = batch.select([name for name in schema.names if name not in hidden])
            for name in sorted(added):
                batch = batch.append_column(name, clips)
            return batch

        empty = pa.RecordBatch.from_pylist([], schema)
        return refer(empty).schema, ((refer(batch), ids) for batch, ids in batches)


def with_run_clips(table: Any) -> Any:
    """Return a spoken run, its folder, or a list of spoken runs as :class:`RunClips`, else the table."""
    if isinstance(table, (str, os.PathLike)) and open_folder(table).exists(RUN_FILE):
        table = StoredRun.open(table)
    if _is_spoken(table):
        return RunClips(table)
    if isinstance(table, Sequence) and table and all(map(_is_spoken, table)):
        return list(map(RunClips, table))
    return table


def _is_spoken(table: Any) -> bool:
    run: Any = getattr(table, "run", table)
    return isinstance(table, Rows) and AUDIO_COLUMN in run.record_schema.names
