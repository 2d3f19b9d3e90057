"""One look at a run: every call that has an outcome at this moment, in parts and in logs, each once.

Without a lock, beside a writer that cuts segments into parts and removes them.
The order of reading is what keeps a look whole: a segment goes only after its
part, its file of the ledger and ``failed.parquet`` have their names. So logs
are opened first, then ``failed.parquet``, then parts are listed: what has left
a log before is found in a part after. What is in both is taken from the part.
If the logs are other ones at the end than at the beginning, the look is taken again.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from speechframe.old_store import parts
from speechframe.old_store.failed import Changes, Failure, read_unknown
from speechframe.old_store.index import KeyIndex
from speechframe.old_store.ledger import ledger_files, ledger_path, read_attempts, read_ledger
from speechframe.old_store.live import Segment, SegmentFile, SegmentSource, segment_paths
from speechframe.old_store.locate import work_folder
from speechframe.old_store.remote import Remote
from speechframe.old_store.replay import Replay
from speechframe.old_store.schema import FINISHED, LedgerRow, SentRecord
from speechframe.old_store.sources import PartSource
from speechframe.old_store.tally import Origin, Tally

_CLOCK_GRAIN_NS = 100_000_000
_LOOKS = 20


@dataclass(frozen=True)
class Look:
    """What was there at one moment.

    Parameters
    ----------
    index
        Every call with an outcome; its files stay readable as long as it is held.
    parts
        The files of finished calls.
    failed
        ``failed.parquet``, open.
    live
        request_key to status of what the logs add or change.
    """

    index: KeyIndex
    parts: Sequence[Path]
    failed: PartSource | None
    live: Mapping[str, str]


@dataclass(frozen=True)
class Standing:
    """Calls in doubt, and all attempts: as a recovery leaves them, or as one would if the run ended now.

    Attributes
    ----------
    unknown
        request_key to the attempt of every call that may have been billed without an answer.
    files
        Of the ledger.
    others
        Attempts that are in none of them yet.
    """

    unknown: Mapping[str, SentRecord]
    files: Sequence[Path]
    others: Sequence[LedgerRow]


class Looker:
    """Looks at a run again and again; each look reads only what is new.

    Parameters
    ----------
    folder
        The run folder; of a remote one only this machine's logs are seen.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._work = folder, work_folder(folder)
        self._looking = threading.Lock()
        self._finished = KeyIndex.read([])
        self._segments: dict[Path, Segment] = {}
        self._last: tuple[int, Look] | None = None

    def look(self) -> Look:
        """Return what is there now."""
        with self._looking:
            for _ in range(_LOOKS):
                before = segment_paths(self._work)
                found = self._look(before)
                if segment_paths(self._work) == before:
                    break
            # Else a writer cuts faster than this reads: nothing is missing or double, only a failure may be
            # shown as it was a moment ago.
            return found

    def _look(self, paths: Sequence[Path]) -> Look:
        changed_ns = _changed_ns(self._folder / parts.FOLDER_NAME)
        if not paths and self._last is not None and self._last[0] == changed_ns:
            return self._last[1]
        logs = self._opened(paths)
        failed = _open_failed(self._folder)
        found = self._joined(logs, failed, parts.part_files(self._folder))
        # A part that is added within the clock's grain would not show: do not rely on a time so fresh.
        settled = time.time_ns() - changed_ns > _CLOCK_GRAIN_NS
        # With logs it is not kept: their files would take room on the disk after their writer removed them.
        self._last = (changed_ns, found) if settled and not logs else None
        return found

    def _opened(self, paths: Sequence[Path]) -> list[SegmentSource]:
        opened = []
        for path in paths:
            with suppress(FileNotFoundError):  # a part since
                file = SegmentFile(path)
                segment = self._segments.get(path) or Segment(path)
                segment.read_on(file)
                opened.append(SegmentSource(segment, file))
        # What was read of a segment is kept, its file is not.
        self._segments = {source.path: source.segment for source in opened}
        return sorted(opened, key=lambda source: source.segment.place)

    def _joined(
        self, logs: Sequence[SegmentSource], failed: PartSource | None, paths: Sequence[Path]
    ) -> Look:
        known = set(self._finished.paths)
        if not known.issubset(paths):
            self._finished, known = KeyIndex.read([]), set()
        self._finished = self._finished.extended(KeyIndex.read([path for path in paths if path not in known]))
        last = _last_words(logs, self._finished)
        index = self._finished.extended(_news(logs, failed, last, self._finished))
        return Look(index, paths, failed, {key: status for key, (_, _, status) in last.items()})

    def ledger(self, origin: Origin, columns: Sequence[str] | None = None) -> pa.Table:
        """Return every attempt there is now, by time."""
        written, others = self._attempts(origin)
        return read_ledger(written, columns, others=others)

    def ledger_parts(
        self, origin: Origin, columns: Sequence[str] | None = None
    ) -> tuple[Sequence[Path], pa.Table]:
        """Return the files of the ledger, and by time the attempts that only the logs have."""
        written, others = self._attempts(origin)
        return written, read_ledger([], columns, others=others)

    def attempts(self, origin: Origin, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield every attempt there is now, in no order, a file at a time."""
        written, others = self._attempts(origin)
        yield from read_attempts(written, columns, others=others)

    def standing(self, origin: Origin) -> Standing:
        """Return which calls are in doubt and what the ledger says, as if the run ended at this moment.

        So a call that is in flight may have been billed. Nothing is written, and nobody waits for it.
        """
        written, others, changes = self._books(origin, is_over=True)
        # After the logs: what has left one before is there by now.
        unknown = read_unknown(self._folder)
        for key, failure in changes.items():
            unknown.pop(key, None)
            if failure is not None and failure.sent is not None:
                unknown[key] = failure.sent
        return Standing(unknown, written, others)

    def _attempts(self, origin: Origin) -> tuple[Sequence[Path], Sequence[LedgerRow]]:
        """Return the files of the ledger, and the attempts that only the logs have."""
        written, others, _ = self._books(origin)
        return written, others

    def _books(
        self, origin: Origin, *, is_over: bool = False
    ) -> tuple[Sequence[Path], Sequence[LedgerRow], Changes]:
        """Return the same, and what the logs say became of calls; see :func:`_tallied`."""
        rows: list[LedgerRow] = []
        changes: dict[str, Failure | None] = {}
        with self._looking:
            logs = self._opened(segment_paths(self._work))
            # Listed after the logs were opened: an attempt is in one or the other, or in both.
            written = ledger_files(self._folder)
            for _, segments in groupby(logs, lambda source: source.segment.writer):
                for source, booked, changed in _tallied(list(segments), origin, is_over=is_over):
                    changes |= changed
                    if ledger_path(self._folder, source.segment.writer, source.segment.number) not in written:
                        rows += booked
        return written, rows, changes


def _tallied(
    segments: Sequence[SegmentSource], origin: Origin, *, is_over: bool
) -> Iterator[tuple[SegmentSource, Sequence[LedgerRow], Changes]]:
    """Yield each of a writer's segments, its attempts, and what became of calls there.

    With `is_over` nothing more comes behind the last of them, and calls in flight are in doubt.
    """
    # One for all, as a recovery has it: killed at the end of a segment, the next may lack what it carries.
    tally = Tally(origin)
    for source in segments:
        for _ in Replay(tally).finished(source.segment.entries(source.file)):
            pass
        if is_over and source is segments[-1]:
            tally.settle()
        yield source, *tally.take()


def _changed_ns(folder: Path) -> int:
    if isinstance(folder, Remote):
        return folder.state()
    with suppress(FileNotFoundError):
        return folder.stat().st_mtime_ns
    return 0


def _open_failed(folder: Path) -> PartSource | None:
    path = parts.failed_file(folder)
    return PartSource(path, pinned=True) if path.exists() else None


Places = Mapping[str, tuple[int, int, str]]
"""request_key to the number of the log, the row in it, and the status."""


def _last_words(logs: Sequence[SegmentSource], finished: KeyIndex) -> Places:
    """Return what the logs add to parts and ``failed.parquet``: a call that has its audio is not failed."""
    last: dict[str, tuple[int, int, str]] = {}
    for number, source in enumerate(logs):
        segment = source.segment
        for row in range(source.rows):
            key, status = segment.keys[row], segment.statuses[row]
            if key not in last or last[key][2] not in FINISHED:
                last[key] = number, row, status
    # Its segment may be a part already.
    positions = finished.find(list(last)).tolist()
    return {key: place for (key, place), at in zip(last.items(), positions, strict=True) if at < 0}


def _news(
    logs: Sequence[SegmentSource], failed: PartSource | None, last: Places, finished: KeyIndex
) -> KeyIndex:
    """Return the index of what is not in parts."""
    keys = pa.array(list(last), pa.string())
    statuses = pa.array([status for _, _, status in last.values()], pa.string())
    numbers = np.array([number for number, _, _ in last.values()], np.uint32)
    rows = np.array([row for _, row, _ in last.values()], np.uint32)
    in_logs = KeyIndex.of(logs, keys, statuses, numbers, rows)
    if failed is None:
        return in_logs
    table = failed.read(["request_key", "status"])
    is_news = (finished.find(table.column(0)) < 0) & (in_logs.find(table.column(0)) < 0)
    rows = np.flatnonzero(is_news).astype(np.uint32)
    table = table.take(pa.array(rows, pa.uint32()))
    in_failed = KeyIndex.of([failed], table.column(0), table.column(1), np.zeros_like(rows), rows)
    return in_logs.extended(in_failed)
