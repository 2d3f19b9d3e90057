"""Another take of some rows of a run: the same table with higher take numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from speechframe.batch.columns import Source
from speechframe.batch.naming import COST, ROW_ID
from speechframe.batch.outcome import DONE, FAILED, SUSPECT
from speechframe.batch.planner import row_values
from speechframe.batch.prepare import sources_of
from speechframe.batch.reviews import rejected
from speechframe.batch.table import problem
from speechframe.errors import InvalidRows
from speechframe.store import RunFolder
from speechframe.store.table import ARGUMENT, PROBLEM

REJECTED = "rejected"
REDO_STATES = (FAILED, SUSPECT, DONE, REJECTED)


def with_new_takes(folder: RunFolder, redo: str | Sequence[Any]) -> tuple[pa.Table, Mapping[str, Source]]:
    """Return a run's table with the next take for some rows, and where its arguments come from then.

    Parameters
    ----------
    folder
        The run.
    redo
        Row ids, or a status of :data:`REDO_STATES`. Rejected are the rows whose newest verdict says so of
        the audio they have now: what was made anew since is not made once more.

    Raises
    ------
    InvalidRows
        For another status, or an id that no row has.
    """
    whole, ids = own_table(folder)
    chosen = _chosen(folder, ids, redo)
    sources = sources_of(folder)
    entry = folder.tables()[-1]
    has_call = whole.column(entry.name_of("request_key")).is_valid().to_pylist()
    values = (v for batch in whole.to_batches() for v in row_values(batch, _only(sources, "take")))
    made = [t for batch in folder.joined([entry.name_of("take")]) for t in batch.column(0).to_pylist()]
    takes = [
        _next_take(value.get("take"), now, redone=row_id in chosen)
        if is_good
        else _kept_wrong(value.get("take"))
        for row_id, value, now, is_good in zip(ids, values, made, has_call, strict=True)
    ]
    column = ARGUMENT + "take"
    kept = without_ours(folder, whole)
    kept = kept.drop_columns([name for name in kept.column_names if name == column])
    kept = kept.append_column(column, pa.array(takes, pa.int64()))
    return kept, {**sources, "take": Source("take", column=column)}


def suspect_takes(folder: RunFolder) -> dict[str, int]:
    """Return the calls of a run's table whose answer is suspect, and the take that was."""
    entry = folder.tables()[-1]
    names = [entry.name_of(name) for name in ("status", "request_key", "take")]
    rows = (
        row
        for batch in folder.joined(names)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    return {key: take for status, key, take in rows if status == SUSPECT}


def own_table(folder: RunFolder) -> tuple[pa.Table, list[str]]:
    """Return a run's newest table as it was spooled, and its row ids."""
    with folder.table() as file:
        whole = file.read()
    return whole, [str(i) for i in whole.column(folder.tables()[-1].name_of(ROW_ID)).to_pylist()]


def without_ours(folder: RunFolder, table: pa.Table) -> pa.Table:
    """Return a spooled table without what planning put beside the caller's columns."""
    entry = folder.tables()[-1]
    return table.drop_columns([entry.name_of(name) for name in (ROW_ID, "request_key", PROBLEM, COST)])


def _next_take(asked: Any, made: int | None, *, redone: bool) -> int:
    # The take that is there now may be later than the one asked for: suspect rows are retaken by themselves.
    return int(asked or 0) if not redone else 1 + max(int(asked or 0), made or 0)


def _kept_wrong(take: Any) -> int | None:
    # A row that was left out for its take must not become a good one by being written down again.
    is_fine = take is None or (isinstance(take, int) and not isinstance(take, bool) and take >= 0)
    return None if is_fine else -1


def _only(sources: Mapping[str, Source], name: str) -> dict[str, Source]:
    return {name: sources[name]} if name in sources else {}


def _chosen(folder: RunFolder, ids: Sequence[str], redo: str | Sequence[Any]) -> set[str]:
    if isinstance(redo, str):
        if redo not in REDO_STATES:
            allowed = f"{', '.join(REDO_STATES)}, or a list of row ids"
            raise InvalidRows([problem("redo", "is no status", value=redo, allowed=allowed)])
        if redo == REJECTED:
            return rejected(folder)
        status = folder.tables()[-1].name_of("status")
        states = [s for batch in folder.joined([status]) for s in batch.column(0).to_pylist()]
        return {row_id for row_id, state in zip(ids, states, strict=True) if state == redo}
    if not isinstance(redo, Iterable):
        raise InvalidRows(
            [problem("redo", "is no list", value=redo, allowed="a list of row ids, or a status")]
        )
    asked = {str(row_id) for row_id in redo}
    unknown = sorted(asked - set(ids))
    if unknown:
        raise InvalidRows([problem("redo", "names no row of the run", value=row_id) for row_id in unknown])
    return asked
