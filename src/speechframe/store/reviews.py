"""Write and read ``reviews.parquet``, which contains all reviews of a run's rows, the newest last."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from speechframe.errors import InvalidRows, StoreError
from speechframe.store.folder import RUN_FILE, Folder, reading, storing, user_name
from speechframe.store.schema import TIME, columns

if TYPE_CHECKING:
    import pandas as pd

FILE, LOCK = "reviews.parquet", "reviews.lock"
KEEP, REJECT = "keep", "reject"
VERDICTS = (KEEP, REJECT)
_LOCK_S = 60.0
"""Longest wait in seconds for another writer of the file."""

_SAID = ["verdict", "comment", "corrected_text"]
_TEXTS = dict.fromkeys(["row_id", *_SAID, "reviewer"], pa.string())
SCHEMA = columns(**_TEXTS, reviewed_at=TIME, sha256=pa.string())
"""Columns of a review of one row. A null leaves the value of an earlier review. An empty text withdraws
it."""


def add_review(folder: Folder, said: Mapping[str, Any]) -> None:
    """Add a review with the columns of :data:`SCHEMA`. The review is on disk when this function returns.

    Several people and processes on one machine may review a run at once. A remote run must be reviewed from
    one machine at a time. Raise InvalidRows for an unknown verdict, and StoreError if the file cannot be
    written.
    """
    if said["verdict"] and said["verdict"] not in VERDICTS:
        problem = {"row": None, "row_id": said["row_id"], "field": "verdict", "problem": "is not a verdict"}
        raise InvalidRows([{**problem, "value": said["verdict"], "allowed": ", ".join(VERDICTS)}])
    reviewer = user_name() if said["reviewer"] is None else said["reviewer"]
    line = pa.Table.from_pylist([{**said, "reviewer": reviewer, "reviewed_at": datetime.now(UTC)}], SCHEMA)
    with storing(folder, "writing a review"):
        # Check this before the lock, because the lock would create the folder.
        if not folder.exists(RUN_FILE):
            raise StoreError(
                f"{folder.path} holds no run any more: nothing was written; put the run back there"
            )
        folder.work.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder.work / LOCK, timeout=_LOCK_S, thread_local=False):
                every = pa.concat_tables([read_reviews(folder), line])
                pq.write_table(every, folder.temporary(FILE), compression="zstd")
                folder.publish(FILE)
        except Timeout:  # Timeout is an OSError, but `storing` would give wrong advice for it
            raise StoreError(f"{folder.path}/{FILE} was being written for {_LOCK_S:g} s: try again") from None


def read_reviews(folder: Folder) -> pa.Table:
    """Return all reviews, the newest last."""
    if not folder.exists(FILE):
        return SCHEMA.empty_table()
    with reading(folder, FILE):
        return pq.read_table(folder.source(FILE)).select(SCHEMA.names).cast(SCHEMA)


def rejected(folder: Folder) -> set[str]:
    """Return the SHA-256 of each audio whose last verdict, on any row, is a rejection."""
    said = read_reviews(folder).select(["sha256", "verdict"]).to_pylist()
    last = {line["sha256"]: line["verdict"] for line in said if line["verdict"] is not None}
    return {sha256 for sha256, verdict in last.items() if sha256 is not None and verdict == REJECT}


def last_words(folder: Folder) -> "pd.DataFrame":
    """Return the latest review of each row, by row id."""
    told = read_reviews(folder).to_pandas().astype(dict.fromkeys(_SAID, object))
    # `last` skips nulls, so each column gets its latest value.
    newest = told.groupby("row_id", sort=False).last()
    # A verdict is about the audio of its review. So take the audio, the reviewer and the time from that
    # review, even if a later review has other audio.
    judged = told[told["verdict"].notna()].groupby("row_id", sort=False).last()
    for name in ("sha256", "reviewer", "reviewed_at"):
        newest.loc[judged.index, name] = judged[name]
    newest[_SAID] = newest[_SAID].where(newest[_SAID].notna() & (newest[_SAID] != ""), None)
    return newest
