"""The format ``webdataset``: tar files, each sample as its clip, its text and its facts."""

import io
import tarfile
from typing import ClassVar

import pyarrow as pa

from speechframe.exports.clips import ExportedClip
from speechframe.exports.formats.base import ExportFormat, to_json_line
from speechframe.exports.tree import ExportTree

_MAX_SHARD_BYTES = 500_000_000
"""Size from which a new tar file begins, a usual size for shards."""


class WebDatasetFormat(ExportFormat):
    """``webdataset/<split>-000000.tar`` and further shards.

    A sample's key is its number in the export, because names may contain dots, at which readers split them.
    """

    needs_clip_files: ClassVar[bool] = False

    def __init__(self, tree: ExportTree, schema: pa.Schema) -> None:
        super().__init__(tree, schema)
        self._shards: dict[str, tuple[tarfile.TarFile, int]] = {}
        self._number = 0

    def add(self, clip: ExportedClip) -> None:
        """Write a sample."""
        facts = clip.row.to_pylist()[0] | {
            **{
                name: getattr(clip, name)
                for name in ("run_id", "row_id", "split", "text", "locale", "voice_id")
            },
            **{name: getattr(clip, name) for name in ("speaker", "audio_seconds", "sample_rate", "channels")},
            "words": clip.words,
        }
        shard = self._open_shard(clip.split)
        suffix = clip.path.rpartition(".")[2]
        contents = {suffix: clip.audio, "txt": clip.text.encode(), "json": to_json_line(facts).encode()}
        for ending, content in contents.items():
            member = tarfile.TarInfo(f"{self._number:08d}.{ending}")
            member.size = len(content)
            shard.addfile(member, io.BytesIO(content))
        self._number += 1

    def _open_shard(self, split: str) -> tarfile.TarFile:
        """Return the shard of a split that takes the next sample."""
        shard, number = self._shards.get(split, (None, -1))
        if shard is None or shard.offset > _MAX_SHARD_BYTES:
            if shard is not None:
                shard.close()
            number += 1
            path = self.tree.path(f"webdataset/{split}-{number:06d}.tar")
            shard = self._open_files.enter_context(tarfile.open(path, "w"))  # noqa: SIM115 - the stack closes it
            self._shards[split] = (shard, number)
        shard.members = []  # type: ignore[attr-defined]  # the library keeps every member for reading
        return shard

    def count(self) -> int:
        """Return the number of samples in all shards."""
        found = 0
        for path in self.tree.folder.glob("webdataset/*.tar"):
            with tarfile.open(path) as shard:
                while (member := shard.next()) is not None:
                    found += member.name.endswith(".json")
                    shard.members = []  # type: ignore[attr-defined]
        return found
