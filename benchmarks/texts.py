"""Texts to be spoken: every one different, and as long as its audio would take."""

from collections.abc import Iterator

_FILLING = "and the quick brown fox jumps over the lazy dog near the bank of a river "

CHARACTERS = {("WAV", 60_000): 62, ("FLAC", 60_000): 102, ("FLAC", 2_000): 8}
"""Characters that take about as long to speak as so many bytes of a format last at `SAMPLE_RATE`."""

SAMPLE_RATE = 8000
VOICE = "en-US-nora"


def line(number: int, characters: int) -> str:
    """Return the text of a row; no two numbers give the same."""
    start = f"{number:x} "
    missing = max(0, characters - len(start))
    return (start + _FILLING * (1 + missing // len(_FILLING)))[: max(characters, len(start))].strip()


def lines(rows: int, characters: int, first: int = 0) -> Iterator[str]:
    """Yield the texts of rows `first` and after."""
    return (line(number, characters) for number in range(first, first + rows))
