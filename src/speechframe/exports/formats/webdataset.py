"""The format ``webdataset``: tar files, each sample as its clip, its text and its facts."""

import tarfile
from typing import BinaryIO, ClassVar

import pyarrow as pa

from speechframe.exports.clips import ExportedClip
from speechframe.exports.formats.base import ExportFormat, to_json_line
from speechframe.exports.tree import ExportTree

_MAX_SHARD_BYTES = 500_000_000
"""Size from which a new tar file begins, a usual size for shards."""
_END = bytes(2 * tarfile.BLOCKSIZE)
"""The end of a tar file."""


class WebDatasetFormat(ExportFormat):
    """``webdataset/<split>-000000.tar`` and further shards.

    A sample's key is its number in the export, because names may contain dots, at which readers split them.
    """

    needs_clip_files: ClassVar[bool] = False

    def __init__(self, tree: ExportTree, schema: pa.Schema) -> None:
        super().__init__(tree, schema)
        self._shards: dict[str, tuple[BinaryIO, int]] = {}
        self._shard_bytes: dict[str, int] = {}
        self._number = 0

    def add(self, clip: ExportedClip) -> None:
        """Write a sample."""
        facts = clip.row | {
            **{
                name: getattr(clip, name)
                for name in ("run_id", "row_id", "split", "text", "locale", "voice_id")
            },
            **{name: getattr(clip, name) for name in ("speaker", "audio_seconds", "sample_rate", "channels")},
            "words": clip.words,
        }
        suffix = clip.path.rpartition(".")[2]
        contents = {suffix: clip.audio, "txt": clip.text.encode(), "json": to_json_line(facts).encode()}
        sample = bytearray()
        for ending, content in contents.items():
            member = tarfile.TarInfo(f"{self._number:08d}.{ending}")
            member.size = len(content)
            sample += member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)
        # One write of a sample is much faster than `TarFile.addfile` of its members.
        self._open_shard(clip.split).write(sample)
        self._shard_bytes[clip.split] += len(sample)
        self._number += 1

    def _open_shard(self, split: str) -> BinaryIO:
        """Return the shard of a split that takes the next sample."""
        shard, number = self._shards.get(split, (None, -1))
        if shard is None or self._shard_bytes[split] > _MAX_SHARD_BYTES:
            if shard is not None:
                shard.write(_END)
                shard.close()
            number, self._shard_bytes[split] = number + 1, 0
            path = self.tree.path(f"webdataset/{split}-{number:06d}.tar")
            shard = self._open_files.enter_context(path.open("wb"))
            self._shards[split] = (shard, number)
        return shard

    def finish(self) -> None:
        """End the last shard of each split."""
        for shard, _ in self._shards.values():
            shard.write(_END)
        super().finish()

    def count(self) -> int:
        """Return the number of samples in all shards."""
        found = 0
        for path in self.tree.folder.glob("webdataset/*.tar"):
            with tarfile.open(path) as shard:
                while (member := shard.next()) is not None:
                    found += member.name.endswith(".json")
                    shard.members = []  # type: ignore[attr-defined]  # the library keeps every member
        return found
