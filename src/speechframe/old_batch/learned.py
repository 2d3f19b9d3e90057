"""The cap of a lane as it was learned last, by whichever process of this machine: small and never half."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from speechframe.old_store import files

_LOOK_S = 0.05
_PUBLISH_S = 0.05
_NEWS_S = 1.0

KnownRate = tuple[float, float, float]
"""Calls a second of all processes together: tried, let in (0 if none were), refused (infinite if none were).
Zeros where pacing was given up."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A cap that a process has found.

    Parameters
    ----------
    cap
        Calls that may be in flight together.
    at
        When it was found, in seconds since 1970.
    sequence
        Number of the finding; a later one is higher.
    is_floor
        Nothing was refused yet: so many are let in, and perhaps far more.
    rate
        Where calls are paced, or were.
    """

    cap: int
    at: float
    sequence: int
    is_floor: bool = False
    rate: KnownRate | None = None


class LearnedCap:
    """What all processes of a lane know of its cap.

    Parameters
    ----------
    path
        The file; None keeps it in this process.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: Learned | None = None
        self._stamp: tuple[int, int] | None = None
        self._looked_at = float("-inf")

    def read(self) -> Learned | None:
        """Return the last finding; the file is looked at twenty times a second at most."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            self._look()
        return self._known

    def publish(
        self, cap: int, at: float, *, is_floor: bool = False, rate: KnownRate | None = None
    ) -> Learned | None:
        """Make a finding the last one, unless a later one is there; return the one in force."""
        with self._alone():
            known = self._look()
            # A finding of the future is one of a clock that was set back.
            if known is None or not at < known.at <= time.time():
                if rate is None and known is not None and 0 <= at - known.at < _NEWS_S:
                    # Whoever counts calls in flight has not yet heard that another paces them.
                    rate = known.rate if known.rate and known.rate[0] else None
                self._known = Learned(cap, at, known.sequence + 1 if known else 1, is_floor, rate)
                self._write(self._known)
            return self._known

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._path is None:
            yield
            return
        lock = FileLock(f"{self._path}.lock", timeout=_PUBLISH_S, poll_interval=0.002)
        try:
            lock.acquire()
        except (Timeout, OSError):
            # Whoever holds it for so long was stopped in the middle: better two findings at once than none.
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def _look(self) -> Learned | None:
        if self._path is None:
            return self._known
        # What cannot be read is no finding: the next one replaces it.
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
            found = self._path.stat()
            # A file that takes another's place has another number or another time.
            if (stamp := (found.st_ino, found.st_mtime_ns)) != self._stamp:
                said = json.loads(self._path.read_bytes())
                rate = None
                if said.get("rate") is not None:
                    tried, let_in, refused = map(float, said["rate"])
                    rate = (tried, let_in, refused)
                is_floor = said.get("is_floor") is True
                learned = Learned(int(said["cap"]), float(said["at"]), int(said["sequence"]), is_floor, rate)
                self._stamp = stamp
                if learned.cap >= 1:
                    self._known = learned
        return self._known

    def _write(self, learned: Learned) -> None:
        if self._path is None:
            return
        # Without the file every process learns for itself, which is no reason to stop a run.
        with suppress(OSError):
            temp = files.temp_path(self._path)
            temp.write_text(json.dumps(asdict(learned)))
            temp.replace(self._path)
