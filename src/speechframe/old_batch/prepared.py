"""A run's table once it is planned: its keys and prices, and what run.json says of the call behind it."""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speechframe.errors import StoreError
from speechframe.old_batch.columns import Source
from speechframe.old_batch.keys import KeyColumn, Keys, has_key
from speechframe.old_batch.naming import COST, ROW_ID
from speechframe.old_batch.table import problem
from speechframe.old_store import RunFolder
from speechframe.old_store.manifest import TableEntry
from speechframe.old_store.table import ARGUMENT, PROBLEM, reading

SOURCES = "arguments"
ID = "id"
CONTENT = "content"
RETAKEN = "retaken"
FIRST_TAKE = "first_take"
BUDGET_KEY = "max_credits"


@dataclass(frozen=True)
class Known:
    """What a run knows of the table that it is given.

    Attributes
    ----------
    sources
        Where each argument's values come from.
    row_ids
        Of the run's own rows: their table holds an index no longer that says what they are called.
    takes
        Calls that another take is to stand for from now on, and which; None for none, any more.
    instead_of
        The only table of the run that this one may take the place of; None for whichever is its newest.
    """

    sources: Mapping[str, Source]
    row_ids: Sequence[str] | None = None
    takes: Mapping[str, int | None] = field(default_factory=dict)
    instead_of: TableEntry | None = None


@dataclass(frozen=True)
class Prepared:
    """A run folder whose newest table is checked, keyed and priced.

    Attributes
    ----------
    folder
        The run.
    sources
        Where each argument's values come from.
    keys, costs
        One a row: the call's key and its price in thousandths of a credit.
    entry
        The table in the run's manifest that these are of; None for one that was only looked at.
    invalid, identical_retakes
        Rows without a call, and rows whose take cannot differ.
    problems
        What is wrong with the invalid rows.
    is_default_dir
        The caller named no folder.
    """

    folder: RunFolder
    sources: Mapping[str, Source]
    keys: Keys
    costs: Sequence[int]
    entry: TableEntry | None
    invalid: int = 0
    identical_retakes: int = 0
    problems: Sequence[dict[str, Any]] = ()
    is_default_dir: bool = False


def budget_json(max_credits: float | None) -> float | str | None:
    """Return a run's budget as it stands in run.json: strict JSON has no number for infinity.

    Examples
    --------
    >>> budget_json(float("inf")), budget_json(12.5), budget_json(None)
    ('inf', 12.5, None)
    """
    return "inf" if max_credits == math.inf else max_credits


def budget_of(folder: RunFolder) -> float | None:
    """Return the budget that a run was given, infinity too; None for none."""
    kept = folder.manifest.extra.get(BUDGET_KEY)
    return math.inf if kept == "inf" else kept


def retaken_in(folder: RunFolder) -> dict[str, int]:
    """Return the calls of a run that a take made by itself stands for, and which take."""
    return dict(folder.manifest.extra.get(RETAKEN, {}))


def options_json(sources: Mapping[str, Source], id_column: str | None, content: str) -> dict[str, Any]:
    """Return what run.json keeps of a call, so that a resume needs nothing from the caller."""
    arguments = {name: source.to_json() for name, source in sorted(sources.items())}
    return {SOURCES: arguments, ID: id_column, CONTENT: content}


def sources_of(folder: RunFolder) -> dict[str, Source]:
    """Return where the arguments of a run's newest table come from."""
    kept = folder.manifest.options.get(SOURCES, {})
    return {name: Source.from_json(name, source) for name, source in kept.items()}


def first_sources(folder: RunFolder) -> dict[str, Source]:
    """Return where the arguments of a run come from, without takes that were redone since."""
    sources = sources_of(folder)
    take = sources.get("take")
    if take is not None and take.column == f"{ARGUMENT}take":
        first = folder.manifest.options.get(FIRST_TAKE)
        del sources["take"]
        if first is not None:
            sources["take"] = Source.from_json("take", first)
    return sources


def reopen(folder: RunFolder) -> Prepared:
    """Return the newest table of a run as it was planned; reads keys and prices only."""
    entry = folder.tables()[-1] if folder.tables() else None
    if entry is None:
        raise StoreError(f"{folder.path} has no table yet: call the verb with one")
    keys, costs = KeyColumn(), array("q")
    names = [entry.name_of("request_key"), entry.name_of(COST)]
    with folder.table() as file, reading(folder.path / entry.file):
        for batch in file.iter_batches(columns=names):
            for key in batch.column(names[0]).to_pylist():
                keys.append(key)
            costs.extend(cost or 0 for cost in batch.column(names[1]).to_pylist())
    found = keys.to_array()
    return Prepared(folder, sources_of(folder), found, costs, entry, invalid=int((~has_key(found)).sum()))


def problems_of(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the problems of a run's newest table, as they were written when it was planned."""
    entry = folder.tables()[-1]
    names = [entry.name_of(ROW_ID), entry.name_of(PROBLEM)]
    found = []
    with folder.table() as file:
        for batch in file.iter_batches(columns=names):
            for row_id, words in zip(
                batch.column(names[0]).to_pylist(), batch.column(names[1]).to_pylist(), strict=True
            ):
                if words:
                    name, _, rest = words.partition(" ")
                    found.append(problem(name, rest, row_id=row_id))
    return found
