"""A worker's job ``probe``: what somebody wants dubbed is looked at, before anything is queued."""

import time
from pathlib import Path
from typing import Any

from speechframe.errors import AudioError, EngineError
from speechframe.service.job import Facts, Reply


def probe(job: dict[str, Any]) -> Reply:
    """Look at all of ``upload``; the reply says how long it is."""
    from speechframe.dubbing import media

    started = time.process_time()
    try:
        seconds = media.probe(Path(job["upload"]), max_seconds=job["max_seconds"])
    except AudioError as error:
        # It is what the caller brought that is no medium.
        raise EngineError(str(error)) from None
    return Reply(Facts(audio_seconds=seconds, engine_ms=(time.process_time() - started) * 1000))
