"""Read a folder of Parquet files as one table, on this machine or at an address such as ``s3://bucket/lines``."""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet as pq

from speechframe.errors import refuse
from speechframe.settings.typed import expand_home, is_address
from speechframe.tables.partitions import convert_partition_errors
from speechframe.tables.table import BATCH_ROWS, CARRIED_ROWS, contains_bytes
from speechframe.writing.words import format_count

PARQUET_SUFFIXES = (".parquet", ".pq")
_MISSING_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Value in the name of a folder that stands for a missing value."""
_FOLDER_WORDS = f"a folder that can be read, with files that end in {' or '.join(PARQUET_SUFFIXES)}"
_FILE_WORDS = "a whole Parquet file; a name that begins with _ leaves it out"


def is_parquet_folder(source: str | PathLike[str]) -> bool:
    """Return whether `source` is the path of a folder, or an address."""
    try:
        return is_address(source) or expand_home(source).is_dir()
    except (OSError, ValueError):
        return False


def open_parquet_folder(
    source: str | PathLike[str], notes: list[str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the columns and the batches of the Parquet files in a folder, sorted by path.

    Names of folders such as ``locale=de-DE`` become columns of texts. Names that begin with ``.`` or ``_``
    are left out. Other files that are not Parquet are counted in `notes`. Raise InvalidRows if there is no
    Parquet file, or if a file cannot be read or has other columns than the first.
    """
    from pyarrow import fs  # the import takes long, and few tables need it

    name = str(source).rstrip("/")
    filesystem: Any = fs.LocalFileSystem()
    with convert_partition_errors(name, f"{_FOLDER_WORDS}; s3:// needs pip install 'speechframe[s3]'"):
        if is_address(source):
            import fsspec

            remote, path = fsspec.url_to_fs(str(source))
            remote.invalidate_cache()  # another process may have added files
            handler: Any = fs.FSSpecHandler
            filesystem, path = fs.PyFileSystem(handler(remote)), path.rstrip("/")
        else:
            path = str(expand_home(source).absolute())
        found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    files = [one.path[len(path) :].lstrip("/") for one in found if one.is_file]
    shown = [file for file in files if not any(part.startswith((".", "_")) for part in file.split("/"))]
    kept = sorted(file for file in shown if file.lower().endswith(PARQUET_SUFFIXES))
    if not kept:
        raise refuse("table", f"{name} contains no Parquet files", allowed=_FOLDER_WORDS)
    if others := len(shown) - len(kept):
        notes.append(f"{format_count(others, 'file')} of {name} without the ending .parquet or .pq: not read")
    with convert_partition_errors(f"{name}/{kept[0]}", _FILE_WORDS):
        schema = pq.read_schema(filesystem.open_input_file(f"{path}/{kept[0]}"))
    # A column without any value in the first file is of texts.
    fields = [column.with_type(pa.string()) if pa.types.is_null(column.type) else column for column in schema]
    fields += [pa.field(column, pa.string()) for column in _find_folder_values(kept[0])]
    metadata: Any = schema.metadata
    return pa.schema(fields, metadata=metadata), _read_files(filesystem, path, kept, name)


def _read_files(filesystem: Any, path: str, files: Sequence[str], name: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the files below `path`, with the columns of their folders added."""
    first: list[str] = []
    for file in files:
        with convert_partition_errors(f"{name}/{file}", _FILE_WORDS):
            parquet = pq.ParquetFile(filesystem.open_input_file(f"{path}/{file}"))
            has_bytes = any(contains_bytes(column.type) for column in parquet.schema_arrow)
            values = _find_folder_values(file)
            columns = [*parquet.schema_arrow.names, *values]
            first = first or columns
            if differ := sorted({*columns}.symmetric_difference(first)):
                fault = f"has files with different columns: only {files[0]} or {file} has {', '.join(differ)}"
                allowed = "files with the same columns; pyarrow.dataset.dataset(folder, schema=) fills gaps"
                raise refuse("table", fault, allowed=allowed)
            for batch in parquet.iter_batches(CARRIED_ROWS if has_bytes else BATCH_ROWS):
                added = [pa.repeat(pa.scalar(value, pa.string()), len(batch)) for value in values.values()]
                yield pa.RecordBatch.from_arrays([*batch.columns, *added], columns)
            parquet.close()


def _find_folder_values(file: str) -> dict[str, str | None]:
    """Return the values in the names of a file's folders.

    Examples
    --------
    >>> _find_folder_values("locale=de-DE/voice=greta/part-0.parquet")
    {'locale': 'de-DE', 'voice': 'greta'}
    """
    pairs = [folder.partition("=") for folder in file.split("/")[:-1] if "=" in folder]
    return {unquote(key): None if value == _MISSING_VALUE else unquote(value) for key, _, value in pairs}
