# ruff: noqa: PTH103, PTH105, PTH106, PTH110, PTH120, PTH123
# A path object for every file costs a hit a tenth of its time, and a listing half of it.
"""Answers kept across runs: a call that any run has paid for costs the next one nothing.

A cache is a folder that any number of runs, threads and processes share; see
:mod:`speechframe.old_store.cache_files` for what lies in it. Before a call is sent
:meth:`Cache.get` may have its answer; after it is done :meth:`Cache.put` keeps it.
"""

import hashlib
import itertools
import json
import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from os import PathLike

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout

from speechframe._version import __version__
from speechframe.errors import StoreError
from speechframe.old_store import cache_files, files
from speechframe.old_store.cache_files import Entry, Pruned
from speechframe.old_store.schema import CallStatus, Record
from speechframe.settings import default_cache_folder
from speechframe.settings.typed import typed

__all__ = ["GB", "Cache", "Entry", "Pruned", "open_cache"]

log = logging.getLogger(__name__)

GB = 2**30

_HOUR_S = 3_600.0
_NO_KEY = bytes(16)
_FEW_KEYS = 10_000
_CHUNK_KEYS = 65_536
_PRUNED_TO = 0.8
_CHECKS_PER_LIMIT = 10
_CHECK_BYTES = 2**28


class Cache:
    """A folder of answers by request_key. Thread-safe, and safe among processes.

    The service's identity is part of a request_key, so answers of two services never mix. Beside audio an
    entry holds the words with their times, that of a translation the translation, so a reader of the folder
    can read what was said; the text as it was sent is not kept.

    Parameters
    ----------
    folder
        Made, for its owner only, by the first :meth:`put`.
    max_bytes
        Of all files; :meth:`put` prunes now and then when they are more. None for no limit.
    max_age_days
        Days after its last use an entry may go. None for no limit.

    Raises
    ------
    SettingsError
        When the folder is none of this machine.
    StoreError
        When the folder holds something else, or a cache of a newer version.

    Examples
    --------
    >>> import tempfile
    >>> from speechframe.old_store import Record
    >>> cache = Cache(tempfile.mkdtemp())
    >>> key = "0123456789abcdef" * 2
    >>> cache.put(Record(key, "done", audio_bytes=b"RIFF", credits_millis=13_000))
    True
    >>> found = cache.get(key)
    >>> found.audio_bytes, found.status, found.credits_millis
    (b'RIFF', 'cached', 0)
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        max_bytes: float | None = None,
        max_age_days: float | None = None,
    ) -> None:
        # Absolute: a run goes on when its notebook changes folders.
        self.folder = typed("cache", folder).absolute()
        self.max_bytes = max_bytes
        self.max_age_days = max_age_days
        self._root = str(self.folder)
        self._token, self._numbers = secrets.token_hex(6), itertools.count()
        self._lock = threading.Lock()
        self._is_made = False
        self._has_complained = False
        # From a random point: many short processes, each of which puts a little, prune as often as one.
        self._until_check = random.random() * self._check_bytes()  # noqa: S311 - no secret
        cache_files.check_layout(self.folder)

    def get(self, request_key: str) -> Record | None:
        """Return the answer to a call, None where there is none.

        Its audio is what was answered, by sha256; a damaged or incomplete entry is removed and is a miss.

        Returns
        -------
        Record or None
            With the status ``cached``, no price, no attempts and no text: the caller knows that.
            ``trace_id`` is that of the call that was made once.
        """
        path = self._entry_path(request_key)
        if path is None:
            return None
        try:
            with open(path, "rb", buffering=0) as file:
                content, used_s = file.read(), os.fstat(file.fileno()).st_mtime
            kept = cache_files.unpacked(content)
            digest = None if kept is None else kept["sha256"]
            audio = self._audio(digest) if digest else None
        except OSError:
            return None
        if kept is None or (digest and audio is None):
            log.info("%s: the entry of %s is damaged and goes", self.folder, request_key)
            cache_files.unlink(path)
            return None
        if time.time() - used_s > _HOUR_S:
            with suppress(OSError):
                os.utime(path)
        return cache_files.record_of(request_key, kept, audio)

    def put(self, record: Record) -> bool:
        """Keep the answer of a call that is ``done``; return whether it is kept.

        Nothing is raised when the folder takes no more: the run goes on without it, and one warning is
        logged. Now and then, when a limit is passed, this prunes, which takes seconds for 10 GB.
        """
        audio = record.audio_bytes
        path = self._entry_path(record.request_key)
        is_answer = audio is not None or record.translated_text is not None
        if path is None or not is_answer or record.status != CallStatus.DONE:
            return False
        digest = "" if audio is None else hashlib.sha256(audio).hexdigest()
        content = cache_files.packed(record, digest)
        try:
            if audio is not None and not self._has(digest, len(audio)):
                self._write(cache_files.audio_path(self._root, digest), audio)
            self._write(path, content)
        except (OSError, StoreError) as error:
            self._complain(error)
            return False
        self._count(len(audio or b"") + len(content))
        return True

    def holds(self, request_keys: "npt.NDArray[np.void] | Iterable[str]") -> npt.NDArray[np.bool_]:
        """Return True where a call is in the cache by name; nothing is read or verified.

        Parameters
        ----------
        request_keys
            16 bytes each (dtype ``V16``), or 32 hex digits each.
        """
        keys = request_keys if isinstance(request_keys, np.ndarray) else _as_keys(request_keys)
        if len(keys) <= _FEW_KEYS:
            here = (os.path.exists(self._entry_path(key.hex()) or "") for key in keys.tolist())
            return np.fromiter(here, np.bool_, len(keys))
        # Each half on its own: of hashes, both being there without the whole is rarer than a failing disk.
        known = [np.sort(half) for half in _halves(_as_keys(cache_files.key_names(self._root)))]
        found = np.empty(len(keys), np.bool_)
        for start in range(0, len(keys), _CHUNK_KEYS):
            some = slice(start, start + _CHUNK_KEYS)
            found[some] = np.logical_and(*map(_among, _halves(keys[some]), known))
        return found

    def entries(self) -> Iterator[Entry]:
        """Yield every readable entry, in no order; their audio is not read."""
        for file in cache_files.listed(self._root, cache_files.ENTRIES):
            found = cache_files.entry_of(self._root, file) if cache_files.KEY.fullmatch(file.name) else None
            if found is not None:
                yield found

    def size(self) -> int:
        """Return the bytes of all entries and audio, by listing the folder."""
        return sum(
            file.size
            for room in (cache_files.ENTRIES, cache_files.AUDIO)
            for file in cache_files.listed(self._root, room)
        )

    def prune(
        self, *, max_bytes: float | None = None, max_age_days: float | None = None, dry_run: bool = False
    ) -> Pruned:
        """Remove entries until the limits hold, the least recently used first.

        Audio goes with the last entry that names it. Damaged entries go too, and what killed processes
        left, once it is older than a day.

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
        if dry_run or not (self.folder / cache_files.MARKER).exists():
            return cache_files.prune(self._root, most, oldest, dry_run=True)
        with cache_files.using(self.folder), FileLock(self.folder / cache_files.LOCK):
            return cache_files.prune(self._root, most, oldest, dry_run=False)

    def __repr__(self) -> str:
        return f"Cache({self._root!r})"

    # -- files -----------------------------------------------------------------------

    def _entry_path(self, request_key: str) -> str | None:
        """Return where the entry of a key lies, None for what is no key and so no file name either."""
        if not cache_files.KEY.fullmatch(request_key):
            return None
        return cache_files.entry_path(self._root, request_key)

    def _has(self, digest: str, size: int) -> bool:
        if not cache_files.touch(cache_files.audio_path(self._root, digest), size):
            return False
        # Read, too: after a power cut an entry and its audio may both be zeros, as long as they were.
        return self._audio(digest) is not None

    def _audio(self, digest: str) -> bytes | None:
        path = cache_files.audio_path(self._root, digest)
        try:
            with open(path, "rb", buffering=0) as file:
                content = file.read()
        except FileNotFoundError:
            return None
        if hashlib.sha256(content).hexdigest() != digest:
            cache_files.unlink(path)
            return None
        return content

    def _write(self, final: str, content: bytes) -> None:
        # Without fsync: after a power cut a file may be empty, and the reader's check makes that a miss.
        if not self._is_made:
            self._make()
        shard = os.path.dirname(final)
        temp = f"{shard}/{self._temp_name()}"
        try:
            try:
                file = open(temp, "xb")  # noqa: SIM115 - closed below, whichever of the two it is
            except FileNotFoundError:
                self._make()
                os.makedirs(shard, mode=0o700, exist_ok=True)
                file = open(temp, "xb")  # noqa: SIM115 - same
            with file:
                file.write(content)
            try:
                os.replace(temp, final)
            except IsADirectoryError:
                # Somebody's; an empty one is nothing to keep.
                os.rmdir(final)
                os.replace(temp, final)
        except BaseException:
            cache_files.unlink(temp)
            raise

    def _temp_name(self) -> str:
        # The process too: a fork has the same token and the same numbers.
        return f".{self._token}-{os.getpid()}-{next(self._numbers)}.tmp"

    def _make(self) -> None:
        files.private_folder(self.folder)
        marker = self.folder / cache_files.MARKER
        if not marker.exists():
            cache_files.check_layout(self.folder)
            temp = self.folder / self._temp_name()
            temp.write_text(
                json.dumps({"layout": cache_files.LAYOUT, "speechframe_version": __version__}) + "\n"
            )
            files.sync_file(temp)
            temp.replace(marker)
        for room in (cache_files.ENTRIES, cache_files.AUDIO):
            (self.folder / room).mkdir(mode=0o700, exist_ok=True)
        self._is_made = True

    def _complain(self, error: Exception) -> None:
        with self._lock:
            first, self._has_complained = not self._has_complained, True
        if first:
            why = error.strerror if isinstance(error, OSError) else error
            log.warning("the cache %s takes nothing (%s): runs go on without it", self.folder, why)

    # -- limits ----------------------------------------------------------------------

    def _check_bytes(self) -> float:
        return _CHECK_BYTES if self.max_bytes is None else self.max_bytes / _CHECKS_PER_LIMIT

    def _count(self, added: int) -> None:
        """Prune to well below the limits, if so much was put that they may have been passed."""
        if self.max_bytes is None and self.max_age_days is None:
            return
        with self._lock:
            self._until_check -= added
            if self._until_check > 0:
                return
            # Until this check is done, no other thread starts one.
            self._until_check = float("inf")
        room = 0.0
        try:
            room = self._tidied()
        except OSError as error:
            self._complain(error)
        finally:
            with self._lock:
                # Others fill the same room: look again when half of it is used up.
                self._until_check = max(self._check_bytes(), room / 2)

    def _tidied(self) -> float:
        """Prune if a limit is passed; return the bytes that still fit."""
        size = self.size()
        passed = self.max_bytes is not None and size > self.max_bytes
        if passed or self.max_age_days is not None:
            most = self.max_bytes * _PRUNED_TO if passed and self.max_bytes is not None else None
            # Another process that prunes does it for all.
            with suppress(Timeout), FileLock(self.folder / cache_files.LOCK, blocking=False):
                # Quick: a thread of a run waits for it.
                left = cache_files.prune(self._root, most, self.max_age_days, dry_run=False, is_quick=True)
                size = left.bytes_left
        return 0 if self.max_bytes is None else self.max_bytes - size


def open_cache(
    option: "bool | str | PathLike[str] | None",
    *,
    folder: "str | PathLike[str] | None" = None,
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
        chosen = folder if folder is not None else default_cache_folder()
    else:
        chosen = option
    max_bytes = None if max_gb is None else max_gb * GB
    return Cache(chosen, max_bytes=max_bytes, max_age_days=max_age_days)


def _as_keys(names: Iterable[str]) -> "npt.NDArray[np.void]":
    packed = bytearray()
    for name in names:
        packed += bytes.fromhex(name) if cache_files.KEY.fullmatch(name) else _NO_KEY
    return np.frombuffer(packed, "V16")


def _halves(keys: "npt.NDArray[np.void]") -> "list[npt.NDArray[np.uint64]]":
    return [
        np.ascontiguousarray(half) for half in np.ascontiguousarray(keys).view(np.uint64).reshape(-1, 2).T
    ]


def _among(values: "npt.NDArray[np.uint64]", known: "npt.NDArray[np.uint64]") -> npt.NDArray[np.bool_]:
    if not len(known):
        return np.zeros(len(values), np.bool_)
    found: npt.NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found
