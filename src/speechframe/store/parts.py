"""Convert the journal of a run to its dataset. Each segment of the journal becomes up to three Parquet files.

The files contain results (``parts/``), failures (``failed/``) and attempts (``attempts/``). A second
conversion of a segment writes the same files, and each file is either complete or missing. So recovery after
a kill at any moment converts all segments again. The file in ``attempts/`` is written last, so a segment with
this file needs no conversion.
"""

import base64
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.store import journal
from speechframe.store.folder import Folder, convert_os_errors, convert_read_errors
from speechframe.store.ledger import Ledger
from speechframe.store.schema import (
    AUDIO_COLUMN,
    AUDIO_TYPE,
    CALL_COLUMNS,
    FINISHED_STATUSES,
    LEDGER_SCHEMA,
    NOTED,
    PACK,
    STATUSES,
    TIME_TYPE,
    WAIT_UNTIL,
    WORDS_TYPE,
    Row,
)

MAX_GROUP_ROWS, MAX_GROUP_BYTES = 64, 4 << 20
"""Number of rows, and size of the audio in bytes, of a full row group of a Parquet file. To read one clip, a
whole group is read. To write a group needs three times its memory."""

PARTS_FOLDER, FAILED_FOLDER, ATTEMPTS_FOLDER = "parts", "failed", "attempts"
"""Folders of the files of results, failures and attempts."""

INTERRUPTED_CODE = "Interrupted"
"""Error code of a call whose process died before an answer came."""

RECORDS_FOOTER = "spf:records"
"""Name of an entry in the footer of each file in ``attempts/``. The entry, in Base64, contains the 16-byte
key of each record of the segment, with the records of ``failed/`` first. Then follows one byte per record,
its status as an index into :data:`STATUSES`. To read a million keys from the small row groups of parts takes
over a second. To read them from the footers takes a tenth of that time."""


# The library `datasets` reads the types of these columns here, and infers the others from Arrow types.
_FEATURES_JSON = json.dumps({"info": {"features": {AUDIO_COLUMN: {"_type": "Audio"}}}})


def make_part_schema(backend: pa.Schema) -> pa.Schema:
    """Return the columns of a part: those of the backend, and all other columns of :data:`CALL_COLUMNS`."""
    kept = [field for field in CALL_COLUMNS if field.name not in backend.names]
    metadata: Any = {"huggingface": _FEATURES_JSON} if AUDIO_COLUMN in backend.names else None
    return pa.schema([*backend, *kept], metadata=metadata)


def format_file_name(kind: str, number: int) -> str:
    """Return the name of the file of a segment in the folder `kind`, such as ``parts/000001.parquet``."""
    return f"{kind}/{number:06d}.parquet"


def find_next_number(folder: Folder, within: range | None = None) -> int:
    """Return the number for the next segment, above all existing numbers, or above those `within` a range."""
    kinds = (PARTS_FOLDER, FAILED_FOLDER, ATTEMPTS_FOLDER)
    cut = itertools.chain(*(folder.list_numbers(kind, within) for kind in kinds))
    first = 1 if within is None else within.start
    return max([first - 1, *cut, *journal.list_segments(folder, within)]) + 1


def convert_segment(folder: Folder, number: int, columns: pa.Schema, ledger: Ledger | None = None) -> None:
    """Convert a closed segment to Parquet files. The caller must have locked the run.

    `columns` are the stored columns of the backend. The attempts are also added to `ledger`.
    """
    with convert_os_errors(folder, "writing a part"):
        # If the last file exists, an earlier process was killed after the conversion. Only remove the
        # segment.
        if not folder.exists(format_file_name(ATTEMPTS_FOLDER, number)):
            contents = journal.read_contents(folder, number)
            attempts = convert_to_arrow(contents.attempts, LEDGER_SCHEMA)
            contents.attempts.clear()  # free the memory of rows that are now in Arrow
            finished = [row for row in contents.rows if row["status"] in FINISHED_STATUSES]
            others = [row for row in contents.rows if row["status"] not in FINISHED_STATUSES]
            schema = make_part_schema(columns)
            # `failed/` has further columns, which are needed to repeat a failed call.
            repeat = [(NOTED, pa.string()), (PACK, pa.string()), (WAIT_UNTIL, pa.float64())]
            failed_schema = pa.schema([*schema, *repeat])
            files = (PARTS_FOLDER, finished, schema), (FAILED_FOLDER, others, failed_schema)
            for kind, rows, file_schema in files:
                if rows:
                    batches = read_record_batches(folder, number, rows, file_schema)
                    _write_file(folder, format_file_name(kind, number), file_schema, batches)
            if contents.rows or attempts.num_rows:
                keys = "".join([row["request_key"] for row in [*others, *finished]])
                codes = [STATUSES.index(row["status"]) for row in [*others, *finished]]
                records = base64.b64encode(bytes.fromhex(keys) + bytes(codes)).decode()
                if ledger is not None:
                    ledger.add(number, attempts)
                _write_file(
                    folder,
                    format_file_name(ATTEMPTS_FOLDER, number),
                    LEDGER_SCHEMA,
                    [attempts],
                    **{RECORDS_FOOTER: records},
                )
        journal.remove_segment(folder, number)
    # Release the memory that Arrow's pool would keep after writing: 30 MB after answers of 60 KB each.
    pa.default_memory_pool().release_unused()


def recover_journal(
    folder: Folder,
    columns: pa.Schema,
    header: Row,
    time: float,
    ledger: Ledger | None = None,
    within: range | None = None,
) -> None:
    """Convert the segments of earlier writers. An attempt without an end becomes ``charged_unknown``.

    These ends are written to a new segment, which has the `header` of this process. But each attempt keeps
    the key, the user and the tags of its sender. `time` is the Unix time of the ends. With `within`, only
    segments with these numbers are read and written.
    """
    with convert_os_errors(folder, "reading the journal"):
        earlier = journal.list_segments(folder, within)
        if not earlier:
            return
        log = journal.Journal(folder, find_next_number(folder, within), header)
        write_unknown_ends(log, journal.read_contents(folder, *earlier).open.values(), time)
    # First close the new segment, which also syncs it. Only then remove the segments with its attempts.
    for number in (*earlier, log.close()):
        convert_segment(folder, number, columns, ledger)


def write_unknown_ends(
    log: journal.Journal, attempts: Iterable[tuple[Row, bytes | None]], time: float
) -> None:
    """Write that attempts ended as ``charged_unknown``. `attempts` are ``sent`` lines, each with its note."""
    for sent, noted in attempts:
        costs = []
        for entry in sent["entries"]:
            row = {name: entry.get(name) for name in ("request_key", "take", "model", "locale", "voice_id")}
            row |= {
                "status": "charged_unknown",
                "error_code": INTERRUPTED_CODE,
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


def copy_to_ledger(folder: Folder, ledger: Ledger, numbers: Iterable[int] | None = None) -> None:
    """Copy the attempts of segments to the ledger, if they are not there yet. By default of all segments.

    The workers of a run write attempts only to the run's folder.
    """
    present = ledger.list_numbers()
    for number in folder.list_numbers(ATTEMPTS_FOLDER) if numbers is None else numbers:
        if number not in present:
            name = format_file_name(ATTEMPTS_FOLDER, number)
            with convert_read_errors(folder, name), pq.ParquetFile(folder.get_source(name)) as file:
                attempts = file.read().select(LEDGER_SCHEMA.names).cast(LEDGER_SCHEMA).combine_chunks()
            ledger.add(number, attempts.to_batches()[0])


def count_interruptions(folder: Folder, within: range) -> Counter[str]:
    """Return by ``request_key`` how often a process died while the call was under way, in some segments."""
    rows = _read_failed(folder, ["request_key", "error_code"], within)
    return Counter(row["request_key"] for row in rows if row["error_code"] == INTERRUPTED_CODE)


def _read_failed(folder: Folder, columns: list[str], within: range | None) -> Iterator[Row]:
    """Yield these columns of all failed records, the oldest first."""
    for number in folder.list_numbers(FAILED_FOLDER, within):
        name = format_file_name(FAILED_FOLDER, number)
        with convert_read_errors(folder, name), pq.ParquetFile(folder.get_source(name)) as file:
            yield from file.read(columns).to_pylist()  # files of older versions have no WAIT_UNTIL


def read_failures(folder: Folder, within: range | None = None) -> dict[str, Row]:
    """Return the last failed record of each call, by ``request_key``.

    A record has ``status``, ``finished_at``, ``credits``, :data:`NOTED`, :data:`PACK` and :data:`WAIT_UNTIL`.
    Rows of a pack (one call for several rows) keep their order in the pack. The status ``pending`` means that
    the service required a wait. A call may have been answered after its failed record. With `within`, only
    segments with these numbers count.
    """
    found: dict[str, Row] = {}
    columns = ["request_key", "status", "finished_at", "credits", NOTED, PACK, WAIT_UNTIL]
    for row in _read_failed(folder, columns, within):
        found.pop(row["request_key"], None)
        found[row["request_key"]] = row
    return found


def read_record_batches(
    folder: Folder, number: int, rows: Sequence[Row], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield records of a segment with their audio, a row group at a time.

    No audio is read if the schema has no column ``audio``. Otherwise FileNotFoundError is raised if the
    segment was converted meanwhile.
    """
    group: list[Row] = []
    size = 0
    blobs = None
    if AUDIO_COLUMN in schema.names:
        blobs = os.open(journal.get_segment_file(folder, number, journal.BYTES_SUFFIX), os.O_RDONLY)
    try:
        for row in rows:
            group.append(row)
            size += row[AUDIO_COLUMN][1] if blobs is not None and row.get(AUDIO_COLUMN) is not None else 0
            if len(group) == MAX_GROUP_ROWS or size >= MAX_GROUP_BYTES:
                yield convert_to_arrow(group, schema, blobs)
                group, size = [], 0
        if group:
            yield convert_to_arrow(group, schema, blobs)
    finally:
        if blobs is not None:
            os.close(blobs)


def convert_to_arrow(rows: Sequence[Row], schema: pa.Schema, blobs: int | None = None) -> pa.RecordBatch:
    """Convert records or ledger rows of the journal to an Arrow batch.

    `blobs` is the descriptor of the file with the audio, or None for no audio.
    """
    # Arrow converts one list of dicts three times as fast as one list for each column.
    seconds = {field.name for field in schema if field.type == TIME_TYPE}
    json_fields = [field.with_type(pa.float64()) if field.name in seconds else field for field in schema]
    row_type = pa.struct(
        [field for field in json_fields if field.name != AUDIO_COLUMN and field.type != WORDS_TYPE]
    )
    columns: Any = pa.array(rows, row_type)
    arrays: list[pa.Array[Any]] = []
    for field in schema:
        if field.name == AUDIO_COLUMN:
            arrays.append(_read_audio([row.get(AUDIO_COLUMN) for row in rows], blobs))
        elif field.type == WORDS_TYPE:
            # Arrow converts tuples to structs eight times as fast as dicts. It cannot convert lists to
            # structs.
            word_lists: list[Any] = [row.get(field.name) for row in rows]
            arrays.append(pa.array([words and list(map(tuple, words)) for words in word_lists], WORDS_TYPE))
        elif field.name in seconds:
            microseconds = pc.round(pc.multiply(columns.field(field.name), 1e6))
            arrays.append(microseconds.cast(pa.int64()).cast(TIME_TYPE))
        else:
            arrays.append(columns.field(field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _read_audio(places: list[Any], blobs: int | None) -> "pa.Array[Any]":
    """Return the audio of records. Read it directly into an Arrow buffer, so that it is copied only once."""
    spans = [span or (0, 0, None) for span in places]
    data: Any = np.empty(sum(map(itemgetter(1), spans)), np.uint8)
    ends = [0]
    for offset, length, _ in spans:
        # After a power cut the file of audio may be shorter than the lines of the journal require.
        piece = data[ends[-1] : ends[-1] + length]
        ends.append(ends[-1] + (os.preadv(blobs, [piece], offset) if length and blobs is not None else 0))
    offsets: Any = np.array(ends, np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    content = pa.BinaryArray.from_buffers(pa.binary(), len(spans), buffers)
    names = pa.array(list(map(itemgetter(2), spans)), pa.string())
    is_missing = pa.array([span is None for span in places])
    return pa.StructArray.from_arrays([content, names], fields=[*AUDIO_TYPE], mask=is_missing)


def _write_file(
    folder: Folder, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], **note: str
) -> None:
    flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
    with pq.ParquetWriter(
        folder.make_temporary_path(name),
        schema,
        # Nested columns, such as audio, get neither compression nor statistics. Audio is already compressed,
        # and its statistics are useless.
        compression=dict.fromkeys(flat, "zstd"),
        write_statistics=flat,
        use_dictionary=False,
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)
        writer.add_key_value_metadata(note)
    folder.publish(name)
