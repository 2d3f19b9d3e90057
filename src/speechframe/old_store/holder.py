"""Who writes to a remote run: an object in it, beside the lock that the kernel keeps on each machine.

What is guaranteed:

- Two processes of one user on one machine never write to one run at once: the lock file in the run's local
  folder is the kernel's, and free as soon as its holder is dead.
- Across machines, where the store refuses to put an object over another one when asked to (S3 and its like,
  Google's store, ``memory://``), only one gets ``lock.json``. Elsewhere two that begin within the same second
  may both begin; the one whose name is gone from the object stops before its next file is put.
- A holder says every minute that it lives. One that was silent for ten minutes is taken for dead, and whoever
  comes next takes its place. Should it live on (a laptop that slept), it stops before its next file is put.
- Whatever happens, no file of another writer is written over but ``run.json`` and ``failed.parquet``, and
  what was acknowledged stays in the log of its machine until its parts are put or recovered there.
"""

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from speechframe.errors import RunLocked, StoreError
from speechframe.old_store.locate import work_root
from speechframe.old_store.remote import Remote

HOLDER_NAME = "lock.json"
BEAT_SECONDS = 60.0
SILENT = timedelta(minutes=10)
_SETTLE_SECONDS = 1.0


class Holder:
    """The process as the one that writes to a remote run.

    Parameters
    ----------
    folder
        The run.
    """

    def __init__(self, folder: Remote) -> None:
        self._folder = folder
        self._object = folder / HOLDER_NAME
        self._since = _now()
        self.token = secrets.token_hex(8)

    def take(self) -> None:
        """Become the holder.

        Raises
        ------
        RunLocked
            When another machine is.
        """
        if not self._object.claim(self._content()):
            there = self._read()
            if there and not _is_dead(there):
                raise RunLocked(_words(self._folder, there))
            self._object.replace_content(self._content())
            if there and there.get("machine") != machine():
                time.sleep(_SETTLE_SECONDS)  # another one may be taking over too
        self.check()

    def check(self) -> None:
        """Raise RunLocked when another machine has taken over, or nobody is the holder any more."""
        there = self._read()
        if there.get("token") != self.token:
            raise RunLocked(_words(self._folder, there))

    def beat(self) -> None:
        """Say that this process lives, unless another has taken over."""
        self.check()
        self._object.replace_content(self._content())

    def release(self) -> None:
        """Let go; what cannot be said now, silence will say."""
        with suppress(OSError, StoreError):
            self.check()
            self._object.unlink(missing_ok=True)

    def _content(self) -> bytes:
        said = {
            "pid": os.getpid(), "host": socket.gethostname(), "since": self._since, "at": _now(),
            "machine": machine(), "token": self.token,
        }  # fmt: skip
        return json.dumps(said).encode()

    def _read(self) -> Mapping[str, Any]:
        try:
            found = json.loads(self._object.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


@contextmanager
def held(folder: Remote) -> Iterator[Holder]:
    """Be the holder of a remote run during the block; under the lock of this machine.

    Raises
    ------
    RunLocked
        When a process on another machine is.
    """
    holder = Holder(folder)
    holder.take()
    done = threading.Event()
    thread = threading.Thread(target=_beat, args=(holder, done), name="speechframe-holder", daemon=True)
    thread.start()
    try:
        yield holder
    finally:
        done.set()
        thread.join()
        holder.release()


def machine() -> str:
    """Return what tells this machine and user apart: its name, and a number beside its logs and locks.

    Machines with a common home folder share the number, but not always the kernel's locks.
    """
    path = work_root() / "machine"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".machine-{secrets.token_hex(8)}")
        draft.write_text(secrets.token_hex(16))
        with suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return f"{socket.gethostname()} {path.read_text()}"


def _beat(holder: Holder, done: threading.Event) -> None:
    while not done.wait(BEAT_SECONDS):
        with suppress(OSError, StoreError):  # the writer finds out by itself before its next file
            holder.beat()


def _is_dead(there: Mapping[str, Any]) -> bool:
    if there.get("machine") == machine():
        return True  # this machine's lock is ours now
    try:
        return datetime.now(UTC) - datetime.fromisoformat(str(there.get("at"))) > SILENT
    except (ValueError, TypeError):
        return True


def _words(folder: Path | Remote, there: Mapping[str, Any]) -> str:
    if not there:
        return (
            f"{folder}: {HOLDER_NAME} was removed while the run was written to: another may have begun."
            " Nothing more is put there; what was acknowledged is in this machine's log, and the run can be"
            " resumed"
        )
    who = f"process {there.get('pid')} on {there.get('host')} since {there.get('since')}"
    return (
        f"{folder} is open for writing in {who}: wait for it, stop it, or choose another run_dir; should it"
        f" be dead, the run is free {SILENT.seconds // 60} minutes after its last sign of life"
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
