"""Files whose names this package chooses, and files of JSON that others may have written.

None of the former replaces a file that is there. Only a file that a user names exactly, as the output of this
very call, is replaced.
"""

import filecmp
import itertools
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f/\\:*?\"<>|\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# Filesystems allow 255 bytes. The rest is for an ending, a number and the name of a temporary file.
_MOST_BYTES = 180
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


def safe_stem(text: str) -> str:
    """Return a text as the beginning of a file's name on any system. It is never a path and never too long.

    Examples
    --------
    >>> safe_stem("../a:b"), safe_stem("nul"), len(safe_stem("x" * 300))
    ('_a_b', 'nul_', 180)
    """
    name = _UNSAFE.sub("_", text).encode()[:_MOST_BYTES].decode(errors="ignore").strip(". ")
    return f"{name}_" if not name or _RESERVED.fullmatch(name) else name


def write_new(folder: Path, stem: str, contents: Mapping[str, bytes | Path]) -> list[Path]:
    """Write files that have one stem and return their paths. Existing files stay as they are.

    Parameters
    ----------
    folder, stem
        Names of the files begin with `stem`. If one of them is there, all begin with ``stem-2``, and so on.
        A file that is there with the same content counts as written.
    contents
        By ending (``.pt-BR.srt``), bytes or the path of a file to copy.
    """
    for paths in _places(folder, stem, [*contents]):
        found = dict(zip(paths, contents.values(), strict=True))
        there = [path for path in paths if path.exists() or path.is_symlink()]
        if all(_holds(path, found[path]) for path in there):
            written: list[Path] = []
            try:
                for path, content in found.items():
                    if not path.exists():
                        _write(path, content)
                        written.append(path)
            except FileExistsError:  # another process took the name just now
                for path in written:
                    path.unlink()
                continue
            return paths
    raise AssertionError("there is always a further number")


def open_new(folder: Path, stem: str, ending: str) -> BinaryIO:
    """Open a new file for writing, under a free name. Its ``name`` is its path."""
    for (path,) in _places(folder, stem, [ending]):
        try:
            return path.open("xb")
        except FileExistsError:
            continue
    raise AssertionError("there is always a further number")


def parse_json(text: str | bytes) -> Any:
    """Return the value in JSON. Raise ValueError, also if the JSON is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _places(folder: Path, stem: str, endings: list[str]) -> Iterator[list[Path]]:
    for number in itertools.count(1):
        name = stem if number == 1 else f"{stem}-{number}"
        yield [folder / f"{name}{ending}" for ending in endings]


def _holds(path: Path, content: bytes | Path) -> bool:
    """Return whether a file has this content."""
    if not path.is_file():
        return False
    if isinstance(content, Path):
        return filecmp.cmp(path, content, shallow=False)
    return path.stat().st_size == len(content) and path.read_bytes() == content


def _write(path: Path, content: bytes | Path) -> None:
    with path.open("xb") as file:
        try:
            if isinstance(content, bytes):
                file.write(content)
            else:
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)  # half a file is worse than none
            raise
