"""Read the reviews that people send back as JSON files or sheets, and find their conflicts."""

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from speechframe.errors import InvalidRows, StoreError
from speechframe.store.folder import Folder
from speechframe.store.reviews import REVIEWS_FILE, find_review_fault, read_reviews
from speechframe.strings.sheets import read_rows

FILE_FORMAT = 1
"""Value of the field ``speechframe_reviews`` of a JSON file. The script `review.js` writes the same value."""
CONFLICT_COLUMNS = ["row_id", "reviewer", "verdict", "corrected_text", "file", "problem"]
"""Columns of the frame of conflicts."""

_TEXTS = ("verdict", "comment", "corrected_text")
_CONTENT = (*_TEXTS, "rating")
_COMPARED = {"verdict": "verdicts", "corrected_text": "corrected texts"}
"""Fields in which the reviews of different people must agree, with their names in messages."""
_SUFFIXES = (".json", ".xlsx", ".csv")

_Review = dict[str, Any]


class ReturnedReviews(NamedTuple):
    """The new reviews of files, the number of reviews that the run already has, and the conflicts."""

    new: list[_Review]
    known: int
    conflicts: list[_Review]


class _BrokenFileError(Exception):
    """Raised for a file without usable reviews. The message is the reason."""


def read_returned_reviews(
    folder: Folder, run_id: str, sha256_by_row: Mapping[str, str | None], source: Any
) -> ReturnedReviews:
    """Return the reviews in files, and their conflicts. `sha256_by_row` has the current audio of each row."""
    valid: list[_Review] = []
    conflicts: list[_Review] = []
    for path in _list_files(source):
        try:
            found = _read_json(path, run_id) if path.suffix.lower() == ".json" else _read_sheet(path)
        except _BrokenFileError as error:
            conflicts.append({"file": path.name, "problem": str(error)})
            continue
        for given in found:
            review = _complete_review(given, path, sha256_by_row)
            (valid if review["problem"] is None else conflicts).append(review)
    valid.sort(key=lambda review: review["reviewed_at"])
    row_ids = {review["row_id"] for review in valid}
    known = [review for review in read_reviews(folder).to_pylist() if review["row_id"] in row_ids]
    _remove_known(valid, known)
    count = sum(map(_has_content, valid))
    conflicts += _remove_disagreements(valid, known)
    return ReturnedReviews(list(filter(_has_content, valid)), len(valid) - count, conflicts)


def _list_files(source: Any) -> list[Path]:
    """Return the files that `source` names: a file, a folder with files, or a list of these."""
    found: list[Path] = []
    for name in source if isinstance(source, (list, tuple)) else [source]:
        path = Path(name).expanduser() if isinstance(name, (str, PathLike)) else None
        if path is None or not path.exists():
            raise StoreError(f"{name} does not exist: name a file with reviews, or a folder of such files")
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        files = [file for file in files if file.suffix.lower() in _SUFFIXES and file.is_file()]
        if not files:
            raise StoreError(f"{path} is not and has no file with reviews; allowed: {', '.join(_SUFFIXES)}")
        found += files
    return found


def _read_json(path: Path, run_id: str) -> list[_Review]:
    """Return the reviews in a file that a review page saved."""
    try:
        saved = json.loads(path.read_bytes())
        version, about, reviews = saved["speechframe_reviews"], saved["run_id"], saved["reviews"]
        reviewer = saved.get("reviewer")
        found = [{"reviewer": reviewer, "sha256": None, "reviewed_at": None, **review} for review in reviews]
    except OSError as error:
        raise _BrokenFileError(f"the file cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _BrokenFileError("the file is damaged, or was not saved by a review page") from error
    if version != FILE_FORMAT:
        raise _BrokenFileError(f"the file has version {version!r}, and this speechframe reads {FILE_FORMAT}")
    if about != run_id:
        raise _BrokenFileError(f"the file is about another run ({about}); this run is {run_id}")
    return found


def _read_sheet(path: Path) -> list[_Review]:
    """Return the reviews in the rows of an XLSX or CSV file. Empty cells are left out."""
    notes: list[str] = []
    try:
        header, *rows = read_rows(path, notes)
    except ImportError as error:
        raise _BrokenFileError("reading XLSX needs: pip install 'speechframe[excel]'") from error
    except Exception as error:
        # openpyxl raises errors of many classes for damaged files.
        fault = error.problems[0]["problem"] if isinstance(error, InvalidRows) else error
        raise _BrokenFileError(f"the sheet cannot be read: {fault}") from error
    if notes:  # the encoding is a guess
        raise _BrokenFileError("the sheet is not in UTF-8: save it again as XLSX or as CSV UTF-8")
    names = [name.lower() for name in header]
    named = [name for name in names if name]
    if "row_id" not in named or not {*_CONTENT} & {*named} or len({*named}) < len(named):
        needed = f"row_id and one of {', '.join(_CONTENT)}"
        raise _BrokenFileError(f"the sheet needs the columns {needed}, each once; it has {', '.join(named)}")
    found = []
    for cells in rows:
        row: _Review = {name: cell.strip() for name, cell in zip(names, cells, strict=False) if cell.strip()}
        row["verdict"] = row.get("verdict", "").lower() or None
        # Every cell is a text. Another rating than a number is refused later.
        if row.get("rating", "").isdecimal():
            row["rating"] = int(row["rating"])
        if any(row.get(name) for name in ("row_id", *_CONTENT)):
            found.append(row)
    return found


def _complete_review(given: Any, path: Path, sha256_by_row: Mapping[str, str | None]) -> _Review:
    """Return a review with all fields. ``problem`` is the reason why it is not applied, or None."""
    review: _Review = {name: given.get(name) for name in (*CONFLICT_COLUMNS, *_CONTENT, "reviewed_at")}
    review["row_id"], review["reviewer"] = str(review["row_id"]), str(review["reviewer"] or path.name)
    # A sheet without hashes is about the current audio.
    review["sha256"] = given.get("sha256", sha256_by_row.get(review["row_id"]))
    review["file"], review["has_time"] = path.name, "reviewed_at" in given
    return review | {"problem": _find_fault(review, path, sha256_by_row)}


def _find_fault(review: _Review, path: Path, sha256_by_row: Mapping[str, str | None]) -> str | None:
    """Return the reason why a review cannot be applied, or None. Convert its time."""
    if review["row_id"] not in sha256_by_row:
        return f"no row of the run has the id {review['row_id']!r}"
    if sha256_by_row[review["row_id"]] != review["sha256"]:
        return "the audio of the row has changed since this review: review the row again"
    if any(not isinstance(review[name] or "", str) for name in _TEXTS):
        return "a verdict, a comment and a corrected text must be texts"
    if (fault := find_review_fault(review)) is not None:
        return f"{fault['value']!r} {fault['problem']}; allowed: {fault['allowed']}"
    if not review["has_time"]:
        review["reviewed_at"] = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        return None
    try:
        time = datetime.fromisoformat(review["reviewed_at"])
    except (ValueError, TypeError):
        return f"reviewed_at={review['reviewed_at']!r} is not a time such as 2026-03-01T14:05:00Z"
    review["reviewed_at"] = time if time.tzinfo else time.replace(tzinfo=UTC)
    return None


def _has_content(review: _Review) -> bool:
    return any(review[name] is not None for name in _CONTENT)


def _remove_known(reviews: list[_Review], known: list[_Review]) -> None:
    """Remove the values that the run already has from `reviews`."""
    seen = set()
    newest: dict[tuple[Any, ...], Any] = {}
    for review in [*known, *reviews]:
        for name in _CONTENT:
            person = (review["row_id"], review["sha256"], review["reviewer"], name)
            # Without a time, a value is new if it differs from the newest value of the same person.
            value = (*person, review["reviewed_at"], review[name])
            if value in seen or (not review.get("has_time", True) and newest.get(person) == review[name]):
                review[name] = None
            elif review[name] is not None:
                seen.add(value)
                newest[person] = review[name]


def _remove_disagreements(reviews: list[_Review], known: list[_Review]) -> list[_Review]:
    """Remove verdicts and corrected texts in which people differ from `reviews`. Return them as conflicts.

    The newest review of the run itself takes part if it is about the same audio.
    """
    conflicts: list[_Review] = []
    removed: list[tuple[_Review, str]] = []
    current = {(review["row_id"], review["sha256"]) for review in reviews}
    stored = [{**one, "file": REVIEWS_FILE} for one in known if (one["row_id"], one["sha256"]) in current]
    for field, name in _COMPARED.items():
        newest_known = {review["row_id"]: review for review in stored if review[field] is not None}
        given: dict[str, list[_Review]] = defaultdict(list)
        for review in reviews:
            if review[field] is not None:
                given[review["row_id"]].append(review)
        for row_id, of_row in given.items():
            known_one = newest_known.get(row_id)
            ordered = sorted(
                [known_one, *of_row] if known_one else of_row, key=lambda one: one["reviewed_at"]
            )
            by_reviewer = {review["reviewer"]: review for review in ordered}
            opinions = [review for review in by_reviewer.values() if review[field]]
            people = ", ".join(review["reviewer"] for review in opinions)
            differ = len({review[field] for review in opinions}) > 1
            if differ:
                problem = f"the {name} of these people differ: {people}. Review the row again"
                conflicts += [{**review, "problem": problem} for review in opinions]
            for review in of_row:
                # People who withdraw their own opinion do not withdraw that of another person.
                is_own = known_one is not None and review["reviewer"] == known_one["reviewer"]
                if differ or (opinions and not by_reviewer[review["reviewer"]][field] and not is_own):
                    removed.append((review, field))
    for review, field in removed:
        review[field] = None
    return conflicts
