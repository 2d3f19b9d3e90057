"""A queue that writes an intent at the run's address before it hands out a call.

An intent is a note that a call is about to be sent. A worker's journal is on the worker's machine. If this
machine is lost, the intents show which rows may have been billed.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from speechframe.batch.backend import Request
from speechframe.batch.queue import Call, Queue
from speechframe.store.remote import RemoteFolder
from speechframe.store.schema import Row, StopReason
from speechframe.store.shards import write_intent


class IntentQueue(Queue):
    """A :class:`Queue` whose calls have an intent before they are handed out.

    One file has the intents of `width` calls. While these calls are under way, the next file is written, so
    that calls do not wait for the store. `numbers` are the segment numbers of this process, and `header`
    contains the ledger columns of all its attempts. `may_send` returns whether this process may still send
    calls. It must be set before the first call is taken.
    """

    may_send: Callable[[], Awaitable[bool]]

    def __init__(
        self, *queue_arguments: Any, folder: RemoteFolder, numbers: range, header: Row, width: int
    ) -> None:
        super().__init__(*queue_arguments)
        self._folder, self._first_number, self._header, self._width = folder, numbers.start, header, width
        self._writes: dict[str, asyncio.Task[None]] = {}  # the writing of the intent, by call key
        self._file_numbers = itertools.count()
        self._requests = self._read_ahead(self._requests)

    def _read_ahead(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Yield the requests. Begin to write the intents of each group of requests one group earlier."""
        groups = iter(lambda: [*itertools.islice(requests, self._width)], [])
        group = self._begin_intent(next(groups, []))
        while group:
            following = self._begin_intent(next(groups, []))
            yield from group
            group = following

    def _begin_intent(self, requests: list[Request]) -> list[Request]:
        """Begin to write one file with the intents of these requests, and return the requests."""
        lines = []
        for request in requests:
            call = self.plan.make_call(request)
            sent = {"call": request.key, "attempt": 1, "lane": "", "time": time.time(), "idempotency": False}
            lines.append({**self._header, **sent, "entries": call.make_entries()})
        if lines:
            name = f"{self._first_number:06d}-{next(self._file_numbers):06d}"
            task = asyncio.create_task(asyncio.to_thread(write_intent, self._folder, name, lines))
            self._writes |= dict.fromkeys((request.key for request in requests), task)
        return requests

    async def take(self) -> Call | None:
        """Return the next call once its intent is written, or None if the queue has ended.

        See :meth:`Queue.take`.
        """
        call = await super().take()
        if call is None:
            return None
        if call.request.key not in self._writes:  # a retake, or a half of a pack
            self._begin_intent([call.request])
        await self._writes[call.request.key]
        if await self.may_send():
            return call
        self.stop(StopReason.STOPPED)
        self.put_back(call)
        return None
