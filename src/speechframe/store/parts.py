"""The dataset of a run. Each journal segment becomes one file each of rows, failures and attempts.

This conversion is called a cut. A second cut of a segment writes the same files, and a file is whole or
missing. So recovery after a kill at any moment just cuts all segments again. ``attempts/`` is written last,
so a segment with a file in ``attempts/`` is already cut.
"""

import base64
import contextlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.store import journal
from speechframe.store.folder import Folder, storing
from speechframe.store.ledger import Ledger
from speechframe.store.schema import (
    AUDIO,
    AUDIO_TYPE,
    CALL_COLUMNS,
    FINISHED,
    LEDGER,
    NOTED,
    PACK,
    STATUSES,
    TIME,
    WAIT_UNTIL,
    WORDS_TYPE,
    Row,
)

GROUP_ROWS, GROUP_BYTES = 64, 4 << 20
"""Size of a full row group. Reading one clip reads a whole group. Writing needs three times its memory."""

PARTS, FAILED, ATTEMPTS = "parts", "failed", "attempts"

RECORDS = "spf:records"
"""Footer entry of ``attempts/``, in Base64. It contains the 16-byte key of each record of the segment, with
the records of ``failed/`` first. Then follows one byte per record for the status, an index into
:data:`STATUSES`. The row groups of parts are small, so reading a million keys from them takes over a second.
Reading the footers takes a tenth of that."""


# `datasets` takes the features named here from the file's schema and infers the others from Arrow types.
_FEATURES = json.dumps({"info": {"features": {AUDIO: {"_type": "Audio"}}}})


def part_schema(backend: pa.Schema) -> pa.Schema:
    """Return the columns of a part. They are the backend's and all other columns of :data:`CALL_COLUMNS`."""
    kept = [field for field in CALL_COLUMNS if field.name not in backend.names]
    return pa.schema(
        [*backend, *kept], metadata={"huggingface": _FEATURES} if AUDIO in backend.names else None
    )


def file_name(kind: str, number: int) -> str:
    """Return the name of a file of a segment, such as ``parts/000001.parquet``."""
    return f"{kind}/{number:06d}.parquet"


def next_number(folder: Folder) -> int:
    """Return the number of the next segment, which has no file yet."""
    cut = map(folder.numbers, (PARTS, FAILED, ATTEMPTS))
    return max([0, *itertools.chain(*cut), *journal.segments(folder)]) + 1


def convert_segment(folder: Folder, number: int, columns: pa.Schema, ledger: Ledger | None = None) -> None:
    """Make a closed segment a part. The run is locked, and its backend keeps `columns` of an answer.

    Its attempts are put into `ledger`, too.
    """
    with storing(folder, "writing a part"):
        # If it exists, an earlier process was killed after it wrote the part. Only remove the segment then.
        if not folder.exists(file_name(ATTEMPTS, number)):
            contents = journal.read_contents(folder, number)
            attempts = table_of(contents.attempts, LEDGER)
            contents.attempts.clear()  # free the memory of rows that are now in Arrow
            finished = [row for row in contents.rows if row["status"] in FINISHED]
            others = [row for row in contents.rows if row["status"] not in FINISHED]
            schema = part_schema(columns)
            # `failed/` also has the columns with which a failed call is repeated.
            repeat = [(NOTED, pa.string()), (PACK, pa.string()), (WAIT_UNTIL, pa.float64())]
            failed_schema = pa.schema([*schema, *repeat])
            for kind, rows, file_schema in ((PARTS, finished, schema), (FAILED, others, failed_schema)):
                if rows:
                    batches = record_batches(folder, number, rows, file_schema)
                    _write(folder, file_name(kind, number), file_schema, batches)
            if contents.rows or attempts.num_rows:
                keys = "".join([row["request_key"] for row in [*others, *finished]])
                codes = [STATUSES.index(row["status"]) for row in [*others, *finished]]
                records = base64.b64encode(bytes.fromhex(keys) + bytes(codes)).decode()
                if ledger is not None:
                    ledger.add(number, attempts)
                _write(folder, file_name(ATTEMPTS, number), LEDGER, [attempts], **{RECORDS: records})
        journal.remove_segment(folder, number)
    # Release memory that writing used and Arrow's pool would keep: 30 MB after answers of 60 KB.
    pa.default_memory_pool().release_unused()


def recover(
    folder: Folder, columns: pa.Schema, header: Row, time: float, ledger: Ledger | None = None
) -> None:
    """Cut the segments of earlier writers, and end each attempt without an end as ``charged_unknown``.

    These ends get a segment of their own, with the `header` of this process. The attempts stay those of the
    key, the user and the tags that sent them. `time` is in seconds since 1970.
    """
    with storing(folder, "reading the journal"):
        earlier = journal.segments(folder)
        if not earlier:
            return
        log = journal.Journal(folder, next_number(folder), header)
        for sent, noted in journal.read_contents(folder, *earlier).open.values():
            costs = []
            for entry in sent["entries"]:
                row = {
                    name: entry.get(name) for name in ("request_key", "take", "model", "locale", "voice_id")
                }
                row |= {
                    "status": "charged_unknown",
                    "error_code": "Interrupted",
                    "error_message": "the process that sent this call ended before an answer came",
                    "billed_characters": entry.get("characters"),
                    "credits": entry["price"] / 1000,
                    "attempts": sent["attempt"],
                    "lane": sent["lane"],
                    "finished_at": time,
                    NOTED: noted.hex() if noted is not None else None,
                    PACK: sent["call"] if len(sent["entries"]) > 1 else None,
                }
                costs.append(journal.Ended(entry["millicredits"], "unknown", row))
            log.write_sent(**sent)
            log.write_end(sent["call"], "charged_unknown", costs)
    # Close this segment, and so sync it, before cutting the segments it refers to.
    for number in (*earlier, log.close()):
        convert_segment(folder, number, columns, ledger)


def failures(folder: Folder) -> dict[str, Row]:
    """Return the last record of each call that ended without an answer, by ``request_key``.

    Each has ``status``, ``finished_at``, ``credits``, :data:`NOTED`, :data:`PACK` and :data:`WAIT_UNTIL`.
    Rows of one pack are in its order. A pending call has failed for now and waits, as the service asked.
    """
    found: dict[str, Row] = {}
    columns = ["request_key", "status", "finished_at", "credits", NOTED, PACK, WAIT_UNTIL]
    with storing(folder, "reading the failed calls"):
        for name in folder.names(FAILED):
            with pq.ParquetFile(folder.source(f"{FAILED}/{name}")) as file:
                for row in file.read(columns).to_pylist():  # an older file has no WAIT_UNTIL
                    found.pop(row["request_key"], None)
                    found[row["request_key"]] = row
    return found


def read_notes(folder: Folder) -> dict[str, bytes]:
    """Return the last note of each call that is under way or failed, by ``request_key``.

    A failed call may have been repeated since, and have its answer by now.
    """
    found = {key: row[NOTED] for key, row in failures(folder).items() if row[NOTED] is not None}
    with storing(folder, "reading the journal"):
        for number in journal.segments(folder):
            with contextlib.suppress(FileNotFoundError):  # the segment has become a part meanwhile
                contents = journal.read_contents(folder, number)
                found |= {row["request_key"]: row[NOTED] for row in contents.rows if row.get(NOTED)}
                for sent, data in contents.open.values():
                    if data is not None:
                        found |= dict.fromkeys(
                            (entry["request_key"] for entry in sent["entries"]), data.hex()
                        )
    return {key: bytes.fromhex(data) for key, data in found.items()}


def record_batches(
    folder: Folder, number: int, rows: Sequence[Row], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield records of a segment with their audio, a row group at a time.

    Without ``audio`` in the schema no bytes are read. FileNotFoundError when the segment has become a part.
    """
    group: list[Row] = []
    size = 0
    blobs = None
    if AUDIO in schema.names:
        blobs = os.open(journal.file_of(folder, number, journal.BYTES), os.O_RDONLY)
    try:
        for row in rows:
            group.append(row)
            size += row[AUDIO][1] if blobs is not None and row.get(AUDIO) is not None else 0
            if len(group) == GROUP_ROWS or size >= GROUP_BYTES:
                yield table_of(group, schema, blobs)
                group, size = [], 0
        if group:
            yield table_of(group, schema, blobs)
    finally:
        if blobs is not None:
            os.close(blobs)


def table_of(rows: Sequence[Row], schema: pa.Schema, blobs: int | None = None) -> pa.RecordBatch:
    """Return records or rows of the ledger from the journal as Arrow, with audio from `blobs`."""
    # Arrow makes columns of a list of dicts in a third of the time that a list for each column takes.
    seconds = {field.name for field in schema if field.type == TIME}
    json_fields = [field.with_type(pa.float64()) if field.name in seconds else field for field in schema]
    row_type = pa.struct([field for field in json_fields if field.name != AUDIO and field.type != WORDS_TYPE])
    columns: Any = pa.array(rows, row_type)
    arrays: list[pa.Array[Any]] = []
    for field in schema:
        if field.name == AUDIO:
            arrays.append(_audio_of([row.get(AUDIO) for row in rows], blobs))
        elif field.type == WORDS_TYPE:
            # Use tuples, which become structs eight times as fast as dicts. The lists from JSON do not.
            word_lists: list[Any] = [row.get(field.name) for row in rows]
            arrays.append(pa.array([words and list(map(tuple, words)) for words in word_lists], WORDS_TYPE))
        elif field.name in seconds:
            microseconds = pc.round(pc.multiply(columns.field(field.name), 1e6))
            arrays.append(microseconds.cast(pa.int64()).cast(TIME))
        else:
            arrays.append(columns.field(field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _audio_of(places: list[Any], blobs: int | None) -> "pa.Array[Any]":
    """Return the audio of records, read straight into an Arrow buffer, so that it is copied only once."""
    spans = [place or (0, 0, None) for place in places]
    data: Any = np.empty(sum(map(itemgetter(1), spans)), np.uint8)
    ends = [0]
    for offset, length, _ in spans:
        # After a power cut the file may be shorter than the sizes in the journal's lines.
        piece = data[ends[-1] : ends[-1] + length]
        ends.append(ends[-1] + (os.preadv(blobs, [piece], offset) if length and blobs is not None else 0))
    offsets: Any = np.array(ends, np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    content = pa.BinaryArray.from_buffers(pa.binary(), len(spans), buffers)
    names = pa.array(list(map(itemgetter(2), spans)), pa.string())
    is_missing = pa.array([place is None for place in places])
    return pa.StructArray.from_arrays([content, names], fields=[*AUDIO_TYPE], mask=is_missing)


def _write(
    folder: Folder, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], **note: str
) -> None:
    flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
    with pq.ParquetWriter(
        folder.temporary(name),
        schema,
        # Nested columns get no compression or statistics. Audio is already compressed, and its statistics
        # are useless.
        compression=dict.fromkeys(flat, "zstd"),
        write_statistics=flat,
        use_dictionary=False,
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)
        writer.add_key_value_metadata(note)
    folder.publish(name)
