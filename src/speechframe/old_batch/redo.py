"""Another take of some rows of a run: the same table with higher take numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.old_batch.columns import Source
from speechframe.old_batch.keys import Keys, among, as_keys, has_key
from speechframe.old_batch.naming import COST, ROW_ID
from speechframe.old_batch.operation import Operation
from speechframe.old_batch.outcome import DONE, FAILED, HEARD, LOST, SUSPECT
from speechframe.old_batch.prepared import Known, retaken_in, sources_of
from speechframe.old_batch.reviews import rejected
from speechframe.old_batch.row_calls import row_values, takes_of
from speechframe.old_batch.table import BATCH_ROWS, problem
from speechframe.old_store import RunFolder
from speechframe.old_store.table import ARGUMENT, PROBLEM

REJECTED = "rejected"
REDO_STATES = (FAILED, SUSPECT, DONE, REJECTED)

_TAKE = f"{ARGUMENT}take"


def with_new_takes(folder: RunFolder, redo: str | Sequence[Any]) -> tuple[pa.RecordBatchReader, Known]:
    """Return a run's table with the next take for some rows, and what is known of it.

    The table is read once, while it is taken: of a long one nothing but ids and takes is held.

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
    ids = ids_of(folder)
    chosen = _chosen(folder, ids, redo)
    sources = sources_of(folder)
    made = [
        t
        for batch in folder.joined([folder.tables()[-1].name_of("take")])
        for t in batch.column(0).to_pylist()
    ]
    own = own_rows(folder, without=[_TAKE])
    schema = own.schema.append(pa.field(_TAKE, pa.int64()))
    takes = _takes(folder, [row_id in chosen for row_id in ids], made, _only(sources, "take"))
    batches = (
        pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(islice(takes, batch.num_rows), pa.int64())], schema=schema
        )
        for batch in own
    )
    known = Known({**sources, "take": Source("take", column=_TAKE)}, ids)
    return pa.RecordBatchReader.from_batches(schema, batches), known


def _takes(
    folder: RunFolder, redone: Sequence[bool], made: Sequence[int | None], asked: Mapping[str, Source]
) -> Iterator[int | None]:
    """Yield the take that each row is to have."""
    key_name = folder.tables()[-1].name_of("request_key")
    columns = [key_name, *(source.column for source in asked.values() if source.column is not None)]
    rows = zip(redone, made, strict=True)
    for batch in _batches(folder, columns):
        has_call = batch.column(key_name).is_valid().to_pylist()
        here = islice(rows, batch.num_rows)
        for is_good, values, (is_redone, now) in zip(has_call, row_values(batch, asked), here, strict=True):
            take = values.get("take")
            yield _next_take(take, now, redone=is_redone) if is_good else _kept_wrong(take)


def suspect_takes(folder: RunFolder, most: int) -> dict[str, int]:
    """Return the calls of a run's table whose answer is suspect, and the take that was.

    Parameters
    ----------
    folder
        The run.
    most
        Calls whose take is so many beyond the one that was asked for are left out, whoever made those.
    """
    entry = folder.tables()[-1]
    asked = _only(sources_of(folder), "take")
    names = [entry.name_of(name) for name in ("status", "request_key", "take")]
    columns = [entry.name_of("request_key"), *(s.column for s in asked.values() if s.column is not None)]
    rows = (
        row
        for batch in folder.joined(names)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    wanted = (values for batch in _batches(folder, columns) for values in row_values(batch, asked))
    return {
        key: take
        for (status, key, take), values in zip(rows, wanted, strict=True)
        if status == SUSPECT and take - int(values.get("take") or 0) < most
    }


def unheard_takes(folder: RunFolder, keys: Keys, operation: Operation) -> list[str]:
    """Return the calls of a run that have audio and for which a take stands that has none.

    Such a take was not made, or failed: what was paid for would stand behind it, out of sight.

    Parameters
    ----------
    folder
        The run.
    keys
        Of the rows of its newest table.
    operation
        The verb, as it is in that folder.
    """
    if not (retaken := retaken_in(folder)):
        return []
    heard = folder.index().packed(HEARD)
    silent = np.flatnonzero(has_key(keys) & ~among(keys, heard))
    taken = (made for made in _made(folder, silent, operation, retaken) if len(made) > 1)
    chains = list(dict.fromkeys(taken)) if len(silent) else []
    with_audio = iter(among(as_keys(key for made in chains for key in made), heard).tolist())
    newest = ([key for key in made if next(with_audio)][-1:] for made in chains)
    return [key for one in newest for key in one]


def _made(
    folder: RunFolder, places: npt.NDArray[np.intp], operation: Operation, retaken: Mapping[str, int]
) -> Iterator[tuple[str, ...]]:
    """Yield of these rows of a run the call that was asked for, and each that stands for the one before."""
    sources, start = sources_of(folder), 0
    columns = [source.column for source in sources.values() if source.column is not None]
    for batch in _batches(folder, columns):
        here = places[(places >= start) & (places < start + batch.num_rows)] - start
        start += batch.num_rows
        for values in row_values(batch.take(here), sources) if len(here) else ():
            takes = takes_of(operation, values, int(values.pop("take", 0)), retaken)
            yield tuple(checked.planned.request_key for checked in takes if checked.planned is not None)


def is_all_made(folder: RunFolder, keys: Keys) -> bool:
    """Return whether each of these rows of a run that has a call has audio, or a call made in vain."""
    made = folder.index().packed(HEARD | LOST)
    return bool((among(keys, made) | ~has_key(keys)).all())


def own_rows(folder: RunFolder, *, without: Sequence[str] = ()) -> pa.RecordBatchReader:
    """Return the caller's columns of a run's newest table, to be read once and piece by piece.

    Parameters
    ----------
    folder
        The run.
    without
        Columns to leave out beside what planning put there.
    """
    entry = folder.tables()[-1]
    left_out = {*without, *(entry.name_of(name) for name in (ROW_ID, "request_key", PROBLEM, COST))}
    with folder.table() as file:
        whole = file.schema_arrow
    kept = pa.schema([f for f in whole if f.name not in left_out]).with_metadata(whole.metadata)
    return pa.RecordBatchReader.from_batches(
        kept, (batch.select(kept.names) for batch in _batches(folder, kept.names))
    )


def _batches(folder: RunFolder, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with folder.table() as file:
        yield from file.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(columns)))


def ids_of(folder: RunFolder) -> list[str]:
    """Return what the rows of a run's newest table are called."""
    column = folder.tables()[-1].name_of(ROW_ID)
    return [str(value) for batch in _batches(folder, [column]) for value in batch.column(0).to_pylist()]


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
