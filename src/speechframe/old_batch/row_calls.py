"""Rows as calls: the values that a row gives to a verb's arguments, and the call they make."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from speechframe.old_batch.columns import Source
from speechframe.old_batch.operation import Checked, Operation


def checked(
    operation: Operation, values: Mapping[str, Any], take: int, retaken: Mapping[str, int]
) -> Checked:
    """Return the call of one row, or its problems; of a retaken call, the take that stands for it."""
    if not retaken:
        return operation.check(values, take)
    *_, last = takes_of(operation, values, take, retaken)
    return last


def takes_of(
    operation: Operation, values: Mapping[str, Any], take: int, retaken: Mapping[str, int]
) -> Iterator[Checked]:
    """Yield the call of one row as it was asked for, and each that stands for the one before."""
    found = operation.check(values, take)
    yield found
    while found.planned is not None and (later := retaken.get(found.planned.request_key)) is not None:
        again = operation.check(values, later)
        yield again
        if again.planned is None or again.planned.request_key == found.planned.request_key:
            return
        found = again


def row_values(batch: pa.RecordBatch, sources: Mapping[str, Source]) -> Iterator[dict[str, Any]]:
    """Yield each row's argument values; a missing value of a column counts as not given."""
    constants = {name: source.constant for name, source in sources.items() if source.column is None}
    columns = {
        name: batch.column(source.column).to_pylist()
        for name, source in sources.items()
        if source.column is not None
    }
    for i in range(batch.num_rows):
        values = dict(constants)
        for name, column in columns.items():
            value = column[i]
            if value is not None and value == value:  # noqa: PLR0124 - NaN differs from itself
                values[name] = value
        yield values
