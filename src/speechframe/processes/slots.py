"""Numbered slots that the processes of one machine share. The slots of a dead process are free.

A slot is a locked byte of an empty file. The kernel frees the locks of a dead process. The locks are open
file description locks, so each opening of the file has its own locks. Two runs in one process share slots as
two processes do.
"""

import functools
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

SLOTS, USERS = (0, 1 << 33), (1 << 33, 1 << 34)
"""Ranges of bytes of the file. Each slot is a byte of SLOTS. Each user locks one byte of USERS."""
_PIDS = 1 << 22
"""A number above all process ids of Linux. Users with equal ids (in containers) lock bytes this far apart."""
_FLOCK = struct.Struct("hhqqi0q")
"""C's ``struct flock``: kind, whence, start, length and process id."""


def shared_folder() -> Path | None:
    """Return the folder of this user's slots on this machine. Creates it if necessary.

    The folder is ``speechframe-UID`` in the machine's temporary folder, because several machines may share a
    home folder. Returns None, and logs the reason once, if processes cannot share slots safely. Reasons are a
    system other than Linux, a symbolic link, or a folder of another user. Each run then counts only its own
    calls.
    """
    folder = Path(tempfile.gettempdir()) / f"speechframe-{os.getuid() if CAN_SHARE else ''}"
    reason = "" if CAN_SHARE else "this system has no locks that end with their process"
    try:
        if not reason:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                folder.chmod(0o700)
                return folder
            reason = f"{folder} is a link or belongs to another user. Remove it, or set TMPDIR."
    except OSError as error:
        reason = f"the folder for it cannot be used: {error}"
    _log_alone(reason)
    return None


@functools.cache
def _log_alone(reason: str) -> None:
    words = "processes do not share the limit on a key's calls in flight: %s"
    logging.getLogger(__name__).warning(words, reason)


class Slots:
    """The slots of one file, seen by one of its users. Creates the file. With None, no slots are shared."""

    def __init__(self, path: Path | None) -> None:
        self._mine: set[int] = set()
        self._file = -1
        if path is None or not CAN_SHARE:
            return
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.utime(self._file)  # because cleaners of temporary folders delete files by age
        except OSError as error:
            _log_alone(f"the file for it cannot be used: {error}")
            return
        member = USERS[0] + os.getpid()
        while not self._lock(member):
            member += _PIDS

    def take(self, limit: int) -> int | None:
        """Lock the lowest free slot below `limit` and return its number. None if all are taken."""
        for slot in range(limit):
            if slot not in self._mine and self._lock(slot):
                self._mine.add(slot)
                return slot
        return None

    def give(self, slot: int) -> None:
        """Free a slot that :meth:`take` returned."""
        self._mine.remove(slot)
        if self._file >= 0:
            self._order(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, slot, 1)

    def close(self) -> None:
        """Free all slots. Safe to call twice."""
        if self._file >= 0:
            # Unlock explicitly. A forked child shares the open file, so closing it would keep the locks.
            self._order(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, 0, 0)
            os.close(self._file)
        self._file = -1
        self._mine.clear()

    def _lock(self, offset: int) -> bool:
        try:
            return self._file < 0 or bool(self._order(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, offset, 1))
        except (BlockingIOError, PermissionError):
            return False

    def _order(self, command: int, kind: int, start: int, length: int) -> tuple[int, int, int, int]:
        """Set, free or query a lock on bytes. Return kind, whence, start and length of a lock there."""
        order = _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
        return _FLOCK.unpack(fcntl.fcntl(self._file, command, order))[:4]

    def count_others(self, what: tuple[int, int]) -> int:
        """Return the number of slots that other users hold (`SLOTS`), or of other users (`USERS`)."""
        count, gaps = 0, [what]
        while self._file >= 0 and gaps:
            start, stop = gaps.pop()
            kind, _, first, length = self._order(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, start, stop - start)
            if kind != fcntl.F_UNLCK:
                end = min(first + length, stop)
                count += end - max(first, start)
                # The kernel returns any one lock in the range. Others may lie on both sides of it.
                gaps += [(low, high) for low, high in ((start, first), (end, stop)) if low < high]
        return count
