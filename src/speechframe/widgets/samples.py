"""Samples of voices. A process asks for each sample once, even if many galleries show it."""

import asyncio
import json
import os
from typing import Any

from speechframe import aio
from speechframe.audio.clip import Clip
from speechframe.settings import fingerprint

__all__ = ["sample"]

_MOST = 500
"""Most clips that stay in memory. Each gallery keeps its own clips as well."""

_Key = tuple[str, str, str, str, str]

_asked: dict[_Key, asyncio.Future[Clip]] = {}
"""Samples that were asked for. Only the package's own loop reads and writes them."""

# A forked child has no loop that would finish them.
os.register_at_fork(after_in_child=_asked.clear)


async def sample(said: str, voice: str, *, service: Any = None, **options: Any) -> Clip:
    """Return a line spoken by a voice. Each key pays for a sample once.

    Parameters
    ----------
    said
        What is said.
    voice
        Who says it.
    service
        Where; what is configured by default.
    **options
        Of :func:`speechframe.aio.say`.

    Raises
    ------
    SpeechframeError
        As :func:`~speechframe.aio.say`; the next one who asks tries again.
    """
    settings = await aio.resolve_service(service)
    # The repr of settings hides their keys, so two keys would look equal.
    owner = "" if settings.api_key is None else fingerprint(settings.api_key)
    key = (owner, repr(settings), said, voice, json.dumps(options, sort_keys=True, default=str))
    if key not in _asked:
        asked = _asked[key] = asyncio.ensure_future(aio.say(said, voice, service=settings, **options))
        asked.add_done_callback(lambda done: _settle(key, done))
    # A caller that is cancelled must not end the sample for the others.
    return await asyncio.shield(_asked[key])


def _settle(key: _Key, done: asyncio.Future[Clip]) -> None:
    if done.cancelled() or done.exception() is not None:
        # The next caller tries again.
        del _asked[key]
    elif len(_asked) > _MOST:
        del _asked[next(old for old, one in _asked.items() if one.done())]
