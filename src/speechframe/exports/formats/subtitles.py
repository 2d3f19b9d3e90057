"""The formats ``srt`` and ``vtt``: subtitles of each clip, from the times of its words."""

from collections.abc import Iterator
from typing import ClassVar

from speechframe.exports.clips import ExportedClip, Word
from speechframe.exports.formats.base import ClipFilesFormat
from speechframe.wire.cues import Cue, format_srt, format_vtt

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
        return format_srt(make_cues(clip)).removesuffix("\n")


class VttFormat(ClipFilesFormat):
    """WebVTT subtitles, ``vtt/<path>.vtt``."""

    folder: ClassVar[str] = "vtt"
    suffix: ClassVar[str] = ".vtt"

    def write_text(self, clip: ExportedClip) -> str:
        """Return the subtitles of a clip below the header of the format."""
        return format_vtt(make_cues(clip)).removesuffix("\n")


def make_cues(clip: ExportedClip) -> Iterator[Cue]:
    """Yield the subtitles of a clip."""
    if not clip.words:
        if clip.text:
            yield Cue(0, round(clip.audio_seconds * 1000), clip.text)
        return
    line: list[Word] = []
    for word in clip.words:
        length = sum(len(text) + 1 for text, _, _ in line) + len(word[0])
        if line and (length > _MAX_CHARACTERS or word[1] - line[-1][2] > _MAX_PAUSE_MS):
            yield _join(line)
            line = []
        line.append(word)
    yield _join(line)


def _join(words: list[Word]) -> Cue:
    start_ms = words[0][1]
    return Cue(start_ms, max(words[-1][2], start_ms + 1), " ".join(text for text, _, _ in words))
