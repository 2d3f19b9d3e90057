"""Translate and speak the lines of a dub. Spoken lines are kept, so a restarted worker does not repeat them.

A line is a mono WAV file of float32. Silence at its ends is removed.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import soundfile

from speechframe.audio import stretch
from speechframe.audio._samples import Samples, convert_seconds_to_frames
from speechframe.engines import registry, streaming
from speechframe.engines.base import Utterance
from speechframe.engines.kinds import TRANSLATORS
from speechframe.engines.registry import CatalogueEntry
from speechframe.local.dubbing.folder import write_atomically
from speechframe.local.engines.translation.routes import (
    Routes,
    build_region_warnings,
    is_same_language,
    translate_along,
)

_SILENT_BELOW_DB = 45.0
"""Sound at least this many dB below the peak of a line counts as silence."""
_KEPT_SILENCE_S = 0.005
"""Seconds of silence that a line keeps at both ends, because speech that begins at once would click. The 40
ms that engines leave are too long for a dense dialogue."""


def translate_lines(texts: Sequence[str], source: str, target: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the translated texts, in order, and warnings. If the languages are equal, texts stay unchanged.

    Raises
    ------
    UnknownPair
        No translator, and no chain of translators, supports the two languages.
    EngineError
        A translator fails.
    """
    if is_same_language(source, target):
        return list(texts), ()
    translators = registry.load_working(TRANSLATORS)
    route = Routes(translators).route(source, target)
    warnings = build_region_warnings(source, target, route)
    if route.is_pivoted:
        warnings = (*warnings, f"the translation went by way of {route}")
    return translate_along(texts, route.steps, translators), warnings


def is_speakable(text: str) -> bool:
    """Return True if a text contains a letter or a digit.

    Examples
    --------
    >>> is_speakable("12:30"), is_speakable("♪ …")
    (True, False)
    """
    return any(character.isalnum() for character in text)


def build_line_path(text: str, entry: CatalogueEntry, locale: str, folder: Path) -> Path:
    """Return the path of a line, whether the file exists or not.

    The name is a hash of the text, voice, locale and engine version.
    """
    version = registry.find_speaker(entry.engine).version
    content = json.dumps([text, entry.voice.voice_id, locale, entry.engine, version]).encode()
    return folder / f"{hashlib.sha256(content).hexdigest()[:32]}.wav"


def speak_line(text: str, entry: CatalogueEntry, locale: str, folder: Path) -> Path:
    """Speak a line unless the folder already contains it. Return its path.

    Raises
    ------
    EngineError
        The speech engine refuses the text or is at fault.
    """
    path = build_line_path(text, entry, locale, folder)
    if not path.exists():
        utterance = Utterance(text, voice_id=entry.voice.voice_id, locale=locale)
        speech = streaming.speak(registry.find_speaker(entry.engine), utterance)
        _write_line(path, _trim_silence(speech.samples, speech.sample_rate_hz), speech.sample_rate_hz)
    return path


def measure_line_s(line: Path) -> float:
    """Return the length of a line in seconds."""
    return float(soundfile.info(line).duration)


def change_speed(line: Path, speed: float) -> Path:
    """Return the path of a line at another speed with the same pitch, and write the file if it is missing.

    At speed 2 the line is half as long.
    """
    natural = soundfile.info(line)
    frames = max(1, convert_seconds_to_frames(natural.duration / speed, natural.samplerate))
    path = line.with_name(f"{line.stem}-{frames}.wav")
    if frames == natural.frames:
        return line
    if not path.exists():
        samples, rate_hz = soundfile.read(line, dtype="float32")
        _write_line(path, stretch.fit_frames(samples, rate_hz, frames), rate_hz)
    return path


def remove_other_lines(lines: Iterable[Path], folder: Path) -> None:
    """Remove all files of a folder except these lines, each at any speed.

    Otherwise the lines of earlier corrections would fill the disk.
    """
    kept = {line.stem for line in lines}
    for path in folder.glob("*"):
        if path.stem.partition("-")[0] not in kept:
            path.unlink(missing_ok=True)


def _trim_silence(samples: Samples, sample_rate_hz: int) -> Samples:
    loud = np.abs(samples)
    loud_indices = np.flatnonzero(loud > loud.max(initial=0.0) * 10 ** (-_SILENT_BELOW_DB / 20))
    if not len(loud_indices):
        return samples[:1]
    kept = round(_KEPT_SILENCE_S * sample_rate_hz)
    return samples[max(0, int(loud_indices[0]) - kept) : int(loud_indices[-1]) + 1 + kept]


def _write_line(path: Path, samples: Samples, sample_rate_hz: int) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with write_atomically(path) as beside:
        soundfile.write(beside, samples, sample_rate_hz, subtype="FLOAT", format="WAV")
