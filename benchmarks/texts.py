"""Make texts for speech. All texts differ, and the length of a text fits the size of its audio."""

from collections.abc import Iterator

_FILLER_WORDS = "and the quick brown fox jumps over the lazy dog near the bank of a river "

TEXT_CHARACTERS = {("WAV", 60_000): 62, ("FLAC", 60_000): 102, ("FLAC", 2_000): 8}
"""Length of a text in characters, by the format of its audio and its size in bytes at `SAMPLE_RATE`."""

SAMPLE_RATE = 8000
"""Sample rate of the audio in Hz."""

VOICE = "en-US-nora"


def make_line(number: int, characters: int) -> str:
    """Return a text of a number of characters. Each `number` gives another text."""
    start = f"{number:x} "
    missing = max(0, characters - len(start))
    return (start + _FILLER_WORDS * (1 + missing // len(_FILLER_WORDS)))[
        : max(characters, len(start))
    ].strip()


def make_lines(rows: int, characters: int, first: int = 0) -> Iterator[str]:
    """Yield the texts of `rows` rows from row `first` on."""
    return (make_line(number, characters) for number in range(first, first + rows))
