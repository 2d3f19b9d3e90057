"""Make spoken samples of voices. Galleries share the samples, so a process makes each sample once.

The oldest of more than 500 samples are forgotten, and made again when they are requested.
"""

import asyncio
import json
import os
from typing import Any

from speechframe import aio
from speechframe.audio.clip import Clip
from speechframe.settings import fingerprint_key

_MAX_CLIPS = 500
"""Largest number of clips that stay in memory. Each gallery keeps its own clips as well."""

_Key = tuple[str, str, str, str, str]

_samples: dict[_Key, asyncio.Future[Clip]] = {}
"""Requested samples, finished or not. Only the package's own event loop reads and writes this."""

# A forked child has no event loop that would finish these samples.
os.register_at_fork(after_in_child=_samples.clear)


async def make_sample(text: str, voice: str, *, service: Any = None, **options: Any) -> Clip:
    """Return a text spoken by a voice. A sample that was made with the same API key is returned again.

    Parameters
    ----------
    text
        Text to speak.
    voice
        Id or name of the voice.
    service
        Service to use. None uses the configured service.
    **options
        Options of :func:`speechframe.aio.say`.

    Raises
    ------
    SpeechframeError
        As :func:`~speechframe.aio.say`. The next request for the sample tries again.
    """
    settings = await aio.resolve_service(service)
    # The repr of settings hides the API key, so settings with two keys would look equal.
    owner = "" if settings.api_key is None else fingerprint_key(settings.api_key)
    key = (owner, repr(settings), text, voice, json.dumps(options, sort_keys=True, default=str))
    if key not in _samples:
        request = _samples[key] = asyncio.ensure_future(aio.say(text, voice, service=settings, **options))
        request.add_done_callback(lambda done: _forget_samples(key, done))
    # The shield keeps the request alive for other callers if this caller is cancelled.
    return await asyncio.shield(_samples[key])


def _forget_samples(key: _Key, done: asyncio.Future[Clip]) -> None:
    """Forget a failed sample, so that the next caller tries again. Otherwise forget the oldest if needed."""
    if done.cancelled() or done.exception() is not None:
        del _samples[key]
    elif len(_samples) > _MAX_CLIPS:
        del _samples[next(old for old, one in _samples.items() if one.done())]
