"""Make one call of one service, in one attempt or with retries.

A call passes these modules in this order:

- `client` has a method for each endpoint. `sync` has the same methods without ``await``.
- `calls` checks the request, sets its limits and decodes its answer. `upload` reads the clip in a request.
- `caller` makes one attempt (``send_once``), or retries (``call``). It also chooses the region and the wait.
- `exchange` sends one request over aiohttp. `download` fetches audio behind a URL.
- `answers` reads audio, words and translations. `masking` masks keys in texts of the service.

`dubbing` makes the calls of section 4.5 of the service document, waits for jobs and fetches their files.
`webhooks` receives the reports on finished jobs. `stream` returns speech while it is made, over HTTP.
`session` does so over a WebSocket.
"""

from speechframe.client.answers import RawAnswer, Spoken, Translated
from speechframe.client.caller import Patience
from speechframe.client.calls import Bounds, PreparedCall, Timeouts
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
    "Client",
    "Dubbing",
    "Patience",
    "PreparedCall",
    "RawAnswer",
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
