"""The writer of a run: the log before and after every attempt, parts behind it."""

import getpass
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import Self

from speechframe.errors import StoreError
from speechframe.old_store import files, log
from speechframe.old_store.entries import (
    FIELDS,
    carried_values,
    encode_answer,
    encode_attempt,
    encode_sent,
    sha256_of,
)
from speechframe.old_store.failed import Changes, FailedFile
from speechframe.old_store.ledger import ledger_path, write_ledger
from speechframe.old_store.locate import work_folder
from speechframe.old_store.parts import PART_BYTES, PART_ROWS, Batch, PartFile, part_path
from speechframe.old_store.schema import LedgerRow, Record, SentRecord, part_schema
from speechframe.old_store.tally import Origin, Tally

SEGMENT_EVENTS = 16_384
"""Attempts a segment holds at most: a service that only refuses must not fill memory."""

LEAST_FREE_BYTES = 32 * 2**20
"""With less room on the disk no attempt is begun: its answer, once paid, might not fit."""

_ROOM_EVERY = 64
_WAITING_BATCHES = 2


@dataclass
class _Cut:
    """The end of a segment: what is to be on disk before the segment may go."""

    number: int
    ledger: Sequence[LedgerRow]
    changes: Changes
    segment: log.Segment
    following: log.Segment | None
    is_asked: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class _Whole:
    """A block that keeps log and books in step; it tells when it was left in the middle (Ctrl-C)."""

    def __init__(self, interrupted: Callable[[], None]) -> None:
        self._interrupted = interrupted

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, StoreError):
            self._interrupted()


class RunWriter:
    """Takes the events of a run's calls; each is on disk when its method returns.

    Thread-safe. A call costs a few dozen microseconds, unless the disk cannot
    keep up: then :meth:`answer` waits for it. Used as a
    context manager it is closed at the end of the block.

    Parameters
    ----------
    folder
        The run folder, whose lock is held.
    origin
        What ledger rows say of attempts that nobody lived to describe.
    check
        Raises when the lock was lost; called before a segment becomes a part.
    """

    def __init__(self, folder: Path, origin: Origin, check: Callable[[], None] = lambda: None) -> None:
        self.name = secrets.token_hex(3)
        self.rows_written = 0
        self.bytes_written = 0
        self._folder, self._work_folder, self._check_lock = folder, work_folder(folder), check
        self._lock = threading.RLock()
        self._whole = _Whole(self._interrupted)
        self._tally = Tally(origin)
        self._batch = Batch()
        self._segment_rows = 0
        self._segment_bytes = 0
        self._trouble: StoreError | None = None
        self._closed = False
        self._until_room_check = 0
        with files.storing(folder, "starting the log"):
            self._log = log.LogWriter(
                self._work_folder / log.FOLDER_NAME / self.name, _opening(self.name, origin)
            )
        self._queue: Queue[list[Record] | _Cut | None] = Queue(_WAITING_BATCHES)
        self._schema = part_schema(origin.operation)
        self._part = PartFile(part_path(folder, self.name, 1), self._schema)
        self._failed = FailedFile(folder, self._schema)
        self._thread = threading.Thread(target=self._write_parts, name="speechframe-parts", daemon=True)
        self._thread.start()

    def sent(self, sent: SentRecord) -> None:
        """Note that an attempt is about to be made; call it before every attempt.

        Raises
        ------
        StoreError
            When the folder takes no more: the attempt must not be made.
        """
        meta, sent = encode_sent(sent)
        with self._lock, self._whole:
            self._check()
            self._append(log.Kind.SENT, meta)
            self._tally.sent(sent)

    def sent_together(self, several: Sequence[SentRecord]) -> None:
        """Note that one attempt is about to be made for several calls: all are on disk, or none.

        Raises
        ------
        StoreError
            When the folder takes no more: the attempt must not be made.
        """
        entries = [encode_sent(sent) for sent in several]
        with self._lock, self._whole:
            self._check()
            self._append_all([(log.Kind.SENT, meta, b"") for meta, _ in entries])
            for _, sent in entries:
                self._tally.sent(sent)

    def attempt(self, row: LedgerRow) -> None:
        """Note how an attempt ended.

        After ``done``, ``suspect`` and ``charged_unknown`` the call stays in
        flight until its :meth:`answer`; any other status ends the attempt.

        Raises
        ------
        StoreError
            When the folder takes no more.
        """
        meta, row = encode_attempt(row)
        with self._lock, self._whole:
            self._append(log.Kind.ATTEMPT, meta)
            self._tally.attempt(row)
            if len(self._tally.ledger) >= SEGMENT_EVENTS:
                self._rotate()

    def answer(self, record: Record, attempt: LedgerRow | None = None) -> None:
        """Keep the outcome of a call. When it returns, the record survives the death of the process.

        Parameters
        ----------
        record
            With its audio when ``status`` is ``done``, ``cached`` or ``suspect``.
        attempt
            The ledger row of the last attempt, if :meth:`attempt` was not called
            for it: both are then on disk, or neither.

        Raises
        ------
        StoreError
            When the folder takes no more; the record was not kept.
        """
        meta, record, attempt = encode_answer(record, attempt)
        body = record.audio_bytes or b""
        seal = sha256_of(record)
        with self._lock, self._whole:
            self._append(log.Kind.ANSWER, meta, body, seal)
            self._take(meta, record, attempt)
            self._rotate_if_full()

    def answer_together(self, several: Sequence[tuple[Record, LedgerRow | None]]) -> None:
        """Keep the outcomes of calls that were made as one: all are on disk, or none.

        Raises
        ------
        StoreError
            When the folder takes no more; no record was kept.
        """
        entries = [encode_answer(record, attempt) for record, attempt in several]
        with self._lock, self._whole:
            self._append_all(
                [(log.Kind.ANSWER, meta, record.audio_bytes or b"") for meta, record, _ in entries]
            )
            for meta, record, attempt in entries:
                self._take(meta, record, attempt)
            self._rotate_if_full()

    def _take(self, meta: bytes, record: Record, attempt: LedgerRow | None) -> None:
        body_bytes = len(record.audio_bytes or b"")
        self.rows_written += 1
        self.bytes_written += body_bytes
        self._segment_bytes += body_bytes + len(meta)
        if self._tally.answer(record, attempt):
            self._segment_rows += 1
            if self._batch.add(record):
                self._send_batch()

    def _rotate_if_full(self) -> None:
        if (
            self._segment_rows >= PART_ROWS
            or self._segment_bytes >= PART_BYTES
            or len(self._tally.changes) >= SEGMENT_EVENTS
        ):
            self._rotate()

    def flush(self) -> None:
        """Wait until everything acknowledged survives a power cut too; the log is else a moment behind."""
        with self._lock, files.storing(self._folder, "writing the log"):
            self._log.sync()

    def cut(self) -> None:
        """Wait until everything acknowledged is in parts and ledger, where every tool sees it.

        Raises
        ------
        StoreError
            When parts cannot be written; the log has everything.
        """
        with self._lock:
            waiting = self._rotate(is_asked=True)
        if waiting is not None:
            waiting.done.wait()
        if self._trouble is not None:
            raise self._trouble

    def close(self) -> None:
        """Put everything into parts and ledger; calls still in flight become ``charged_unknown``.

        Raises
        ------
        StoreError
            When that fails; the log stays, and the next :meth:`RunFolder.recover` does it.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    self._finish()
                finally:
                    self._queue.put(None)
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble

    @property
    def closed(self) -> bool:
        """Whether everything is in parts and ledger, or never will be."""
        return self._closed and not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._trouble is not None:
            raise self._trouble
        if self._log.trouble is not None:
            raise files.store_error(self._folder, "syncing the log", self._log.trouble)
        self._until_room_check -= 1
        if self._until_room_check < 0:
            self._until_room_check = _ROOM_EVERY
            _check_room(self._work_folder)

    def _append(self, kind: log.Kind, meta: bytes, body: bytes = b"", sha256: bytes | None = None) -> None:
        if self._closed:
            raise StoreError(f"{self._folder}: this writer is closed; open the run again to write")
        try:
            self._log.append(kind, meta, body, sha256=sha256)
        except OSError as error:
            raise files.store_error(self._folder, "writing the log", error) from error

    def _interrupted(self) -> None:
        # Ctrl-C between the log and the books: only the log is right now, so it must not be removed.
        self._trouble = StoreError(f"{self._folder}: writing was interrupted; run recover() on it")

    def _append_all(self, entries: Sequence[tuple[log.Kind, bytes, bytes]]) -> None:
        if self._closed:
            raise StoreError(f"{self._folder}: this writer is closed; open the run again to write")
        with files.storing(self._folder, "writing the log"):
            self._log.append_all(entries)

    def _finish(self) -> None:
        with self._lock, self._whole:
            self._log.close()
            if self._trouble is None:
                self._tally.settle()
                self._send_batch()
                self._queue.put(_Cut(self._log.number, *self._tally.take(), self._log.segment, None))

    def _send_batch(self) -> None:
        if self._batch.records and self._trouble is None:
            self._queue.put(self._batch.records)
        self._batch = Batch()

    def _rotate(self, *, is_asked: bool = False) -> _Cut | None:
        # Without room for the next segment or for parts, the log simply grows: nothing in it is lost.
        if self._trouble is not None or self._closed:
            return None
        try:
            last = self._log.rotate(carried_values(list(self._tally.flights.values())))
        except OSError as error:
            self._trouble = files.store_error(self._folder, "starting a segment of the log", error)
            return None
        self._send_batch()
        cut = _Cut(self._log.number - 1, *self._tally.take(), last, self._log.segment, is_asked)
        self._segment_rows = self._segment_bytes = 0
        self._queue.put(cut)
        return cut

    def _write_parts(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                if self._trouble is None:
                    self._work(item)
            except OSError as error:
                self._trouble = files.store_error(self._folder, "writing parts", error)
            except StoreError as error:
                self._trouble = error
            except Exception as error:  # noqa: BLE001 - the caller must hear of whatever it is
                words = f"writing parts failed ({error!r}); the log has everything, recover() tries again"
                self._trouble = StoreError(f"{self._folder}: {words}")
            finally:
                if isinstance(item, _Cut):
                    item.done.set()
                self._queue.task_done()

    def _work(self, item: list[Record] | _Cut) -> None:
        if not isinstance(item, _Cut):
            self._part.write(item)
            return
        if item.following is not None:
            # The next segment holds the calls in flight: it must be safe before this one can go.
            item.following.sync()
            files.sync_folder(item.following.path.parent)
        self._check_lock()
        write_ledger(ledger_path(self._folder, self.name, item.number), item.ledger)
        self._part.publish()
        # As long as a log is there, a call that has its audio may stand in failed.parquet too.
        self._failed.take(item.changes, is_last=item.is_asked or item.following is None)
        item.segment.close()
        files.discard(item.segment.path)
        if item.following is None:
            with suppress(OSError):  # a reader's file on NFS is called otherwise until it is closed
                item.segment.path.parent.rmdir()
        self._part = PartFile(part_path(self._folder, self.name, item.number + 1), self._schema)


def _check_room(folder: Path) -> None:
    with files.storing(folder, "looking for room"):
        state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    if free < LEAST_FREE_BYTES:
        raise StoreError(
            f"{folder}: only {free / 2**20:.0f} MB are free on its disk, so no call is made: make room"
            " and run again; everything that was acknowledged is in the folder"
        )


def _opening(name: str, origin: Origin) -> dict[str, object]:
    return {
        "format": log.FORMAT, "writer": name, "pid": os.getpid(), "started_at": datetime.now(UTC).isoformat(),
        "user": origin.user, "host": origin.host, "tags": origin.tags, "fields": FIELDS,
    }  # fmt: skip


def user_name() -> str | None:
    """Return who runs this process, where that has a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have none
        return None


def host_name() -> str:
    """Return this machine's name."""
    return socket.gethostname()
