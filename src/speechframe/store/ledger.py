"""The ledger folder has the attempts of every run, so that costs outlive run folders.

``attempts/<run id>-<segment>.parquet`` has the rows of a segment of a run's journal, as the run's own
``attempts/<segment>.parquet`` (columns: :data:`speechframe.store.schema.LEDGER`). ``open/<run id>.json``
names the folder of a run, from its start until all of its attempts are in the ledger.
"""

import json
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.spec.billing import CREDIT, MOST_CALL_CREDITS, MOST_CREDITS
from speechframe.store.folder import Folder, this_process
from speechframe.store.schema import LAYOUT, LAYOUT_NAME, LEDGER, check_times
from speechframe.writing.files import parse_json

ATTEMPTS, OPEN = "attempts", "open"
AMOUNTS = ("credits", "credits_basis", "computed")
"""Columns of the ledger that :func:`billed_millis` needs."""
_NEWEST = 8
"""Number of files of the ledger from which the speed of calls is learned."""


class Ledger:
    """The ledger folder for one run that writes. StoreError if it cannot be written."""

    def __init__(self, folder: Folder, run_id: str) -> None:
        self.folder, self._run_id = folder, run_id

    def begin(self, run: Folder) -> None:
        """Note that the run has attempts which are not in the ledger yet."""
        note = {**this_process(), "folder": str(run.path)}
        self.folder.write(f"{OPEN}/{self._run_id}.json", json.dumps(note).encode())

    def add(self, number: int, attempts: pa.RecordBatch) -> None:
        """Put the attempts of a segment there. A second time changes nothing."""
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
    """Yield the rows in `attempts/` of a ledger or of a run, some thousand at a time, in no order.

    Only rows whose ``time`` is at least `start` and before `end`, of these `files` there, or of all. Columns
    that were added after a file was written are null. StoreError if a file cannot be read.
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
        raise pa.ArrowInvalid("it has no column time, so it is not a file of a ledger")


def within(start: datetime | None, end: datetime | None) -> Any:
    """Return a filter for rows whose ``time`` is at least `start` and before `end`."""
    time: Any = pc.field("time")
    wanted = time.is_valid()
    wanted = wanted if start is None else wanted & (time >= start)
    return wanted if end is None else wanted & (time < end)


def is_amount(amounts: Any) -> Any:
    """Return which values are numbers whose thousandths fit into 64 bits."""
    return pc.fill_null(pc.less(pc.abs(amounts), pa.scalar(float(MOST_CREDITS))), pa.scalar(False))


def millis(amounts: Any) -> Any:
    """Return whole thousandths of each number, and 0 for every other value."""
    finite: Any = pc.if_else(is_amount(amounts), amounts, pa.scalar(0.0))
    return pc.cast(pc.round(pc.multiply(finite, pa.scalar(float(CREDIT)))), pa.int64())


def billed_millis(attempts: Any) -> Any:
    """Return the bill of each attempt in whole thousandths. `attempts` has the columns :data:`AMOUNTS`.

    Earlier versions wrote any amount that a service gave. The computed price replaces an amount that no
    service can have billed.
    """
    credits, basis, computed = (attempts.column(name) for name in AMOUNTS)
    is_below: Any = pc.and_(pc.less(credits, pa.scalar(0.0)), pc.greater(computed, pa.scalar(0.0)))
    is_above = pc.greater(pc.abs(credits), pa.scalar(float(MOST_CALL_CREDITS)))
    is_odd = pc.and_(pc.equal(basis, pa.scalar("reported")), pc.or_(is_below, is_above))
    return millis(pc.if_else(pc.fill_null(is_odd, pa.scalar(False)), computed, credits))


def seconds_by_voice(folder: Folder, service: str, operation: str) -> dict[str | None, float]:
    """Return how many seconds a character took in the newest files of a ledger, by voice id.

    Each call counts as one character more, because some calls have none. The id is None for calls without a
    voice. Calls of several rows that went in one attempt share its time.
    """
    if folder.work != folder.path:  # at a remote address files have no age
        return {}
    files = [folder.inside(f"{ATTEMPTS}/{name}") for name in folder.names(ATTEMPTS)]
    attempt = ["run_id", "time", "latency_ms", "voice_id"]
    wanted: Any = (pc.field("service") == service) & (pc.field("operation") == operation)
    wanted &= (pc.field("status") == "done") & pc.field("latency_ms").is_valid()
    characters, busy_ms = Counter[str | None](), Counter[str | None]()
    for path in sorted(files, key=lambda path: path.stat().st_mtime)[-_NEWEST:]:
        with suppress(OSError, pa.ArrowException):  # `usage` reports damage
            answered = pq.read_table(path, columns=[*attempt, "characters"], filters=wanted)
            attempts = answered.group_by(attempt).aggregate([("characters", "sum"), ([], "count_all")])
            for row in attempts.to_pylist():
                characters[row["voice_id"]] += (row["characters_sum"] or 0) + row["count_all"]
                busy_ms[row["voice_id"]] += row["latency_ms"]
    return {voice: busy_ms[voice] / 1000 / count for voice, count in characters.items() if count}


def open_runs(folder: Folder) -> dict[str, dict[str, Any]]:
    """Return by run id the notes of runs that have attempts which are not in the ledger yet."""
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
