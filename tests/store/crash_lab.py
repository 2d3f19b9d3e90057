"""Lives and deaths of writers: a small server that forks one process a request, to be killed at will.

A request is a line of JSON: {"do": "live" | "recover", "folder", "acks", "seed", "calls", "keys", "die_at"}.
Answered by two lines: the child's pid, then how it ended.

With ``die_at`` the process kills itself by SIGKILL right before its n-th call into the operating system
that changes files; appends to the log count twice, once before and once half way.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pandas as pd  # noqa: F401 - pyarrow imports it at its first array: here once, not in every child
from store_cases import done, failed, key_of, sent, tried

from speechframe.old_store import RunFolder, parts, writer

_lock = threading.Lock()
_write = os.write


class Death:
    """Counts the calls that change files and ends the process at one of them."""

    def __init__(self, at):
        self.at = at
        self.count = 0

    def step(self):
        with _lock:
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)

    def install(self):
        for name in ("replace", "unlink", "rmdir", "mkdir"):
            setattr(os, name, self._wrapped(getattr(os, name)))
        # What the kernel has survives a SIGKILL: waiting for the disk would only make the tests slow.
        os.fsync = self._wrapped(lambda descriptor: None)
        real = os.writev

        def writev(descriptor, buffers):
            self.step()
            with _lock:
                half = self.count + 1 == self.at
            if half:
                whole = b"".join(buffers)
                _write(descriptor, whole[: len(whole) // 2])
            self.step()
            return real(descriptor, buffers)

        os.writev = writev

    def _wrapped(self, real):
        def call(*args, **kwargs):
            self.step()
            return real(*args, **kwargs)

        return call


class Diary:
    """What was about to be done ("?") and what was acknowledged ("!"), safe from the process's death."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def line(self, *words):
        _write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def event(self, call, *words):
        self.line("?", *words)
        call()
        self.line("!", *words)


def live(request):
    parts.GROUP_ROWS = 3
    writer.PART_ROWS = 6
    chance = random.Random(request["seed"])
    diary = Diary(request["acks"])
    run = RunFolder.open(request["folder"])
    with run.lock():
        run.recover()
        finished = {key for key, status in run.keys().items() if status == "done"}
        with run.writer() as out:
            flying = {}
            for number in range(request["calls"]):
                key = key_of(chance.randrange(request["keys"]))
                if key in finished or key in flying:
                    continue
                attempt = request["seed"] * 10_000 + number
                diary.event(partial(out.sent, sent(key, attempt)), "sent", key, attempt)
                flying[key] = attempt
                if chance.random() < 0.8:
                    late, attempt = chance.choice(list(flying.items()))
                    del flying[late]
                    if land(out, diary, chance, late, attempt):
                        finished.add(late)
                if chance.random() < 0.05:
                    out.cut()
    diary.line("end")


def land(out, diary, chance, key, attempt):
    """End an attempt in one of the ways a batch does; return whether the call is done."""
    fate = chance.choice(["done", "done", "done", "separately", "failed", "again", "unknown"])
    if fate == "done":
        row = tried(key, "done")
        diary.event(lambda: out.answer(done(key), row), "answer", key, attempt, "done", "done")
    elif fate == "separately":
        diary.event(lambda: out.attempt(tried(key, "done")), "attempt", key, attempt, "done")
        diary.event(lambda: out.answer(done(key)), "answer", key, attempt, "done", "-")
    elif fate == "unknown":
        row = tried(key, "charged_unknown")
        diary.event(lambda: out.attempt(row), "attempt", key, attempt, "charged_unknown")
        diary.event(
            lambda: out.answer(failed(key, "charged_unknown")), "answer", key, attempt, "charged_unknown", "-"
        )
    else:
        diary.event(lambda: out.attempt(tried(key, "error")), "attempt", key, attempt, "error")
        if fate == "failed":
            diary.event(lambda: out.answer(failed(key)), "answer", key, attempt, "failed", "-")
    return fate in {"done", "separately"}


def recover(request):
    run = RunFolder.open(request["folder"])
    with run.lock():
        run.recover()


def child(request):
    if request.get("die_at"):
        Death(request["die_at"]).install()
    {"live": live, "recover": recover}[request["do"]](request)


def tell(number):
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main():
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child(json.loads(line))
                code = 0
            except BaseException as error:
                Path(json.loads(line)["folder"], "..", "error").write_text(repr(error))
                raise
            finally:
                os._exit(code)
        tell(pid)
        tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main()
