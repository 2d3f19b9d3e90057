"""Another take of some rows of a run: the same table with higher take numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from speechframe.batch.columns import Source
from speechframe.batch.outcome import DONE, FAILED, SUSPECT
from speechframe.batch.planner import ARGUMENT, COST, PROBLEM, ROW_ID, row_values
from speechframe.batch.prepare import sources_of
from speechframe.batch.table import problem
from speechframe.errors import InvalidRows
from speechframe.store import RunFolder

REDO_STATES = (FAILED, SUSPECT, DONE)


def with_new_takes(folder: RunFolder, redo: str | Sequence[Any]) -> tuple[pa.Table, Mapping[str, Source]]:
    """Return a run's table with the next take for some rows, and where its arguments come from then.

    Parameters
    ----------
    folder
        The run.
    redo
        Row ids, or a status of :data:`REDO_STATES`.

    Raises
    ------
    InvalidRows
        For another status, or an id that no row has.
    """
    entry = folder.tables()[-1]
    with folder.table() as file:
        whole = file.read()
    ids = [str(row_id) for row_id in whole.column(entry.name_of(ROW_ID)).to_pylist()]
    chosen = _chosen(folder, ids, redo)
    sources = sources_of(folder)
    takes = [
        int(values.get("take", 0)) + (row_id in chosen)
        for row_id, values in zip(
            ids,
            (v for batch in whole.to_batches() for v in row_values(batch, _only(sources, "take"))),
            strict=True,
        )
    ]
    ours = [entry.name_of(name) for name in (ROW_ID, "request_key", PROBLEM, COST)]
    column = ARGUMENT + "take"
    kept = whole.drop_columns([name for name in whole.column_names if name in {*ours, column}])
    kept = kept.append_column(column, pa.array(takes, pa.int64()))
    return kept, {**sources, "take": Source("take", column=column)}


def _only(sources: Mapping[str, Source], name: str) -> dict[str, Source]:
    return {name: sources[name]} if name in sources else {}


def _chosen(folder: RunFolder, ids: Sequence[str], redo: str | Sequence[Any]) -> set[str]:
    if isinstance(redo, str):
        if redo not in REDO_STATES:
            raise InvalidRows([problem("redo", "is no status", value=redo, allowed=", ".join(REDO_STATES))])
        status = folder.tables()[-1].name_of("status")
        states = [s for batch in folder.joined([status]) for s in batch.column(0).to_pylist()]
        return {row_id for row_id, state in zip(ids, states, strict=True) if state == redo}
    asked = {str(row_id) for row_id in redo}
    unknown = sorted(asked - set(ids))
    if unknown:
        raise InvalidRows([problem("redo", "names no row of the run", value=row_id) for row_id in unknown])
    return asked
