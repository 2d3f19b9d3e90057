"""Write rows of runs as a dataset: one tree of clips, and a manifest for each format."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from speechframe._version import __version__
from speechframe.errors import AudioError, ExportError
from speechframe.exports.card import Card, write_card
from speechframe.exports.chosen_rows import (
    WHOLE,
    ChosenRows,
    Grades,
    choose_rows,
    find_repeats,
    list_published_columns,
)
from speechframe.exports.clips import AudioShape, ExportedClip, read_clips
from speechframe.exports.formats import load_format
from speechframe.exports.formats.base import ExportFormat
from speechframe.exports.names import name_clips
from speechframe.exports.portions import Workers
from speechframe.exports.quality import describe_quality
from speechframe.exports.report import ExportReport
from speechframe.exports.tree import EXPORT_FILE, ExportTree, write_tree
from speechframe.spec.speech import Format
from speechframe.store.rows import Selection

if TYPE_CHECKING:
    import pandas as pd

_MIN_FRAMES, _MAX_SECONDS = 8192, 30.0
"""Trainers often refuse shorter or longer clips."""
_FOLDERS = {Format.WAV: "wavs", Format.FLAC: "audio"}
"""Folder of the clips. LJ Speech demands the name ``wavs``."""


def export_runs(
    runs: Sequence[Selection],
    out: Path,
    *,
    name: str,
    formats: Sequence[str],
    splits: Mapping[tuple[str, str], str] | None,
    grades: Grades | None,
    shape: AudioShape,
    card: Card,
    quality: "pd.DataFrame | None",
    remarks: Sequence[str],
    progress: Callable[[int], Any],
    is_cancelled: Callable[[], bool],
    workers: Workers | None = None,
) -> ExportReport:
    """Write the tree of an export and return its report.

    Only rows in `splits`, and with the grade ``good`` in `grades`, are exported. None takes all. The order of
    `splits` is that of the report. `quality` is the frame of :func:`quality` for the card, and `remarks` are
    sentences for the report. `workers` convert the clips, or all cores of this machine if it is None.
    """
    kinds = _check_formats(formats, shape.format)
    chosen = [choose_rows(rows, splits=splits, grades=grades) for rows in runs]
    total = sum(len(rows.places) for rows in chosen)
    _refuse_empty(chosen)
    notes: Counter[str] = Counter()
    notes["rows have another path than their values: unsafe characters became _"] = name_clips(chosen, name)
    left_out = {(rows.run.run_id, row_id) for rows in chosen for row_id, _ in rows.left_out}
    notes["entries of split= are not among the given rows"] = _count_unknown(splits or {}, left_out, total)
    if quality is not None:
        card.quality = _describe_rest(quality, left_out)
    schema = unify_columns(chosen)
    with write_tree(out) as tree:
        writers = {kind: writer(tree, schema) for kind, writer in kinds.items()}
        needs_files = any(writer.needs_clip_files for writer in writers.values())
        bar = progress(total)
        try:
            write_clip = tree.write_clip if needs_files else None
            place = _FOLDERS[shape.format]
            clips = read_clips(chosen, shape, place, schema.names, write_clip, workers, is_cancelled)
            with closing(clips):  # no thread writes a clip after this block
                for clip in clips:
                    if needs_files:
                        tree.clips[clip.path] = clip.sha256
                    for writer in writers.values():
                        writer.add(clip)
                    card.add(clip)
                    notes.update(_explain_odd_length(clip))
                    bar.update()
                    if is_cancelled():
                        raise ExportError(f"the export was stopped; {out} is as it was before")
            for writer in writers.values():
                writer.finish()
        except AudioError as error:
            raise ExportError(f"a stored clip cannot be read: {error}. verify() names its row") from error
        finally:
            bar.close()
            for writer in writers.values():
                writer.close_files()
        counts = _check_counts(writers, total)
        for writer in writers.values():
            notes.update(writer.notes)
        report = _make_report(out, tree, chosen, card, counts, +notes, remarks, splits)
        tree.write("left_out.csv", report.left_out.to_csv(index=False))
        write_card(tree, card, report)
        facts = {
            "speechframe": __version__,
            "name": name,
            "formats": list(formats),
            "rows": total,
            "clips": tree.clips,
        }
        tree.write(EXPORT_FILE, json.dumps(facts, ensure_ascii=False, indent=1))
    return report


def _refuse_empty(chosen: Sequence[ChosenRows]) -> None:
    """Raise ExportError with the main reasons if no row was chosen."""
    if any(rows.places for rows in chosen):
        return
    reasons = Counter(reason for rows in chosen for _, reason in rows.left_out)
    why = "; ".join(f"{number:,} rows: {reason}" for reason, number in reasons.most_common(3))
    raise ExportError(f"no row can be exported: {why or 'the runs are empty'}")


def _count_unknown(
    splits: Mapping[tuple[str, str], str], left_out: Collection[tuple[str, str]], total: int
) -> int:
    """Return the number of given splits whose row was not given. `total` rows are exported."""
    return max(0, len(splits) - total - sum(key in splits for key in left_out))


def _describe_rest(quality: "pd.DataFrame", left_out: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Return sentences on the quality of all rows that were not left out."""
    keys = [row_id for _, row_id in left_out] if quality.index.nlevels == 1 else list(left_out)
    return describe_quality(quality.drop(index=keys, errors="ignore"))


def _check_formats(formats: Sequence[str], audio_format: Format) -> dict[str, type[ExportFormat]]:
    if isinstance(formats, str) or not formats:
        raise ExportError("formats= must be a list with at least one name, such as ['huggingface']")
    kinds = {name: load_format(name) for name in formats}
    for name, kind in kinds.items():
        if audio_format not in kind.audio_formats:
            allowed = ", ".join(sorted(kind.audio_formats))
            raise ExportError(f"the format {name!r} needs audio_format {allowed}, not {audio_format}")
    return kinds


def _explain_odd_length(clip: ExportedClip) -> list[str]:
    """Return a note if trainers may refuse the clip because of its length."""
    if clip.audio_seconds * clip.sample_rate < _MIN_FRAMES:
        return [f"clips are shorter than {_MIN_FRAMES:,} samples: some trainers refuse them"]
    if clip.audio_seconds > _MAX_SECONDS:
        return [f"clips are longer than {_MAX_SECONDS:g} s: some trainers refuse them"]
    return []


def unify_columns(chosen: Sequence[ChosenRows]) -> pa.Schema:
    """Return the published columns of all runs. Raise ExportError if a column has two types."""
    repeats, schemas = find_repeats(chosen), []
    for run in (rows.run for rows in chosen):
        names = [name for name in list_published_columns(run) if name not in repeats]
        schemas.append(run.join_records(names, audio=False).schema.remove_metadata())
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowTypeError as error:
        raise ExportError(
            f"a column has another type in another run: {error}. Export the runs one by one"
        ) from error


def _check_counts(writers: Mapping[str, ExportFormat], total: int) -> dict[str, int]:
    counts = {name: writer.count() for name, writer in writers.items()}
    for name, count in counts.items():
        if count != total:
            raise ExportError(
                f"the files of {name!r} have {count:,} of {total:,} rows; nothing was kept. "
                "If another program writes there, stop it; otherwise report this fault"
            )
    return counts


def _make_report(
    out: Path,
    tree: ExportTree,
    chosen: Sequence[ChosenRows],
    card: Card,
    counts: Mapping[str, int],
    notes: Mapping[str, int],
    remarks: Sequence[str],
    given_splits: Mapping[tuple[str, str], str] | None,
) -> ExportReport:
    import pandas as pd

    left_out = [(rows.run.run_id, *row) for rows in chosen for row in rows.left_out]
    splits = Counter(split for rows in chosen for split in rows.splits)
    names = [WHOLE] if given_splits is None else dict.fromkeys(given_splits.values())
    return ExportReport(
        path=out,
        clips=splits.total(),
        audio_seconds=round(card.audio_seconds, 3),
        splits={name: splits[name] for name in names if name in splits},
        formats=counts,
        left_out=pd.DataFrame(left_out, columns=["run_id", "row_id", "reason"]),
        notes=dict(notes),
        remarks=tuple(remarks),
        kept_clips=tree.kept_clips,
    )
