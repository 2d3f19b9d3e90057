"""The format ``lhotse``: recordings and supervisions of each split, with the times of words."""

import json

from speechframe.exports.clips import ExportedClip
from speechframe.exports.formats.base import ExportFormat, to_json_line


class LhotseFormat(ExportFormat):
    """``lhotse/<split>_recordings.jsonl.gz`` and ``lhotse/<split>_supervisions.jsonl.gz``.

    The paths of clips begin at the export's folder.
    """

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
            self.lines(f"lhotse/{clip.split}_{name}.jsonl.gz").write(to_json_line(line))

    def count(self) -> int:
        """Return the number of supervisions with a recording whose clip exists."""
        recordings = map(json.loads, self.read_lines("lhotse/*_recordings.jsonl.gz"))
        sources = {line["id"]: line["sources"][0]["source"] for line in recordings}
        supervisions = map(json.loads, self.read_lines("lhotse/*_supervisions.jsonl.gz"))
        of = (sources.get(line["recording_id"]) for line in supervisions)
        return sum(name is not None and (self.tree.folder / name).is_file() for name in of)
