"""What people say of a run's rows, and whether the audio they heard is still the one that is there."""

from typing import TYPE_CHECKING

from speechframe.errors import InvalidRows
from speechframe.old_batch.naming import ROW_ID
from speechframe.old_batch.table import problem
from speechframe.old_store import RunFolder
from speechframe.old_store.reviews import Review, add_reviews, read_reviews

if TYPE_CHECKING:
    import pandas as pd

KEEP, REJECT = "keep", "reject"
VERDICTS = (KEEP, REJECT)

_SAID = ["verdict", "comment", "corrected_text"]
_COLUMNS = ["row_id", *_SAID, "reviewer", "reviewed_at", "sha256", "is_current"]


def write_reviews(folder: RunFolder, *reviews: Review) -> None:
    """Write reviews of a run's rows down; they are on the disk when this returns.

    Raises
    ------
    InvalidRows
        For a verdict that is none.
    StoreError
        When the run's folder cannot be written.
    """
    wrong = [review for review in reviews if review.verdict and review.verdict not in VERDICTS]
    if wrong:
        allowed = ", ".join(VERDICTS)
        raise InvalidRows(
            [problem("verdict", "is none", value=r.verdict, allowed=allowed, row_id=r.row_id) for r in wrong]
        )
    add_reviews(folder.path, reviews)


def last_words(folder: RunFolder) -> "pd.DataFrame":
    """Return the last word on each thing of each row that has one: by row id, without ``is_current``."""
    told = read_reviews(folder.path).to_pandas().astype(dict.fromkeys(_SAID, object))
    # last() takes the last word on each thing, and no word is no word.
    newest = told.groupby("row_id", sort=False).last()
    judged = told[told["verdict"].notna()].groupby("row_id", sort=False).last()
    # A verdict is of the audio it was given on, whatever was said since.
    for name in ("sha256", "reviewer", "reviewed_at"):
        newest.loc[judged.index, name] = judged[name]
    newest[_SAID] = newest[_SAID].where(newest[_SAID].notna() & (newest[_SAID] != ""), None)
    return newest


def reviews_of(folder: RunFolder) -> "pd.DataFrame":
    """Return what counts of a run's reviews, one line a row; see :attr:`Run.reviews`."""
    newest = last_words(folder)
    there = heard_now(folder, set(newest.index)) if len(newest) else {}
    newest["is_current"] = [
        sha256 == there.get(row_id) for row_id, sha256 in zip(newest.index, newest["sha256"], strict=True)
    ]
    return newest.astype({"is_current": bool}).reset_index()[_COLUMNS]


def heard_now(folder: RunFolder, row_ids: set[str]) -> dict[str, str | None]:
    """Return the sha256 of the audio that these rows have now; rows that are gone are left out."""
    entry = folder.tables()[-1]
    names = [entry.name_of(ROW_ID), entry.name_of("sha256")]
    return {
        str(row_id): sha256
        for batch in folder.joined(names)
        for row_id, sha256 in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        if str(row_id) in row_ids
    }


def rejected(folder: RunFolder) -> set[str]:
    """Return the rows that were rejected for the audio they have now."""
    found = reviews_of(folder)
    return set(found.loc[(found["verdict"] == REJECT) & found["is_current"], "row_id"])
