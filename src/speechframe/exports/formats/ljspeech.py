"""The format ``ljspeech``: ``metadata.csv`` as in the LJ Speech dataset, beside ``wavs/``."""

from typing import ClassVar

from speechframe.exports.clips import ExportedClip
from speechframe.exports.formats.base import ExportFormat
from speechframe.spec.speech import Format


class LJSpeechFormat(ExportFormat):
    """Lines of name, text and text again, separated by ``|``. Each split has ``metadata_<split>.csv``, too.

    The format has no quotation, so a ``|`` in a text becomes a space.
    """

    audio_formats: ClassVar[frozenset[Format]] = frozenset({Format.WAV})

    def add(self, clip: ExportedClip) -> None:
        """Write a line."""
        text = " ".join(clip.text.replace("|", " ").split())
        if text != clip.text:
            self.note("rows have a | in their text: it is a space in metadata.csv")
        line = f"{clip.stem}|{text}|{text}\n"
        self.lines("metadata.csv").write(line)
        self.lines(f"metadata_{clip.split}.csv").write(line)

    def count(self) -> int:
        """Return the number of lines of ``metadata.csv`` with three columns and an existing clip."""
        columns = (line.rstrip("\n").split("|") for line in self.read_lines("metadata.csv"))
        return sum(len(row) == 3 and (self.tree.folder / f"wavs/{row[0]}.wav").is_file() for row in columns)  # noqa: PLR2004
