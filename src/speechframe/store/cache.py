"""Answers that runs share: a call that any run has paid for costs the next one nothing.

A cache is a folder::

    cache.json              its layout; written first
    entries/ab/<key>        an answer by the request_key of its call

An entry has its name when it is whole, and every hit checks its sha256. So any number of processes may share
a folder, be killed at any moment, or lose the disk's last writes: a damaged entry is no hit, and is removed.
The time of change of an entry says when it was last used. Nothing is read, written or removed behind a link.
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

from speechframe._files import parse_json
from speechframe.errors import StoreError
from speechframe.settings import default_cache_folder
from speechframe.store.folder import storing
from speechframe.store.schema import CALL_COLUMNS, Row

log = logging.getLogger(__name__)

GB = 2**30
LAYOUT = 2
MARKER, ENTRIES = "cache.json", "entries"
_MARK = json.dumps({"layout": LAYOUT}).encode()

KEY = re.compile(r"[0-9a-f]{32}")
"""Nothing else becomes the name of a file."""

_NOT_KEPT = frozenset(CALL_COLUMNS.names) - {
    "trace_id", "service", "model", "voice_id", "locale", "warnings", "sha256", "take", "finished_at",
} | {"text"}  # fmt: skip
"""What the call was, not what its answer is; and the text, which nobody who reads the folder is to find."""

_SHOWN = ("voice_id", "locale", "model", "format", "audio_seconds", "service")
_PRUNED_TO, _PUT_BETWEEN_CHECKS = 0.8, 0.1


class Cache:
    """A folder of answers by request_key, for any number of threads and processes.

    The service's identity and the take are part of a request_key, so answers of two services never mix.

    Its folder is made, for its owner only, by the first :meth:`put`. StoreError when it holds something else,
    or a cache of another layout.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        max_bytes: float | None = None,
        max_age_days: float | None = None,
    ) -> None:
        # Absolute: a run goes on when its notebook changes folders.
        self.folder = Path(folder).absolute()
        self.max_bytes, self.max_age_days = max_bytes, max_age_days
        self._has_complained = False
        self._bytes_between_checks = 256 * 2**20 if max_bytes is None else max_bytes * _PUT_BETWEEN_CHECKS
        # From a random point: many short processes, each of which puts a little, prune as often as one.
        self._until_check = random.random() * self._bytes_between_checks  # noqa: S311 - no secret
        with storing(self.folder, "opening the cache"):
            # First: another process may be making the cache.
            is_empty = all(item.name.startswith(".") for item in _scan(self.folder))
            marker = self.folder / MARKER
            if marker.read_bytes() != _MARK if marker.exists() else not is_empty:
                raise StoreError(
                    f"{self.folder} holds other files and no cache of layout {LAYOUT}: name an empty or a "
                    "new folder as cache"
                )

    def has(self, keys: Sequence[str]) -> list[bool]:
        """Return for each call whether an entry has its key; nothing is read or verified."""
        wanted, there = set(keys), set[str]()
        for shard in {key[:2] for key in wanted}:
            there.update(item.name for item in _scan(self.folder / ENTRIES / shard) if item.name in wanted)
        return [key in there for key in keys]

    def get(self, key: str) -> tuple[Row, bytes | None] | None:
        """Return the values and the audio of a call's answer, None where there is none.

        Its bytes are what was answered, by sha256; a damaged entry is removed.
        """
        try:
            path = self._path(key)
            with path.open("rb") as file:
                digest, said = file.readline(), file.read()
            if hashlib.sha256(said).hexdigest().encode() + b"\n" != digest:
                log.info("%s: the entry of %s is damaged and is removed", self.folder, key)
                path.unlink()
                return None
            with suppress(OSError):
                os.utime(path)
        except (OSError, StoreError):
            return None
        line, _, audio = said.partition(b"\n")
        try:
            told = parse_json(line)
            return told["values"], audio if told["has_audio"] else None
        except (ValueError, LookupError, TypeError):
            log.info("%s: another release wrote the entry of %s, which is not used", self.folder, key)
            return None

    def put(self, key: str, row: Row, audio: bytes | None) -> bool:
        """Keep the answer of a call, without its text and what it cost; return whether it is kept.

        Nothing is raised when the folder takes no more: the run goes on without it, and one warning is
        logged. Now and then, when a limit is passed, this prunes, which takes seconds for 10 GB.
        """
        kept = {name: value for name, value in row.items() if name not in _NOT_KEPT and value is not None}
        said = json.dumps({"values": kept, "has_audio": audio is not None}).encode() + b"\n" + (audio or b"")
        content = hashlib.sha256(said).hexdigest().encode() + b"\n" + said
        try:
            path = self._path(key)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (self.folder / MARKER).exists():
                _write(self.folder / MARKER, _MARK)
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, content)
            self._until_check -= len(content)
            if self._until_check <= 0 and (self.max_bytes, self.max_age_days) != (None, None):
                self._until_check = self._bytes_between_checks
                self.prune(max_bytes=self.max_bytes and _PRUNED_TO * self.max_bytes)
        except (OSError, StoreError) as error:
            if not self._has_complained:
                self._has_complained = True
                log.warning("the cache %s takes nothing (%s): runs go on without it", self.folder, error)
            return False
        return True

    def remove(self, key: str) -> None:
        """Remove the answer of a call, if it is there."""
        with storing(self.folder, "removing an entry of the cache"):
            self._path(key).unlink(missing_ok=True)

    def entries(self) -> Iterator[Row]:
        """Yield what is known of every entry, never its text."""
        for item, said in self._files():
            with suppress(OSError, ValueError, LookupError, TypeError), Path(item).open("rb") as file:
                file.readline()
                row: Row = parse_json(file.readline())["values"]
                if KEY.fullmatch(item.name):
                    yield {
                        "key": item.name,
                        "bytes": said.st_size,
                        "last_used": datetime.fromtimestamp(said.st_mtime, UTC),
                        **{name: row.get(name) for name in _SHOWN},
                    }

    def size(self) -> int:
        """Return the bytes of all entries, by listing the folder."""
        return sum(said.st_size for _, said in self._files())

    def prune(
        self, *, max_bytes: float | None = None, max_age_days: float | None = None, dry_run: bool = False
    ) -> dict[str, int]:
        """Remove entries until the limits hold, least recently used first; say how many.

        What killed processes left counts as an entry. Links stay, and what they lead to.
        Limits that are given count instead of the cache's own; infinity is none.
        """
        most_bytes = self.max_bytes if max_bytes is None else max_bytes
        most_days = self.max_age_days if max_age_days is None else max_age_days
        oldest_s = 0.0 if most_days is None else time.time() - most_days * 86_400
        found = sorted(self._files(), key=lambda pair: pair[1].st_mtime)
        before = left = sum(said.st_size for _, said in found)
        removed = 0
        for item, said in found:
            if said.st_mtime < oldest_s or (most_bytes is not None and left > most_bytes):
                if not dry_run:
                    with storing(self.folder, "pruning the cache"):
                        Path(item).unlink(missing_ok=True)
                left -= said.st_size
                removed += 1
        kept = len(found) - removed
        return {"entries": removed, "bytes_freed": before - left, "entries_left": kept, "bytes_left": left}

    def _path(self, key: str) -> Path:
        """Return the path of an entry; StoreError where a link leads elsewhere, or for another name."""
        path = self.folder / ENTRIES / key[:2] / key
        if not KEY.fullmatch(key) or any(place.is_symlink() for place in (path, *path.parents[:2])):
            raise StoreError(f"{path} is no place of an entry, or a link")
        return path

    def _files(self) -> "Iterator[tuple[os.DirEntry[str], os.stat_result]]":
        """Yield all files of entries, unfinished ones among them, without following links."""
        if not (self.folder / ENTRIES).is_symlink():
            for shard in _scan(self.folder / ENTRIES):
                for item in _scan(shard.path) if shard.is_dir(follow_symlinks=False) else ():
                    with suppress(OSError):  # somebody else prunes
                        if item.is_file(follow_symlinks=False):
                            yield item, item.stat(follow_symlinks=False)


def open_cache(
    option: "bool | str | os.PathLike[str] | None",
    *,
    folder: "str | os.PathLike[str] | None" = None,
    max_gb: float | None = None,
    max_age_days: float | None = None,
) -> Cache | None:
    """Return the cache that a run uses by its option ``cache``; the other arguments are of the settings.

    It is a folder; True for the one of the settings, else the user's own; False for none; None for the one of
    the settings, if they name one.
    """
    if option is None or option is True:
        option = folder or (default_cache_folder() if option else None)
    if option is None or option is False:
        return None
    max_bytes = None if max_gb is None else max_gb * GB
    return Cache(option, max_bytes=max_bytes, max_age_days=max_age_days)


def _write(path: Path, content: bytes) -> None:
    # Without fsync: after a power cut a file may be empty, and the reader's check makes that no hit.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _scan(folder: "Path | str") -> "list[os.DirEntry[str]]":
    with suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []
