"""Backends with a known fault, for workers to import."""

import json
import os
import signal
import time
from dataclasses import replace

from tones import Tones

import speechframe as spf


class PoisonTones(Tones):
    """Tones whose calls are free to repeat, and whose row "poison" kills its process."""

    async def open(self):
        return replace(await super().open(), repeats_free_s=3600.0)

    def records(self, request, answer):
        if b"poison" in request.body:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().records(request, answer)


class UncappedTones(Tones):
    """Tones without a published cap. A file beside the bills has the process, begin and end of each call."""

    async def open(self):
        opened = await super().open()
        return replace(opened, lanes=tuple(replace(lane, published=None) for lane in opened.lanes))

    async def send(self, request, attempt):
        began = time.time()
        answer = await super().send(request, attempt)
        with self._bills.with_suffix(".calls").open("a", encoding="utf-8") as calls:
            calls.write(f"{os.getpid()} {began} {time.time()}\n")
        return answer


class UnusableTones(Tones):
    """Tones whose rows with the word "bad" get unusable answers."""

    async def send(self, request, attempt):
        if "bad" in json.loads(request.body)["text"]:
            raise spf.BadAnswer("no audio")
        return await super().send(request, attempt)
