"""Base classes of export formats. A format gets the clips in order, writes files, and counts its rows."""

import gzip
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from io import TextIOWrapper
from typing import Any, ClassVar, TextIO

import pyarrow as pa

from speechframe.exports.clips import ExportedClip
from speechframe.exports.tree import ExportTree
from speechframe.spec.speech import Format


class ExportFormat(ABC):
    r"""A manifest of an export. A format of one's own is a subclass, found by an entry point.

    Parameters
    ----------
    tree
        The folder of the export.
    schema
        Columns of the rows of all runs, without audio.

    Attributes
    ----------
    needs_clip_files
        True if the manifest refers to clips as files. Otherwise the format stores the clips itself.
    audio_formats
        Formats of audio that readers of the manifest accept.
    notes
        Number of rows that the format changed, by explanation.

    Examples
    --------
    >>> class Paths(ExportFormat):
    ...     def add(self, clip):
    ...         self.lines("paths.txt").write(f"{clip.path}\n")
    ...
    ...     def count(self):
    ...         return sum(1 for _ in self.read_lines("paths.txt"))
    """

    needs_clip_files: ClassVar[bool] = True
    audio_formats: ClassVar[frozenset[Format]] = frozenset({Format.WAV, Format.FLAC})

    def __init__(self, tree: ExportTree, schema: pa.Schema) -> None:
        self.tree, self.schema = tree, schema
        self.notes: dict[str, int] = {}
        self._files: dict[str, TextIO] = {}
        self._open_files = ExitStack()

    @abstractmethod
    def add(self, clip: ExportedClip) -> None:
        """Add one row. Rows come in the order of their runs."""

    def finish(self) -> None:
        """Finish the files, after the last row. A subclass calls this method of its base class."""
        self.close_files()

    def close_files(self) -> None:
        """Close all files, also those of an export that failed."""
        self._open_files.close()

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows in the finished files, by reading them."""

    def lines(self, name: str) -> TextIO:
        """Return a text file of the export. A name that ends in ``.gz`` makes a compressed file.

        The first call creates the file.
        """
        if name not in self._files:
            path = self.tree.path(name)
            # Level 1 and no time of writing: equal exports have equal bytes.
            binary: Any = gzip.GzipFile(path, "wb", 1, mtime=0) if path.suffix == ".gz" else path.open("wb")
            file = TextIOWrapper(binary, encoding="utf-8", newline="\n")
            self._files[name] = self._open_files.enter_context(file)
        return self._files[name]

    def read_lines(self, pattern: str) -> Iterator[str]:
        """Yield the lines of all files of the export that match a pattern such as ``*_manifest.json``."""
        for path in sorted(self.tree.folder.glob(pattern)):
            opener: Any = gzip.open if path.suffix == ".gz" else open
            with opener(path, "rt", encoding="utf-8", newline="\n") as file:
                yield from file

    def note(self, explanation: str) -> None:
        """Count a row to which an explanation applies. The report shows both."""
        self.notes[explanation] = self.notes.get(explanation, 0) + 1


class ClipFilesFormat(ExportFormat):
    """A format with one file for each clip, such as subtitles."""

    folder: ClassVar[str]
    suffix: ClassVar[str]

    def add(self, clip: ExportedClip) -> None:
        """Write the file of a clip."""
        if not clip.words:
            self.note(f"rows have no word times: their {self.suffix[1:]} file has the text as a whole")
        self.tree.write(f"{self.folder}/{clip.stem}{self.suffix}", self.write_text(clip))

    @abstractmethod
    def write_text(self, clip: ExportedClip) -> str:
        """Return the content of a clip's file."""

    def count(self) -> int:
        """Return the number of files."""
        return sum(
            1 for path in (self.tree.folder / self.folder).rglob(f"*{self.suffix}") if path.stat().st_size
        )


def to_json_line(values: Mapping[str, Any], default: Callable[[Any], Any] = str) -> str:
    """Return a line of JSON with its line feed."""
    return json.dumps(values, ensure_ascii=False, default=default) + "\n"
