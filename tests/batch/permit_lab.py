"""Processes that share permits: one that does what it is told, one that takes as much as it gets, one that is busy."""

import asyncio
import contextlib
import multiprocessing
import os
import random
import signal
import time

from speechframe.old_batch.permits import POLL_S, SharedPermits

# Forked from a small server, which has imported what they need: a process starts in milliseconds.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["speechframe.old_batch.permits"])


class Far:
    """Shared permits in another process: every method of theirs, called from here."""

    def __init__(self, folder, name="lane"):
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_obey, args=(theirs, folder, name), daemon=True)
        self.process.start()
        theirs.close()
        assert self._pipe.recv() == "ready"

    @property
    def learned(self):
        self._pipe.send(("learned", ()))
        return self._pipe.recv()

    def __getattr__(self, method):
        def call(*arguments):
            self._pipe.send((method, arguments))
            return self._pipe.recv()

        return call

    def signal(self, number):
        os.kill(self.process.pid, number)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.join()
        self._pipe.close()


def _obey(pipe, folder, name):
    permits = SharedPermits(folder, name=name)
    pipe.send("ready")
    while True:
        method, arguments = pipe.recv()
        found = getattr(permits, method)
        pipe.send(found(*arguments) if callable(found) else found)


def hammer(folder, limit, seconds, seed, together, most, counts):
    """Take and give places as fast as possible, counting those of all processes with another lock than theirs.

    It ends when each of them had a place: one may have been slow to begin.
    """
    permits, dice, end = SharedPermits(folder, name="lane"), random.Random(seed), time.monotonic() + seconds
    places, mine = [], counts[seed]
    while (now := time.monotonic()) < end or (now < end + 60 and not all(count.value for count in counts)):
        if places and dice.random() < 0.5:
            place = places.pop()
            with together.get_lock():
                together.value -= 1
            permits.give(place)
        elif (place := permits.try_take(limit)) is not None:
            places.append(place)
            mine.value += 1
            with together.get_lock():
                together.value += 1
                most.value = max(most.value, together.value)
    with together.get_lock():
        together.value -= len(places)
    permits.close()


def work(folder, limit, seconds, seed, start, books):
    """Have more calls to make than places: `books` gets seconds of calls, their number, seconds to the first."""
    asyncio.run(_work(SharedPermits(folder, name="lane"), limit, seconds, random.Random(seed), start, books))


async def _work(permits, limit, seconds, dice, start, books):
    start.wait()
    began, end = time.monotonic(), time.monotonic() + seconds
    freed = asyncio.Event()

    async def caller():
        while (asked := time.monotonic()) < end:
            async with turn:
                while (place := permits.try_take(limit)) is None and time.monotonic() < end:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(POLL_S):
                            await freed.wait()
                    freed.clear()
            if place is None:
                return
            taken = time.monotonic()
            books[2] = books[2] or max(asked, taken) - began
            await asyncio.sleep(dice.uniform(0.05, 0.15))
            books[0] += min(time.monotonic(), end) - taken
            books[1] += 1
            permits.give(place)
            freed.set()

    turn = asyncio.Lock()
    async with asyncio.TaskGroup() as group:
        for _ in range(limit + 2):
            group.create_task(caller())
    permits.close()
