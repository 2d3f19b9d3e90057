"""How clear the voices are: ``make bench ARGS=sound`` makes the table ``clarity.csv`` anew.

The lines of ``datasets/clarity_lines.csv`` are spoken, written down by Whisper base and compared: word error
with case and punctuation left out, for Japanese character error over readings. It takes hours, most of them
for Kokoro's voices. What somebody wrote into the column ``note`` stays.
"""

import argparse
import csv
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from speechframe.audio import codec
from speechframe.engines import registry
from speechframe.engines.base import Recording, Utterance
from speechframe.local.engines import clarity
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.whisper.recogniser import WhisperRecogniser
from speechframe.spec.locales import language_of
from speechframe.spec.speech import Model, VoiceKind

COLUMNS = ("voice_id", "locale", "unit", "lines", "error", "note")
LINES = Path("datasets/clarity_lines.csv")
RECOGNISED_HZ = 16_000
TOGETHER = 4
"""Lines that are heard at once: the recogniser takes as long for any clip of up to 30 s."""
PAUSE_FRAMES = RECOGNISED_HZ


def main(arguments: Sequence[str]) -> int:
    """Measure voices and write what was found into the table; other voices' rows stay."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks sound", description=__doc__)
    parser.add_argument(
        "--voices", help="ids, with commas; all that have lines in their languages by default"
    )
    parser.add_argument("--lines", type=int, default=60, help="of each language (%(default)s)")
    parser.add_argument("--locales", help="with commas; all that there are lines of by default")
    options = parser.parse_args(arguments)
    wanted = options.voices.split(",") if options.voices else None
    table = {(row["voice_id"], row["locale"]): row for row in _read(clarity.TABLE)}
    for voice_id, locale in _measurable(wanted):
        if options.locales and locale not in options.locales.split(","):
            continue
        row = measured(voice_id, locale, _lines(locale)[: options.lines])
        row["note"] = table.get((voice_id, locale), row)["note"]
        print(*row.values(), flush=True)
        table[voice_id, locale] = row
        with clarity.TABLE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table[key] for key in sorted(table))
    return 0


def measured(voice_id: str, locale: str, lines: Sequence[str]) -> dict[str, str]:
    """Return a row of the table: the error of a voice over lines in a locale."""
    entry = next(e for model in Model if (e := registry.catalogue(model).get(voice_id)) is not None)
    speaker, recogniser = registry.speakers()[entry.engine], WhisperRecogniser()
    wrong = said = 0
    for together in (lines[first : first + TOGETHER] for first in range(0, len(lines), TOGETHER)):
        spoken = (speaker.speak(Utterance(line, voice_id, locale, variation=0)) for line in together)
        clips = [codec.resample(each.samples, each.sample_rate_hz, RECOGNISED_HZ) for each in spoken]
        clip = np.concatenate([np.pad(samples, (0, PAUSE_FRAMES)) for samples in clips])
        heard = recogniser.recognise(Recording(clip, RECOGNISED_HZ), language=language_of(locale))
        units = _units(" ".join(together), locale)
        wrong += _differences(units, _units(heard.text, locale))
        said += len(units)
    unit = "characters" if locale == "ja-JP" else "words"
    found = (voice_id, locale, unit, str(len(lines)), f"{wrong / said:.3f}", "")
    return dict(zip(COLUMNS, found, strict=True))


def _measurable(wanted: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield voices with the locales they are measured in: neural ones in all they speak, others in their own."""
    locales = {row["locale"] for row in _read(LINES)}
    languages = {language_of(locale) for locale in locales}
    for model in Model:
        for voice_id, entry in registry.catalogue(model).items():
            voice = entry.voice
            if wanted is not None and voice_id not in wanted:
                continue
            if voice.kind is VoiceKind.NEURAL:
                yield from ((voice_id, locale) for locale in voice.supported_locales if locale in locales)
            elif language_of(voice.locale) in languages:
                yield voice_id, voice.locale


def _lines(locale: str) -> list[str]:
    """Return the lines of a locale's language, so ordered that the first few are of all kinds."""
    lines = [row["text"] for row in _read(LINES) if language_of(row["locale"]) == language_of(locale)]
    return [line for first in range(5) for line in lines[first::5]]


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _units(text: str, locale: str) -> list[str]:
    """Return what is compared: words in small letters without punctuation, or the kana that a text is read as."""
    if locale == "ja-JP":
        return list("".join(kana for _, _, kana in japanese.readings(text)).replace(" ", ""))
    plain = unicodedata.normalize("NFKC", text).lower().replace("\u2019", "'")
    return "".join(letter if letter.isalnum() or letter == "'" else " " for letter in plain).split()


def _differences(said: Sequence[str], heard: Sequence[str]) -> int:
    """Return how many units are wrong, missing or too many (edit distance)."""
    costs = list(range(len(heard) + 1))
    for row, unit in enumerate(said, 1):
        diagonal, costs[0] = costs[0], row
        for column, other in enumerate(heard, 1):
            diagonal, costs[column] = (
                costs[column],
                min(costs[column] + 1, costs[column - 1] + 1, diagonal + (unit != other)),
            )
    return costs[-1]
