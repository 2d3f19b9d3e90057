"""The report of an export. It lists the written, changed and omitted rows."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from speechframe.writing.notebook import format_lines
from speechframe.writing.words import format_count, replace_unprintable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ExportReport:
    """Result of an export.

    Attributes
    ----------
    path
        The folder.
    clips, audio_seconds
        Number of rows, and their length in seconds.
    splits
        Number of rows by split.
    formats
        Number of rows that were read back from the files of each format.
    left_out
        A frame with ``run_id``, ``row_id`` and ``reason`` of each row that was left out.
    notes
        Number of rows that were changed or that readers may refuse, by explanation.
    remarks
        Further sentences.
    kept_clips
        Number of clip files that an earlier export already had.
    """

    path: Path
    clips: int
    audio_seconds: float
    splits: Mapping[str, int]
    formats: Mapping[str, int]
    left_out: "pd.DataFrame" = field(repr=False)
    notes: Mapping[str, int]
    remarks: tuple[str, ...] = ()
    kept_clips: int = 0

    def summary(self) -> str:
        """Return the report in a few lines."""
        hours = f"{self.audio_seconds / 3600:,.3f} hours"
        place = self.path
        with suppress(ValueError, OSError):
            place = self.path.relative_to(Path.cwd())
        splits = ", ".join(f"{name} {number:,}" for name, number in self.splits.items())
        lines = [
            f"{format_count(self.clips, 'clip')} ({hours}) in {place}: {splits}",
            f"read back: {', '.join(f'{name} {number:,}' for name, number in self.formats.items())}",
        ]
        if self.kept_clips:
            lines.append(f"{format_count(self.kept_clips, 'clip file')} unchanged since the earlier export")
        reasons = self.left_out["reason"].str.split(":").str[0].value_counts()
        lines += [
            f"{format_count(int(number), 'row')} left out; reason: {reason}"
            for reason, number in reasons.items()
        ]
        lines += [f"{number:,} {explanation}" for explanation, number in self.notes.items()]
        lines += self.remarks
        if len(self.left_out):
            lines.append("report.left_out shows these rows; left_out.csv has them, too")
        return replace_unprintable("\n".join(lines))

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return format_lines(self.summary())
