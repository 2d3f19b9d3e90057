"""The folder of an export. It appears whole, and unchanged clips of an earlier export are kept."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from speechframe.errors import ExportError

EXPORT_FILE = "export.json"
"""Facts of the export. A folder with this file is the result of an earlier export."""


class ExportTree:
    """A folder that is being written, and the earlier export in its place, which may not exist."""

    def __init__(self, folder: Path, earlier: Path) -> None:
        self.folder, self._earlier = folder, earlier
        self._clips: dict[str, str] = _read_facts(earlier).get("clips", {})
        self.clips: dict[str, str] = {}
        self._made_folders: set[Path] = set()

    @property
    def kept_clips(self) -> int:
        """Number of clips that the earlier export had, too."""
        return len(self.clips.items() & self._clips.items())

    def path(self, name: str) -> Path:
        """Return the path of a new file. Its folder exists."""
        path = self.folder / name
        if path.parent not in self._made_folders:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._made_folders.add(path.parent)
        return path

    def write(self, name: str, content: str | bytes) -> None:
        """Write a whole file. Text is UTF-8."""
        self.path(name).write_bytes(content.encode() if isinstance(content, str) else content)

    def write_clip(self, name: str, content: bytes, sha256: str) -> None:
        """Write a clip, or link to the same clip of the earlier export. Several threads may write at once."""
        if self._clips.get(name) == sha256:
            with contextlib.suppress(OSError):
                os.link(self._earlier / name, self.path(name))
                return
        self.write(name, content)


@contextlib.contextmanager
def write_tree(out: Path) -> Iterator[ExportTree]:
    """Write an export beside its place, and move it there at the end.

    If the block raises, or if the process is killed, an earlier export stays in its place.
    """
    if out.exists() and not (out / EXPORT_FILE).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise ExportError(f"{out} exists, and is not an earlier export: give a new folder, or an empty one")
    partial, old = (out.with_name(f".{out.name}.{state}") for state in ("partial", "old"))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(out.with_name(f".{out.name}.lock"), timeout=0):
            if old.exists() and not out.exists():
                old.rename(out)  # the process was killed between the two renames below
            for remains in (partial, old):
                shutil.rmtree(remains, ignore_errors=True)
            partial.mkdir()
            try:
                yield ExportTree(partial, out)
                if out.exists():
                    out.rename(old)
                partial.rename(out)
            finally:
                for remains in (partial, old):
                    shutil.rmtree(remains, ignore_errors=True)
    except Timeout:
        raise ExportError(f"another process writes {out} now: wait for its end") from None
    except OSError as error:
        raise ExportError(f"{out} cannot be written: {error.strerror or error}") from error


def _read_facts(folder: Path) -> dict[str, Any]:
    """Return the facts of an earlier export. They are empty if there is none."""
    try:
        facts = json.loads((folder / EXPORT_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
