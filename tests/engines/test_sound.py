"""What is heard of the voices, over the lines of `datasets/clarity_lines.csv`: how loud they are."""

import csv
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from speechframe.engines.base import Utterance
from speechframe.engines.espeak import EspeakSpeaker
from speechframe.engines.piper import PiperSpeaker
from speechframe.listening.signals import loudness_lufs

LINES_FILE = Path(__file__).parents[2] / "datasets" / "clarity_lines.csv"
LINES: dict[str, list[str]] = {}
with LINES_FILE.open(encoding="utf-8", newline="") as lines_file:
    for row in csv.DictReader(lines_file):
        LINES.setdefault(row["locale"], []).append(row["text"])

ESPEAK = [voice.voice_id for voice in EspeakSpeaker().voices() if voice.locale in LINES]
# One voice at each commit, every voice in the long run.
by_voice = pytest.mark.parametrize(
    "voice_id",
    ["en-US-nora", *(pytest.param(id, marks=pytest.mark.slow) for id in ["en-US-joe", *ESPEAK[1:]])],
)


@lru_cache(maxsize=1)
def speaker(engine):
    return engine()


def spoken(voice_id, text):
    engine = PiperSpeaker if voice_id == "en-US-joe" else EspeakSpeaker
    return speaker(engine).speak(Utterance(text, voice_id, locale_of(voice_id)))


def locale_of(voice_id):
    return voice_id.rpartition("-")[0]


@by_voice
def test_the_middle_of_a_voice_is_at_24_lufs(voice_id):
    speeches = [spoken(voice_id, line) for line in LINES[locale_of(voice_id)]]
    found = [
        loudness_lufs(speech.samples, speech.sample_rate_hz)
        for speech in speeches
        if speech.audio_seconds >= 1
    ]
    assert len(found) > 50
    assert np.median(found) == pytest.approx(-24, abs=1)
