"""Puts answers into the cache beside the run: files are slow, and calls in flight must not wait for them."""

import logging
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from speechframe.old_store import Record
from speechframe.old_store.cache import Cache

log = logging.getLogger(__name__)

_RECORDS = 16
_BYTES = 8 * 2**20
_WAITING = 2


class Filler:
    """Hands records to the cache in a thread, a few at a time, with an end to what may wait.

    What the cache cannot keep is not kept: that is logged once, and nothing is raised, now or at the end.

    Parameters
    ----------
    cache
        Where they go.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="speechframe-cache")
        self._waiting: deque[Future[None]] = deque()
        self._records: list[Record] = []
        self._bytes = 0
        self._has_complained = False

    def put(self, record: Record) -> None:
        """Keep a record, soon; waits when the disk lags behind."""
        self._records.append(record)
        self._bytes += len(record.audio_bytes or b"")
        if len(self._records) >= _RECORDS or self._bytes >= _BYTES:
            self._send()

    def close(self) -> None:
        """Wait until everything is kept that can be."""
        self._send()
        self._thread.shutdown()

    def _send(self) -> None:
        records, self._records, self._bytes = self._records, [], 0
        if records:
            self._waiting.append(self._thread.submit(self._put_all, records))
        while len(self._waiting) > _WAITING:
            self._waiting.popleft().result()

    def _put_all(self, records: list[Record]) -> None:
        for record in records:
            try:
                self.cache.put(record)
            except Exception as error:
                # Whatever it is: the answer is in the run, and the run needs no cache.
                if not self._has_complained:
                    log.warning(
                        "%r does not keep an answer (%s): the run goes on without it",
                        self.cache,
                        str(error) or type(error).__name__,
                        exc_info=error,
                    )
                self._has_complained = True
