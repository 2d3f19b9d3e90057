"""Makes run folders without a service: as many rows as a test wants, with audio of its own."""

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.backends.service import SpokenBackend
from speechframe.batch.live import Run
from speechframe.store import journal, parts
from speechframe.store.folder import Folder, Manifest, TableEntry, serialise_schema
from speechframe.store.schema import BASE_KEY, INPUT_COLUMNS, ROW_ID, TAKE
from speechframe.verbs.translate import TRANSLATION_COLUMNS as TRANSLATED

COLUMNS = {"generate": SpokenBackend.columns, "translate": TRANSLATED}


def key_of(k):
    return f"{k + 1:032x}"


def run_of(path, columns, records, *, operation="generate", text="line", name=str):
    """Return a stopped run.

    Parameters
    ----------
    columns
        Of the caller: names to one value a row.
    records
        Row to ``(record, audio)``; rows without one are pending.
    text
        The column that is spoken.
    name
        Row to its id.
    """
    path.mkdir(parents=True, exist_ok=True)
    folder = Folder(path)
    rows = len(columns[text])
    table = pa.table(columns)
    ours = {
        ROW_ID: [name(k) for k in range(rows)],
        BASE_KEY: [key_of(k) for k in range(rows)],
        TAKE: [0] * rows,
    }
    for field in INPUT_COLUMNS:
        table = table.append_column(field, pa.array(ours.get(field.name, [None] * rows), field.type))
    file = "input/0001.parquet"
    pq.write_table(table, folder.make_temporary_path(file), row_group_size=8192)
    folder.publish(file)
    entry = TableEntry(file, rows, arguments={"text": {"column": text}}, hidden=["text"])
    kept = serialise_schema(COLUMNS[operation])
    Manifest("r1", operation, "test/1", kept, state="stopped", tables=[entry]).write(folder)
    log = journal.Journal(folder, 1, {"run_id": "r1", "operation": operation})
    for k, (record, audio) in records.items():
        part = {"request_key": key_of(k), "take": 0, "price": 24_000, "millicredits": 24_000}
        log.write_sent(key_of(k), 1, "global", 1.7e9, [part])
        row = {
            "request_key": key_of(k), "take": 0, "status": "done", "credits": 24.0, "attempts": 1,
            "finished_at": 1.7e9, **record,
        }  # fmt: skip
        log.write_end(key_of(k), row["status"], [journal.Ended(24_000, "computed", row, audio)])
    parts.convert_segment(folder, log.close(), COLUMNS[operation])
    return Run(folder)
