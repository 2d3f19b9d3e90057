"""Files that rows name or hold: looked for beside their table, and kept in the run's folder without one."""

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechframe.client.upload import Upload
from speechframe.errors import InvalidRows
from speechframe.store.folder import RUN_FILE, storing
from speechframe.tables.table import problem

_LONGEST_SUFFIX = 16  # of a file's name that is kept; longer names may be too long beside the hash


def files_or_table(table: Any, suffixes: Collection[str], what: str) -> tuple[Any, Path]:
    """Return what is opened as the table, and the folder in which its relative paths begin.

    Parameters
    ----------
    table
        What was handed in: a folder of files, or the path of one, stands for them.
    suffixes, what
        How the files' names end, in lower case, and what they are called.

    Raises
    ------
    InvalidRows
        The folder holds no such files.
    """
    if not isinstance(table, (str, os.PathLike)):
        return table, Path.cwd()
    path = Path(table).expanduser()
    if path.is_dir() and not (path / RUN_FILE).exists():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in suffixes and p.is_file())
        if not found:
            allowed = f"a folder with files that end in {', '.join(sorted(suffixes))}"
            raise InvalidRows([problem("table", f"{path} holds no {what} files", allowed=allowed)])
        return [str(each) for each in found], Path.cwd()
    if path.suffix.lower() in suffixes:
        return [str(path)], Path.cwd()
    return table, path.absolute().parent


def kept(folder: Path | None, found: Upload) -> Upload:
    """Keep the bytes of a clip in the run's folder, once, and return it with its path relative to that."""
    name = f"clips/{found.sha256}{Path(found.name).suffix[:_LONGEST_SUFFIX]}"
    if folder is not None and not (path := folder / name).is_file():
        with storing(folder, "keeping a clip"):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.tmp")
            temporary.write_bytes(found.data)
            temporary.replace(path)
    return replace(found, path=Path(name), data=b"")
