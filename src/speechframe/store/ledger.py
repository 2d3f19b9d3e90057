"""The ledger of a run: one row for each attempt of each row's call, from parts and from the journal."""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.store import journal, parts
from speechframe.store.folder import Folder
from speechframe.store.records import read_while_it_is_cut, reading
from speechframe.store.schema import LEDGER

FAILED_STATUSES = frozenset({"failed", "charged_unknown", "retried"})
"""Statuses of attempts that brought no answer."""


def attempts(
    folder: Folder, columns: Sequence[str] | None = None, *, known: Collection[int] = ()
) -> Iterator[tuple[int | None, pa.Table]]:
    """Yield the attempts that have ended, a segment at a time, the oldest first, in the order of their ends.

    Each comes with the segment's number, None while it may still grow. Segments whose number is `known` are
    left out. `columns` are some of :data:`LEDGER`.
    """
    schema = LEDGER if columns is None else pa.schema([LEDGER.field(name) for name in columns])

    def segments() -> tuple[list[int], list[journal.Contents]]:
        # First the journal: what leaves it later is found in parts.
        numbers = journal.segments(folder)
        cut = parts.cut_numbers(folder)
        return cut, [journal.read_contents(folder, number) for number in numbers if number not in cut]

    cut, live = read_while_it_is_cut(folder, segments)
    for number in cut:
        if number not in known:
            name = parts.file_name(parts.ATTEMPTS, number)
            with reading(folder, name), pq.ParquetFile(folder.source(name)) as file:
                table = file.read(schema.names).select(schema.names)
            yield number, table
    for contents in live:
        yield None, pa.Table.from_batches([parts.table_of(contents.attempts, schema)], schema)


def ledger(folder: Folder) -> pa.Table:
    """Return every attempt that has ended, by the time it was sent."""
    return pa.concat_tables([LEDGER.empty_table(), *(table for _, table in attempts(folder))]).sort_by("time")
