"""Read tables by partition: Dask frames, and datasets of Ray, pyarrow and Hugging Face.

None of these libraries is imported here. The caller of such a table has imported its library already.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from speechframe.errors import SpeechframeError, refuse
from speechframe.tables.table import BATCH_ROWS, CARRIED_ROWS, contains_bytes, get_first_line, has_columns


@contextmanager
def convert_partition_errors(where: str, allowed: str) -> Iterator[None]:
    """Convert any error to InvalidRows, with the place `where` it happened and the advice `allowed`."""
    try:
        yield
    except SpeechframeError:
        raise
    except Exception as error:  # workers, filesystems and functions of users raise any type of error
        words = f"{type(error).__name__}: {get_first_line(error)}"
        if hasattr(error, "cause"):  # the message of Ray is the traceback of the user's function, and others
            words = str(error).partition("\n\n")[0].splitlines()[-1]
        fault = f"{where} cannot be read: {words}"
        raise refuse("table", fault, allowed=allowed) from error


def is_dask_frame(source: Any) -> bool:
    """Return whether `source` is a frame of Dask, or of a library that extends Dask."""
    return has_columns(source) and hasattr(type(source), "to_delayed")


def compute_partitions(frame: Any) -> Iterator[Any]:
    """Compute the partitions of a Dask frame one after the other, with the current client of Dask if any."""
    partitions = frame.to_delayed()
    for number, partition in enumerate(partitions):
        where = f"partition {number} of 0 to {len(partitions) - 1}"
        with convert_partition_errors(
            where, f"a frame without it; table.partitions[{number}].compute() shows the fault"
        ):
            computed = partition.compute()
        yield computed
        del computed  # otherwise this partition stays in memory while the next is computed


def open_dataset(source: Any, *, has_clips: bool) -> tuple[pa.Schema | None, Iterator[Any]] | None:
    """Return the columns, if known, and the batches of a dataset. Return None if `source` is no dataset."""
    library, kind = type(source).__module__.partition(".")[0], type(source)
    rows = CARRIED_ROWS if has_clips else BATCH_ROWS
    if library == "datasets" and kind.__name__ in {"Dataset", "IterableDataset"}:
        schema = None if source.features is None else source.features.arrow_schema
        return schema, source.with_format("arrow").iter(rows)
    if library == "ray" and hasattr(kind, "iter_batches") and hasattr(kind, "context"):
        return None, _read_ray(source, rows)
    if library == "pyarrow" and hasattr(kind, "get_fragments"):
        rows = CARRIED_ROWS if any(contains_bytes(column.type) for column in source.schema) else rows
        return source.schema, _read_fragments(source, rows)
    return None


def _read_fragments(dataset: Any, rows: int) -> Iterator[pa.RecordBatch]:
    # Read one row group at a time, because pyarrow reads ahead without a limit while its reader is busy. The
    # public get_fragments() refuses a dataset with a filter.
    kept = dataset._scan_options.get("filter")  # noqa: SLF001
    for fragment in dataset._get_fragments(kept):  # noqa: SLF001
        is_parquet = hasattr(fragment, "split_by_row_group")
        for part in fragment.split_by_row_group() if is_parquet else [fragment]:
            yield from part.to_batches(dataset.schema, filter=kept, batch_size=rows)


def _read_ray(dataset: Any, rows: int) -> Iterator[pa.Table]:
    options, count = dataset.context.execution_options, 0
    is_ordered = options.preserve_order
    options.preserve_order = True  # otherwise Ray returns blocks in the order in which they are ready
    batches = iter(dataset.iter_batches(batch_size=rows, batch_format="pyarrow"))
    try:
        while True:
            with convert_partition_errors(
                f"the block at row {count:,}", "a dataset without it; table.materialize() shows the fault"
            ):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
            count += batch.num_rows
    finally:
        options.preserve_order = is_ordered
