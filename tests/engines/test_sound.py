"""What is heard of the voices, over the lines of `datasets/clarity_lines.csv`: how loud they are, when words begin, how they differ."""

import csv
import itertools
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks import sound
from speechframe.audio.measure import measure_loudness_lufs
from speechframe.engines.base import Recording, Utterance
from speechframe.engines.words import spoken_tokens
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.kokoro.speaker import KokoroSpeaker
from speechframe.local.engines.piper.speaker import PiperSpeaker
from speechframe.local.engines.whisper.recogniser import WhisperRecogniser
from speechframe.recognition import clarity
from speechframe.recognition.alignment import align_words

LINES_FILE = Path(__file__).parents[2] / "datasets" / "clarity_lines.csv"
LINES: dict[str, list[str]] = {}
with LINES_FILE.open(encoding="utf-8", newline="") as lines_file:
    for row in csv.DictReader(lines_file):
        LINES.setdefault(row["locale"], []).append(row["text"])

ESPEAK = [voice.voice_id for voice in EspeakSpeaker().voices() if voice.locale in LINES]
NEURAL = {"en-US-joe": PiperSpeaker, "pt-BR-joaquim": KokoroSpeaker}
# Kokoro speaks slower than one listens: a fifth of the lines has to do.
SLOW = {"pt-BR-joaquim": 5}
# One voice at each commit, every voice in the long run.
VOICES = ["en-US-nora", *(pytest.param(id, marks=pytest.mark.slow) for id in [*NEURAL, *ESPEAK[1:]])]


@lru_cache(maxsize=1)
def speaker(engine):
    return engine()


def spoken(voice_id, text):
    return speaker(NEURAL.get(voice_id, EspeakSpeaker)).speak(Utterance(text, voice_id, locale_of(voice_id)))


def locale_of(voice_id):
    return voice_id.rpartition("-")[0]


@pytest.mark.parametrize("voice_id", VOICES)
@pytest.mark.timeout(900)
def test_the_middle_of_a_voice_is_at_24_lufs(voice_id):
    lines = LINES[locale_of(voice_id)][:: SLOW.get(voice_id, 1)]
    speeches = [spoken(voice_id, line) for line in lines]
    found = [
        measure_loudness_lufs(speech.samples, speech.sample_rate_hz)
        for speech in speeches
        if speech.audio_seconds >= 1
    ]
    assert len(found) > 0.8 * len(lines)
    assert np.median(found) == pytest.approx(-24, abs=1)


@pytest.mark.parametrize("voice_id", VOICES[:3])
def test_a_voice_has_sound_up_to_its_bandwidth_and_none_above(voice_id):
    """The rule: the highest frequency at which the mean spectrum is at most 60 dB below its maximum."""
    voices = speaker(NEURAL.get(voice_id, EspeakSpeaker)).voices()
    power = 0.0
    for line in LINES[locale_of(voice_id)][::5]:
        speech = spoken(voice_id, line)
        frames = np.lib.stride_tricks.sliding_window_view(speech.samples.astype(np.float64), 2048)[::1024]
        power = power + (np.abs(np.fft.rfft(frames * np.hanning(2048))) ** 2).sum(axis=0)
    found_hz = np.flatnonzero(power > 1e-6 * power.max()).max() * speech.sample_rate_hz / 2048
    stated_hz = {voice.voice_id: voice.bandwidth_hz for voice in voices}[voice_id]
    assert found_hz == pytest.approx(stated_hz, abs=500)


def pauses_ms(speech):
    """Start and end of what is 35 dB below the loud parts for 80 ms or more, looked at every millisecond."""
    samples, rate_hz = speech.samples.astype(np.float64), speech.sample_rate_hz
    energy = np.concatenate([[0.0], np.cumsum(samples**2)])
    starts = np.arange(0, len(samples) - 0.005 * rate_hz, rate_hz / 1000).astype(int)
    level_db = 10 * np.log10(energy[starts + round(0.005 * rate_hz)] - energy[starts] + 1e-12)
    loud = level_db > np.percentile(level_db, 99) - 35
    edges = np.flatnonzero(np.diff(np.concatenate([[True], loud, [True]]).astype(int))).reshape(-1, 2)
    return edges[edges[:, 1] - edges[:, 0] >= 80]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("voice_id", [voice for voice in VOICES if "ja-JP" not in str(voice)])
def test_a_word_after_a_pause_begins_when_it_is_heard(voice_id):
    """In languages with spaces: elsewhere a line is one word."""
    lines = LINES[locale_of(voice_id)]
    off_ms = []
    texts = 10 // SLOW.get(voice_id, 1)
    for first in range(texts):
        text = [lines[(11 * first + number) % 60] for number in range(11)]
        speech = spoken(voice_id, " ".join(text))
        begins = np.cumsum([len(spoken_tokens(line)) for line in text])
        assert len(speech.words) == begins[-1]
        pauses = pauses_ms(speech)
        for number in begins[:-1]:
            before, word = speech.words[number - 1], speech.words[number]
            from_ms, to_ms = ((each.start_ms + each.end_ms) / 2 for each in (before, word))
            between = [pause for pause in pauses if pause[1] > from_ms and pause[0] < to_ms]
            off_ms.append(word.start_ms - max(between, key=np.ptp)[1])
    assert len(off_ms) == 10 * texts
    assert abs(np.median(off_ms)) <= 15
    assert np.percentile(np.abs(off_ms), 95) <= 40


@pytest.mark.slow
def test_aligned_words_begin_and_end_when_a_voice_says_them():
    """Piper's own times are exact."""
    early_ms = []
    for first in range(0, 24, 6):
        text = " ".join(LINES["en-US"][first : first + 6])
        speech = spoken("en-US-joe", text)
        clip = Recording(speech.samples, speech.sample_rate_hz)
        heard = WhisperRecogniser().recognise(clip, language="en", words=True).words
        found = align_words([word.word for word in speech.words], heard, round(1000 * speech.audio_seconds))
        early_ms += [
            (word.start_ms - start_ms, word.end_ms - end_ms)
            for word, (_, start_ms, end_ms) in zip(speech.words, found, strict=True)
        ]
    assert np.abs(np.median(early_ms, axis=0)).max() <= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("voice_id", "tag"),
    [
        ("pt-BR-joaquim", "pt-BR"),
        ("pt-BR-joaquim", "es-ES"),
        ("en-US-joe", "en-US"),
        ("en-US-nora", "en-US"),
        ("es-ES-mateo", "es-ES"),
        ("it-IT-marco", "it-IT"),
    ],
)
def test_a_voice_is_as_clear_as_the_table_says(voice_id, tag):
    row = sound.measure(voice_id, tag, LINES[tag][::5])
    assert float(row["error"]) == pytest.approx(clarity.find_error_rates(voice_id)[tag], abs=0.12)


def spectrum_db(voice_id):
    """The mean spectrum of what is loud, in third octaves from 100 to 8000 Hz."""
    speech = spoken(voice_id, " ".join(LINES["en-US"][20:32]))
    size, rate_hz = 2048, speech.sample_rate_hz
    frames = np.lib.stride_tricks.sliding_window_view(speech.samples, size)[:: size // 2] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    mean = power[power.sum(axis=1) > power.sum(axis=1).max() / 1000].mean(axis=0)
    bands = np.digitize(np.fft.rfftfreq(size, 1 / rate_hz), 100 * 2 ** (np.arange(20) / 3))
    level_db = np.array([10 * np.log10(mean[bands == band].mean()) for band in range(1, 20)])
    return level_db - level_db.mean()


@pytest.mark.slow
def test_no_two_voices_of_a_language_have_one_spectrum():
    spectra = {
        voice.voice_id: spectrum_db(voice.voice_id)
        for voice in EspeakSpeaker().voices()
        if voice.locale in {"en-US", "en-GB"}
    }
    for (one, level_db), (other, other_db) in itertools.combinations(spectra.items(), 2):
        assert np.sqrt(np.mean((level_db - other_db) ** 2)) > 1, (one, other)
