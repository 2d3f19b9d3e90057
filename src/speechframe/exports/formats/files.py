"""The format ``files``: the clips as files, and a CSV file with the columns of their rows."""

import csv
from typing import Any

import pyarrow as pa

from speechframe.exports.clips import ExportedClip
from speechframe.exports.formats.base import ExportFormat
from speechframe.exports.tree import ExportTree

_OURS = (
    *("path", "run_id", "row_id", "split", "text", "locale", "voice_id", "speaker"),
    *("audio_seconds", "sample_rate", "channels", "sha256"),
)


class FilesFormat(ExportFormat):
    """``manifest.csv`` with a line for each clip: facts of the clip, then the caller's columns."""

    def __init__(self, tree: ExportTree, schema: pa.Schema) -> None:
        super().__init__(tree, schema)
        nested = [
            field.name for field in schema if pa.types.is_nested(field.type) or pa.types.is_binary(field.type)
        ]
        self._others = [name for name in schema.names if name not in {*_OURS, *nested}]
        self._writer: Any = csv.writer(self.lines("manifest.csv"), lineterminator="\n")
        self._writer.writerow([*_OURS, *self._others])

    def add(self, clip: ExportedClip) -> None:
        """Write a line."""
        # Without `clip.row`, which would also convert the times of all words.
        known = clip.batch.schema.names
        others = [clip.batch.column(n)[clip.index].as_py() if n in known else None for n in self._others]
        self._writer.writerow([*(getattr(clip, name) for name in _OURS), *others])

    def count(self) -> int:
        """Return the number of lines whose clip exists."""
        rows = csv.DictReader(self.read_lines("manifest.csv"))
        return sum((self.tree.folder / row["path"]).is_file() for row in rows)
