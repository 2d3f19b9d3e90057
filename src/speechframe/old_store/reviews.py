"""``reviews.parquet``: what people said of a run's rows, everything that was ever said, the newest last.

Several people and processes may write at once. Each takes the file's lock, reads what is there, and puts a
file with its own words at the end in its place: a reader, and whoever comes after a crash, finds the file as
it was before or after. Nothing is ever taken out; a later word on a row counts before an earlier one.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from speechframe.errors import StoreError
from speechframe.old_store import files
from speechframe.old_store.locate import work_folder
from speechframe.old_store.manifest import FILE_NAME as RUN_NAME
from speechframe.old_store.remote import Remote
from speechframe.old_store.schema import now
from speechframe.old_store.writer import user_name

__all__ = ["FILE_NAME", "REVIEW_SCHEMA", "Review", "add_reviews", "read_reviews"]

FILE_NAME = "reviews.parquet"
LOCK_NAME = "reviews.lock"
# No name that a recovery of the run takes for unfinished work of its own: reviews go on beside a writer.
DRAFT_NAME = ".reviews.draft"
_LOCK_S = 60.0

_TIME: pa.DataType = pa.timestamp("us", tz="UTC")

REVIEW_SCHEMA = pa.schema(
    [
        ("row_id", pa.string()),
        ("verdict", pa.string()),
        ("comment", pa.string()),
        ("corrected_text", pa.string()),
        ("sha256", pa.string()),
        ("reviewer", pa.string()),
        ("reviewed_at", _TIME),
    ]
)
"""A row of the file: one thing somebody said of one row."""


@dataclass(frozen=True, slots=True)
class Review:
    """What somebody said of a row.

    Parameters
    ----------
    row_id
        The row.
    verdict, comment, corrected_text
        None where nothing is said of it; an empty one takes back what was said.
    sha256
        Of the audio file that was heard; None where there was none.
    reviewer
        Who; by default who runs this process.
    reviewed_at
        UTC.
    """

    row_id: str
    verdict: str | None = None
    comment: str | None = None
    corrected_text: str | None = None
    sha256: str | None = None
    reviewer: str | None = field(default_factory=user_name)
    reviewed_at: datetime = field(default_factory=now)


def add_reviews(folder: Path, reviews: Sequence[Review]) -> None:
    """Write reviews down; they are on the disk when this returns.

    Of a remote folder the lock is this machine's: only one machine at a time may review a run there.

    Raises
    ------
    StoreError
        When the folder cannot be written, or its reviews cannot be read.
    """
    lock = FileLock(work_folder(folder) / LOCK_NAME, timeout=_LOCK_S, thread_local=False)
    added = pa.Table.from_pylist([asdict(review) for review in reviews], REVIEW_SCHEMA)
    with files.storing(folder, "writing reviews"):
        # First: making the lock would make the folder, too.
        if not (folder / RUN_NAME).is_file():
            raise StoreError(f"{folder} holds no run any more: nothing was written; put the run back there")
        try:
            with lock:
                _replace(folder, pa.concat_tables([read_reviews(folder), added]))
        except Timeout:  # an OSError too: in here, so that it does not look like a folder that failed
            words = f"{folder / FILE_NAME} was being written to for {_LOCK_S:g} s: try again"
            raise StoreError(words) from None


def read_reviews(folder: Path) -> pa.Table:
    """Return everything that was said, the newest last: :data:`REVIEW_SCHEMA`.

    Raises
    ------
    StoreError
        When the file cannot be read.
    """
    path = folder / FILE_NAME
    try:
        with pq.ParquetFile(files.readable(path)) as file:
            return file.read().select(REVIEW_SCHEMA.names).cast(REVIEW_SCHEMA)
    except FileNotFoundError:
        return REVIEW_SCHEMA.empty_table()
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path} cannot be read ({error}): restore it from a copy, or move it away"
        ) from error


def _replace(folder: Path, table: pa.Table) -> None:
    draft = work_folder(folder) / DRAFT_NAME
    pq.write_table(table, draft, compression="zstd")
    if isinstance(folder, Remote):
        (folder / FILE_NAME).put(draft)
        draft.unlink()
        return
    files.sync_file(draft)
    draft.replace(folder / FILE_NAME)
    files.sync_folder(folder)
