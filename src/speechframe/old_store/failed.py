"""``parts/failed.parquet``: the calls that have no audio now, replaced as a whole."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.old_store import files
from speechframe.old_store.arrow import record_batch
from speechframe.old_store.entries import SENT_NAMES, sent_from, sent_values
from speechframe.old_store.index import KeyIndex, read_keys
from speechframe.old_store.parts import failed_file, fitted, open_part, part_options
from speechframe.old_store.schema import Record, SentRecord

_SENT_KEY = "speechframe_sent"
_GROUP_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class Failure:
    """A call without audio, and the attempt that may have been billed if it is charged_unknown."""

    record: Record
    sent: SentRecord | None = None


Changes = Mapping[str, Failure | None]
"""request_key to its new state; None when the call has audio now."""


class FailedFile:
    """``failed.parquet`` of a run that is written to; its owner holds the lock.

    A call that fails is in it when :meth:`take` returns. One that has its audio by now may stand in it until
    half of its rows are such: written anew at each of a thousand cuts, a long file would cost as many times
    its length. Whoever reads it must let parts win, which say that the call is done.

    Parameters
    ----------
    folder
        The run folder.
    schema
        The columns of its parts.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._schema = folder, schema
        self._path = failed_file(folder)
        self._index = KeyIndex.read([])
        self._gone = np.zeros(0, np.bool_)
        self._is_read = False

    def take(self, changes: Changes, *, is_last: bool = False) -> None:
        """Bring the file up to date; memory is 26 bytes for each of its rows, and what calls in doubt say.

        Parameters
        ----------
        changes
            What became of calls.
        is_last
            Let no call stand in it that has audio.
        """
        self._read()
        self._gone[self._rows_of(list(changes))] = True
        new = [failure for failure in changes.values() if failure is not None]
        gone = int(self._gone.sum())
        if new or 2 * gone > len(self._gone) or (is_last and gone):
            self._write(new)

    def drop(self, finished: KeyIndex) -> None:
        """Let no call stand in the file that is in `finished`: a writer that died may have left some."""
        self._read()
        for keys in read_keys([self._path] if self._path.exists() else []):
            self._gone = finished.find(keys.column("request_key")) >= 0
        self.take({}, is_last=True)

    def _read(self) -> None:
        if not self._is_read:
            self._index = KeyIndex.read([self._path] if self._path.exists() else [])
            self._gone = np.zeros(len(self._index), np.bool_)
            self._is_read = True

    def _rows_of(self, keys: Sequence[str]) -> npt.NDArray[np.uint32]:
        found = self._index.find(keys)
        return self._index.columns.rows[found[found >= 0]]

    def _write(self, new: Sequence[Failure]) -> None:
        unknown = self._still_unknown()
        unknown |= {one.record.request_key: one.sent for one in new if one.sent is not None}
        self._path.parent.mkdir(exist_ok=True)
        with pq.ParquetWriter(
            files.temp_path(self._path), self._schema, **part_options(self._schema)
        ) as file:
            # Of the file and not of the schema, which would stand there a second time.
            file.add_key_value_metadata({_SENT_KEY: _to_json(unknown)})
            self._copy(file)
            for start in range(0, len(new), _GROUP_ROWS):
                records = [failure.record for failure in new[start : start + _GROUP_ROWS]]
                file.write_batch(record_batch(records, self._schema))
        files.publish(self._path)
        self._is_read = False

    def _still_unknown(self) -> dict[str, SentRecord]:
        before = read_unknown(self._folder)
        # All at once: a search for each of them takes seconds of ten thousand.
        at = self._index.find(list(before))
        stays = at < 0
        stays[~stays] = ~self._gone[self._index.columns.rows[at[~stays]]]
        return {key: sent for (key, sent), stay in zip(before.items(), stays, strict=True) if stay}

    def _copy(self, target: pq.ParquetWriter) -> None:
        if not len(self._gone):
            return
        start = 0
        with open_part(self._path) as source:
            for batch in source.iter_batches(batch_size=_GROUP_ROWS):
                kept = batch.filter(pa.array(~self._gone[start : start + batch.num_rows]))
                start += batch.num_rows
                if kept.num_rows:
                    table = fitted(pa.Table.from_batches([kept]), self._schema, self._path)
                    target.write_table(table.cast(self._schema))


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
