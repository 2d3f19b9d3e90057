"""Writing of new files under free names, and parsing of JSON that other programs may have written.

Only :func:`replace_file` replaces an existing file.
"""

import filecmp
import itertools
import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

# Characters that some system does not allow in a name, or that change the shown text.
_UNSAFE_CHARACTERS = re.compile(
    r"[\x00-\x1f\x7f-\x9f/\\:*?\"<>|\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_MAX_STEM_BYTES = 180
"""Largest length of a stem in bytes. File systems allow 255 bytes for a name with its number and ending."""
# Names of devices on Windows, which cannot be names of files.
_RESERVED_NAMES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


def make_safe_stem(text: str) -> str:
    """Convert a text to the beginning of a file name that is valid on any system and not too long.

    Examples
    --------
    >>> make_safe_stem("../a:b"), make_safe_stem("nul"), len(make_safe_stem("x" * 300))
    ('_a_b', 'nul_', 180)
    """
    name = _UNSAFE_CHARACTERS.sub("_", text).encode()[:_MAX_STEM_BYTES].decode(errors="ignore").strip(". ")
    return f"{name}_" if not name or _RESERVED_NAMES.fullmatch(name) else name


def write_new(folder: Path, stem: str, contents: Mapping[str, bytes | Path]) -> list[Path]:
    """Write files with a common stem, and return their paths. Existing files are never changed.

    Parameters
    ----------
    folder
        Existing folder of the files.
    stem
        Beginning of the file names. If a file with other content exists under one of the names, all names
        begin with ``stem-2``, and so on. An existing file with the same content counts as written.
    contents
        Content by ending, such as ``.pt-BR.srt``. A content is bytes, or the path of a file to copy.
    """
    for paths in _iter_free_names(folder, stem, [*contents]):
        found = dict(zip(paths, contents.values(), strict=True))
        there = [path for path in paths if path.exists() or path.is_symlink()]
        if all(_has_content(path, found[path]) for path in there):
            written: list[Path] = []
            try:
                for path, content in found.items():
                    if not path.exists():
                        _write_file(path, content)
                        written.append(path)
            except FileExistsError:  # another process has just created the file
                for path in written:
                    path.unlink()
                continue
            return paths
    raise AssertionError("there is always a further number")


def open_new(folder: Path, stem: str, ending: str) -> BinaryIO:
    """Open a new file for writing bytes, under a free name such as ``stem-2``. Its ``name`` is its path."""
    for (path,) in _iter_free_names(folder, stem, [ending]):
        try:
            return path.open("xb")
        except FileExistsError:
            continue
    raise AssertionError("there is always a further number")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole. If this fails, an existing file at the path stays as it was."""
    (made,) = write_new(path.parent, f".{path.name}.{secrets.token_hex(4)}", {".tmp": content})
    try:
        if path.exists():
            shutil.copymode(path, made)
        made.replace(path)
    except OSError:
        made.unlink(missing_ok=True)
        raise


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raise ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _iter_free_names(folder: Path, stem: str, endings: list[str]) -> Iterator[list[Path]]:
    for number in itertools.count(1):
        name = stem if number == 1 else f"{stem}-{number}"
        yield [folder / f"{name}{ending}" for ending in endings]


def _has_content(path: Path, content: bytes | Path) -> bool:
    """Return whether a path is a file with this content."""
    if not path.is_file():
        return False
    if isinstance(content, Path):
        return filecmp.cmp(path, content, shallow=False)
    return path.stat().st_size == len(content) and path.read_bytes() == content


def _write_file(path: Path, content: bytes | Path) -> None:
    with path.open("xb") as file:
        try:
            if isinstance(content, bytes):
                file.write(content)
            else:
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)  # do not leave an incomplete file
            raise
