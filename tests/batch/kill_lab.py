"""Clients to be stopped and killed: a small server that forks one process a request.

A request is a line of JSON: {"texts", "url", "key", "folder", "options", "out"}. It is answered by two lines: the
pid of the process that speaks these texts, then its exit code; what it prints goes to the files OUT.out and OUT.err.
The process has a main thread of its own, as a script in a terminal has.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp  # noqa: F401 - imported here once, not in every process
import pandas as pd  # noqa: F401 - same
import pyarrow.parquet as pq  # noqa: F401 - same
from pydantic import SecretStr

import speechframe as spf
from speechframe import _loop
from speechframe.settings import Settings


def speak(order):
    """Speak the texts and say what became of them."""
    service = Settings(api_key=SecretStr(order["key"]), base_url=order["url"], profile="faulty")
    run = spf.generate(
        order["texts"], voice=order["options"].pop("voice", "nora"), sample_rate=8000, service=service, run_dir=order["folder"],
        progress=False, **order["options"],
    )  # fmt: skip
    counts = run.to_pandas()["status"].value_counts().to_dict()
    print(json.dumps({"status": run.status, "because": run.stopped_because, **counts}), flush=True)  # noqa: T201


def main():
    """Serve requests until standard input ends."""
    # Loads whatever the package loads when it is first used.
    spf.generate  # noqa: B018
    for line in iter(sys.stdin.buffer.readline, b""):
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _redirect(order["out"])
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _loop.TERM_DRAIN_S = order["options"].pop("term_drain_s", _loop.TERM_DRAIN_S)
            speak(order)
            return
        _say({"pid": pid})
        _, status = os.waitpid(pid, 0)
        _say({"code": os.waitstatus_to_exitcode(status)})


def _say(words):
    os.write(1, json.dumps(words).encode() + b"\n")


def _redirect(out):
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, os.open(f"{out}.out", flags)),
                           (2, os.open(f"{out}.err", flags))):  # fmt: skip
        os.dup2(target, number)
        os.close(target)


class Lab:
    """The lab's end in a test."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.count = 0
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )

    def start(self, texts, settings, folder, **options):
        """Return a client process that speaks `texts` into `folder`."""
        self.count += 1
        out = self.folder / f"client-{self.count}"
        order = {
            "texts": list(texts),
            "url": settings.base_url,
            "key": settings.api_key.get_secret_value(),
            "folder": str(folder),
            "options": {"max_concurrency": 4, **options},
            "out": str(out),
        }
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        return Client(self, self._line()["pid"], out)

    def _line(self):
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class Client:
    """One client process."""

    def __init__(self, lab, pid, out):
        self.lab, self.pid, self.out = lab, pid, out
        self._end = None

    def signal(self, number):
        """Send a signal, if it lives."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def lives(self):
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def end(self):
        """Wait for its end; return what it printed to both streams, and its exit code."""
        if self._end is None:
            code = self.lab._line()["code"]
            self._end = (self._printed("out"), self._printed("err"), code)
        return self._end

    def _printed(self, stream):
        # Killed at once, it never came to open it.
        path = Path(f"{self.out}.{stream}")
        return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    main()
