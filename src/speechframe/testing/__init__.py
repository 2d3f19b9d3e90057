"""Tools for your own tests: a service with planned faults, and audio with a tag of its text.

:class:`FaultyService` in `service` is the part for users. It starts a child process from `faulty`. In the
child, `protocol` speaks HTTP and `handler` handles each request:

- `wanted` reads the request, and `plan` chooses its fault and its latency
- `accounts` and `journal` bill it
- `spoken`, `answers`, `audio` and `audio_urls` make the answer
- `books` counts everything, and `knobs` has all settings
"""

from speechframe.testing.audio import tag_in, tag_of
from speechframe.testing.books import Billed, Books
from speechframe.testing.plan import Fixed, Lognormal
from speechframe.testing.service import FaultyService

__all__ = ["Billed", "Books", "FaultyService", "Fixed", "Lognormal", "tag_in", "tag_of"]
