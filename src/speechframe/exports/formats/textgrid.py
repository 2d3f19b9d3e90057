"""The format ``textgrid``: files of Praat with a tier of words and a tier of the text."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from speechframe.exports.clips import ExportedClip
from speechframe.exports.formats.base import ClipFilesFormat

Interval = tuple[str, float, float]


class TextGridFormat(ClipFilesFormat):
    """Long TextGrid files, ``textgrid/<path>.TextGrid``."""

    folder: ClassVar[str] = "textgrid"
    suffix: ClassVar[str] = ".TextGrid"

    def write_text(self, clip: ExportedClip) -> str:
        """Return both tiers of a clip. Gaps between words are intervals without text."""
        tiers = {"text": [(clip.text, 0.0, clip.audio_seconds)]}
        if clip.words:
            tiers["words"] = list(_fill_gaps(clip))
        head = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\n'
        items = "".join(
            _write_tier(number, *tier, clip.audio_seconds) for number, tier in enumerate(tiers.items(), 1)
        )
        times = f"xmin = 0\nxmax = {clip.audio_seconds:.6f}\n"
        return f"{head}{times}tiers? <exists>\nsize = {len(tiers)}\nitem []:\n{items}"


def _fill_gaps(clip: ExportedClip) -> Iterator[Interval]:
    """Yield intervals without gaps and overlaps, as Praat requires."""
    now = 0.0
    for word, start_ms, end_ms in clip.words or ():
        start, end = max(now, start_ms / 1000), min(end_ms / 1000, clip.audio_seconds)
        if end <= start:
            continue  # Praat refuses intervals without a length
        if start > now:
            yield "", now, start
        yield word, start, end
        now = end
    if now < clip.audio_seconds:
        yield "", now, clip.audio_seconds


def _write_tier(number: int, name: str, intervals: Sequence[Interval], end: float) -> str:
    lines = [
        f'    item [{number}]:\n        class = "IntervalTier"\n        name = "{name}"\n',
        f"        xmin = 0\n        xmax = {end:.6f}\n        intervals: size = {len(intervals)}\n",
    ]
    for index, (text, start, stop) in enumerate(intervals, 1):
        quoted = text.replace('"', '""')
        lines.append(
            f"        intervals [{index}]:\n            xmin = {start:.6f}\n            xmax = {stop:.6f}\n"
            f'            text = "{quoted}"\n'
        )
    return "".join(lines)
