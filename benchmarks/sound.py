"""Measure the clarity of voices. ``make bench ARGS=sound`` writes the table ``clarity.csv`` again.

Voices speak the lines of ``datasets/clarity_lines.csv``, and the recogniser Whisper base transcribes them. The error
is the word error rate without case and punctuation. For Japanese, it is the character error rate of the readings in
kana. The measurement takes hours, mostly for Kokoro's voices. The column ``note``, which people write, is kept.
"""

import argparse
import csv
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rapidfuzz.distance import Levenshtein

from speechframe.audio import codec
from speechframe.engines import registry
from speechframe.engines.base import Recording, Utterance
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.whisper.recogniser import WhisperRecogniser
from speechframe.recognition import clarity
from speechframe.spec.locales import get_language
from speechframe.spec.speech import Model, VoiceKind

TABLE_COLUMNS = ("voice_id", "locale", "unit", "lines", "error", "note")
"""Columns of the table ``clarity.csv``."""

LINES_PATH = Path("datasets/clarity_lines.csv")
RECOGNISED_HZ = 16_000
"""Sample rate that the recogniser requires."""

LINES_PER_CLIP = 4
"""Number of lines in one clip. The recogniser needs the same time for every clip of up to 30 s."""

PAUSE_FRAMES = RECOGNISED_HZ
"""Length of the silence after each line, which is one second."""


def main(arguments: Sequence[str]) -> int:
    """Measure voices and write their rows of the table. Rows of other voices stay."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks sound", description=__doc__)
    parser.add_argument(
        "--voices", help="ids of voices, with commas (default: all voices with lines in their language)"
    )
    parser.add_argument("--lines", type=int, default=60, help="lines of each language (%(default)s)")
    parser.add_argument("--locales", help="locales, with commas (default: all locales with lines)")
    options = parser.parse_args(arguments)
    wanted = options.voices.split(",") if options.voices else None
    table = {(row["voice_id"], row["locale"]): row for row in _read(clarity.TABLE_PATH)}
    for voice_id, locale in _list_measured_voices(wanted):
        if options.locales and locale not in options.locales.split(","):
            continue
        row = measure(voice_id, locale, _read_lines(locale)[: options.lines])
        row["note"] = table.get((voice_id, locale), row)["note"]
        print(*row.values(), flush=True)
        table[voice_id, locale] = row
        with clarity.TABLE_PATH.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, TABLE_COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table[key] for key in sorted(table))
    return 0


def measure(voice_id: str, locale: str, lines: Sequence[str]) -> dict[str, str]:
    """Return a row of the table, with the error of a voice over some lines in a locale."""
    entry = next(e for model in Model if (e := registry.build_catalogue(model).get(voice_id)) is not None)
    speaker, recogniser = registry.load_speakers()[entry.engine], WhisperRecogniser()
    wrong = total = 0
    for together in (lines[first : first + LINES_PER_CLIP] for first in range(0, len(lines), LINES_PER_CLIP)):
        spoken = (speaker.speak(Utterance(line, voice_id, locale, variation=0)) for line in together)
        clips = [codec.resample(each.samples, each.sample_rate_hz, RECOGNISED_HZ) for each in spoken]
        clip = np.concatenate([np.pad(samples, (0, PAUSE_FRAMES)) for samples in clips])
        recognised = recogniser.recognise(Recording(clip, RECOGNISED_HZ), language=get_language(locale))
        units = _split_units(" ".join(together), locale)
        # The edit distance is the number of wrong, missing and additional units.
        wrong += Levenshtein.distance(units, _split_units(recognised.text, locale))
        total += len(units)
    unit = "characters" if locale == "ja-JP" else "words"
    found = (voice_id, locale, unit, str(len(lines)), f"{wrong / total:.3f}", "")
    return dict(zip(TABLE_COLUMNS, found, strict=True))


def _list_measured_voices(wanted: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield the voices to measure, each with a locale.

    Neural voices are measured in all their locales that have lines, and other voices only in their own locale.
    """
    locales = {row["locale"] for row in _read(LINES_PATH)}
    languages = {get_language(locale) for locale in locales}
    for model in Model:
        for voice_id, entry in registry.build_catalogue(model).items():
            voice = entry.voice
            if wanted is not None and voice_id not in wanted:
                continue
            if voice.kind is VoiceKind.NEURAL:
                others = (locale for locale in voice.supported_locales if locale in locales)
                yield from ((voice_id, locale) for locale in others if locale != voice.locale)
            if get_language(voice.locale) in languages:
                yield voice_id, voice.locale


def _read_lines(locale: str) -> list[str]:
    """Return the lines of a locale's language, first every fifth line. So the first lines have all kinds of texts."""
    lines = [row["text"] for row in _read(LINES_PATH) if get_language(row["locale"]) == get_language(locale)]
    return [line for first in range(5) for line in lines[first::5]]


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _split_units(text: str, locale: str) -> list[str]:
    """Return the units of a text to compare: words in lower case without punctuation, or kana for Japanese."""
    if locale == "ja-JP":
        return list("".join(kana for _, _, kana in japanese.find_readings(text)).replace(" ", ""))
    plain = unicodedata.normalize("NFKC", text).lower().replace("\u2019", "'")
    # Vowel signs of Hindi are marks (M), not letters.
    kept = (letter.isalnum() or letter == "'" or unicodedata.category(letter)[0] == "M" for letter in plain)
    return "".join(letter if keep else " " for letter, keep in zip(plain, kept, strict=True)).split()
