"""Numbered slots that the processes of one machine share. The slots of a dead process are free again.

A taken slot is a locked byte of an empty file. The kernel frees the locks of a dead process. The locks are
open file description locks, so they belong to one opening of the file. So two runs in one process share slots
like two processes.
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

CAN_SHARE_SLOTS = sys.platform == "linux"

SLOT_BYTES_RANGE, USER_BYTES_RANGE = (0, 1 << 33), (1 << 33, 1 << 34)
"""First byte of two ranges of the file, and the byte after their last. The bytes of `SLOT_BYTES_RANGE` are
slots. Each user, which is one :class:`Slots` object, locks one byte of `USER_BYTES_RANGE`."""
_MAX_PROCESS_IDS = 1 << 22
"""A number above all process ids of Linux. If processes in different containers have the same id, the bytes
of their users are a multiple of this number apart."""
_FLOCK_LAYOUT = struct.Struct("hhqqi0q")
"""Layout of C's ``struct flock``: kind, whence, start, length and process id."""


def make_shared_folder() -> Path | None:
    """Create the folder for slots of the system's current user if necessary, and return it.

    The folder is ``speechframe-UID`` in the machine's temporary folder, because several machines may share a
    home folder. If processes cannot share slots safely, log the reason once and return None. Each run then
    counts only its own calls. Reasons are a system other than Linux, a symbolic link, or a folder of another
    user.
    """
    folder = Path(tempfile.gettempdir()) / f"speechframe-{os.getuid() if CAN_SHARE_SLOTS else ''}"
    reason = "" if CAN_SHARE_SLOTS else "this system has no locks that end with their process"
    try:
        if not reason:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                folder.chmod(0o700)
                return folder
            reason = f"{folder} is a link or belongs to another user. Remove it, or set TMPDIR."
    except OSError as error:
        reason = f"the folder of the slots cannot be used: {error}"
    _log_reason(reason)
    return None


@functools.cache
def _log_reason(reason: str) -> None:
    message = "processes do not share the limit on a key's calls in flight: %s"
    logging.getLogger(__name__).warning(message, reason)


class Slots:
    """One user of the slots in a file, which is created if necessary.

    If the path is None or the file cannot be used, this object counts its own slots and shares none.
    """

    def __init__(self, path: Path | None) -> None:
        self._mine: set[int] = set()
        self._file = -1
        if path is None or not CAN_SHARE_SLOTS:
            return
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.utime(self._file)  # because cleaners of temporary folders delete files by age
        except OSError as error:
            _log_reason(f"the file of the slots cannot be used: {error}")
            return
        member = USER_BYTES_RANGE[0] + os.getpid()
        while not self._lock(member):
            member += _MAX_PROCESS_IDS

    def take_slot(self, limit: int) -> int | None:
        """Take the lowest free slot below `limit` and return its number. Return None if all are taken."""
        return next(filter(self.take_this_slot, range(limit)), None)

    def take_this_slot(self, slot: int) -> bool:
        """Take one certain slot. Return False if it is taken."""
        is_free = slot not in self._mine and self._lock(slot)
        if is_free:
            self._mine.add(slot)
        return is_free

    def free_slot(self, slot: int) -> None:
        """Free a slot that :meth:`take_slot` returned."""
        self._mine.remove(slot)
        if self._file >= 0:
            self._request_lock(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, slot, 1)

    def close(self) -> None:
        """Free all slots of this user. A second call has no effect."""
        if self._file >= 0:
            # Unlock explicitly. A forked child shares the open file, so closing it would keep the locks.
            self._request_lock(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, 0, 0)
            os.close(self._file)
        self._file = -1
        self._mine.clear()

    def _lock(self, offset: int) -> bool:
        try:
            return self._file < 0 or bool(self._request_lock(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, offset, 1))
        except (BlockingIOError, PermissionError):
            return False

    def _request_lock(self, command: int, kind: int, start: int, length: int) -> tuple[int, int, int, int]:
        """Set, free or query a lock on some bytes. Return kind, whence, start and length of the answer."""
        order = _FLOCK_LAYOUT.pack(kind, os.SEEK_SET, start, length, 0)
        return _FLOCK_LAYOUT.unpack(fcntl.fcntl(self._file, command, order))[:4]

    def count_others(self, what: tuple[int, int]) -> int:
        """Return the number of slots that other users hold, or the number of other users.

        `what` is `SLOT_BYTES_RANGE` to count slots, or `USER_BYTES_RANGE` to count users.
        """
        count, gaps = 0, [what]
        while self._file >= 0 and gaps:
            start, stop = gaps.pop()
            kind, _, first, length = self._request_lock(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, start, stop - start)
            if kind != fcntl.F_UNLCK:
                end = min(first + length, stop)
                count += end - max(first, start)
                # The kernel returns one lock in the range. Search for further locks on both sides of this
                # lock.
                gaps += [(low, high) for low, high in ((start, first), (end, stop)) if low < high]
        return count
