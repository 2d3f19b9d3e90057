"""Tools for your own tests: a service with planned faults, and audio with a tag of its text.

A tag is a 64-bit hash of a text. It links an audio or a bill to the text.

Users start a :class:`FaultyService` (module `service`). The service starts a child process from `faulty`. In
the child, `protocol` reads and writes HTTP, and `handler` handles each request:

- `wanted` reads the request, and `plan` chooses the fault and the latency of the request
- `accounts` and `journal` bill the request
- `spoken`, `answers`, `audio` and `audio_urls` make the answer
- `books` counts requests, answers and bills, and `knobs` contains all settings
"""

from speechframe.testing.audio import tag_in, tag_of
from speechframe.testing.books import Billed, Books
from speechframe.testing.plan import Fixed, Lognormal
from speechframe.testing.service import FaultyService

__all__ = ["Billed", "Books", "FaultyService", "Fixed", "Lognormal", "tag_in", "tag_of"]
