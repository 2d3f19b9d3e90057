"""One writer a run: a lock the kernel frees when its holder dies, and a note of who holds it."""

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from speechframe.errors import RunLocked
from speechframe.old_store import files
from speechframe.old_store.holder import HOLDER_NAME, held
from speechframe.old_store.locate import work_folder
from speechframe.old_store.remote import Remote

__all__ = ["HOLDER_NAME", "LOCK_NAME", "is_held", "locked"]

LOCK_NAME = "lock"
_LOOK_S = 0.05


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the run's lock during the block; yield what raises RunLocked should it have been lost.

    Raises
    ------
    RunLocked
        When it is held, by another process or by this one; the words name the holder.
    """
    # thread_local=False: the thread that closes a run is often not the one that opened it.
    work = work_folder(folder)
    # Not at once refused: whoever only looks (is_held) holds it for a moment.
    lock = FileLock(work / LOCK_NAME, timeout=_LOOK_S, poll_interval=_LOOK_S / 5, thread_local=False)
    with files.storing(folder, "taking the run's lock"):
        try:
            lock.acquire()
        except Timeout:
            raise RunLocked(_held_by(folder, work)) from None
    try:
        with files.storing(folder, "taking the run's lock"):
            _sign(work / HOLDER_NAME)
        with _held(folder) as check:
            yield check
    finally:
        lock.release()


def is_held(folder: Path) -> bool:
    """Return whether a living process of this machine has the run open for writing."""
    try:
        descriptor = os.open(work_folder(folder) / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        # Shared: two that look do not see each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


@contextmanager
def _held(folder: Path) -> Iterator[Callable[[], None]]:
    if not isinstance(folder, Remote):
        yield lambda: None
        return
    with ExitStack() as stack:
        with files.storing(folder, "taking the run's lock"):
            holder = stack.enter_context(held(folder))
        yield holder.check


def _sign(path: Path) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    temp = files.temp_path(path)
    temp.write_text(json.dumps(holder))
    temp.replace(path)


def _held_by(folder: Path, work: Path) -> str:
    try:
        holder = json.loads((work / HOLDER_NAME).read_bytes())
        who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    here = f"{folder} is open for writing in {who}"
    if who.startswith(f"process {os.getpid()} on {socket.gethostname()}"):
        return f"{here}, this very process: finish or stop that run first"
    return f"{here}: wait for it, stop it, or choose another run_dir"
