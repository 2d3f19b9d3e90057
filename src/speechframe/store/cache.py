"""A cache of answers that runs share. If one run has paid for a call, later runs get its answer for free.

A cache is a folder::

    cache.json              number of the layout, written before all entries
    entries/ab/<key>        an answer; <key> is the request_key of its call and begins with ab

An entry gets its name once it is complete, and each read checks its sha256. A damaged entry is removed and
counts as missing. So any number of processes may share a folder, be killed at any moment, or lose the last
writes to the disk. The modification time of an entry is the time of its last use. The cache never follows
symbolic links to read, write or remove files.
"""

import hashlib
import json
import logging
import os
import random
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from speechframe.errors import StoreError
from speechframe.settings import find_default_cache_folder
from speechframe.store.folder import convert_os_errors
from speechframe.store.schema import CALL_COLUMNS, Row
from speechframe.writing.files import parse_json

log = logging.getLogger(__name__)

GIBIBYTE = 2**30
CACHE_LAYOUT = 2
"""Number of the layout of the folder. A folder with another number is refused."""
MARKER, ENTRIES = "cache.json", "entries"
_MARKER_CONTENT = json.dumps({"layout": CACHE_LAYOUT}).encode()

KEY_PATTERN = re.compile(r"[0-9a-f]{32}")
"""Pattern of the file name of an entry, which is the request_key of its call."""

_COLUMNS_NOT_STORED = frozenset(CALL_COLUMNS.names) - {
    "trace_id", "service", "model", "voice_id", "locale", "warnings", "sha256", "take", "finished_at",
} | {"text"}  # fmt: skip
"""Columns of a record that entries leave out: facts about one run's call, and the text, which stays
private."""

_METADATA_COLUMNS = ("voice_id", "locale", "model", "format", "audio_seconds", "service")
"""Columns of an answer that :meth:`Cache.entries` yields."""
_PRUNED_SHARE, _SHARE_BETWEEN_CHECKS = 0.8, 0.1
"""Shares of the cache's limit in bytes: its size after automatic pruning, and the bytes written before the
size is checked again."""


class Cache:
    """A folder of answers by request_key, for any number of threads and processes.

    A request_key depends on the service and on the take, so answers of two services never mix. The first
    :meth:`put` creates the folder, readable only for its owner. StoreError is raised if the folder contains
    other files, or a cache of another layout.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        max_bytes: float | None = None,
        max_age_days: float | None = None,
    ) -> None:
        # Use an absolute path, because a notebook may change its working directory during a run.
        self.folder = Path(folder).absolute()
        self.max_bytes, self.max_age_days = max_bytes, max_age_days
        self._has_complained = False
        self._bytes_between_checks = 256 * 2**20 if max_bytes is None else max_bytes * _SHARE_BETWEEN_CHECKS
        # Start at a random point, so that many short processes together prune as often as a long process.
        self._until_check = random.random() * self._bytes_between_checks  # noqa: S311 - no secret
        with convert_os_errors(self.folder, "opening the cache"):
            # List the files before the marker is read. Another process may be creating the cache, and it
            # writes the marker first.
            is_empty = all(item.name.startswith(".") for item in _list_folder(self.folder))
            marker = self.folder / MARKER
            if marker.read_bytes() != _MARKER_CONTENT if marker.exists() else not is_empty:
                raise StoreError(
                    f"{self.folder} holds other files and no cache of layout {CACHE_LAYOUT}: name an empty "
                    "or a new folder as cache"
                )

    def has(self, keys: Sequence[str]) -> list[bool]:
        """Return for each key whether an entry exists. Entries are neither read nor verified."""
        wanted, found = set(keys), set[str]()
        for shard in {key[:2] for key in wanted}:
            found.update(
                item.name for item in _list_folder(self.folder / ENTRIES / shard) if item.name in wanted
            )
        return [key in found for key in keys]

    def get(self, key: str) -> tuple[Row, bytes | None] | None:
        """Return the values and the audio of a call's answer.

        Return None if there is no entry, or no usable entry. The sha256 of the entry is verified, and a
        damaged entry is removed.
        """
        try:
            path = self._find_path(key)
            with path.open("rb") as file:
                digest, content = file.readline(), file.read()
            if hashlib.sha256(content).hexdigest().encode() + b"\n" != digest:
                log.info("%s: the entry of %s is damaged and is removed", self.folder, key)
                path.unlink()
                return None
            with suppress(OSError):
                os.utime(path)
        except (OSError, StoreError):
            return None
        line, _, audio = content.partition(b"\n")
        try:
            header = parse_json(line)
            return header["values"], audio if header["has_audio"] else None
        except (ValueError, LookupError, TypeError):
            log.info("%s: another release wrote the entry of %s, which is not used", self.folder, key)
            return None

    def put(self, key: str, row: Row, audio: bytes | None) -> bool:
        """Store the answer of a call, without its text and its cost. Return whether it was stored.

        If an entry cannot be written, no error is raised. One warning is logged, and the run goes on without
        the cache. If a limit is set, this method also prunes from time to time. Pruning takes seconds for
        10 GB.
        """
        kept = {
            name: value
            for name, value in row.items()
            if name not in _COLUMNS_NOT_STORED and value is not None
        }
        body = json.dumps({"values": kept, "has_audio": audio is not None}).encode() + b"\n" + (audio or b"")
        content = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        try:
            path = self._find_path(key)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (self.folder / MARKER).exists():
                _write_file(self.folder / MARKER, _MARKER_CONTENT)
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_file(path, content)
            self._until_check -= len(content)
            if self._until_check <= 0 and (self.max_bytes, self.max_age_days) != (None, None):
                self._until_check = self._bytes_between_checks
                self.prune(max_bytes=self.max_bytes and _PRUNED_SHARE * self.max_bytes)
        except (OSError, StoreError) as error:
            if not self._has_complained:
                self._has_complained = True
                log.warning("the cache %s cannot be written (%s): runs go on without it", self.folder, error)
            return False
        return True

    def remove(self, key: str) -> None:
        """Remove the entry of a call, if it exists."""
        with convert_os_errors(self.folder, "removing an entry of the cache"):
            self._find_path(key).unlink(missing_ok=True)

    def entries(self) -> Iterator[Row]:
        """Yield the metadata of every entry. Entries contain no text."""
        for item, status in self._list_files():
            with suppress(OSError, ValueError, LookupError, TypeError), Path(item).open("rb") as file:
                file.readline()
                row: Row = parse_json(file.readline())["values"]
                if KEY_PATTERN.fullmatch(item.name):
                    yield {
                        "key": item.name,
                        "bytes": status.st_size,
                        "last_used": datetime.fromtimestamp(status.st_mtime, UTC),
                        **{name: row.get(name) for name in _METADATA_COLUMNS},
                    }

    def size(self) -> int:
        """Return the total size of all entries in bytes, from a listing of the folder."""
        return sum(said.st_size for _, said in self._list_files())

    def prune(
        self, *, max_bytes: float | None = None, max_age_days: float | None = None, dry_run: bool = False
    ) -> dict[str, int]:
        """Remove entries, least recently used first, until the cache is within its limits.

        Return the number of removed and of remaining entries, and their sizes in bytes. A `dry_run` removes
        nothing. Unfinished files of killed processes count as entries. Symbolic links and their targets stay.
        Arguments replace the limits of the cache. Infinity means no limit.
        """
        most_bytes = self.max_bytes if max_bytes is None else max_bytes
        most_days = self.max_age_days if max_age_days is None else max_age_days
        oldest_s = 0.0 if most_days is None else time.time() - most_days * 86_400
        found = sorted(self._list_files(), key=lambda pair: pair[1].st_mtime)
        before = left = sum(said.st_size for _, said in found)
        removed = 0
        for item, said in found:
            if said.st_mtime < oldest_s or (most_bytes is not None and left > most_bytes):
                if not dry_run:
                    with convert_os_errors(self.folder, "pruning the cache"):
                        Path(item).unlink(missing_ok=True)
                left -= said.st_size
                removed += 1
        kept = len(found) - removed
        return {"entries": removed, "bytes_freed": before - left, "entries_left": kept, "bytes_left": left}

    def _find_path(self, key: str) -> Path:
        """Return the path of an entry. Raise StoreError for an invalid key or a symbolic link in the path."""
        path = self.folder / ENTRIES / key[:2] / key
        if not KEY_PATTERN.fullmatch(key) or any(part.is_symlink() for part in (path, *path.parents[:2])):
            raise StoreError(
                f"{path} is not a file of the cache: a key has 32 hex digits, and no folder may be a link"
            )
        return path

    def _list_files(self) -> "Iterator[tuple[os.DirEntry[str], os.stat_result]]":
        """Yield all files of entries, unfinished files included, without following symbolic links."""
        if not (self.folder / ENTRIES).is_symlink():
            for shard in _list_folder(self.folder / ENTRIES):
                for item in _list_folder(shard.path) if shard.is_dir(follow_symlinks=False) else ():
                    with suppress(OSError):  # another process may prune the cache
                        if item.is_file(follow_symlinks=False):
                            yield item, item.stat(follow_symlinks=False)


def open_cache(
    option: "bool | str | os.PathLike[str] | None",
    *,
    folder: "str | os.PathLike[str] | None" = None,
    max_gb: float | None = None,
    max_age_days: float | None = None,
) -> Cache | None:
    """Return the cache for the run option ``cache``. The other arguments come from the settings.

    The option is a folder, a bool or None. True means the folder in the settings, or else the user's default
    folder. False means no cache. None means the folder in the settings, if there is one.
    """
    if option is None or option is True:
        option = folder or (find_default_cache_folder() if option else None)
    if option is None or option is False:
        return None
    max_bytes = None if max_gb is None else max_gb * GIBIBYTE
    return Cache(option, max_bytes=max_bytes, max_age_days=max_age_days)


def _write_file(path: Path, content: bytes) -> None:
    # No fsync is needed. A power cut may leave an empty file, but its sha256 is wrong, so it is never used.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _list_folder(folder: "Path | str") -> "list[os.DirEntry[str]]":
    with suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []
