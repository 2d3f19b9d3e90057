"""A client of the soak: a process that makes a run, or goes on with it, and may be killed at any instant."""

import contextlib
import multiprocessing
import os
import resource
import signal
import time
from pathlib import Path

from pydantic import SecretStr

import speechframe as spf
from speechframe.settings import Settings
from speechframe.store import journal

VOICE = "en-US-nora"
RATE_HZ = 8000
CONCURRENCY = 12
"""Calls a client may have in flight."""
ENDS_WITHIN_S = 240.0

_processes = multiprocessing.get_context("forkserver")
# Imported once, not in every client.
_processes.set_forkserver_preload([
    "aiohttp", "pandas", "pyarrow.dataset", "pyarrow.parquet", "soundfile",
    "speechframe.aio", "speechframe.api",
])  # fmt: skip


def speak(order, pipe, errors):
    """Make the run of `order` or go on with it, and say what became of it."""
    # The server of forks knows the environment of the first test alone.
    os.environ.update(order["environment"])
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    if order["file_bytes"]:
        # No file may grow beyond this: a disk that is full, for any user and on any file system.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_bytes"], order["file_bytes"]))
    if order["part_rows"]:
        journal.MAX_SEGMENT_ROWS = order["part_rows"]
    service = Settings(api_key=SecretStr(order["key"]), base_url=order["url"], profile=order["profile"])
    options = {"max_concurrency": CONCURRENCY, "progress": False, "service": service} | order["options"]
    try:
        if order["verb"] == "resume":
            run = spf.resume(order["folder"], **options)
        else:
            run = spf.generate(
                order["texts"], voice=VOICE, sample_rate=RATE_HZ, run_dir=order["folder"], **options
            )
    except spf.StoreError as error:
        pipe.send({"store_error": str(error)})
        return
    pipe.send({"status": run.status, "because": run.stopped_because, "calls": run.estimate.calls})


class Client:
    """The soak's end of one client process."""

    def __init__(self, order, errors):
        self.errors = Path(errors)
        self._pipe, theirs = _processes.Pipe(duplex=False)
        self._process = _processes.Process(target=speak, args=(order, theirs, str(errors)), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def lives(self):
        return self._process.is_alive()

    def kill(self):
        """End it by SIGKILL, in the middle of whatever it does."""
        self._process.kill()

    def end(self):
        """Wait for its end; return what it said, None when it was killed before it said anything."""
        said = None
        with contextlib.suppress(EOFError):
            if self._pipe.poll(ENDS_WITHIN_S):
                said = self._pipe.recv()
        self._process.join(ENDS_WITHIN_S)
        assert not self.lives, f"a client did not end within {ENDS_WITHIN_S:g} s"
        code = self._process.exitcode
        assert code in {0, -signal.SIGKILL}, (
            self.errors.read_text() if self.errors.exists() else "it died before it began"
        )
        self._process.close()
        self._pipe.close()
        return said


def pause(seconds, client):
    """Wait, but not longer than the client lives."""
    end = time.monotonic() + seconds
    while client.lives and time.monotonic() < end:
        time.sleep(0.002)
