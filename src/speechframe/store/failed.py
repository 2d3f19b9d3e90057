"""``parts/failed.parquet``: the calls that have no audio now, replaced as a whole."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.store import files
from speechframe.store.arrow import record_batch
from speechframe.store.entries import SENT_NAMES, sent_from, sent_values
from speechframe.store.parts import failed_file, fitted, open_part, part_options
from speechframe.store.schema import Record, SentRecord

_SENT_KEY = "speechframe_sent"
_GROUP_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class Failure:
    """A call without audio, and the attempt that may have been billed if it is charged_unknown."""

    record: Record
    sent: SentRecord | None = None


Changes = Mapping[str, Failure | None]
"""request_key to its new state; None when the call has audio now."""


def replace_failed(folder: Path, changes: Changes, schema: pa.Schema) -> None:
    """Bring ``failed.parquet`` up to date in one step; memory does not grow with its rows."""
    path = failed_file(folder)
    new = {key: failure for key, failure in changes.items() if failure is not None}
    old = open_part(path) if path.exists() else None
    if old is None and not new:
        return
    gone = pa.array(list(changes), pa.string())
    if old is not None and not new and not _holds_any(old, gone):
        old.close()
        return
    unknown = {key: sent for key, sent in read_unknown(folder).items() if key not in changes}
    unknown |= {key: failure.sent for key, failure in new.items() if failure.sent is not None}
    path.parent.mkdir(exist_ok=True)
    with pq.ParquetWriter(files.temp_path(path), schema, **part_options(schema)) as file:
        # Of the file and not of the schema, which would stand there a second time.
        file.add_key_value_metadata({_SENT_KEY: _to_json(unknown)})
        if old is not None:
            with old:
                _copy(old, file, gone, schema, path)
        failures = list(new.values())
        for start in range(0, len(failures), _GROUP_ROWS):
            file.write_batch(record_batch([f.record for f in failures[start : start + _GROUP_ROWS]], schema))
    files.publish(path)


def read_unknown(folder: Path) -> dict[str, SentRecord]:
    """Return the calls that may have been billed without an answer: request_key to the attempt."""
    path = failed_file(folder)
    if not path.exists():
        return {}
    with open_part(path) as file:
        content = (file.metadata.metadata or {}).get(_SENT_KEY.encode())
    if content is None:
        return {}
    table = json.loads(content)
    found = [sent_from(dict(zip(table["names"], values, strict=False))) for values in table["rows"]]
    return {sent.request_key: sent for sent in found}


def _to_json(unknown: Mapping[str, SentRecord]) -> str:
    rows = [sent_values(sent) for sent in unknown.values()]
    return json.dumps({"names": SENT_NAMES, "rows": rows}, separators=(",", ":"))


def _holds_any(file: pq.ParquetFile, keys: "pa.Array[Any]") -> bool:
    return any(
        pc.any(pc.is_in(batch.column(0), value_set=keys)).as_py()
        for batch in file.iter_batches(columns=["request_key"])
    )


def _copy(
    source: pq.ParquetFile, target: pq.ParquetWriter, without: "pa.Array[Any]", schema: pa.Schema, path: Path
) -> None:
    for batch in source.iter_batches(batch_size=_GROUP_ROWS):
        kept = batch.filter(pc.invert(pc.is_in(batch.column("request_key"), value_set=without)))
        if kept.num_rows:
            target.write_table(fitted(pa.Table.from_batches([kept]), schema, path).cast(schema))
