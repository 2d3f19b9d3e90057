"""Compare a table with the table of a run, and price the calls for the rows that differ."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from speechframe.batch.backend import Backend
from speechframe.batch.plan import plan_calls
from speechframe.batch.prepare import prepare_run
from speechframe.batch.run import EarlierRun, open_backend, run_in_thread
from speechframe.store.schema import BASE_KEY, ENDED, REQUEST, ROW_ID, find_row_columns
from speechframe.writing.notebook import format_table
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_IDS = 5
"""Number of row ids of each change that a notebook shows."""


@dataclass(frozen=True)
class Changes:
    """Differences between a run's table and another table.

    Attributes
    ----------
    new, changed, removed, unchanged
        Ids of the rows that only the other table has, that differ, that only the run's table has, and that
        are equal.
    columns
        For each changed row id, the names of the arguments that differ.
    credits
        Price in credits of resuming the run with the other table.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    credits: float = 0.0

    def to_pandas(self) -> "pd.DataFrame":
        """Return one line for each row id, with ``row_id``, ``change`` and ``columns``.

        ``columns`` is empty unless the row is changed.
        """
        import pandas as pd

        lines = [
            (row_id, change, ", ".join(self.columns.get(row_id, ())))
            for change in ("new", "changed", "removed", "unchanged")
            for row_id in getattr(self, change)
        ]
        return pd.DataFrame(lines, columns=["row_id", "change", "columns"])

    def __str__(self) -> str:
        """Return the counts and the price on one line."""
        return (
            f"{len(self.new):,} new, {len(self.changed):,} changed, {len(self.removed):,} removed, "
            f"{len(self.unchanged):,} unchanged: {format_count(self.credits, 'credit')}"
        )

    def __repr__(self) -> str:
        return f"<Changes: {self}>"

    def _repr_html_(self) -> str:
        rows = []
        for change in ("new", "changed", "removed", "unchanged"):
            row_ids = getattr(self, change)
            more = ", …" if len(row_ids) > _SHOWN_IDS else ""
            rows.append([change, f"{len(row_ids):,}", ", ".join(row_ids[:_SHOWN_IDS]) + more])
        return format_table(["change", "rows", "first rows"], rows, caption=str(self))


async def find_changes(earlier: EarlierRun, backend: Backend, table: Any) -> Changes:
    """Return the differences between a run's table and `table`. `backend` must not be open yet."""
    folder, options = earlier.folder, earlier.options

    def compare(is_stopped: Callable[[], bool]) -> Changes:
        found = prepare_run(
            table,
            earlier.sources,
            backend,
            opened,
            options,
            stack,
            is_stopped,
            is_resumed=True,
            is_preview=True,
        )
        tables = (folder, found.manifest.table.file), (found.table_folder, found.entry.file)
        old, new = (_read_calls_by_row(holder.get_source(file)) for holder, file in tables)
        changed = [row_id for row_id, (key, _) in new.items() if row_id in old and old[row_id][0] != key]
        return Changes(
            new=tuple(row_id for row_id in new if row_id not in old),
            changed=tuple(changed),
            removed=tuple(row_id for row_id in old if row_id not in new),
            unchanged=tuple(row_id for row_id, (key, _) in new.items() if old.get(row_id, ("",))[0] == key),
            columns={row_id: backend.differences(old[row_id][1], new[row_id][1]) for row_id in changed},
            credits=plan_calls(found, backend, opened, options)[1].credits,
        )

    async with contextlib.AsyncExitStack() as stack:
        opened, *_ = await open_backend(backend, options, stack)
        return await run_in_thread(compare)


def _read_calls_by_row(file: Any) -> dict[str, tuple[str, bytes]]:
    """Return the key and the body of each row's call in an input file, by row id.

    A row without a call has its status and its row values in place of the key, and an empty body.
    """
    names = [ROW_ID, BASE_KEY, REQUEST, ENDED, *find_row_columns(pq.read_schema(file).names)]
    found: dict[str, tuple[str, bytes]] = {}
    for row_id, key, written, *values in zip(
        *pq.read_table(file, columns=names).to_pydict().values(), strict=True
    ):
        found[row_id] = key or repr(values), (written or b"").partition(b"\n")[2]
    return found
