"""The format ``lhotse``: recordings and supervisions of each split, with the times of words."""

import gzip
import json

import pyarrow as pa

from speechframe.exports.clips import ExportedClip
from speechframe.exports.formats.base import ExportFormat, to_json_line
from speechframe.exports.tree import ExportTree


class LhotseFormat(ExportFormat):
    """``lhotse/<split>_recordings.jsonl.gz`` and ``lhotse/<split>_supervisions.jsonl.gz``.

    The paths of clips begin at the export's folder.
    """

    def __init__(self, tree: ExportTree, schema: pa.Schema) -> None:
        super().__init__(tree, schema)
        self._packed: dict[str, gzip.GzipFile] = {}

    def add(self, clip: ExportedClip) -> None:
        """Write a line to both files."""
        channels = list(range(clip.channels))
        recording = {
            "id": clip.stem,
            "sources": [{"type": "file", "channels": channels, "source": clip.path}],
            "sampling_rate": clip.sample_rate,
            "num_samples": round(clip.audio_seconds * clip.sample_rate),
            "duration": clip.audio_seconds,
            "channel_ids": channels,
        }
        supervision = {
            "id": clip.stem,
            "recording_id": clip.stem,
            "start": 0.0,
            "duration": clip.audio_seconds,
            "channel": 0 if clip.channels == 1 else channels,
            "text": clip.text,
            "language": clip.locale,
            "speaker": clip.speaker,
        }
        if clip.words:
            items = [[word, start / 1000, (end - start) / 1000, None] for word, start, end in clip.words]
            supervision["alignment"] = {"word": items}
        else:
            self.note("rows have no word times: their supervision has no alignment")
        for name, line in (("recordings", recording), ("supervisions", supervision)):
            self._open(f"lhotse/{clip.split}_{name}.jsonl.gz").write(to_json_line(line).encode())

    def _open(self, name: str) -> gzip.GzipFile:
        """Return a compressed file of the export. The first call creates the file."""
        if name not in self._packed:
            path = self.tree.path(name)
            # Level 1 and no time of writing: equal exports have equal bytes.
            self._packed[name] = self._open_files.enter_context(gzip.GzipFile(path, "wb", 1, mtime=0))
        return self._packed[name]

    def count(self) -> int:
        """Return the number of supervisions with a recording whose clip exists."""
        found = 0
        for path in sorted(self.tree.folder.glob("lhotse/*_recordings.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                sources = {line["id"]: line["sources"][0]["source"] for line in map(json.loads, file)}
            with gzip.open(
                path.with_name(path.name.replace("recordings", "supervisions")), "rt", encoding="utf-8"
            ) as file:
                of = [sources.get(json.loads(line)["recording_id"]) for line in file]
            found += sum(name is not None and (self.tree.folder / name).is_file() for name in of)
        return found
