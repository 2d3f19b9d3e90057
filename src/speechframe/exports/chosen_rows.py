"""Choose the rows of runs that an export contains. Each row that is left out has a reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from speechframe.errors import ExportError
from speechframe.store.reader import StoredRun
from speechframe.store.rows import ROW_ID_COLUMN
from speechframe.store.schema import AUDIO_COLUMN, BOOKKEEPING_COLUMNS, CACHED, DONE, SUSPECT

if TYPE_CHECKING:
    import pandas as pd

Grades = Mapping[tuple[str, str], tuple[str, Sequence[str]]]
"""Grade of a row's quality, and the reasons for it, by run id and row id."""

WHOLE = "train"
"""Name of the only split of an export without splits."""

_FACTS = (ROW_ID_COLUMN, "status", "error_message", "audio_seconds", "sha256")


@dataclass(slots=True)
class ChosenRows:
    """Rows of one run for an export, in the run's order. All lists have one entry a row.

    Attributes
    ----------
    run
        The run.
    places
        Places of the rows in the run's table.
    splits
        Split of each row.
    paths
        Path of each row's clip below the tree's folder of clips, without a suffix. Empty until named.
    left_out
        Row ids of the other rows, each with the reason.
    """

    run: StoredRun
    places: list[int] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def choose_rows(
    runs: Sequence[StoredRun],
    *,
    splits: "Mapping[tuple[str, str], str] | None" = None,
    grades: "Grades | None" = None,
) -> list[ChosenRows]:
    """Return the rows to export, a list for each run.

    Parameters
    ----------
    runs
        The runs.
    splits
        Split of each row by run id and row id. Other rows are left out. None puts all rows into one split.
    grades
        Grade and reasons of each row by run id and row id. Only rows with the grade ``good`` are chosen. None
        chooses any grade.
    """
    return [_choose_rows_of(run, splits, grades) for run in runs]


def _choose_rows_of(
    run: StoredRun, splits: Mapping[tuple[str, str], str] | None, grades: "Grades | None"
) -> ChosenRows:
    chosen, verdicts = ChosenRows(run), read_verdicts(run)
    for position, row in enumerate(read_rows(run, _FACTS)):
        row_id = row[ROW_ID_COLUMN]
        split = WHOLE if splits is None else splits.get((run.run_id, row_id))
        reason = _explain_exclusion(row, verdicts.get(row_id))
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


def read_rows(run: StoredRun, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield our columns of each row of a run, without audio, by our names of the columns."""
    names = [run.name_of(column) for column in columns]
    for batch in run.batches(names, audio=False):
        values = [column.to_pylist() for column in batch.columns]
        for row in zip(*values, strict=True):
            yield dict(zip(columns, row, strict=True))


def read_verdicts(run: StoredRun) -> dict[str, str]:
    """Return the verdict of each row whose latest review is about its current audio."""
    reviews = run.reviews
    current = reviews[reviews["is_current"] & reviews["verdict"].notna()]
    return dict(zip(current["row_id"], current["verdict"], strict=True))


def _explain_exclusion(row: Mapping[str, Any], verdict: str | None) -> str:
    """Return the reason why a row is not exported, or an empty string."""
    status = row["status"]
    if status == SUSPECT and verdict != "keep":
        return f"it is suspect, and no review keeps it: {row['error_message']}"
    if status not in {DONE, CACHED, SUSPECT}:
        return f"it is {status}: {row['error_message']}" if row["error_message"] else f"it is {status}"
    if verdict == "reject":
        return "a review rejects it"
    if not row["sha256"] or not row["audio_seconds"]:
        return "it has no sound"
    return ""


def open_runs(runs: Any) -> list[StoredRun]:
    """Return the given runs as a list. Each must have audio, and must be given once.

    Raises
    ------
    ExportError
        A value is not a run, two values are the same run, or a run has no audio.
    """
    found = [runs] if isinstance(runs, StoredRun) or not isinstance(runs, Sequence) else list(runs)
    opened: list[StoredRun] = []
    for run in found:
        if not isinstance(run, StoredRun):
            kind = type(run).__name__
            raise ExportError(
                f"{kind} is not a run: give a run, or a list of runs, such as open_run('runs/a')"
            )
        if AUDIO_COLUMN not in run.record_schema.names:
            raise ExportError(f"the run {run.short_path} ({run.operation}) has no audio: give a spoken run")
        if any(run.run_id == other.run_id for other in opened):
            raise ExportError(f"the run {run.short_path} was given twice: give each run once")
        opened.append(run)
    if not opened:
        raise ExportError("no run was given: give at least one run")
    return opened


def read_grades(quality: "pd.DataFrame", runs: Sequence[StoredRun]) -> Grades:
    """Return the grades in a frame of :func:`quality`, or raise ExportError for another frame."""
    if not {"grade", "reasons"} <= {*quality.columns} or (quality.index.nlevels == 1 and len(runs) > 1):
        raise ExportError("quality= must be the result of quality() for the same runs")
    keys = quality.index if quality.index.nlevels > 1 else [(runs[0].run_id, key) for key in quality.index]
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


def index_rows(runs: Any, frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a frame with ``run_id`` and ``row_id`` as its index, or only ``row_id`` if one run was given."""
    if isinstance(runs, StoredRun):
        return frame.drop(columns="run_id").set_index("row_id")
    return frame.set_index(["run_id", "row_id"])
