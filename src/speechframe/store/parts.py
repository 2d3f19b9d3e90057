"""The dataset of a run: each segment of the journal becomes a file of rows, of failures and of attempts.

To cut a segment twice gives the same files, and a file is whole or not there. So recovery after a kill at any
moment is to cut whatever segments there are. ``attempts/`` is written last: where it has a number, the
segment is cut.
"""

import base64
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.store import journal
from speechframe.store.folder import Folder, storing
from speechframe.store.schema import (
    AUDIO,
    AUDIO_TYPE,
    FINISHED,
    LEDGER,
    NOTED,
    PACK,
    STATUSES,
    TIME,
    WORDS_TYPE,
    Row,
    part_schema,
)

GROUP_ROWS, GROUP_BYTES = 64, 32 << 20
"""Of a row group: what has to be read to hear one clip."""

PARTS, FAILED, ATTEMPTS = "parts", "failed", "attempts"

RECORDS = "spf:records"
"""In the footer of ``attempts/``, in Base64: 16 bytes for the key of each record of the segment, those of
``failed/`` first, then a byte for the status of each (its place in :data:`STATUSES`). The row groups of parts
are small, so that reading a million keys from them takes over a second; from here it takes a tenth."""


def cut_numbers(folder: Folder) -> list[int]:
    """Return the numbers of the segments that have become parts."""
    return [int(name.partition(".")[0]) for name in folder.names(ATTEMPTS)]


def next_number(folder: Folder) -> int:
    """Return the number of the next segment."""
    return max([0, *cut_numbers(folder), *journal.segments(folder)]) + 1


def cut(folder: Folder, number: int, columns: pa.Schema) -> None:
    """Make a closed segment a part.

    Parameters
    ----------
    folder
        The run's folder, locked.
    number
        Of the segment.
    columns
        What the run's backend keeps of an answer.
    """
    with storing(folder, "writing a part"):
        if folder.exists(file_name(ATTEMPTS, number)):
            # An earlier process was killed while it removed the segment, which is cut.
            journal.remove_segment(folder, number)
            return
        contents = journal.read_contents(folder, number)
        if not contents.rows and not contents.attempts:
            journal.remove_segment(folder, number)
            return
        finished = [row for row in contents.rows if row["status"] in FINISHED]
        others = [row for row in contents.rows if row["status"] not in FINISHED]
        schema = part_schema(columns)
        if finished:
            _write(folder, file_name(PARTS, number), schema, record_batches(folder, number, finished, schema))
        if others:
            failures = failed_schema(columns)
            batches = record_batches(folder, number, others, failures)
            _write(folder, file_name(FAILED, number), failures, batches)
        note = {RECORDS: records_note([*others, *finished])}
        attempts = [table_of(contents.attempts, LEDGER)]
        _write(folder, file_name(ATTEMPTS, number), LEDGER, attempts, note)
        journal.remove_segment(folder, number)


def recover(folder: Folder, columns: pa.Schema, log: journal.Journal, time: float) -> None:
    """Say of every attempt that has no end that it may have been billed, and cut what earlier writers left.

    Parameters
    ----------
    folder
        The run's folder, locked.
    columns
        What the run's backend keeps of an answer.
    log
        The journal of this process.
    time
        Seconds since 1970.
    """
    with storing(folder, "reading the journal"):
        before = journal.segments(folder)[:-1]
        for sent, noted in journal.open_attempts(folder):
            costs = [
                journal.Ended(part["millicredits"], "unknown", _lost(sent, part, noted, time))
                for part in sent["parts"]
            ]
            log.sent(**sent)
            log.ended(sent["call"], "charged_unknown", costs)
        log.sync()
    for number in before:
        cut(folder, number, columns)


def failures(folder: Folder) -> dict[str, Row]:
    """Return by ``request_key`` what is known of calls that ended without an answer, the last time each.

    Each has ``status``, ``finished_at``, :data:`NOTED` and :data:`PACK`; rows of one pack are in its order.
    """
    found: dict[str, Row] = {}
    with storing(folder, "reading the failed calls"):
        for name in folder.names(FAILED):
            columns = ["request_key", "status", "finished_at", NOTED, PACK]
            for row in pq.read_table(folder.source(f"{FAILED}/{name}"), columns=columns).to_pylist():
                found.pop(row["request_key"], None)
                found[row["request_key"]] = row
    return found


def spent_by_month(folder: Folder) -> dict[str, int]:
    """Return what all attempts of a run have cost, by its ledger, in thousandths of a credit.

    Raises
    ------
    StoreError
        When a file of the ledger is missing: what was spent cannot be told then.
    """
    numbers = set(cut_numbers(folder))
    lost = [name for name in folder.names(PARTS) if int(name.partition(".")[0]) not in numbers]
    if lost:
        raise StoreError(
            f"{folder.path}: {ATTEMPTS}/{lost[0]} is missing, so what the run has spent is not known and a "
            "limit cannot be kept; put the file back, or resume with max_credits=inf where no rule forbids it"
        )
    credits: dict[str, float] = {}
    with storing(folder, "reading the ledger"):
        for name in folder.names(ATTEMPTS):
            table = pq.read_table(folder.source(f"{ATTEMPTS}/{name}"), columns=["time", "credits"])
            months = pc.strftime(table["time"], "%Y-%m")
            sums = pa.table([months, table["credits"]], ["month", "credits"]).group_by("month")
            for row in sums.aggregate([("credits", "sum")]).to_pylist():
                credits[row["month"]] = credits.get(row["month"], 0.0) + (row["credits_sum"] or 0.0)
    return {month: round(1000 * amount) for month, amount in credits.items()}


def _lost(sent: Row, part: Row, noted: bytes | None, time: float) -> Row:
    words = "the process that sent this call ended before an answer came"
    return {
        **{name: part.get(name) for name in ("request_key", "take", "model", "locale", "voice_id")},
        "status": "charged_unknown",
        "error_code": "Interrupted",
        "error_message": words,
        "billed_characters": part.get("characters"),
        "credits": part["price"] / 1000,
        "attempts": sent["attempt"],
        "lane": sent["lane"],
        "finished_at": time,
        NOTED: noted.hex() if noted is not None else None,
        PACK: sent["call"] if len(sent["parts"]) > 1 else None,
    }


def failed_schema(columns: pa.Schema) -> pa.Schema:
    """Return the columns of ``failed/``: those of parts, and what a repeat of the call needs."""
    return pa.schema([*part_schema(columns), (NOTED, pa.string()), (PACK, pa.string())])


def file_name(kind: str, number: int) -> str:
    """Return the name of a file of a segment, such as ``parts/000001.parquet``."""
    return f"{kind}/{number:06d}.parquet"


def record_batches(
    folder: Folder, number: int, rows: Sequence[Row], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield records of a segment with their audio, a row group at a time.

    Parameters
    ----------
    folder
        The run's folder.
    number
        Of the segment.
    rows
        Of :func:`journal.read_contents`.
    schema
        The columns; without ``audio`` no bytes are read.

    Raises
    ------
    FileNotFoundError
        When the segment has become a part meanwhile.
    """
    group: list[Row] = []
    size = 0
    blobs = journal.blobs_of(folder, number) if AUDIO in schema.names else None
    try:
        for row in rows:
            place = row.get(AUDIO)
            if place is not None and blobs is not None:
                offset, length, name = place
                row = {**row, AUDIO: {"bytes": os.pread(blobs, length, offset), "path": name}}  # noqa: PLW2901 - the record with its audio
                size += length
            group.append(row)
            if len(group) == GROUP_ROWS or size >= GROUP_BYTES:
                yield table_of(group, schema)
                group, size = [], 0
        if group:
            yield table_of(group, schema)
    finally:
        if blobs is not None:
            os.close(blobs)


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Return records or rows of the ledger, as the journal holds them, as Arrow."""
    arrays = [_array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> "pa.Array[Any]":
    if kind == TIME:
        return pa.array([None if v is None else datetime.fromtimestamp(v, UTC) for v in values], kind)
    if kind == WORDS_TYPE:
        names = [field.name for field in WORDS_TYPE.value_type]
        return pa.array(
            [None if v is None else [dict(zip(names, word, strict=True)) for word in v] for v in values], kind
        )
    if pa.types.is_map(kind):
        return pa.array([None if v is None else list(v.items()) for v in values], kind)
    return pa.array(values, kind)


def records_note(rows: Sequence[Row]) -> str:
    """Return what :data:`RECORDS` holds, of records in this order."""
    keys = bytes.fromhex("".join(row["request_key"] for row in rows))
    statuses = bytes(STATUSES.index(row["status"]) for row in rows)
    return base64.b64encode(keys + statuses).decode()


def _write(
    folder: Folder,
    name: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    note: Mapping[str, str] | None = None,
) -> None:
    # Audio is compressed already, or is not worth the time.
    leaves = _leaves(schema)
    compression: dict[str, Any] = {
        leaf: "none" if leaf.startswith(AUDIO + ".") else "zstd" for leaf in leaves
    }
    with pq.ParquetWriter(
        folder.temporary(name), schema, compression=compression, use_dictionary=False
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)
        writer.add_key_value_metadata(dict(note or {}))
    folder.publish(name)


def _leaves(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        if field.type == AUDIO_TYPE:
            yield from (f"{field.name}.{leaf.name}" for leaf in AUDIO_TYPE)
        elif not pa.types.is_nested(field.type):
            yield field.name
