"""One call to a service of the document: one attempt, or attempts until it works.

- `calls`: :class:`Call`, what is sent, and :class:`Spoken`, what comes back; `translate`: the same of
  translations, :class:`Translated`
- `caller`: ``send_once`` (one attempt) and ``call`` (retries and regions); `chapters`: limits and answers of
  each endpoint; `client`: :class:`Client`, both with a method per endpoint
- `whole`: streams that are collected whole
- `sync`: :class:`SyncClient`, the same without ``await``
- `stream`: :class:`Stream`, audio that is heard while it arrives; `socket`: :class:`StreamSession`, text as
  it is written, over the WebSocket; `sync_stream`: both without ``await``
- `transport`: the only place that knows aiohttp; `download`: audio that came as a URL
- `retry`, `regions`: when to try again, and where
- `limits`: time limits and sizes
"""

from speechframe.old_client.calls import Answer, Call, Spoken
from speechframe.old_client.client import Client
from speechframe.old_client.limits import Bounds, Timeouts
from speechframe.old_client.retry import Patience
from speechframe.old_client.socket import StreamSession
from speechframe.old_client.stream import Stream, StreamSummary
from speechframe.old_client.sync import SyncClient
from speechframe.old_client.sync_stream import SyncStream, SyncStreamContext, SyncStreamSession
from speechframe.old_client.translate import Translated
from speechframe.old_client.turn import StreamContext

__all__ = [
    "Answer",
    "Bounds",
    "Call",
    "Client",
    "Patience",
    "Spoken",
    "Stream",
    "StreamContext",
    "StreamSession",
    "StreamSummary",
    "SyncClient",
    "SyncStream",
    "SyncStreamContext",
    "SyncStreamSession",
    "Timeouts",
    "Translated",
]
