"""The format ``nemo``: a manifest of JSON lines for each split, as NVIDIA NeMo reads them."""

import json

from speechframe.exports.clips import ExportedClip
from speechframe.exports.formats.base import ExportFormat, to_json_line


class NemoFormat(ExportFormat):
    """``<split>_manifest.json``. The paths of clips begin at the manifest's folder."""

    def add(self, clip: ExportedClip) -> None:
        """Write a line."""
        line = {
            "audio_filepath": clip.path,
            "duration": round(clip.audio_seconds, 6),
            "text": clip.text,
            "lang": clip.locale,
            "speaker": clip.speaker,
        }
        self.lines(f"{clip.split}_manifest.json").write(to_json_line(line))

    def count(self) -> int:
        """Return the number of lines whose clip exists."""
        lines = map(json.loads, self.read_lines("*_manifest.json"))
        return sum((self.tree.folder / line["audio_filepath"]).is_file() for line in lines)
