"""Places that processes of one machine share: locked bytes of one file, free the moment their holder dies.

The kernel keeps the locks, so nothing is written and nothing is left to clean
up: whoever holds a byte holds a place, and a killed process holds none. Open
file description locks, and neither of the other two kinds: classic POSIX locks
are lost when *any* descriptor of the file is closed in the process, and
``flock`` takes a file for every place. The library ``filelock`` opens, locks
and closes a file each time, which costs forty times as much and cannot count.
Measured: a byte is locked and freed in 2.6 us, a ``filelock`` in 110.

Bytes beyond the end of the file can be locked, so an offset may mean more than
a number: that of a raised hand says when it was raised and for how long its
owner has been waiting (:class:`Hand`). Nobody has to be trusted to take it back.
"""

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

if sys.platform == "linux":
    import fcntl

CAN_SHARE = sys.platform == "linux"
"""Whether this system has the locks that sharing needs."""

PLACES = range(1 << 32)
"""Offsets of places."""
MEMBERS = range(1 << 33, 1 << 34)
"""Offsets of processes that use the file, each at its process id."""
TURNS = range(1 << 35, 1 << 39)
"""Offsets of turns: when each process began a call, where calls are paced."""
ASKERS = range(1 << 39, (1 << 39) + len(TURNS))
"""Offsets of those who wait for a turn: when each asks again."""
_HANDS = range(1 << 40, (1 << 63) - 1)

_PIDS = 1 << 22
"""More process ids than Linux gives; equal ones, of two containers, are this far apart."""

# struct flock: kind, whence, start, length, process id; the padding at its end is the compiler's.
_FLOCK = struct.Struct("hhqqi0q")

_TICK_NS = 25_000_000
_FRESH_TICKS = 8
_WAITED_BITS = 24
_TICK_BITS = _WAITED_BITS + 1
_MOST_WAITED_MS = (1 << _WAITED_BITS) - 1


@dataclass(frozen=True, slots=True)
class Hand:
    """A process that waits for a place and has less than its share.

    Seen for a fifth of a second after it was last raised, so that a stopped
    process holds up nobody.

    Parameters
    ----------
    tick
        When it was raised, in steps of 25 ms of the machine's clock.
    waited_ms
        Milliseconds its owner will have been waiting at the end of that step.
    is_below_share
        Whether its owner has less than is due to everyone, and not only less
        than it might have because the places do not divide evenly.
    """

    tick: int
    waited_ms: int
    is_below_share: bool

    @classmethod
    def raised(cls, now_ns: int, *, since_ns: int, is_below_share: bool) -> Self:
        """Return the hand of a process that has been waiting since `since_ns` (``time.monotonic_ns()``)."""
        tick = now_ns // _TICK_NS
        # Counted to the end of the step, which is never before the wait began.
        waited_ms = ((tick + 1) * _TICK_NS - since_ns) // 1_000_000
        # Half of what fits: equal hands make room for one another by adding to it.
        return cls(tick, min(waited_ms, _MOST_WAITED_MS // 2), is_below_share)

    @classmethod
    def at(cls, offset: int) -> Self:
        """Return the hand that a locked byte stands for.

        Examples
        --------
        >>> hand = Hand(tick=9, waited_ms=250, is_below_share=True)
        >>> Hand.at(hand.offset) == hand
        True
        """
        code = offset - _HANDS.start
        waited_ms = code & _MOST_WAITED_MS
        return cls(code >> _TICK_BITS, waited_ms, bool(code >> _WAITED_BITS & 1))

    @property
    def offset(self) -> int:
        """The byte that is locked for it."""
        return _HANDS.start + (self.tick << _TICK_BITS | self.is_below_share << _WAITED_BITS | self.waited_ms)

    @property
    def since_ms(self) -> int:
        """Millisecond of the machine's clock since which its owner has been waiting."""
        return (self.tick + 1) * (_TICK_NS // 1_000_000) - self.waited_ms


class SharedFile:
    """Locks on the bytes of a file, against other processes and other objects of this one.

    Parameters
    ----------
    path
        The file; made when missing. It stays empty.

    Raises
    ------
    OSError
        When it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o600)
        # Cleaners of temporary folders go by the time of the last change.
        os.utime(self._descriptor)

    def lock(self, offset: int) -> bool:
        """Lock a byte unless somebody else holds it."""
        order = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, order)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def unlock(self, offset: int) -> None:
        """Free a byte."""
        order = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, offset, 1, 0)
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, order)

    def some_of_others(self, start: int, stop: int) -> range | None:
        """Return a stretch from `start` to before `stop` that others hold; None when they hold nothing."""
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, stop - start, 0)
        answer = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, question)
        kind, _, first, length, _ = _FLOCK.unpack(answer)
        return None if kind == fcntl.F_UNLCK else range(max(first, start), min(first + length, stop))

    def of_others(self, start: int, stop: int) -> Iterator[range]:
        """Yield the stretches from `start` to before `stop` that others hold, in no order."""
        gaps = [(start, stop)]
        while gaps:
            low, high = gaps.pop()
            if low < high and (found := self.some_of_others(low, high)) is not None:
                yield found
                # The kernel tells some lock of the stretch, not the lowest: what lies before is asked again.
                gaps += [(low, found.start), (found.stop, high)]

    def join(self) -> None:
        """Show others that this process uses the file, until it is closed."""
        offset = MEMBERS.start + os.getpid()
        while not self.lock(offset):
            offset += _PIDS

    def hands(self, now_ns: int) -> Iterator[Hand]:
        """Yield the raised hands of others."""
        oldest = now_ns // _TICK_NS - _FRESH_TICKS
        start = Hand(oldest, waited_ms=0, is_below_share=False).offset
        for found in self.of_others(start, _HANDS.stop):
            yield from map(Hand.at, found)

    def close(self) -> None:
        """Free every byte held here; in a forked child, let go of the parent's without freeing them."""
        os.close(self._descriptor)


class PrivateFile:
    """Stands in for a :class:`SharedFile` where nothing can be shared: there is nobody else."""

    def lock(self, offset: int) -> bool:  # noqa: D102 - as SharedFile
        del offset
        return True

    def unlock(self, offset: int) -> None:  # noqa: D102 - same
        pass

    def some_of_others(self, start: int, stop: int) -> range | None:  # noqa: D102 - same
        del start, stop
        return None

    def of_others(self, start: int, stop: int) -> Iterator[range]:  # noqa: D102 - same
        del start, stop
        return iter(())

    def hands(self, now_ns: int) -> Iterator[Hand]:  # noqa: D102 - same
        del now_ns
        return iter(())

    def join(self) -> None:  # noqa: D102 - same
        pass

    def close(self) -> None:  # noqa: D102 - same
        pass
