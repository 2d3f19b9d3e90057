"""The ledger folder: the attempts of all runs with their costs, kept even after a run's folder is removed.

A run writes its attempts to numbered segments of its journal. ``attempts/<run id>-<segment>.parquet``
contains the attempts of one segment, equal to ``attempts/<segment>.parquet`` in the run's folder (columns:
:data:`speechframe.store.schema.LEDGER_SCHEMA`). ``open/<run id>.json`` names the folder of a run, from the
start of the run until all of its attempts are in the ledger.
"""

import json
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
from speechframe.spec.billing import MAX_BUDGET_CREDITS, MAX_CALL_CREDITS, MILLICREDITS_PER_CREDIT
from speechframe.store.folder import Folder, describe_process
from speechframe.store.schema import LEDGER_LAYOUT, LEDGER_LAYOUT_NAME, LEDGER_SCHEMA, check_times
from speechframe.writing.files import parse_json

ATTEMPTS_FOLDER, OPEN_FOLDER = "attempts", "open"
AMOUNT_COLUMNS = ("credits", "credits_basis", "computed")
"""Columns of the ledger that :func:`compute_billed_millicredits` needs."""
_MAX_SPEED_FILES = 8
"""Number of the newest ledger files from which :func:`measure_seconds_by_voice` learns the speed of calls."""


class Ledger:
    """The ledger folder, for one run that writes its attempts.

    Methods raise OSError or StoreError if the folder cannot be written.
    """

    def __init__(self, folder: Folder, run_id: str) -> None:
        self.folder, self._run_id = folder, run_id

    def begin(self, run: Folder) -> None:
        """Write a note that some attempts of the run may not be in the ledger yet."""
        note = {**describe_process(), "folder": str(run.path)}
        self.folder.write(f"{OPEN_FOLDER}/{self._run_id}.json", json.dumps(note).encode())

    def add(self, number: int, attempts: pa.RecordBatch) -> None:
        """Write the attempts of a segment to the ledger. A second call for a segment changes nothing."""
        name = f"{ATTEMPTS_FOLDER}/{self._run_id}-{number:06d}.parquet"
        temporary = self.folder.make_temporary_path(name)
        pq.write_table(pa.Table.from_batches([attempts]), temporary, compression="zstd")
        self.folder.publish(name)

    def list_numbers(self) -> set[int]:
        """Return the numbers of the run's segments that are in the ledger."""
        start, names = f"{self._run_id}-", self.folder.list_names(ATTEMPTS_FOLDER)
        own = [name.removeprefix(start) for name in names if name.startswith(start)]
        return {int(name.partition(".")[0]) for name in own}

    def end(self) -> None:
        """Remove the note of :meth:`begin`, because all attempts of the run are in the ledger."""
        self.folder.remove(f"{OPEN_FOLDER}/{self._run_id}.json")


def read_attempts(
    folder: Folder,
    columns: Sequence[str],
    start: datetime | None = None,
    end: datetime | None = None,
    *,
    files: Iterable[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the attempts of a ledger or of a run in batches of some thousand rows, in no order.

    The batches contain only rows whose ``time`` is at least `start` and before `end`. None means no bound.
    `files` are names in ``attempts/``, by default all. Columns that were added after a file was written are
    null. StoreError is raised if a file cannot be read.
    """
    from pyarrow.dataset import ParquetFileFormat

    for name in folder.list_names(ATTEMPTS_FOLDER) if files is None else files:
        try:
            source = folder.get_source(f"{ATTEMPTS_FOLDER}/{name}")
            file: Any = pa.OSFile(str(source), "rb") if isinstance(source, Path) else source
            attempts: Any = ParquetFileFormat().make_fragment(file)
            _check_layout(attempts.physical_schema)
            for batch in attempts.to_batches(
                LEDGER_SCHEMA, columns=[*columns], filter=make_time_filter(start, end)
            ):
                check_times(batch)
                yield batch
        except (OSError, ValueError, pa.ArrowException) as error:
            raise StoreError(
                f"{folder.path}/{ATTEMPTS_FOLDER}/{name} of the ledger cannot be read ({error}): restore it "
                "from a copy (the run's own folder has an equal file), or move it away to count without it"
            ) from error


def _check_layout(schema: pa.Schema) -> None:
    layout = (schema.metadata or {}).get(LEDGER_LAYOUT_NAME, LEDGER_LAYOUT)
    if layout != LEDGER_LAYOUT:
        raise pa.ArrowInvalid(f"its layout is {layout.decode()}, this version reads {LEDGER_LAYOUT.decode()}")
    if "time" not in schema.names:
        raise pa.ArrowInvalid("it has no column time, so it is not a file of a ledger")


def make_time_filter(start: datetime | None, end: datetime | None) -> Any:
    """Return a filter for rows whose ``time`` is at least `start` and before `end`. None means no bound."""
    time: Any = pc.field("time")
    wanted = time.is_valid()
    wanted = wanted if start is None else wanted & (time >= start)
    return wanted if end is None else wanted & (time < end)


def are_amounts(amounts: Any) -> Any:
    """Return for each value whether it is a number small enough that its thousandths fit into 64 bits."""
    return pc.fill_null(pc.less(pc.abs(amounts), pa.scalar(float(MAX_BUDGET_CREDITS))), pa.scalar(False))


def convert_to_millicredits(amounts: Any) -> Any:
    """Return each amount in whole thousandths, and 0 for each value that :func:`are_amounts` rejects."""
    finite: Any = pc.if_else(are_amounts(amounts), amounts, pa.scalar(0.0))
    return pc.cast(pc.round(pc.multiply(finite, pa.scalar(float(MILLICREDITS_PER_CREDIT)))), pa.int64())


def compute_billed_millicredits(attempts: Any) -> Any:
    """Return the cost of each attempt in thousandths of a credit.

    `attempts` has the columns :data:`AMOUNT_COLUMNS`. Earlier versions wrote any amount that a service
    reported. If no service can have billed the reported amount, the computed price counts instead.
    """
    credits, basis, computed = (attempts.column(name) for name in AMOUNT_COLUMNS)
    is_below: Any = pc.and_(pc.less(credits, pa.scalar(0.0)), pc.greater(computed, pa.scalar(0.0)))
    is_above = pc.greater(pc.abs(credits), pa.scalar(float(MAX_CALL_CREDITS)))
    is_odd = pc.and_(pc.equal(basis, pa.scalar("reported")), pc.or_(is_below, is_above))
    return convert_to_millicredits(pc.if_else(pc.fill_null(is_odd, pa.scalar(False)), computed, credits))


def measure_seconds_by_voice(folder: Folder, service: str, operation: str) -> dict[str | None, float]:
    """Return the mean seconds per character in the newest files of a ledger, by voice id.

    Each call counts as one character more, because some calls have no characters. The id is None for calls
    without a voice. If one attempt was for several rows, its time counts once. Return an empty dict if the
    ledger is remote.
    """
    if folder.work != folder.path:  # a remote folder does not give the age of its files
        return {}
    files = [folder.find_path(f"{ATTEMPTS_FOLDER}/{name}") for name in folder.list_names(ATTEMPTS_FOLDER)]
    attempt = ["run_id", "time", "latency_ms", "voice_id"]
    wanted: Any = (pc.field("service") == service) & (pc.field("operation") == operation)
    wanted &= (pc.field("status") == "done") & pc.field("latency_ms").is_valid()
    characters, busy_ms = Counter[str | None](), Counter[str | None]()
    for path in sorted(files, key=lambda path: path.stat().st_mtime)[-_MAX_SPEED_FILES:]:
        with suppress(OSError, pa.ArrowException):  # skip a damaged file; `usage` reports the damage
            answered = pq.read_table(path, columns=[*attempt, "characters"], filters=wanted)
            attempts = answered.group_by(attempt).aggregate([("characters", "sum"), ([], "count_all")])
            for row in attempts.to_pylist():
                characters[row["voice_id"]] += (row["characters_sum"] or 0) + row["count_all"]
                busy_ms[row["voice_id"]] += row["latency_ms"]
    return {voice: busy_ms[voice] / 1000 / count for voice, count in characters.items() if count}


def read_open_notes(folder: Folder) -> dict[str, dict[str, Any]]:
    """Return the notes in ``open/`` by run id, of runs with attempts that may not be in the ledger yet.

    Raise StoreError if a note is damaged.
    """
    found = {}
    for name in folder.list_names(OPEN_FOLDER, ".json"):
        try:
            found[name.removesuffix(".json")] = note = parse_json(folder.read(f"{OPEN_FOLDER}/{name}"))
            # Callers compare this time with times in UTC. Here only check that it is a time.
            datetime.fromisoformat(note["since"]).astimezone()
        except FileNotFoundError:  # the run has ended meanwhile
            continue
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise StoreError(f"{folder.path}/{OPEN_FOLDER}/{name} is damaged ({error}): remove it") from error
    return found
