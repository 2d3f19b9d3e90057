"""Numbered slots that the processes of one machine share: a process that dies holds none.

A slot is a locked byte of a file, and the file stays empty. The kernel keeps the locks and frees those of a
dead process, so nothing has to be cleaned up. The locks are open file description locks: they belong to one
opening of the file, so two runs of one process share like two processes, and closing another file loses none.
"""

import logging
import os
import stat
import struct
import sys
import tempfile
from pathlib import Path

if sys.platform == "linux":
    import fcntl

CAN_SHARE = sys.platform == "linux"
"""Whether this system has the locks that sharing needs."""

_MEMBERS = range(1 << 33, 1 << 34)
"""Offsets of the bytes that users of the file lock, each at its process id."""
_PIDS = 1 << 22
"""More process ids than Linux has: two users with one process id (two containers) are this far apart."""
_FLOCK = struct.Struct("hhqqi0q")
"""C's ``struct flock``: kind, whence, start, length, process id."""

log = logging.getLogger(__name__)
_reasons_told: set[str] = set()


def shared_folder() -> Path | None:
    """Return the folder of this user's slots on this machine, made when missing.

    It is ``speechframe-UID`` in the machine's temporary folder, because several machines may share a home.
    None where nothing can be shared safely: on another system than Linux, or when the folder is a symbolic
    link or belongs to another user. Each run then counts alone, which is logged once.
    """
    if not CAN_SHARE:
        _alone("this system has no locks that end with their process")
        return None
    folder = Path(tempfile.gettempdir()) / f"speechframe-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            _alone(f"{folder} is a link or belongs to another user: remove it, or set TMPDIR")
            return None
        folder.chmod(0o700)
    except OSError as error:
        _alone(f"the folder for it cannot be used: {error}")
        return None
    return folder


def _alone(reason: str) -> None:
    if reason not in _reasons_told:
        _reasons_told.add(reason)
        log.warning("processes do not share how many calls a key may have in flight: %s", reason)


class Slots:
    """The slots of one file, as one of its users sees them.

    Parameters
    ----------
    path
        The file, made when missing; None for slots that nobody else uses.

    Examples
    --------
    >>> slots = Slots(None)
    >>> slots.take(2), slots.take(2), slots.take(2)
    (0, 1, None)
    >>> slots.give(0)
    >>> slots.take(2)
    0
    """

    def __init__(self, path: Path | None) -> None:
        self._mine: set[int] = set()
        self._file: int | None = None
        if path is None or not CAN_SHARE:
            return
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.utime(self._file)  # programs that clean temporary folders delete what has not changed for days
        except OSError as error:
            _alone(f"the file for it cannot be used: {error}")
            return
        member = _MEMBERS.start + os.getpid()
        while not self._lock(member):
            member += _PIDS

    def take(self, limit: int) -> int | None:
        """Lock the lowest free slot below `limit` and return its number; None when all are held."""
        for slot in range(limit):
            if slot not in self._mine and self._lock(slot):
                self._mine.add(slot)
                return slot
        return None

    def give(self, slot: int) -> None:
        """Free a slot that :meth:`take` returned."""
        self._mine.remove(slot)
        self._unlock(slot, 1)

    def held_by_others(self) -> int:
        """Return how many slots the other users of the file hold."""
        return self._count_others(range(_MEMBERS.start))

    def others(self) -> int:
        """Return how many other users the file has now."""
        return self._count_others(_MEMBERS)

    def close(self) -> None:
        """Free all slots; safe to call twice."""
        if self._file is not None:
            # Unlocked by name: a forked child has the same open file, which would keep the locks.
            self._unlock(0, 0)
            os.close(self._file)
            self._file = None
        self._mine.clear()

    def _lock(self, offset: int) -> bool:
        if self._file is None:
            return True
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(self, offset: int, length: int) -> None:
        if self._file is not None:
            order = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, offset, length, 0)
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, order)

    def _count_others(self, offsets: range) -> int:
        count, gaps = 0, [(offsets.start, offsets.stop)]
        while self._file is not None and gaps:
            start, stop = gaps.pop()
            question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, stop - start, 0)
            answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, question)
            kind, _, first, length, _ = _FLOCK.unpack(answer)
            if kind == fcntl.F_UNLCK:
                continue
            end = min(first + length, stop)
            count += end - max(first, start)
            # The kernel tells any one lock of the stretch: others may lie on both sides of it.
            gaps += [(low, high) for low, high in ((start, first), (end, stop)) if low < high]
        return count
