"""Clips that were handed to a run without a file of their own: kept in its folder, each under its hash."""

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from speechframe.old_store import files
from speechframe.old_store.locate import is_remote
from speechframe.old_store.manifest import TableEntry
from speechframe.old_store.remote import Remote
from speechframe.old_store.table import ARGUMENT, open_table, reading
from speechframe.old_store.table import FOLDER_NAME as INPUT

FOLDER_NAME = f"{INPUT}/audio"

REFERENCE: pa.StructType = pa.struct(
    [
        ("path", pa.string()),
        ("is_kept", pa.bool_()),
        ("sha256", pa.string()),
        ("size_bytes", pa.int64()),
        ("audio_seconds", pa.float64()),
        ("media_type", pa.string()),
        ("problem", pa.string()),
    ]
)
"""What a run's table holds of a clip; `path` is below the run folder where it is kept there."""

_NAME = re.compile(r"[0-9a-f]{64}")
_PIECE_BYTES = 4 * 2**20
"""Of a clip at once: it may have hundreds of megabytes."""
_READ_ROWS = 1024


def keep(folder: Path, sha256: str, data: bytes) -> str:
    """Keep a clip in a run folder, and return its name below that; the same clip is kept once.

    One that is there already is looked at: what a disk or a person has damaged since gets its place. On
    another machine only its size is: to read it costs as much as to put it there once more.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    name = f"{FOLDER_NAME}/{sha256}"
    path = folder / name
    with files.storing(folder, "keeping a clip"):
        if not _holds(path, data):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, data)
    return name


def _holds(path: Path, data: bytes) -> bool:
    if not path.is_file() or path.stat().st_size != len(data):
        return False
    if is_remote(path):
        return True
    # Less work than the hash that was made of these bytes before.
    rest = memoryview(data)
    with suppress(OSError), path.open("rb") as file:  # one that cannot be read is put there anew
        while piece := file.read(_PIECE_BYTES):
            if piece != rest[: len(piece)]:
                return False
            rest = rest[len(piece) :]
    return not rest


def is_whole(path: Path) -> bool:
    """Return whether a kept clip is what was handed in, as its name says; memory does not grow with it.

    Raises
    ------
    OSError
        When it cannot be read.
    """
    digest = hashlib.sha256()
    with closing(files.readable(path) if is_remote(path) else path.open("rb")) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest() == path.name


def kept_in(folder: Path) -> Iterator[Path]:
    """Yield the clips that a run folder keeps, in no order."""
    return (path for path in (folder / FOLDER_NAME).glob("[!.]*") if _NAME.fullmatch(path.name))


def needed_by(folder: Path, entry: TableEntry) -> Iterator[str]:
    """Yield the names below the run folder of the clips that rows of a table have there.

    Raises
    ------
    StoreError
        When the table cannot be read.
    """
    with open_table(folder, entry) as file, reading(folder / entry.file):
        names = [f.name for f in file.schema_arrow if f.name.startswith(ARGUMENT) and _is_reference(f.type)]
        for batch in file.iter_batches(_READ_ROWS, columns=names) if names else ():
            for column in batch.columns:
                yield from (clip["path"] for clip in column.to_pylist() if clip and clip["is_kept"])


def _is_reference(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and {"path", "is_kept"} <= {f.name for f in kind}


def take(folder: Path, draft: Path) -> None:
    """Move the clips of a local run into another one on the same disk, in place of any that it has.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    place = folder / FOLDER_NAME
    with files.storing(folder, "keeping clips"):
        for path in kept_in(draft):
            place.mkdir(parents=True, exist_ok=True)
            path.replace(place / path.name)
        if place.is_dir():
            files.sync_folder(place)
            files.sync_folder(place.parent)


@dataclass(frozen=True)
class KeptClip:
    """A clip in a run folder, wherever that is.

    Parameters
    ----------
    folder
        The run folder.
    name
        What :func:`keep` returned.
    """

    folder: Path
    name: str

    def __str__(self) -> str:
        return str(self.folder / self.name)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Return the clip to be read; one on another machine is fetched.

        Raises
        ------
        OSError
            When it is not there.
        """
        path = self.folder / self.name
        if isinstance(path, Remote):
            return io.BytesIO(path.read_bytes())
        return path.open(mode)
