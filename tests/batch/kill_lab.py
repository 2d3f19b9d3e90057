"""Clients to be stopped and killed: a small server that forks one process a request.

A request is a line of JSON: {"texts", "url", "key", "folder", "options", "out"}. It is answered by two lines: the
pid of the process that speaks these texts, then its exit code; what it prints goes to the files OUT.out and OUT.err.
The process has a main thread of its own, as a script in a terminal has.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import aiohttp  # noqa: F401 - imported here once, not in every process
import pandas as pd  # noqa: F401 - same
import pyarrow.parquet as pq  # noqa: F401 - same
from pydantic import SecretStr

import speechframe as spf
from speechframe import _ending, aio
from speechframe.old_store import RunWriter
from speechframe.settings import Settings


def speak(order):
    """Speak the texts in the way that is asked for, and say what became of them."""
    way = WAYS[order["options"].pop("way", "verb")]
    service = Settings(api_key=SecretStr(order["key"]), base_url=order["url"], profile="faulty")
    fixed = {"voice": "nora", "sample_rate": 8000, "progress": False}
    run = way(order["texts"], {**fixed, **order["options"], "service": service, "run_dir": order["folder"]})
    if run is not None:
        counts = run.to_pandas()["status"].value_counts().to_dict()
        print(json.dumps({"status": run.status, "because": run.stopped_because, **counts}), flush=True)  # noqa: T201


def _live(texts, options):
    return spf.generate(texts, **options, wait=False)


def _in_a_loop(texts, options):
    run = _live(texts, options)
    for _ in run.outcomes():
        pass
    return run


def _in_the_body_of_a_loop(texts, options):
    for _ in _live(texts, options).outcomes():
        time.sleep(60)


def _asleep(texts, options):
    run = _live(texts, options)
    while _ending._unfinished:
        time.sleep(0.01)
    print("released", flush=True)  # noqa: T201
    time.sleep(60)
    return run


def _left(texts, options):
    run = _live(texts, options)
    while run.progress.ended < 4:
        time.sleep(0.01)


def _broken_off(texts, options):
    for _ in _live(texts, options).outcomes():
        break


def _ended(texts, options):
    for _ in range(2):
        _live(texts, options).wait()
        more = _live([*texts, "one more"], options)
        next(iter(more.outcomes()), None)
        # The outcome of its last row is told before the run has let go of its folder.
        more.wait()
    _live(texts, options).wait()
    print(time.time())  # noqa: T201


def _awaited_verb(texts, options):
    async def program():
        run = await aio.generate(texts, **options)
        print("went on", flush=True)  # noqa: T201
        return run

    return asyncio.run(program())


def _awaited(texts, options):
    async def program():
        run = await (await aio.generate(texts, **options, wait=False))
        print("went on", flush=True)  # noqa: T201
        return run

    return asyncio.run(program())


def _in_an_async_loop(texts, options):
    async def program():
        async for _ in (await aio.generate(texts, **options, wait=False)).outcomes():
            pass
        print("went on", flush=True)  # noqa: T201

    asyncio.run(program())


def _in_the_body_of_an_async_loop(texts, options):
    async def program():
        async for _ in (await aio.generate(texts, **options, wait=False)).outcomes():
            await asyncio.sleep(60)

    asyncio.run(program())


def _left_in_a_loop(texts, options):
    async def program():
        run = await aio.generate(texts, **options, wait=False)
        while run.progress.ended < 4:  # noqa: ASYNC110 - nothing tells of it but the figure
            await asyncio.sleep(0.01)

    asyncio.run(program())


def _left_while_it_ends(texts, options):
    async def program():
        run = await aio.generate(texts, **options, wait=False)
        # Told to end, it starts no call: so it is when the program goes on and returns.
        while run._live is None or run.progress.ended < 4:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)

    asyncio.run(program())


def _verb_left_in_a_loop(texts, options):
    async def program():
        task = asyncio.create_task(aio.generate(texts, **options))
        await asyncio.sleep(60)
        await task

    asyncio.run(program())


WAYS = {
    "verb": lambda texts, options: spf.generate(texts, **options),
    "wait": lambda texts, options: _live(texts, options).wait(),
    "loop": _in_a_loop,
    "body": _in_the_body_of_a_loop,
    "asleep": _asleep,
    "left": _left,
    "broken off": _broken_off,
    "ended": _ended,
    "await verb": _awaited_verb,
    "await live": _awaited,
    "async for": _in_an_async_loop,
    "async body": _in_the_body_of_an_async_loop,
    "async left": _left_in_a_loop,
    "async left while it ends": _left_while_it_ends,
    "async verb beside": _verb_left_in_a_loop,
}


def main():
    """Serve requests until standard input ends."""
    # Loads whatever the package loads when it is first used.
    spf.generate, aio.generate  # noqa: B018
    for line in iter(sys.stdin.buffer.readline, b""):
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _redirect(order["out"])
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _ending.TERM_DRAIN_S = order["options"].pop("term_drain_s", _ending.TERM_DRAIN_S)
            _signalled_at(*order["options"].pop("signalled_at", (0, 0)))
            speak(order)
            return
        _say({"pid": pid})
        _, status = os.waitpid(pid, 0)
        _say({"code": os.waitstatus_to_exitcode(status)})


def _signalled_at(answers, number):
    """Let this process get a signal shortly after so many answers: it is in the middle then, however slow."""
    real, left = RunWriter.answer, iter(range(answers - 1, -1, -1))

    def answer(*given):
        real(*given)
        if next(left, None) == 0:
            threading.Timer(0.02 * random.random(), os.kill, (os.getpid(), number)).start()

    RunWriter.answer = answer


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
        self.process.wait(60)
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

    def until_caught(self, number):
        """Wait until a signal has come to it: two of a kind that are pending are one."""
        end = time.monotonic() + 60
        while self._pending() >> (number - 1) & 1:
            assert time.monotonic() < end, "it takes no signal"
            time.sleep(0.005)

    def _pending(self):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            (mask,) = (line.split()[1] for line in lines if line.startswith("ShdPnd:"))
            return int(mask, 16)
        return 0

    @property
    def lives(self):
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def until_said(self, words, stream="out"):
        """Wait until it has printed `words`."""
        end = time.monotonic() + 60
        while words not in self._printed(stream):
            assert time.monotonic() < end, "it did not say so"
            time.sleep(0.01)

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
