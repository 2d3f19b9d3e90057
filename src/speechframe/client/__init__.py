"""One call of one service, in one attempt or as many as it takes.

A call goes down this list:

- `client`: a method for each endpoint; `sync`: the same without ``await``
- `calls`: a checked request, its limits, and how its answer is read; `upload`: the clip in a request
- `caller`: one attempt (``send_once``), or attempts until one works (``call``), where and when
- `exchange`: one request over aiohttp and its answer; `download`: audio that came as a URL
- `answers`: what is read in an answer; `masking`: errors, and keys that show nowhere
- `dubbing`: the calls of section 4.5, waiting for a job, its files; `webhooks`: a receiver of its end

Speech while it is made: `stream` (over HTTP, and what all streams have in common), `session` (over the
WebSocket).
"""

from speechframe.client.answers import Raw, Spoken, Translated
from speechframe.client.caller import Patience
from speechframe.client.calls import Bounds, Call, Timeouts
from speechframe.client.client import Client
from speechframe.client.dubbing import Dubbing
from speechframe.client.session import StreamContext, StreamSession
from speechframe.client.stream import Stream, StreamSummary
from speechframe.client.sync import (
    SyncClient,
    SyncDubbing,
    SyncStream,
    SyncStreamContext,
    SyncStreamSession,
)

__all__ = [
    "Bounds",
    "Call",
    "Client",
    "Dubbing",
    "Patience",
    "Raw",
    "Spoken",
    "Stream",
    "StreamContext",
    "StreamSession",
    "StreamSummary",
    "SyncClient",
    "SyncDubbing",
    "SyncStream",
    "SyncStreamContext",
    "SyncStreamSession",
    "Timeouts",
    "Translated",
]
