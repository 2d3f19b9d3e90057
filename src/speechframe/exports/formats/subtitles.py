"""The formats ``srt`` and ``vtt``: subtitles of each clip, from the times of its words."""

from collections.abc import Iterator
from typing import ClassVar

from speechframe.exports.clips import ExportedClip, Word
from speechframe.exports.formats.base import ClipFilesFormat

_MAX_CHARACTERS = 42
"""Longest line of a subtitle, as broadcasters recommend."""
_MAX_PAUSE_MS = 1000
"""A longer pause between two words begins a new subtitle."""


class SrtFormat(ClipFilesFormat):
    """SubRip subtitles, ``srt/<path>.srt``."""

    folder: ClassVar[str] = "srt"
    suffix: ClassVar[str] = ".srt"

    def write_text(self, clip: ExportedClip) -> str:
        """Return the numbered subtitles of a clip."""
        return "\n".join(
            f"{number}\n{_write_time(start, ',')} --> {_write_time(end, ',')}\n{text}\n"
            for number, (text, start, end) in enumerate(make_cues(clip), 1)
        )


class VttFormat(ClipFilesFormat):
    """WebVTT subtitles, ``vtt/<path>.vtt``."""

    folder: ClassVar[str] = "vtt"
    suffix: ClassVar[str] = ".vtt"

    def write_text(self, clip: ExportedClip) -> str:
        """Return the subtitles of a clip below the header of the format."""
        cues = (
            f"\n{_write_time(start, '.')} --> {_write_time(end, '.')}\n{_escape(text)}\n"
            for text, start, end in make_cues(clip)
        )
        return "WEBVTT\n" + "".join(cues)


def make_cues(clip: ExportedClip) -> Iterator[Word]:
    """Yield the subtitles of a clip: text, start and end in milliseconds."""
    if not clip.words:
        if clip.text:
            yield clip.text, 0, round(clip.audio_seconds * 1000)
        return
    line: list[Word] = []
    for word in clip.words:
        length = sum(len(text) + 1 for text, _, _ in line) + len(word[0])
        if line and (length > _MAX_CHARACTERS or word[1] - line[-1][2] > _MAX_PAUSE_MS):
            yield _join(line)
            line = []
        line.append(word)
    yield _join(line)


def _join(words: list[Word]) -> Word:
    return " ".join(text for text, _, _ in words), words[0][1], max(words[-1][2], words[0][1] + 1)


def _write_time(ms: int, point: str) -> str:
    """Return a time as hours, minutes, seconds and milliseconds."""
    seconds, ms = divmod(ms, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{ms:03d}"


def _escape(text: str) -> str:
    """Return a text without the markup of WebVTT."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
