"""What the columns of a planned table are called, and which of them feeds which argument."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.old_batch.columns import Column, Source, as_list, is_per_row
from speechframe.old_batch.operation import Operation
from speechframe.old_batch.table import TableInput, problem
from speechframe.old_store.schema import part_schema
from speechframe.old_store.table import ARGUMENT, PROBLEM

ROW_ID = "speech_row_id"
COST = "speech_millicredits"
PREFIX = "speech_"


def resolve_sources(
    arguments: Mapping[str, Any], operation: Operation, table: TableInput
) -> tuple[dict[str, Source], dict[str, list[Any]]]:
    """Return where each argument's values come from, and the per-row values to spool.

    Parameters
    ----------
    arguments
        As the caller gave them.
    operation
        The verb.
    table
        Whose columns can be named.

    Raises
    ------
    InvalidRows
        When a column that is named does not exist, or holds bytes that nobody takes in.
    """
    sources: dict[str, Source] = {}
    per_row: dict[str, list[Any]] = {}
    # A run's own tables have such columns; here they are the caller's, beside which ours could not be told.
    problems = [_needed(name) for name in table.names if is_argument(name)]
    names, taken = table.names, table.takers
    for name, value in arguments.items():
        if value is None:
            continue
        column = value.name if isinstance(value, Column) else None
        if column is None and name in operation.data_arguments and isinstance(value, str):
            column = value
        if column is not None:
            sources[name] = (
                Source(name, column=ARGUMENT + name, taken_from=column)
                if name in taken
                else Source(name, column=column)
            )
            if column not in names:
                problems.append(no_column(name, column, table))
        elif is_per_row(value) and name not in operation.constant_arguments:
            sources[name] = Source(name, column=ARGUMENT + name)
            per_row[name] = as_list(value)
        elif name in taken:
            allowed = f"a column of the table ({', '.join(names)}), or a list with one value a row"
            problems.append(problem(name, "names no column", value=type(value).__name__, allowed=allowed))
        else:
            sources[name] = Source(name, constant=_plain(value))
    if problems:
        raise InvalidRows(problems)
    return sources, per_row


def no_column(argument: str, column: str, table: TableInput) -> dict[str, Any]:
    """Return the problem of an argument that names a column which is not there."""
    shown = ", ".join(name for name in table.names if not name.startswith("__index_level_"))
    if column in table.left_out:
        return problem(argument, "names a column of bytes, not of text", value=column, allowed=shown)
    return problem(argument, "names a column the table does not have", value=column, allowed=shown)


def _plain(value: Any) -> Any:
    # What numpy makes of a single number cannot stand in JSON.
    is_single = isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0)
    return value.item() if is_single else value


def column_map(schema: pa.Schema, operation: str = "generate", *, of_run: bool = False) -> dict[str, str]:
    """Return the name each column of an operation gets beside the caller's.

    Parameters
    ----------
    schema
        The caller's columns.
    operation
        The verb's name.

    Examples
    --------
    >>> column_map(pa.schema([("audio", pa.string())]))["audio"]
    'speech_audio'
    """
    names = set(schema.names)
    ours = [*part_schema(operation).names, ROW_ID, PROBLEM, COST]
    mapped = {name: PREFIX + name if name in names and not name.startswith(PREFIX) else name for name in ours}
    if of_run:
        # Earlier runs had to give way to columns of their own tables already.
        mapped = {name: _free(found, names) for name, found in mapped.items()}
    taken = sorted(names & set(mapped.values()))
    if taken:
        raise InvalidRows([_needed(name) for name in taken])
    return mapped


def _needed(name: str) -> dict[str, Any]:
    words = f"has a column {name!r}, which speechframe needs for itself"
    return problem("table", words, allowed="another name")


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = PREFIX + name
    return name


def is_argument(column: str | None) -> bool:
    """Return whether a column holds values that an argument gave by row."""
    return column is not None and column.startswith(ARGUMENT)


def argument_of(wire_field: str, operation: Operation) -> str:
    """Return the argument whose value a field of the document carries."""
    for argument, field_name in operation.arguments.items():
        if field_name == wire_field.partition(".")[0]:
            return argument
    return wire_field
