"""Find the media files that a table names, and store clips that have no file in the run's folder."""

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechframe.client.upload import Upload
from speechframe.errors import refuse
from speechframe.store.folder import RUN_FILE, Folder, convert_os_errors
from speechframe.tables.parquet_folder import PARQUET_SUFFIXES

# Longest extension of a stored clip, in characters. File names have a limited length, and the name also
# contains a hash.
_MAX_SUFFIX_CHARACTERS = 16


def find_files(
    table: Any, suffixes: Collection[str], files_word: str, *, has_subfolders: bool = False
) -> tuple[Any, Path]:
    """Return the table, or a list of file paths instead, and the folder in which relative paths begin.

    Parameters
    ----------
    table
        The argument of the user. The path of a folder stands for the media files in the folder, unless it has
        only Parquet files, which are a table. The path of a media file stands for this file.
    suffixes, files_word
        The extensions of media files in lower case, and the word for such files in an error.
    has_subfolders
        True reads subfolders, too. Hidden folders and folders of runs are left out.

    Raises
    ------
    InvalidRows
        If the folder contains no file with one of these extensions.
    """
    if not isinstance(table, (str, os.PathLike)):
        return table, Path.cwd()
    path = Path(table).expanduser()
    if path.is_dir() and not (path / RUN_FILE).exists():
        files = _walk(path) if has_subfolders else path.iterdir()
        found = sorted(p for p in files if p.suffix.lower() in suffixes and p.is_file())
        if not found and any(p.suffix.lower() in PARQUET_SUFFIXES for p in path.rglob("*")):
            return table, path.absolute()
        if not found:
            allowed = f"a folder with files that end in {', '.join(sorted(suffixes))}"
            raise refuse("table", f"{path} contains no {files_word} files", allowed=allowed)
        return [str(each) for each in found], Path.cwd()
    if path.suffix.lower() in suffixes:
        return [str(path)], Path.cwd()
    return table, path.absolute().parent


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the paths in a folder and its subfolders, without hidden folders and folders of runs."""
    for path in folder.iterdir():
        yield path
        if path.is_dir() and not path.is_symlink() and path.name[0] != "." and not (path / RUN_FILE).exists():
            yield from _walk(path)


def store_clip(folder: Path | None, found: Upload) -> Upload:
    """Store the bytes of a clip in the run's folder, and return the clip with its path below the folder.

    If `folder` is None, nothing is stored.
    """
    name = f"clips/{found.sha256}{Path(found.name).suffix[:_MAX_SUFFIX_CHARACTERS]}"
    if folder is not None and not (path := folder / name).is_file():
        with convert_os_errors(folder, "keeping a clip"):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.tmp")
            temporary.write_bytes(found.data)
            temporary.replace(path)
    return replace(found, path=Path(name), data=b"")


def resolve_path(folder: Path | None, path: str | Path) -> Path:
    """Return the full path of a file that a stored body names. A relative path begins at the run's folder.

    An absolute path belongs to a file of the user. The file is sent only if its SHA-256 is the one in the
    body.

    Raises
    ------
    StoreError
        If a relative path leads out of the folder.
    """
    return Path(path) if Path(path).is_absolute() else Folder(folder or Path()).find_path(path)
