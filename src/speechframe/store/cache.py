"""Answers that runs share: a call that any run has paid for costs the next one nothing.

A cache is a folder::

    cache.json              its layout; written first
    entries/ab/<key>        an answer by the request_key of its call: see :func:`_packed`
    lock                    held while somebody prunes

An entry has its name when it is whole, and every hit checks its sha256. So any number of processes may share
a folder, be killed at any moment, or lose the disk's last writes: a damaged entry is no hit, and is removed.
The time of change of an entry says when it was last used.
"""

import hashlib
import json
import logging
import os
import random
import re
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from filelock import FileLock, Timeout

from speechframe.errors import StoreError
from speechframe.settings import default_cache_folder
from speechframe.settings.typed import typed
from speechframe.store.schema import CALL_COLUMNS, Row

log = logging.getLogger(__name__)

GB = 2**30
LAYOUT = 2
MARKER, LOCK, ENTRIES = "cache.json", "lock", "entries"

KEY = re.compile(r"[0-9a-f]{32}")
"""Nothing else becomes the name of a file."""

_NOT_KEPT = frozenset(CALL_COLUMNS.names) - {
    "trace_id", "service", "model", "voice_id", "locale", "warnings", "sha256", "take", "finished_at",
} | {"text"}  # fmt: skip
"""What the call was, not what its answer is; and the text, which nobody who reads the folder is to find."""

_SHOWN = ("voice_id", "locale", "model", "format", "audio_seconds", "service")
_HOUR_S, _DAY_S = 3_600.0, 86_400.0
_DIGITS = 64
_PRUNED_TO, _PUT_BETWEEN_CHECKS = 0.8, 0.1
_BYTES_BETWEEN_CHECKS = 256 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A call in the cache, never its text; times are UTC, `last_used` is exact to an hour."""

    key: str
    bytes: int
    last_used: datetime
    made_at: datetime | None
    voice_id: str | None
    locale: str | None
    model: str | None
    format: str | None
    audio_seconds: float | None
    service: str | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed from a cache (leftovers of killed processes too), and what is still there."""

    entries: int
    bytes_freed: int
    entries_left: int
    bytes_left: int


class Cache:
    """A folder of answers by request_key. Thread-safe, and safe among processes.

    The service's identity and the take are part of a request_key, so answers of two services never mix.

    Parameters
    ----------
    folder
        Made, for its owner only, by the first :meth:`put`.
    max_bytes
        Of all entries; :meth:`put` prunes now and then when they are more. None for no limit.
    max_age_days
        Days after its last use an entry may go. None for no limit.

    Raises
    ------
    SettingsError
        When the folder is none of this machine.
    StoreError
        When the folder holds something else, or a cache of another layout.

    Examples
    --------
    >>> import tempfile
    >>> cache = Cache(tempfile.mkdtemp())
    >>> key = "0123456789abcdef" * 2
    >>> cache.put(key, {"format": "WAV", "credits": 1.0}, b"RIFF")
    True
    >>> cache.get(key)
    ({'format': 'WAV'}, b'RIFF')
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        max_bytes: float | None = None,
        max_age_days: float | None = None,
    ) -> None:
        # Absolute: a run goes on when its notebook changes folders.
        self.folder: Path = typed("cache", folder).absolute()
        self.max_bytes = max_bytes
        self.max_age_days = max_age_days
        self._lock = threading.Lock()
        self._is_made = False
        self._has_complained = False
        between = _BYTES_BETWEEN_CHECKS if max_bytes is None else max_bytes * _PUT_BETWEEN_CHECKS
        self._bytes_between_checks = between
        # From a random point: many short processes, each of which puts a little, prune as often as one.
        self._until_check = random.random() * between  # noqa: S311 - no secret
        self._check_layout()

    def has(self, keys: Sequence[str]) -> list[bool]:
        """Return for each call whether an entry has its key; nothing is read or verified."""
        found = [False] * len(keys)
        order = sorted(range(len(keys)), key=keys.__getitem__)
        for shard, places in groupby(order, lambda place: keys[place][:2]):
            names = {item.name for item in _scan(self.folder / ENTRIES / shard) if KEY.fullmatch(item.name)}
            for place in places:
                found[place] = keys[place] in names
        return found

    def get(self, key: str) -> tuple[Row, bytes | None] | None:
        """Return the values and the audio of a call's answer, None where there is none.

        Its bytes are what was answered, by sha256; a damaged entry is removed.
        """
        if not KEY.fullmatch(key):
            return None
        path = self._path(key)
        try:
            with path.open("rb") as file:
                content, used_s = file.read(), os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        found = _unpacked(content)
        if found is None:
            log.info("%s: the entry of %s is damaged and is removed", self.folder, key)
            self._remove(path)
        elif time.time() - used_s > _HOUR_S:
            with suppress(OSError):
                os.utime(path)
        return found

    def put(self, key: str, row: Row, audio: bytes | None) -> bool:
        """Keep the answer of a call; return whether it is kept.

        Nothing is raised when the folder takes no more: the run goes on without it, and one warning is
        logged. Now and then, when a limit is passed, this prunes, which takes seconds for 10 GB.

        Parameters
        ----------
        key
            The call's request_key.
        row
            Its record, as the journal has it. What it cost and its text are not kept.
        audio
            The bytes of its audio.
        """
        if not KEY.fullmatch(key):
            return False
        content = _packed(row, audio)
        try:
            self._write(self._path(key), content)
        except (OSError, StoreError) as error:
            self._complain(error)
            return False
        self._count(len(content))
        return True

    def entries(self) -> Iterator[Entry]:
        """Yield every readable entry, in no order; their audio is not read."""
        for item in self._files():
            if (row := _head_of(item)) is not None:
                said = item.stat(follow_symlinks=False)
                used, made = said.st_mtime, row.get("finished_at")
                yield Entry(
                    key=item.name,
                    bytes=said.st_size,
                    last_used=datetime.fromtimestamp(used, UTC),
                    made_at=None if made is None else datetime.fromtimestamp(made, UTC),
                    **{name: row.get(name) for name in _SHOWN},
                )

    def size(self) -> int:
        """Return the bytes of all entries, by listing the folder."""
        return sum(item.stat(follow_symlinks=False).st_size for item in self._files())

    def prune(
        self, *, max_bytes: float | None = None, max_age_days: float | None = None, dry_run: bool = False
    ) -> Pruned:
        """Remove entries until the limits hold, the least recently used first.

        What killed processes left goes too, once it is older than a day. Links stay, and what they lead to.

        Parameters
        ----------
        max_bytes, max_age_days
            Instead of the cache's own limits; infinity for none.
        dry_run
            Remove nothing, only say what would be.

        Raises
        ------
        StoreError
            When the folder cannot be written.
        """
        most = self.max_bytes if max_bytes is None else max_bytes
        oldest = self.max_age_days if max_age_days is None else max_age_days
        if dry_run or not (self.folder / MARKER).exists():
            return self._prune(most, oldest, dry_run=True)
        with self._using(), FileLock(self.folder / LOCK):
            return self._prune(most, oldest, dry_run=False)

    def __repr__(self) -> str:
        return f"Cache({str(self.folder)!r})"

    # -- files -----------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self.folder / ENTRIES / key[:2] / key

    def _files(self) -> "Iterator[os.DirEntry[str]]":
        """Yield all files of entries, unfinished ones among them, without following links."""
        if (self.folder / ENTRIES).is_symlink():
            return
        for shard in _scan(self.folder / ENTRIES):
            if shard.is_dir(follow_symlinks=False):
                yield from (item for item in _scan(shard.path) if item.is_file(follow_symlinks=False))

    def _remove(self, path: Path) -> bool:
        """Remove a file, unless a link leads to it; return whether it is gone."""
        if path.parent.is_symlink() or path.parent.parent.is_symlink():
            return False
        with suppress(OSError):
            path.unlink()
        return not path.exists()

    def _write(self, path: Path, content: bytes) -> None:
        # Without fsync: after a power cut a file may be empty, and the reader's check makes that no hit.
        if not self._is_made:
            self._make()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.parent.is_symlink() or path.parent.parent.is_symlink():
            raise StoreError(f"{path.parent} is a link")
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        except BaseException:
            self._remove(temporary)
            raise

    def _make(self) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if not (self.folder / MARKER).exists():
            temporary = self.folder / f".{secrets.token_hex(8)}.tmp"
            temporary.write_text(json.dumps({"layout": LAYOUT}))
            temporary.replace(self.folder / MARKER)
        self._is_made = True

    def _check_layout(self) -> None:
        hint = "name an empty or a new folder as cache"
        with self._using():
            # First: another process may be making the cache.
            is_empty = all(item.name.startswith(".") for item in _scan(self.folder))
            try:
                layout = json.loads((self.folder / MARKER).read_bytes())["layout"]
            except FileNotFoundError:
                if is_empty:
                    return
                raise StoreError(f"{self.folder} holds other files and no cache: {hint}") from None
            except (ValueError, TypeError, LookupError):
                layout = None
        if layout != LAYOUT:
            said = f"is a cache of layout {layout!r}, this version has layout {LAYOUT}"
            raise StoreError(f"{self.folder} {said}: remove the folder, or {hint}")

    @contextmanager
    def _using(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = f"the cache {self.folder} cannot be used ({error.strerror or error})"
            raise StoreError(f"{said}: make the folder writable, or name another as cache") from error

    def _complain(self, error: Exception) -> None:
        with self._lock:
            first, self._has_complained = not self._has_complained, True
        if first:
            log.warning("the cache %s takes nothing (%s): runs go on without it", self.folder, error)

    # -- limits ----------------------------------------------------------------------

    def _count(self, added: int) -> None:
        """Prune to well below the limits, if so much was put that they may be passed."""
        if self.max_bytes is None and self.max_age_days is None:
            return
        with self._lock:
            self._until_check -= added
            if self._until_check > 0:
                return
            self._until_check = self._bytes_between_checks
        passed = self.max_bytes is not None and self.size() > self.max_bytes
        most = self.max_bytes * _PRUNED_TO if passed and self.max_bytes is not None else None
        # Another process that prunes does it for all.
        with suppress(OSError, Timeout), FileLock(self.folder / LOCK, blocking=False):
            self._prune(most, self.max_age_days, dry_run=False)

    def _prune(self, most_bytes: float | None, oldest_days: float | None, *, dry_run: bool) -> Pruned:
        now_s = time.time()
        found = [(item, item.stat(follow_symlinks=False)) for item in self._files()]
        found.sort(key=lambda pair: pair[1].st_mtime)
        before = left = sum(said.st_size for _, said in found)
        removed = kept = 0
        for item, said in found:
            age_s = now_s - said.st_mtime
            if is_entry := KEY.fullmatch(item.name) is not None:
                is_old = oldest_days is not None and age_s > oldest_days * _DAY_S
                goes = is_old or (most_bytes is not None and left > most_bytes)
            else:
                goes = age_s > _DAY_S  # else somebody may be writing it
            if goes and (dry_run or self._remove(Path(item.path))):
                left -= said.st_size
                removed += is_entry
            else:
                kept += is_entry
        return Pruned(removed, before - left, kept, left)


def open_cache(
    option: "bool | str | os.PathLike[str] | None",
    *,
    folder: "str | os.PathLike[str] | None" = None,
    max_gb: float | None = None,
    max_age_days: float | None = None,
) -> Cache | None:
    """Return the cache a run is to use, or None.

    Parameters
    ----------
    option
        The run option ``cache``: a folder; True for the one of the settings, else the user's own; False for
        none; None for the one of the settings, if they name one.
    folder, max_gb, max_age_days
        ``cache``, ``cache_max_gb`` and ``cache_max_age_days`` of the settings.

    Raises
    ------
    SettingsError, StoreError
        See :class:`Cache`.

    Examples
    --------
    >>> open_cache(None) is None, open_cache(False, folder="anywhere") is None
    (True, True)
    >>> open_cache("here", max_gb=1).max_bytes
    1073741824
    """
    if option is False or (option is None and folder is None):
        return None
    if option is None or option is True:
        option = folder if folder is not None else default_cache_folder()
    max_bytes = None if max_gb is None else max_gb * GB
    return Cache(option, max_bytes=max_bytes, max_age_days=max_age_days)


def _packed(row: Row, audio: bytes | None) -> bytes:
    """Return an entry: the sha256 of what follows, a line of JSON, and the audio; a null for no audio."""
    kept = {name: value for name, value in row.items() if name not in _NOT_KEPT and value is not None}
    line = json.dumps({"values": kept, "has_audio": audio is not None}).encode() + b"\n"
    digest = hashlib.sha256(line)
    digest.update(audio or b"")
    return digest.hexdigest().encode() + b"\n" + line + (audio or b"")


def _unpacked(content: bytes) -> tuple[Row, bytes | None] | None:
    """Return what an entry holds, None when it is damaged."""
    digest, _, said = content.partition(b"\n")
    if hashlib.sha256(said).hexdigest().encode() != digest:
        return None
    line, _, audio = said.partition(b"\n")
    told = json.loads(line)
    return told["values"], audio if told["has_audio"] else None


def _head_of(item: "os.DirEntry[str]") -> Row | None:
    """Return the values of an entry without reading its audio; None for what is none."""
    if not KEY.fullmatch(item.name):
        return None
    try:
        with Path(item.path).open("rb") as file:
            file.readline(_DIGITS + 1)
            row: Row = json.loads(file.readline())["values"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return row


def _scan(folder: "Path | str") -> "list[os.DirEntry[str]]":
    with suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []
