"""A backend with a row that kills the process that makes it."""

import os
import signal
from dataclasses import replace

from tones import Tones


class PoisonTones(Tones):
    """Tones whose calls are free to repeat, and whose row "poison" kills its process."""

    async def open(self):
        return replace(await super().open(), repeats_free_s=3600.0)

    def records(self, request, answer):
        if b"poison" in request.body:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().records(request, answer)
