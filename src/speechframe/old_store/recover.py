"""From the logs of dead writers to parts and ledger; it may be killed at any instant and run again."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from speechframe.old_store import files
from speechframe.old_store import log as log_files
from speechframe.old_store.aligned import FOLDER_NAME as ALIGNED_FOLDER
from speechframe.old_store.clips import FOLDER_NAME as CLIPS_FOLDER
from speechframe.old_store.failed import FailedFile, Failure, read_unknown
from speechframe.old_store.index import KeyIndex
from speechframe.old_store.ledger import FOLDER_NAME as LEDGER_FOLDER
from speechframe.old_store.ledger import ledger_path, write_ledger
from speechframe.old_store.locate import is_remote, work_folder
from speechframe.old_store.log import Kind, SegmentReader
from speechframe.old_store.parts import FOLDER_NAME as PARTS_FOLDER
from speechframe.old_store.parts import Batch, PartFile, failed_file, part_files, part_path
from speechframe.old_store.replay import Replay
from speechframe.old_store.schema import Record, SentRecord, part_schema
from speechframe.old_store.table import FOLDER_NAME as INPUT_FOLDER
from speechframe.old_store.tally import Origin, Tally


@dataclass(frozen=True)
class Recovered:
    """What a recovery found.

    Parameters
    ----------
    unknown
        request_key to the attempt of every call that is ``charged_unknown`` now,
        from this and from earlier runs: it may have been billed.
    records
        Answers taken from logs.
    attempts
        Ledger rows taken from logs.
    torn_bytes
        Bytes of entries that were being written when their writer died; nobody was told they were kept.
    damaged_bytes
        Bytes in the middle of a log that are no entry: the disk lost them.
    """

    unknown: Mapping[str, SentRecord] = field(default_factory=dict)
    records: int = 0
    attempts: int = 0
    torn_bytes: int = 0
    damaged_bytes: int = 0


def recover(folder: Path, origin: Origin) -> Recovered:
    """Turn every log below `folder` into parts and ledger, and remove what was left unfinished."""
    names = [PARTS_FOLDER, LEDGER_FOLDER, INPUT_FOLDER]
    if not is_remote(folder):  # there, all that is unfinished lies in one folder of this machine
        names += [CLIPS_FOLDER, ALIGNED_FOLDER]
    for place in (folder, *(folder / name for name in names)):
        files.remove_unfinished(place)
    recovery = _Recovery(folder, origin)
    for writer in _writers(work_folder(folder)):
        recovery.take(writer)
    if failed_file(folder).exists():
        # Without a log, too: that of a writer elsewhere may be out of reach.
        FailedFile(folder, part_schema(origin.operation)).drop(KeyIndex.read(part_files(folder)))
    return replace(recovery.found, unknown=read_unknown(folder))


def _writers(folder: Path) -> list[Path]:
    logs = [path for path in (folder / log_files.FOLDER_NAME).glob("*") if path.is_dir()]
    return sorted(logs, key=lambda path: (_started_at(path), path.name))


def _started_at(log_folder: Path) -> str:
    for path in log_files.segment_files(log_folder):
        for entry in SegmentReader(path):
            return str(entry.meta.get("started_at", "")) if entry.kind == Kind.OPENING else ""
    return ""


class _Recovery:
    def __init__(self, folder: Path, origin: Origin) -> None:
        self.folder = folder
        self.origin = origin
        self.found = Recovered()
        self._schema = part_schema(origin.operation)
        self._finished: KeyIndex | None = None
        self._seen: set[str] = set()

    def take(self, log_folder: Path) -> None:
        """Turn one writer's segments into parts and ledger, then remove them."""
        segments = log_files.segment_files(log_folder)
        tally = Tally(self.origin)
        changes: dict[str, Failure | None] = {}
        for path in segments:
            number = int(path.stem)
            self._take_segment(log_folder.name, number, path, tally)
            if path is segments[-1]:
                tally.settle()
            ledger, changed = tally.take()
            changes |= changed
            self.found = replace(self.found, attempts=self.found.attempts + len(ledger))
            attempts = ledger_path(self.folder, log_folder.name, number)
            if not attempts.exists():
                write_ledger(attempts, ledger)
        # Only now, with everything under its name, may the log go: oldest first, as it was written.
        FailedFile(self.folder, self._schema).take(self._without_finished(changes))
        for path in segments:
            files.discard(path)
        with suppress(OSError):  # somebody put a file of their own there
            log_folder.rmdir()

    def _take_segment(self, writer: str, number: int, path: Path, tally: Tally) -> None:
        target = part_path(self.folder, writer, number)
        part = None if target.exists() else PartFile(target, self._schema)
        batch = Batch()
        for record in self._finished_records(path, tally):
            if part is None or self._is_finished(record.request_key):
                continue
            self._seen.add(record.request_key)
            if batch.add(record):
                part.write(batch.records)
                batch = Batch()
        if part is not None:
            if batch.records:
                part.write(batch.records)
            part.publish()

    def _finished_records(self, path: Path, tally: Tally) -> Iterator[Record]:
        reader = SegmentReader(path)
        replayed = Replay(tally)
        yield from replayed.finished(reader)
        found = self.found
        self.found = replace(
            found,
            records=found.records + replayed.answers,
            torn_bytes=found.torn_bytes + reader.torn_bytes,
            damaged_bytes=found.damaged_bytes + reader.damaged_bytes,
        )

    def _is_finished(self, request_key: str) -> bool:
        if self._finished is None:
            self._finished = KeyIndex.read(part_files(self.folder))
        return request_key in self._seen or request_key in self._finished

    def _without_finished(self, changes: dict[str, Failure | None]) -> dict[str, Failure | None]:
        # A call that has its audio is not failed, whatever a later attempt for it came to.
        return {
            key: None if failure is not None and self._is_finished(key) else failure
            for key, failure in changes.items()
        }
