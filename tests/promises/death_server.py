"""Forks processes that make runs and die at one file operation; `deaths.py` starts and asks it.

The functions of ``os`` and ``io`` that change files are wrapped before speechframe is imported, so all of its code
uses the wrapped ones. A request is a line of JSON; its answer is one, too: how the process ended, and how many
operations it had begun. What SQLite and Arrow write themselves is not seen here: kills at random moments meet that.
"""

import builtins
import io
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

CHANGING = (
    "open", "write", "writev", "pwrite", "replace", "rename", "unlink", "remove", "rmdir", "mkdir", "link",
    "symlink", "truncate", "ftruncate", "sendfile", "copy_file_range", "fsync", "fdatasync",
)  # fmt: skip
OF_TWO_PATHS = {"replace", "rename", "link", "symlink"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Death:
    """Counts operations on files below `folders`; kills this process before, in the middle of or after one."""

    def __init__(self):
        self.folders = ()
        self.at = self.count = 0
        self.when = "before"
        self._counts = os.open(os.devnull, os.O_WRONLY)
        self._lock = threading.Lock()
        self._write, self._pwrite = os.write, os.pwrite

    def expect(self, request):
        self._counts = os.open(request["counts"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.at, self.when = request["at"], request["when"]
        self.folders = tuple(request["folders"])

    def operation(self, paths, whole, half=None):
        """Do what `whole` does, or die; `half` does the first half of it."""
        if not self.concerns(paths):
            return whole()
        with self._lock:
            self.count += 1
            dies = self.count == self.at
            self._pwrite(self._counts, b"%d" % self.count, 0)
        if dies and self.when != "after":
            if self.when == "middle" and half is not None:
                half()
            self.die()
        result = whole()
        if dies:
            self.die()
        return result

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def concerns(self, paths):
        return self.folders and any(self._path(path).startswith(self.folders) for path in paths)

    def _path(self, path):
        if isinstance(path, int):
            path = f"/proc/self/fd/{path}"
            return str(Path(path).readlink()) if os.path.lexists(path) else ""
        return str(Path.cwd() / os.fsdecode(path))


death = Death()


class WatchedFile:
    """A file opened by ``open`` for writing: each write and the close are operations."""

    def __init__(self, file, path):
        self._file, self._path = file, path

    def write(self, data):
        def half():
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        return death.operation([self._path], lambda: self._file.write(data), half)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def close(self):
        if not self._file.closed:
            death.operation([self._path], self._file.close)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return iter(self._file)

    def __getattr__(self, name):
        return getattr(self._file, name)


def watch(name):
    real = getattr(os, name)

    def call(*args, **kwargs):
        if not death.folders or not args or (name == "open" and not args[1] & WRITES):
            return real(*args, **kwargs)
        half = None
        if name in {"write", "pwrite", "writev"}:
            data = b"".join(args[1]) if name == "writev" else bytes(args[1])
            half = lambda: death._write(args[0], data[: len(data) // 2])  # noqa: E731
        return death.operation(args[: 1 + (name in OF_TWO_PATHS)], lambda: real(*args, **kwargs), half)

    setattr(os, name, call)


def watch_open():
    real = builtins.open

    def watched(file, mode="r", *args, **kwargs):
        if not death.folders or not set(mode) & set("wax+") or not death.concerns([file]):
            return real(file, mode, *args, **kwargs)
        return WatchedFile(death.operation([file], lambda: real(file, mode, *args, **kwargs)), file)

    builtins.open = io.open = watched


for name in CHANGING:
    watch(name)
watch_open()

import aiohttp  # noqa: E402, F401 - imported here once, not in every process
import pandas as pd  # noqa: E402, F401 - same
import pyarrow.dataset  # noqa: E402 - same
import pyarrow.parquet  # noqa: E402, F401 - same
import soundfile  # noqa: E402, F401 - same

import speechframe as spf  # noqa: E402
from speechframe import aio, api  # noqa: E402, F401 - same


def work(request):
    """Do what is asked through public names, and say what came of it."""
    os.environ.update(request["environment"])
    Path(request["errors"]).touch()
    os.dup2(os.open(request["errors"], os.O_WRONLY | os.O_APPEND), 2)
    spf.configure(**request["settings"])
    death.expect(request)
    options = request["options"] | {"run_dir": request["folder"], "progress": False}
    {"generate": spf.generate, "translate": spf.translate, "change_voice": spf.change_voice}[request["verb"]](
        request["table"], **options
    )


def main():
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work(request)
                code = 0
            except BaseException:  # noqa: BLE001 - whatever it is, the test shows it
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = {"code": code, "count": int(Path(request["counts"]).read_text() or 0)}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
