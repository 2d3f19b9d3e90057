"""The rows QF and Q2: faults that `quality` finds in real clips, and its processor time.

The limits of `quality` were fitted to the first half of the texts of each locale, spoken by other voices than `VOICES`.
QF speaks the other texts. Each clip is damaged once, while nine tenths of the clips stay as they are.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import soxr

import speechframe as spf
from benchmarks.child import Clock
from benchmarks.lab import Lab, compute_ratios
from benchmarks.report import Figure, at_least, at_most
from speechframe.audio import codec
from speechframe.audio.clip_measures import measure_clip
from speechframe.exports.quality import NUMBERS, grade_clips, measure_text
from speechframe.local.start import local_service

TABLES = Path(__file__).parents[1] / "datasets"
VOICES = {
    "en-US": ("miles", "ruby"),
    "es-ES": ("bruno", "mateo"),
    "fr-FR": ("elise", "remi"),
    "de-DE": ("frieda", "jonas"),
    "pt-BR": ("caio", "larissa", "joaquim"),
    "it-IT": ("dante", "marco"),
    "hi-IN": ("meera", "vikram"),
    "zh-CN": ("lan", "wei"),
}
"""Voices of each locale. `joaquim` is of Kokoro, all others are formant voices."""
RATE_HZ = 24_000
FAULTS = ("truncated", "clipped", "silent middle", "too quiet", "wrong rate")
ROUNDS = 10


def read_texts(locale: str) -> list[str]:
    """Return the different texts of a locale in all tables, in their order."""
    found = []
    for table in ("clarity_lines", "narration", "dialogue", "ui_strings", "demo"):
        with (TABLES / f"{table}.csv").open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["locale"] == locale]
        found += [row.get("spoken") or row["text"] for row in rows]
    return list(dict.fromkeys(found))


def make_table(lab: Lab) -> pd.DataFrame:
    """Return every second text of each locale, in each voice of this locale."""
    rows = [
        (f"{locale}-{voice}", locale, text)
        for locale, voices in VOICES.items()
        for voice in voices
        for text in read_texts(locale)[1::2]
    ]
    return pd.DataFrame(rows[: lab.limit_rows(len(rows), tiny=14)], columns=["voice", "locale", "line"])


@cache
def speak(lab: Lab) -> spf.Run:
    """Return the run that both rows share."""
    columns = {"text": spf.col("line"), "voice": spf.col("voice"), "locale": spf.col("locale")}
    with local_service() as service:
        return spf.generate(
            make_table(lab), **columns, sample_rate=RATE_HZ, service=service,
            run_dir=Path(lab.keep(lab.make_folder()), "run"), progress=False,
        )  # fmt: skip


def damage(fault: str, samples: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Return a clip with a fault, and the rate of its label."""
    frames, rate_hz = len(samples), RATE_HZ
    if fault == "truncated":
        return samples[: int(frames * rng.uniform(0.4, 0.85))], rate_hz
    if fault == "clipped":
        loud = np.quantile(np.abs(samples), 1 - rng.uniform(0.005, 0.05))
        return in_16_bits(samples / loud), rate_hz
    if fault == "silent middle":
        size = int(min(rng.uniform(0.6, 1.5) * rate_hz, frames / 2))
        start = int(rng.uniform(0.2, 0.8) * (frames - size))
        return np.concatenate([samples[:start], np.zeros(size, np.float32), samples[start + size :]]), rate_hz
    if fault == "too quiet":
        return in_16_bits(samples / 10), rate_hz
    other_hz = int(rng.choice([16_000, 22_050, 44_100, 48_000]))
    return (samples, other_hz) if rng.random() < 0.5 else (soxr.resample(samples, rate_hz, other_hz), rate_hz)


def in_16_bits(samples: np.ndarray) -> np.ndarray:
    return (np.rint(np.clip(samples, -1, 1 - 2**-15) * 2**15) / 2**15).astype(np.float32)


def measure_all(numbered: tuple[int, bytes]) -> list:
    """Return the measures of a clip and of its damaged forms."""
    number, data = numbered
    samples, rng = codec.decode(data).samples, np.random.default_rng([7, number])
    return [measure_clip(samples, RATE_HZ), *(measure_clip(*damage(each, samples, rng)) for each in FAULTS)]


def count_found(run: spf.Run) -> tuple[Counter, Counter]:
    """Return the number of clips of each kind, damaged or not, and how many of them are not good."""
    table = run.to_pandas(["voice_id", "locale", "text"])
    clips = [clip["bytes"] for batch in run.batches(["audio"]) for clip in batch.column(0).to_pylist()]
    with ProcessPoolExecutor() as pool:
        measures = list(pool.map(measure_all, enumerate(clips), chunksize=8))
    seen, found = Counter(), Counter()
    for turn in range(ROUNDS):
        kinds = [
            1 + (number // ROUNDS + turn) % len(FAULTS) if number % ROUNDS == turn else 0
            for number in range(len(clips))
        ]
        chosen = [of_clip[kind] for of_clip, kind in zip(measures, kinds, strict=True)]
        facts = pd.DataFrame([measure_text(text) for text in table["text"]])
        facts = facts.assign(
            run_id="", row_id=range(len(facts)), voice_id=table["voice_id"].tolist(), locale=table["locale"].tolist(),
            voice=table["voice_id"].tolist(), sha256=range(len(facts)), status="done", varies=True, problem="",
        )  # fmt: skip
        numbers = np.array([[getattr(each, name) for name in NUMBERS] for each in chosen])
        spectra = np.stack([each.spectrum_db for each in chosen])
        grades = grade_clips(facts, numbers, spectra, np.arange(len(facts)))["grade"]
        for kind, grade in zip(kinds, grades, strict=True):
            seen[kind] += 1
            found[kind] += grade != "good"
    return seen, found


def measure_qf(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row QF."""
    seen, found = count_found(speak(lab))
    damaged, untouched = sum(seen.values()) - seen[0], seen[0]
    share = 100 * (sum(found.values()) - found[0]) / damaged
    reference = f"{len(FAULTS)} kinds of faults, made with a seed"
    yield Figure(f"faults found of {damaged}", [share], "%", at_least(95), reference)
    wrong = 100 * found[0] / untouched
    yield Figure(f"false alarms of {untouched}", [wrong], "%", at_most(2), "the clips as they were spoken")


def measure_q2(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row Q2."""
    run = speak(lab)
    job = {"path": str(run.path), "rows": len(make_table(lab))}
    ours, alone = lab.run_in_turns(
        partial(lab.run_child, "quality.grade_with_speechframe", **job),
        partial(lab.run_child, "quality.measure_with_libraries", **job),
    )
    what, ratios = "processor time of quality for a second of audio", compute_ratios(ours, alone, "cpu_s")
    yield Figure(what, ratios, "x", at_most(1.3), "soundfile, pyloudnorm and soxr in a loop")


def grade_with_speechframe(clock: Clock, path: str, rows: int):
    """Grade all clips of a run."""
    run = spf.open_run(path)
    measure_clip(np.zeros(RATE_HZ, np.float32) + 0.1, RATE_HZ)
    with clock:
        graded = spf.quality(run, progress=False)
    return {"rows": min(rows, len(graded))}


def measure_with_libraries(clock: Clock, path: str, rows: int):
    """Measure loudness and true peak of clips in memory, with three libraries."""
    import pyloudnorm
    import soundfile

    run = spf.open_run(path)
    clips = [clip["bytes"] for batch in run.batches(["audio"]) for clip in batch.column(0).to_pylist()]
    meter = pyloudnorm.Meter(RATE_HZ)
    with clock:
        for clip in clips:
            samples, rate_hz = soundfile.read(io.BytesIO(clip))
            if len(samples) >= 0.4 * rate_hz:  # the library refuses shorter clips
                meter.integrated_loudness(samples)
            np.abs(soxr.resample(samples, rate_hz, 4 * rate_hz)).max()
    return {"rows": min(rows, len(clips))}
