"""Choose the rows of runs that an export contains. Each row that is left out has a reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from speechframe.errors import ExportError
from speechframe.store.reader import StoredRun
from speechframe.store.rows import ROW_ID_COLUMN, Selection
from speechframe.store.schema import AUDIO_COLUMN, BOOKKEEPING_COLUMNS, CACHED, DONE, SUSPECT

if TYPE_CHECKING:
    import pandas as pd

Grades = Mapping[tuple[str, str], tuple[str, Sequence[str]]]
"""Grade of a row's quality, and the reasons for it, by run id and row id."""

WHOLE = "train"
"""Name of the only split of an export without splits."""

_MAX_COMMENT_CHARACTERS = 80
"""A longer comment of a review is shortened in the reason."""
_FACTS = (ROW_ID_COLUMN, "status", "error_message", "audio_seconds", "sha256")


@dataclass(slots=True)
class ChosenRows:
    """Rows of one run for an export, in the run's order. All lists but `left_out` have one entry a row."""

    run: Any  # a StoredRun, or None while an executor sends the rows to a worker
    places: list[int] = field(default_factory=list)  # in the run's table
    splits: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)  # below the folder of clips, without a suffix; set later
    left_out: list[tuple[str, str]] = field(default_factory=list)  # row ids of other rows, with reasons


def choose_rows(
    rows: Selection,
    *,
    splits: "Mapping[tuple[str, str], str] | None" = None,
    grades: "Grades | None" = None,
) -> ChosenRows:
    """Return those rows of a run that are exported.

    `splits` has the split of each row by run id and row id, and other rows are left out. Only rows with the
    grade ``good`` in `grades` are chosen. None takes all rows.
    """
    run = rows.run
    chosen, verdicts = ChosenRows(run), read_verdicts(run)
    for position, row in zip(rows.positions, read_rows(rows, _FACTS), strict=True):
        row_id = row[ROW_ID_COLUMN]
        split = WHOLE if splits is None else splits.get((run.run_id, row_id))
        reason = _explain_exclusion(row, *verdicts.get(row_id, ("", None)))
        if not reason and grades is not None:
            grade, why = grades.get((run.run_id, row_id), ("not measured", ()))
            reason = "" if grade == "good" else f"its quality is {grade}: {'; '.join(why)}"
        if not reason and not split:
            reason = "the given split does not contain the row"
        if reason:
            chosen.left_out.append((row_id, reason))
            continue
        chosen.places.append(position)
        chosen.splits.append(str(split))
    return chosen


def read_rows(rows: Selection, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield our columns of each row, without audio, by our names of the columns."""
    names = [rows.run.name_of(column) for column in columns]
    for batch in rows.batches(names, audio=False):
        values = [column.to_pylist() for column in batch.columns]
        for row in zip(*values, strict=True):
            yield dict(zip(columns, row, strict=True))


def read_verdicts(run: StoredRun) -> dict[str, tuple[str, str | None]]:
    """Return verdict and comment of each row whose latest review is about its current audio."""
    reviews = run.reviews
    current = reviews[reviews["is_current"] & reviews["verdict"].notna()]
    verdicts = zip(current["verdict"], current["comment"], strict=True)
    return dict(zip(current["row_id"], verdicts, strict=True))


def _explain_exclusion(row: Mapping[str, Any], verdict: str, comment: str | None) -> str:
    """Return the reason why a row is not exported, or an empty string."""
    status = row["status"]
    if status == SUSPECT and verdict != "keep":
        return f"it is suspect, and no review keeps it: {row['error_message']}"
    if status not in {DONE, CACHED, SUSPECT}:
        return f"it is {status}: {row['error_message']}" if row["error_message"] else f"it is {status}"
    if verdict == "reject":
        why = f": {shorten(comment, _MAX_COMMENT_CHARACTERS, placeholder=' ...')}" if comment else ""
        return f"a review rejects it{why}"
    if not row["sha256"] or not row["audio_seconds"]:
        return "it has no sound"
    return ""


def open_runs(runs: Any) -> list[Selection]:
    """Return the rows of each given run. Raise ExportError for a run without audio or given twice."""
    opened: list[Selection] = []
    for value in runs if _is_list(runs) else [runs]:
        rows = open_rows(value)
        run = rows.run
        if AUDIO_COLUMN not in run.record_schema.names:
            raise ExportError(f"the run {run.short_path} ({run.operation}) has no audio: give a spoken run")
        if any(run.run_id == other.run.run_id for other in opened):
            raise ExportError(f"the run {run.short_path} was given twice: give each run or selection once")
        opened.append(rows)
    if not opened:
        raise ExportError("no run was given: give at least one run")
    return opened


def open_rows(value: Any) -> Selection:
    """Return all rows of a run or of the run in a folder, or the given rows of a run."""
    if isinstance(value, str | PathLike):
        value = StoredRun.open(value)
    if isinstance(value, StoredRun):
        value.join_records(None, audio=False)  # raises StoreError if the run has no table yet
        value = Selection(value, range(value.manifest.table.rows))
    if not isinstance(value, Selection):
        allowed = "a run, its folder, rows of it such as run.select(...), or a list of these"
        raise ExportError(f"{type(value).__name__} is not a run: give {allowed}")
    return value


def _is_list(runs: Any) -> bool:
    return isinstance(runs, Sequence) and not isinstance(runs, str)


def read_grades(quality: "pd.DataFrame", runs: Sequence[Selection]) -> Grades:
    """Return the grades in a frame of :func:`quality`, or raise ExportError for another frame."""
    if not {"grade", "reasons"} <= {*quality.columns} or (quality.index.nlevels == 1 and len(runs) > 1):
        raise ExportError("quality= must be the result of quality() for the same runs")
    run_id = runs[0].run.run_id
    keys = quality.index if quality.index.nlevels > 1 else [(run_id, key) for key in quality.index]
    rows = zip(keys, quality["grade"], quality["reasons"], strict=True)
    return {(str(key[0]), str(key[1])): (grade, why) for key, grade, why in rows}


def list_published_columns(run: StoredRun) -> list[str]:
    """Return the columns of a run that a dataset contains: the caller's, and ours about the content.

    Columns about calls stay in the run, because a balance or a trace id concerns no reader of a dataset. So
    does the format of the stored clip, because the exported clip may have another.
    """
    private = {
        run.name_of(name) for name in (*BOOKKEEPING_COLUMNS - {"voice_id", "model"}, AUDIO_COLUMN, "format")
    }
    return [name for name in run.columns if name not in private]


def find_repeats(chosen: Sequence[ChosenRows]) -> set[str]:
    """Return our columns such as ``speech_locale`` that equal the caller's column in all chosen rows."""
    equal: dict[str, bool] = {}
    for rows in chosen:
        published = list_published_columns(rows.run)
        renamed = {new: old for old, new in rows.run.manifest.table.names.items() if new != old}
        for new, old in renamed.items():
            if new in published and equal.get(new, True):
                batches = Selection(rows.run, rows.places).batches([new, old], audio=False)
                equal[new] = all(one.column(0).to_pylist() == one.column(1).to_pylist() for one in batches)
    return {name for name, is_equal in equal.items() if is_equal}


def index_rows(runs: Any, frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a frame with ``run_id`` and ``row_id`` as its index, or only ``row_id`` if one run was given."""
    if _is_list(runs):
        return frame.set_index(["run_id", "row_id"])
    return frame.drop(columns="run_id").set_index("row_id")
