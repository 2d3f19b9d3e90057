"""What tests of dubbing share: samples with their truth, jobs in a folder, and what is to be heard in a dub."""

import io
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import numpy as np
import soundfile

from speechframe.audio import codec
from speechframe.engines import registry
from speechframe.engines.base import Recording
from speechframe.local.dubbing.folder import OUTCOME, SOURCE, TASK, LocaleOutcome, Task
from speechframe.local.dubbing.media import RATE_HZ, extract_audio

SCRIPT = Path(__file__).parents[2] / "scripts/make-dub-sample"
DATASETS = SCRIPT.parents[1] / "datasets"


def tone(seconds=6.0, amplitude=0.05):
    """A WAV file of a soft hum."""
    samples = amplitude * np.sin(np.arange(int(seconds * 16_000)) / 20)
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV")
    return file.getvalue()


def worker(folder):
    """The command that does a job, as a child of this process."""
    return [sys.executable, "-m", "speechframe.local.dubbing.job", str(folder), str(os.getpid())]


def sample_script():
    """The script that makes samples, as a module."""
    loader = SourceFileLoader("make_dub_sample", str(SCRIPT))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def job(folder, medium, **asked):
    """Put a job into a folder, as the service does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SOURCE).write_bytes(medium)
    Task(**asked).write(folder / TASK)
    return folder


def dubbed(folder, *locales):
    """Have the worker do a job; its outcomes."""
    subprocess.run(worker(folder), check=True, timeout=1200, stdout=subprocess.DEVNULL)
    return [LocaleOutcome.read(folder / locale / OUTCOME) for locale in locales]


def sound_of(medium, folder):
    """The audio of a medium: mono float32 at 48000 Hz."""
    folder.mkdir()
    return soundfile.read(extract_audio(medium, folder).sound_path, always_2d=True)[0].mean(axis=1)


def words(text):
    """The words of a text as they are compared: small, without signs."""
    return re.findall(r"\w+", text.lower())


def words_heard(samples, locale):
    """What a recogniser writes down of samples at 48000 Hz."""
    recording = Recording(codec.resample(samples.astype(np.float32), RATE_HZ, 16_000), 16_000)
    return words(registry.load_recognisers()["whisper"].recognise(recording, language=locale).text)


def wrong_words(wanted, found):
    """How many words are to be put in, taken out or replaced (Levenshtein)."""
    row = np.arange(len(found) + 1)
    for place, word in enumerate(wanted, 1):
        below = [place]
        for column, other in enumerate(found, 1):
            below.append(min(row[column] + 1, below[-1] + 1, row[column - 1] + (word != other)))
        row = np.array(below)
    return int(row[-1])


def correlation(one, other, lag):
    """The highest correlation of two signals, of which the second may be up to `lag` frames late."""
    best = 0.0
    for shift in range(-lag, lag + 1, 24):
        there = other[lag + shift : lag + shift + len(one)]
        if len(there) == len(one):
            best = max(
                best, float(np.dot(one, there) / np.sqrt(np.dot(one, one) * np.dot(there, there) + 1e-12))
            )
    return best
