"""The format ``huggingface``: Parquet files that the library `datasets` and the viewers of the hub open."""

import json
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.exports.clips import ExportedClip
from speechframe.exports.formats.base import ExportFormat
from speechframe.exports.tree import ExportTree
from speechframe.store.schema import AUDIO_COLUMN, AUDIO_TYPE, columns

_MAX_GROUP_BYTES = 100_000_000
"""Size of the rows of a row group. Viewers refuse groups above 286 MiB."""
_MAX_GROUP_ROWS = 1000
_MAX_SHARD_BYTES = 500_000_000
"""Size from which a new Parquet file begins, as the library itself writes them."""
_TEXTS = ("run_id", "row_id", "text", "locale", "voice_id", "speaker")
_OURS = columns(**dict.fromkeys(_TEXTS, pa.string()), audio_seconds=pa.float64(), sample_rate=pa.int32())
"""Our columns, which replace columns of these names."""


class HuggingFaceFormat(ExportFormat):
    """``data/<split>-00000-of-00001.parquet``: the clip, our columns, and the other columns of the row."""

    needs_clip_files: ClassVar[bool] = False

    def __init__(self, tree: ExportTree, schema: pa.Schema) -> None:
        super().__init__(tree, schema)
        others = [field for field in schema if field.name not in {*_OURS.names, AUDIO_COLUMN}]
        # Readers that decode audio need torchcodec, so the features ask for the bytes.
        features = {"info": {"features": {AUDIO_COLUMN: {"decode": False, "_type": "Audio"}}}}
        self._schema = pa.schema(
            [pa.field(AUDIO_COLUMN, AUDIO_TYPE), *_OURS, *others],
            {b"huggingface": json.dumps(features).encode()},
        )
        self._others = [field.name for field in others]
        self._waiting: dict[str, list[ExportedClip]] = {}
        self._waiting_bytes: dict[str, int] = {}
        self._shards: dict[str, tuple[pq.ParquetWriter, int]] = {}
        self._shard_bytes: dict[str, int] = {}

    def add(self, clip: ExportedClip) -> None:
        """Keep a row until a row group is full, then write the group."""
        waiting = self._waiting.setdefault(clip.split, [])
        waiting.append(clip)
        self._waiting_bytes[clip.split] = size = self._waiting_bytes.get(clip.split, 0) + len(clip.audio)
        # All splits together stay below the size of a group.
        if size > _MAX_GROUP_BYTES // max(1, len(self._waiting)) or len(waiting) >= _MAX_GROUP_ROWS:
            self._write_group(clip.split)

    def _write_group(self, split: str) -> None:
        clips = self._waiting.pop(split, [])
        if not clips:
            return
        audio = [{"bytes": clip.audio, "path": clip.path.rpartition("/")[2]} for clip in clips]
        ours = [pa.array([getattr(clip, field.name) for clip in clips], field.type) for field in _OURS]
        wanted = pa.schema([self.schema.field(name) for name in self._others])
        rows = (
            pa.concat_tables(
                [_take_columns(clip.row, wanted) for clip in clips], promote_options="permissive"
            )
            .combine_chunks()
            .cast(wanted)
        )
        values = [pa.array(audio, AUDIO_TYPE), *ours, *rows.columns]
        self._open_shard(split).write_table(pa.Table.from_arrays(values, schema=self._schema))
        self._shard_bytes[split] = self._shard_bytes.get(split, 0) + self._waiting_bytes.pop(split)

    def _open_shard(self, split: str) -> pq.ParquetWriter:
        """Return the writer of the Parquet file that takes the next rows of a split."""
        writer, number = self._shards.get(split, (None, -1))
        if writer is None or self._shard_bytes[split] > _MAX_SHARD_BYTES:
            if writer is not None:
                writer.close()
            number, self._shard_bytes[split] = number + 1, 0
            path = self.tree.path(f"data/{split}-{number:05d}.parquet")
            writer = self._open_files.enter_context(pq.ParquetWriter(path, self._schema, compression="zstd"))
            self._shards[split] = (writer, number)
        return writer

    def finish(self) -> None:
        """Write the remaining rows, and put the number of files into their names."""
        for split in list(self._waiting):
            self._write_group(split)
        super().finish()
        for split, (_, last) in self._shards.items():
            for number in range(last + 1):
                path = self.tree.folder / f"data/{split}-{number:05d}.parquet"
                path.rename(path.with_name(f"{split}-{number:05d}-of-{last + 1:05d}.parquet"))

    def count(self) -> int:
        """Return the number of rows with audio in all files."""
        found = 0
        for path in self.tree.folder.glob("data/*.parquet"):
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    lengths = file.read_row_group(group, columns=[f"{AUDIO_COLUMN}.path"]).column(0)
                    found += len(lengths) - lengths.null_count
        return found


def _take_columns(row: pa.RecordBatch, wanted: pa.Schema) -> pa.Table:
    """Return a row with all wanted columns. A column that its run lacks is null."""
    known = row.schema.names
    columns = [row.column(f.name) if f.name in known else pa.nulls(1, f.type) for f in wanted]
    return pa.Table.from_arrays(columns, names=wanted.names)
