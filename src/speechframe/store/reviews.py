"""``reviews.parquet``: every review of a run's rows, the newest last."""

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

_SAID = ["verdict", "comment", "corrected_text"]
_TEXTS = dict.fromkeys(["row_id", *_SAID, "reviewer"], pa.string())
SCHEMA = columns(**_TEXTS, reviewed_at=TIME, sha256=pa.string())
"""One review of one row. Null leaves an earlier review as it is, an empty text takes it back."""


def add_review(folder: Folder, said: Mapping[str, Any]) -> None:
    """Write a review with the columns of :data:`SCHEMA`. It is on the disk when this returns.

    Several people and processes may review a run at once. Review a remote run from one machine at a time.
    """
    if said["verdict"] and said["verdict"] not in VERDICTS:
        problem = {"row": None, "row_id": said["row_id"], "field": "verdict", "problem": "is not a verdict"}
        raise InvalidRows([{**problem, "value": said["verdict"], "allowed": ", ".join(VERDICTS)}])
    reviewer = user_name() if said["reviewer"] is None else said["reviewer"]
    line = pa.Table.from_pylist([{**said, "reviewer": reviewer, "reviewed_at": datetime.now(UTC)}], SCHEMA)
    with storing(folder, "writing a review"):
        # First, because taking the lock would make the folder.
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
        except Timeout:  # an OSError, but not one of the folder
            raise StoreError(f"{folder.path}/{FILE} was being written for {_LOCK_S:g} s: try again") from None


def read_reviews(folder: Folder) -> pa.Table:
    """Return every review, the newest last."""
    if not folder.exists(FILE):
        return SCHEMA.empty_table()
    with reading(folder, FILE):
        return pq.read_table(folder.source(FILE)).select(SCHEMA.names).cast(SCHEMA)


def rejected(folder: Folder) -> set[str]:
    """Return the SHA-256 of each audio whose last verdict is a rejection, whichever row it was given on."""
    said = read_reviews(folder).select(["sha256", "verdict"]).to_pylist()
    last = {line["sha256"]: line["verdict"] for line in said if line["verdict"] is not None}
    return {sha256 for sha256, verdict in last.items() if sha256 is not None and verdict == REJECT}


def last_words(folder: Folder) -> "pd.DataFrame":
    """Return the latest review of each row, by row id."""
    told = read_reviews(folder).to_pandas().astype(dict.fromkeys(_SAID, object))
    # last() skips nulls, so each column has its latest value.
    newest = told.groupby("row_id", sort=False).last()
    # A verdict belongs to the audio that was heard, even if later reviews are of other audio.
    judged = told[told["verdict"].notna()].groupby("row_id", sort=False).last()
    for name in ("sha256", "reviewer", "reviewed_at"):
        newest.loc[judged.index, name] = judged[name]
    newest[_SAID] = newest[_SAID].where(newest[_SAID].notna() & (newest[_SAID] != ""), None)
    return newest
