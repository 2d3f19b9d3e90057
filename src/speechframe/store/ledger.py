"""The ledger folder: every run puts its attempts there too, so that what was spent outlives run folders.

``attempts/<run id>-<segment>.parquet`` has the rows of a segment of a run's journal, as the run's own
``attempts/<segment>.parquet`` (columns: :data:`speechframe.store.schema.LEDGER`). ``open/<run id>.json``
stands there from the start of a run until all of its attempts are in the ledger, and says where the run is.
"""

import json
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe._files import parse_json
from speechframe.errors import StoreError
from speechframe.spec.billing import CREDIT, MOST_CREDITS
from speechframe.store.folder import Folder, this_process
from speechframe.store.schema import LAYOUT, LAYOUT_NAME, LEDGER, check_times

ATTEMPTS, OPEN = "attempts", "open"
_NEWEST = 8
"""Files of the ledger that tell how long a call takes."""


class Ledger:
    """The ledger folder, as one run writes to it; StoreError where it cannot be written."""

    def __init__(self, folder: Folder, run_id: str) -> None:
        self.folder, self._run_id = folder, run_id

    def begin(self, run: Folder) -> None:
        """Note that the run has attempts which are not in the ledger yet."""
        note = {**this_process(), "folder": str(run.path)}
        self.folder.write(f"{OPEN}/{self._run_id}.json", json.dumps(note).encode())

    def add(self, number: int, attempts: pa.RecordBatch) -> None:
        """Put the attempts of a segment there; to do it again changes nothing."""
        name = f"{ATTEMPTS}/{self._run_id}-{number:06d}.parquet"
        pq.write_table(pa.Table.from_batches([attempts]), self.folder.temporary(name), compression="zstd")
        self.folder.publish(name)

    def end(self) -> None:
        """Note that all attempts of the run are in the ledger."""
        self.folder.remove(f"{OPEN}/{self._run_id}.json")


def scan(
    folder: Folder,
    columns: Sequence[str],
    start: datetime | None = None,
    end: datetime | None = None,
    *,
    files: Iterable[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield what `attempts/` of a ledger or of a run has, some thousand rows at a time, in no order.

    Only rows whose ``time`` is at least `start` and before `end`, of these `files` there, or of all. Columns
    that were added after a file was written are null. StoreError where a file cannot be read.
    """
    from pyarrow.dataset import ParquetFileFormat

    for name in folder.names(ATTEMPTS) if files is None else files:
        try:
            source = folder.source(f"{ATTEMPTS}/{name}")
            file: Any = pa.OSFile(str(source), "rb") if isinstance(source, Path) else source
            attempts: Any = ParquetFileFormat().make_fragment(file)
            _check_layout(attempts.physical_schema)
            for batch in attempts.to_batches(LEDGER, columns=[*columns], filter=within(start, end)):
                check_times(batch)
                yield batch
        except (OSError, ValueError, pa.ArrowException) as error:
            raise StoreError(
                f"{folder.path}/{ATTEMPTS}/{name} of the ledger cannot be read ({error}): restore it from a "
                "copy (the run's own folder has the same), or move it away to count without it"
            ) from error


def _check_layout(schema: pa.Schema) -> None:
    layout = (schema.metadata or {}).get(LAYOUT_NAME, LAYOUT)
    if layout != LAYOUT:
        raise pa.ArrowInvalid(f"its layout is {layout.decode()}, this version reads {LAYOUT.decode()}")
    if "time" not in schema.names:
        raise pa.ArrowInvalid("it has no column time, so it is no file of a ledger")


def within(start: datetime | None, end: datetime | None) -> Any:
    """Return what filters the rows whose ``time`` is at least `start` and before `end`."""
    time: Any = pc.field("time")
    wanted = time.is_valid()
    wanted = wanted if start is None else wanted & (time >= start)
    return wanted if end is None else wanted & (time < end)


def is_amount(amounts: Any) -> Any:
    """Return which values are numbers whose thousandths fit into 64 bits."""
    return pc.fill_null(pc.less(pc.abs(amounts), pa.scalar(float(MOST_CREDITS))), pa.scalar(False))


def millis(amounts: Any) -> Any:
    """Return whole thousandths of what is a number, and 0 for what is none."""
    finite: Any = pc.if_else(is_amount(amounts), amounts, pa.scalar(0.0))
    return pc.cast(pc.round(pc.multiply(finite, pa.scalar(float(CREDIT)))), pa.int64())


def seconds_a_call(folder: Folder, service: str, operation: str) -> float | None:
    """Return how long answered calls took, by the newest files of a ledger; None where nothing is known.

    Calls of several rows that went in one attempt share its time.
    """
    if folder.work != folder.path:  # elsewhere files are not asked for their age
        return None
    files = [folder.inside(f"{ATTEMPTS}/{name}") for name in folder.names(ATTEMPTS)]
    attempt = ["run_id", "time", "latency_ms"]
    wanted: Any = (pc.field("service") == service) & (pc.field("operation") == operation)
    wanted &= (pc.field("status") == "done") & pc.field("latency_ms").is_valid()
    calls, busy_ms = 0, 0.0
    for path in sorted(files, key=lambda path: path.stat().st_mtime)[-_NEWEST:]:
        with suppress(OSError, pa.ArrowException):  # who sums is told of damage
            answered = pq.read_table(path, columns=attempt, filters=wanted)
            calls += answered.num_rows
            of_attempts = answered.group_by(attempt).aggregate([]).column("latency_ms")
            busy_ms += pc.sum(of_attempts).as_py() or 0.0
    return busy_ms / calls / 1000 if calls else None


def open_runs(folder: Folder) -> dict[str, dict[str, Any]]:
    """Return by run id what is noted of the runs that have attempts which are not in the ledger yet."""
    found = {}
    for name in folder.names(OPEN, ".json"):
        try:
            found[name.removesuffix(".json")] = note = parse_json(folder.read(f"{OPEN}/{name}"))
            # Compared with times in UTC.
            datetime.fromisoformat(note["since"]).astimezone()
        except FileNotFoundError:  # it has ended meanwhile
            continue
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise StoreError(f"{folder.path}/{OPEN}/{name} is damaged ({error}): remove it") from error
    return found


def is_here(note: dict[str, Any]) -> bool:
    """Return whether a run that :func:`open_runs` found is made by this machine."""
    return bool(note.get("host") == socket.gethostname())
