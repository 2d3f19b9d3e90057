"""Permits that all processes of a user on this machine share: as many calls together as the key allows.

A permit is a place in a file of the lane (``places``): whoever holds it may
have one attempt in flight. A process that dies, in whatever way, holds none.
Beside the file lies the cap that was learned last, by whichever process.

Nobody gets less than a fair share: a process that waits with less than
``limit // processes`` places raises its hand, and those with more leave what
they give back to it. Who has nothing to do raises no hand, so its share is used
by others. With fewer places than processes they go round, longest wait first.
"""

import logging
import os
import stat
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path

from speechframe.old_batch.learned import KnownRate, Learned, LearnedCap
from speechframe.old_batch.places import CAN_SHARE, MEMBERS, PLACES, Hand, PrivateFile, SharedFile
from speechframe.old_batch.turns import Turns

POLL_S = 0.005
"""Seconds after which a process that got no place asks again. One asker a process is enough; who asks less
often than five times a second loses its turn."""

_OTHERS_LOOK_S = 0.2
_WAIT_GAP_NS = 200_000_000
_GOLDEN = (5**0.5 - 1) / 2

log = logging.getLogger("speechframe.old_batch")


def shared_folder() -> Path | None:
    """Return the folder of this user's permits on this machine, made when missing.

    ``speechframe-UID`` in the machine's temporary folder and not in the home, which several machines may
    share. None where nothing safe can be shared: another system than Linux, a folder that belongs to
    somebody else, a symbolic link. Each process then counts for itself, which is logged once.
    """
    if not CAN_SHARE:
        _say_private("this system has no locks that a dead process loses at once")
        return None
    try:
        folder = Path(tempfile.gettempdir()) / f"speechframe-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            _say_private(f"{folder} is a link or belongs to another user; remove it, or set TMPDIR")
            return None
        folder.chmod(0o700)
    except OSError as error:
        _say_private(f"their folder cannot be used: {error}")
        return None
    return folder


class SharedPermits:
    """Places of one lane, shared by all processes of this user on this machine.

    Several objects of one process share like several processes, so that one run does not keep another
    waiting; each gives back its own places when it is closed. May be used from several threads. In a forked
    child it holds no place and counts as a process of its own.

    Parameters
    ----------
    folder
        Where the lane's file is, see :func:`shared_folder`; None counts within this process alone.
    name
        What tells the lane: service identity, fingerprint of the key, region, pool. Files are named by
        its hash.

    Examples
    --------
    >>> first, second = SharedPermits(None, name="demo"), SharedPermits(None, name="demo")
    >>> place = first.try_take(limit=1)
    >>> second.try_take(limit=1) is None
    True
    >>> first.give(place)
    >>> second.try_take(limit=1) is None
    False
    >>> first.close(), second.close()
    (None, None)
    """

    def __init__(self, folder: Path | None, *, name: str) -> None:
        self._is_open = True
        self._lane = _enter(folder, name)

    def try_take(self, limit: int, *, out_of_turn: bool = False) -> int | None:
        """Return a place when fewer than `limit` are held by all processes together, else None.

        Never waits. After None, ask again every :data:`POLL_S` while a place is wanted. `limit` is what the
        key allows and should be the same in all processes (:attr:`learned`); a smaller wish of one process
        is its own to count. When it shrinks below what is held, nothing is given out until enough came back.
        `out_of_turn` is for a place that the others, whose limit is lower, cannot take.

        Raises
        ------
        ValueError
            After :meth:`close`.
        """
        if not self._is_open:
            raise ValueError("these permits are closed: make new ones")
        return self._lane.take(limit, self, out_of_turn=out_of_turn)

    def give(self, place: int) -> None:
        """Give a place back; one that is not held here (after a close, or a fork) is none to give."""
        self._lane.give(place, self)

    def held(self) -> int:
        """Return how many places all processes hold together now."""
        return self._lane.held()

    def held_here(self) -> int:
        """Return how many places this object holds (without a shared file: this process)."""
        return len(self._lane.owners)

    def others(self) -> int:
        """Return how many others use this lane now; looked up five times a second at most."""
        return self._lane.others()

    @property
    def learned(self) -> Learned | None:
        """The cap found last by any of the processes; looked up twenty times a second at most."""
        return self._lane.learned()

    def turn_s(self, gap_s: float) -> float:
        """Take the turn to begin a call, of all processes that pace theirs `gap_s` apart; see ``turns``."""
        return self._lane.turn_s(gap_s)

    def publish(
        self, cap: int, at: float, *, is_floor: bool = False, rate: KnownRate | None = None
    ) -> Learned | None:
        """Tell the others a :class:`Learned`, unless a later one is there, and return the one in force."""
        return self._lane.publish(cap, at, is_floor=is_floor, rate=rate)

    def close(self) -> None:
        """Give every place of this object back; calling it again does nothing."""
        if self._is_open:
            self._is_open = False
            _leave(self._lane, self)


@dataclass(eq=False)
class _Lane:
    """What this process knows and holds of a lane."""

    folder: Path | None
    name: str
    users: int = 0
    owners: dict[int, object] = field(default_factory=dict)
    """Place to the object that took it."""

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: when made, and in a forked child, whose parent goes on with what was held."""
        self.owners.clear()
        self._mutex = threading.Lock()
        self._given: dict[int, None] = {}
        self._hand: Hand | None = None
        self._turns = Turns()
        self._waiting_since_ns = self._asked_ns = 0
        self._others, self._others_at = 0, float("-inf")
        self._cap = LearnedCap(None if self.folder is None else self._path("cap"))
        self._opened: SharedFile | PrivateFile | None = None

    def leave_to_parent(self) -> None:
        """Close the descriptor that a fork has doubled; the parent's locks stay."""
        if self._opened is not None:
            self._opened.close()

    def _path(self, suffix: str) -> Path:
        stem = blake2b(self.name.encode(), digest_size=16, person=b"speechframe-lane").hexdigest()
        assert self.folder is not None  # noqa: S101 - asked by every caller
        return self.folder / f"{stem}.{suffix}"

    def join(self) -> bool:
        """Open the file, so that others see this process; False when there is none to share."""
        with self._mutex:
            return isinstance(self._file, SharedFile)

    @property
    def _file(self) -> SharedFile | PrivateFile:
        # Not before it is used: a forked child that makes no calls is no process to share with.
        if self._opened is None:
            self._opened = self._open()
            self._opened.join()
        return self._opened

    def _open(self) -> SharedFile | PrivateFile:
        if self.folder is None:
            return PrivateFile()
        try:
            return SharedFile(self._path("lane"))
        except OSError as error:
            _say_private(f"their file cannot be used: {error}")
            return PrivateFile()

    # -- places ------------------------------------------------------------------

    def take(self, limit: int, owner: object, *, out_of_turn: bool = False) -> int | None:
        with self._mutex:
            here = len(self.owners)
            if here >= limit:
                return None
            processes = 1 + self._count_others()
            if processes == 1 or out_of_turn or self._may_take(here, limit, processes):
                place = self._lock_place(limit)
                if place is not None:
                    self.owners[place] = owner
                    self._lower_hand()
                    return place
            if processes > 1:
                self._wait(here, limit, processes)
            return None

    def give(self, place: int, owner: object) -> None:
        with self._mutex:
            if self.owners.get(place) is owner:
                self._unlock_place(place)

    def give_all(self, owner: object) -> None:
        with self._mutex:
            for place in [place for place, held_by in self.owners.items() if held_by is owner]:
                self._unlock_place(place)
            self._lower_hand()

    def _unlock_place(self, place: int) -> None:
        del self.owners[place]
        self._file.unlock(place)
        self._given[place] = None

    def _lock_place(self, limit: int) -> int | None:
        # The place given back last is nearly always free; to look for another costs a look at all.
        while self._given:
            place, _ = self._given.popitem()
            if place < limit and place not in self.owners and self._file.lock(place):
                return self._kept(place, limit)
        taken = set(self.owners)
        for found in self._file.of_others(PLACES.start, PLACES.stop):
            taken.update(found)
        if len(taken) >= limit:
            return None
        # Each process begins elsewhere: places side by side are one lock to the kernel, and found at once.
        first = int(os.getpid() * _GOLDEN % 1 * limit)
        for place in chain(range(first, limit), range(first)):
            if place not in taken and self._file.lock(place):
                return self._kept(place, limit)
        return None

    def _kept(self, place: int, limit: int) -> int | None:
        # Places below the limit cannot be too many. Where some are held above it, because it was higher
        # before, all of them are counted with this one: two that come at once may both step back.
        above = max(self.owners, default=0) >= limit
        if above or self._file.some_of_others(limit, PLACES.stop) is not None:
            others = sum(map(len, self._file.of_others(PLACES.start, PLACES.stop)))
            if others + len(self.owners) + 1 > limit:
                self._file.unlock(place)
                return None
        return place

    def held(self) -> int:
        with self._mutex:
            return len(self.owners) + sum(map(len, self._file.of_others(PLACES.start, PLACES.stop)))

    # -- fair shares ---------------------------------------------------------------

    def others(self) -> int:
        with self._mutex:
            return self._count_others()

    def _count_others(self) -> int:
        now = time.monotonic()
        if now - self._others_at >= _OTHERS_LOOK_S:
            self._others_at = now
            self._others = sum(map(len, self._file.of_others(MEMBERS.start, MEMBERS.stop)))
        return self._others

    def _may_take(self, here: int, limit: int, processes: int) -> bool:
        if processes <= limit and here < limit // processes:
            return True
        now_ns = time.monotonic_ns()
        since_ms = self._waits_since_ns(now_ns) // 1_000_000
        for hand in self._file.hands(now_ns):
            if processes > limit:
                if here or hand.since_ms < since_ms:
                    return False
            elif hand.is_below_share or here >= -(-limit // processes):
                return False
        return True

    def _wait(self, here: int, limit: int, processes: int) -> None:
        """Raise a hand, where less is held here than one of so many may have."""
        now_ns = time.monotonic_ns()
        self._waiting_since_ns, self._asked_ns = self._waits_since_ns(now_ns), now_ns
        if here >= -(-limit // processes):
            self._drop(self._hand)
            self._hand = None
            return
        is_below_share = here < max(1, limit // processes)
        hand = Hand.raised(now_ns, since_ns=self._waiting_since_ns, is_below_share=is_below_share)
        if self._hand is None or (hand.tick, is_below_share) != (self._hand.tick, self._hand.is_below_share):
            while not self._file.lock(hand.offset):
                hand = replace(hand, waited_ms=hand.waited_ms + 1)
            self._drop(self._hand)
            self._hand = hand

    def _waits_since_ns(self, now_ns: int) -> int:
        # Who has not asked for a while was not waiting.
        return self._waiting_since_ns if now_ns - self._asked_ns < _WAIT_GAP_NS else now_ns

    def _lower_hand(self) -> None:
        self._asked_ns = 0
        self._drop(self._hand)
        self._hand = None

    def _drop(self, hand: Hand | None) -> None:
        if hand is not None:
            self._file.unlock(hand.offset)

    # -- the learned cap -------------------------------------------------------------

    def learned(self) -> Learned | None:
        with self._mutex:
            return self._cap.read()

    def publish(self, cap: int, at: float, *, is_floor: bool, rate: KnownRate | None) -> Learned | None:
        with self._mutex:
            return self._cap.publish(cap, at, is_floor=is_floor, rate=rate)

    def turn_s(self, gap_s: float) -> float:
        with self._mutex:
            return self._turns.take(self._file, gap_s)

    def close(self) -> None:
        with self._mutex:
            if self._opened is not None:
                self._opened.close()
            # What is asked of it from now on must not reach a descriptor that means another file by then.
            self._opened = PrivateFile()


# -- the lanes of this process ------------------------------------------------------------

_lanes: dict[str, _Lane] = {}
"""Those without a file, counted in this process alone."""
_files: set[_Lane] = set()
"""Those with a file: each has a descriptor of its own, so two runs of a process share like two processes."""
_lanes_mutex = threading.Lock()
_said: set[str] = set()


def _say_private(why: str) -> None:
    if why not in _said:
        _said.add(why)
        log.warning("permits are not shared with other processes: %s", why)


def _enter(folder: Path | None, name: str) -> _Lane:
    with _lanes_mutex:
        lane = None if folder is None else _Lane(folder, name)
        if lane is not None and lane.join():
            _files.add(lane)
        else:
            # Counted here alone: by one object for all that have the name.
            lane = _lanes.setdefault(name, _Lane(None, name))
            lane.join()
        lane.users += 1
        return lane


def _leave(lane: _Lane, owner: object) -> None:
    with _lanes_mutex:
        lane.give_all(owner)
        lane.users -= 1
        if not lane.users:
            lane.close()
            _files.discard(lane)
            if lane.folder is None:
                del _lanes[lane.name]


def _after_fork() -> None:
    global _lanes_mutex  # noqa: PLW0603 - it may have been held by a thread that no longer exists
    _lanes_mutex = threading.Lock()
    for lane in (*_lanes.values(), *_files):
        lane.leave_to_parent()
        lane.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
