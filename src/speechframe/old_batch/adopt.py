"""A table for a run that is there under the same name: planned beside it, then its newest one."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from speechframe.old_batch.keys import KeyColumn, Keys
from speechframe.old_batch.operation import Operation
from speechframe.old_batch.planner import Planner
from speechframe.old_batch.row_calls import checked, row_values
from speechframe.old_batch.table import BATCH_ROWS
from speechframe.old_store import RunFolder


def adopt(
    kept: RunFolder,
    draft: RunFolder,
    planner: Planner,
    operation: Operation,
    *,
    said: Mapping[str, Any],
    retaken: Mapping[str, int],
) -> None:
    """Make the table of `draft` the newest one of `kept`; needs the lock of `kept`.

    Parameters
    ----------
    kept
        The run.
    draft
        What was planned without it.
    planner
        What planned it.
    operation
        The verb.
    said
        What run.json is to say of the call.
    retaken
        Calls of `kept` that another take stands for, and which.
    """
    kept.take_clips(draft)
    planned = draft.tables()[-1]
    writer = kept.add_table(
        planner.schema,
        column_map=planned.column_map,
        id_column=planned.id_column,
        hidden=planned.hidden,
    )
    try:
        for batch in _standing(draft, planner, operation.at(kept), retaken):
            writer.write(batch)
    except BaseException:
        writer.abort()
        raise
    # One replacement of run.json takes both: arguments and table never disagree.
    kept.manifest = replace(kept.manifest, options=said)
    writer.close()


def standing_keys(
    draft: RunFolder, planner: Planner, operation: Operation, retaken: Mapping[str, int]
) -> Keys:
    """Return the calls that the rows of a planned table would have in a run with these takes."""
    keys = KeyColumn()
    for batch in _standing(draft, planner, operation, retaken):
        for key in batch.column(planner.names["request_key"]).to_pylist():
            keys.append(key)
    return keys.to_array()


def _standing(
    draft: RunFolder, planner: Planner, operation: Operation, retaken: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """Yield a planned table with the calls that stand for its own in the run."""
    name = planner.names["request_key"]
    place = planner.schema.get_field_index(name)
    with draft.table() as file:
        for batch in file.iter_batches(BATCH_ROWS):
            keys = batch.column(name).to_pylist()
            if retaken.keys() & set(keys):
                for i, values in enumerate(row_values(batch, planner.sources)):
                    if keys[i] in retaken:
                        take = int(values.pop("take", 0))
                        found = checked(operation, values, take, retaken).planned
                        keys[i] = keys[i] if found is None else found.request_key
                batch = batch.set_column(place, name, pa.array(keys, pa.string()))  # noqa: PLW2901 - the same rows
            yield pa.RecordBatch.from_arrays(batch.columns, schema=planner.schema)
