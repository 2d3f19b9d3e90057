"""Write and read ``reviews.parquet``, which contains all reviews of a run's rows, the newest last."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from speechframe.errors import InvalidRows, StoreError
from speechframe.store.folder import RUN_FILE, Folder, convert_os_errors, convert_read_errors, get_user_name
from speechframe.store.schema import TIME_TYPE, columns

if TYPE_CHECKING:
    import pandas as pd

REVIEWS_FILE, LOCK_FILE = "reviews.parquet", "reviews.lock"
KEEP, REJECT = "keep", "reject"
REVIEW_VERDICTS = (KEEP, REJECT)
MAX_RATING = 5
"""Best rating. The worst is 1, and 0 withdraws a rating."""
_MAX_LOCK_WAIT_S = 60.0
"""Longest wait in seconds for another writer of the file."""

_CONTENT_COLUMNS = ["verdict", "comment", "corrected_text"]
_TEXT_COLUMNS = dict.fromkeys(["row_id", *_CONTENT_COLUMNS, "reviewer"], pa.string())
REVIEWS_SCHEMA = columns(**_TEXT_COLUMNS, reviewed_at=TIME_TYPE, sha256=pa.string(), rating=pa.int8())
"""Columns of a review of one row. A null leaves the value of an earlier review. An empty text, or the rating
0, withdraws it."""
_REVIEWED_AT = REVIEWS_SCHEMA.get_field_index("reviewed_at")


def add_review(folder: Folder, review: Mapping[str, Any]) -> None:
    """Add a review with the columns of :data:`REVIEWS_SCHEMA`.

    The review is on disk when this function returns. Several people and processes on one machine may review
    a run at once. A remote run must be reviewed from one machine at a time. Raise InvalidRows for an unknown
    verdict or rating, and StoreError if the file cannot be written.
    """
    if (fault := find_review_fault(review)) is not None:
        raise InvalidRows([{"row": None, "row_id": review["row_id"], **fault}])
    reviewer = get_user_name() if review["reviewer"] is None else review["reviewer"]
    write_reviews(folder, [{**review, "reviewer": reviewer, "reviewed_at": None}])


def find_review_fault(review: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the field, fault, value and allowed values of an invalid verdict or rating, or None."""
    verdict, rating = review.get("verdict"), review.get("rating")
    if verdict and verdict not in REVIEW_VERDICTS:
        field, value, allowed = "verdict", verdict, ", ".join(REVIEW_VERDICTS)
    elif rating is not None and (type(rating) is not int or not 0 <= rating <= MAX_RATING):
        field, value, allowed = "rating", rating, f"1 to {MAX_RATING}, or 0 for none"
    else:
        return None
    return {"field": field, "problem": f"is not a {field}", "value": value, "allowed": allowed}


def write_reviews(folder: Folder, new_reviews: Sequence[Mapping[str, Any]]) -> None:
    """Add reviews in one step, and sort all reviews by time. A review without a time is the newest."""
    lines = pa.Table.from_pylist([dict(review) for review in new_reviews], REVIEWS_SCHEMA)
    with convert_os_errors(folder, "writing a review"):
        # Check this before the lock, because the lock would create the folder.
        if not folder.exists(RUN_FILE):
            raise StoreError(
                f"{folder.path} holds no run any more: nothing was written; put the run back there"
            )
        folder.work.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder.work / LOCK_FILE, timeout=_MAX_LOCK_WAIT_S, thread_local=False):
                all_reviews = pa.concat_tables([read_reviews(folder), lines])
                # A time of a file may be later than this machine's clock, but a new review is the newest.
                newest = pc.max(all_reviews["reviewed_at"]).as_py() or datetime.min.replace(tzinfo=UTC)
                now = max(datetime.now(UTC), newest + timedelta(microseconds=1))
                times = all_reviews["reviewed_at"].fill_null(pa.scalar(now, TIME_TYPE))
                all_reviews = all_reviews.set_column(_REVIEWED_AT, "reviewed_at", times)
                ordered = all_reviews.take(pc.sort_indices(times))
                pq.write_table(ordered, folder.make_temporary_path(REVIEWS_FILE), compression="zstd")
                folder.publish(REVIEWS_FILE)
        except Timeout:  # Timeout is an OSError, but `convert_os_errors` would give wrong advice for it
            raise StoreError(
                f"{folder.path}/{REVIEWS_FILE} was being written for {_MAX_LOCK_WAIT_S:g} s: try again"
            ) from None


def read_reviews(folder: Folder) -> pa.Table:
    """Return all reviews, the newest last."""
    if not folder.exists(REVIEWS_FILE):
        return REVIEWS_SCHEMA.empty_table()
    # `read_table` would open the file twice, and another process may replace the file in between.
    source = folder.get_source(REVIEWS_FILE)
    with convert_read_errors(folder, REVIEWS_FILE), pq.ParquetFile(source) as file:
        found = file.read()
        if "rating" not in found.column_names:  # a file of an earlier version
            found = found.append_column("rating", pa.nulls(len(found), pa.int8()))
        return found.select(REVIEWS_SCHEMA.names).cast(REVIEWS_SCHEMA)


def read_rejected_hashes(folder: Folder) -> set[str]:
    """Return the SHA-256 of each audio whose last verdict, on any row, is a rejection."""
    verdicts = read_reviews(folder).select(["sha256", "verdict"]).to_pylist()
    last = {line["sha256"]: line["verdict"] for line in verdicts if line["verdict"] is not None}
    return {sha256 for sha256, verdict in last.items() if sha256 is not None and verdict == REJECT}


def read_latest_reviews(folder: Folder) -> "pd.DataFrame":
    """Return the latest review of each row, by row id.

    A verdict, a corrected text and a rating may be about different audio of the row. ``sha256`` is the audio
    of the verdict, ``text_sha256`` of the corrected text, and ``rating_sha256`` of the rating.
    """
    reviews = read_reviews(folder).to_pandas().astype(dict.fromkeys(_CONTENT_COLUMNS, object))
    reviews["rating"] = reviews["rating"].astype("Int64")
    # `last` skips nulls, so each column gets its latest value.
    newest = reviews.groupby("row_id", sort=False).last()
    # A verdict is about the audio of its review. So take the audio, the reviewer and the time from that
    # review, even if a later review has other audio.
    judged = reviews[reviews["verdict"].notna()].groupby("row_id", sort=False).last()
    for name in ("sha256", "reviewer", "reviewed_at"):
        newest.loc[judged.index, name] = judged[name]
    for name, hash_name in (("corrected_text", "text_sha256"), ("rating", "rating_sha256")):
        given = reviews[reviews[name].notna()].drop_duplicates("row_id", keep="last").set_index("row_id")
        newest[hash_name] = given["sha256"].reindex(newest.index)
    newest[_CONTENT_COLUMNS] = newest[_CONTENT_COLUMNS].where(
        newest[_CONTENT_COLUMNS].notna() & (newest[_CONTENT_COLUMNS] != ""), None
    )
    newest["rating"] = newest["rating"].where(newest["rating"] != 0)
    return newest
