"""Measure the rows X1 and X2, which compare `speechframe.export` with loops written by hand, and its memory."""

import asyncio
import csv
import json
import os
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.child import Clock
from benchmarks.lab import Lab, compute_ratios
from benchmarks.memory import make_long_run
from benchmarks.report import Figure, at_most
from benchmarks.texts import TEXT_CHARACTERS
from speechframe.batch.live import open_run

FORMATS = ("huggingface", "files", "ljspeech", "nemo", "lhotse", "webdataset", "srt", "vtt", "textgrid")
COLUMNS = ["row_id", "text", "voice_id", "word_durations", "audio_seconds", "audio"]
"""Columns that a loop by hand reads."""


def measure_x1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row X1, the time of an export in each format beside a loop for this format."""
    rows = lab.limit_rows(20_000, 40)
    with lab.run_service() as service, lab.make_folder() as folder:
        job = {"run_dir": str(Path(folder, "run")), "rows": rows}
        made = {**job, "format": "FLAC", "characters": TEXT_CHARACTERS["FLAC", 60_000]}
        lab.run_child("jobs.generate", service, max_concurrency=64, max_credits=1e9, **made)
        for name in FORMATS:
            ours, hand = lab.run_in_turns(
                partial(lab.run_child, "exporting.export_run", format=name, **job),
                partial(lab.run_child, "exporting.write_by_hand", format=name, **job),
            )
            what = f"time of an export of {rows:,} clips of FLAC as {name}"
            yield Figure(what, compute_ratios(ours, hand, "wall_s"), "x", at_most(1.2), "a loop on all cores")


def measure_x2(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row X2, the peak memory of an export of many clips."""
    _, path, made = make_long_run(lab)
    ran = lab.run_child("exporting.export_run", run_dir=path, format="huggingface", rows=made.rows)
    yield Figure(
        "peak memory over import of an export", [ran.over_mb], "MB", at_most(300), f"{ran.rows:,} clips"
    )


def export_run(clock: Clock, run_dir: str, format: str, rows: int):
    """Export a run, and return the number of its rows."""
    del rows
    from speechframe.verbs.export import export

    run = open_run(run_dir)
    with clock:
        report = asyncio.run(export(run, "out", formats=[format], progress=False))
    return {"rows": report.clips}


def write_by_hand(clock: Clock, run_dir: str, format: str, rows: int):
    """Write one format as a careful user writes it: read batches, decode and encode on all cores, write files."""
    del rows
    import soundfile

    run, folder, count = open_run(run_dir), Path("out"), 0

    def convert(row):
        samples, rate_hz = soundfile.read(BytesIO(row["audio"]["bytes"]), dtype="int16")
        data = BytesIO()
        soundfile.write(data, samples, rate_hz, format="WAV", subtype="PCM_16")
        row["wav"] = data.getvalue()
        if format not in {"huggingface", "webdataset"}:
            (folder / "wavs" / f"{row['row_id']}.wav").write_bytes(row["wav"])
        return row

    with clock, ThreadPoolExecutor(os.cpu_count()) as pool:
        (folder / "wavs").mkdir(parents=True)
        read = (row for batch in run.batches(COLUMNS) for row in batch.to_pylist())
        write = _Writer(folder, format)
        while chunk := [row for _, row in zip(range(256), read, strict=False)]:
            for row in pool.map(convert, chunk):
                write.add(row)
                count += 1
        write.end()
    return {"rows": count}


class _Writer:
    """The manifest of one format, with the few lines that a user writes."""

    def __init__(self, folder: Path, format: str) -> None:
        self.folder, self.format, self.lines, self.rows, self.number = folder, format, [], [], 0
        self.tar = tarfile.open(folder / "train.tar", "w") if format == "webdataset" else None  # noqa: SIM115

    def add(self, row) -> None:
        name, text = row["row_id"], row["text"]
        if self.format == "huggingface":
            audio = {"bytes": row["wav"], "path": f"{name}.wav"}
            self.rows.append({"audio": audio, "text": text, "id": name})
            if len(self.rows) == 1000:
                self._write_group()
        elif self.tar is not None:
            facts = json.dumps({"text": text, "id": name}).encode()
            for suffix, data in (("wav", row["wav"]), ("txt", text.encode()), ("json", facts)):
                member = tarfile.TarInfo(f"{name}.{suffix}")
                member.size = len(data)
                self.tar.addfile(member, BytesIO(data))
        elif self.format in {"srt", "vtt", "textgrid"}:
            words = [f"{w['start_ms']} {w['end_ms']} {w['word']}" for w in row["word_durations"]]
            (self.folder / f"{name}.{self.format}").write_text("\n".join(words))
        else:
            self.lines.append([f"wavs/{name}.wav", text, row["audio_seconds"], row["voice_id"]])

    def _write_group(self) -> None:
        path = self.folder / f"train-{self.number}.parquet"
        pq.write_table(pa.Table.from_pylist(self.rows), path, compression="zstd")
        self.rows, self.number = [], self.number + 1

    def end(self) -> None:
        if self.rows:
            self._write_group()
        if self.tar is not None:
            self.tar.close()
        if self.lines:
            with (self.folder / "manifest.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(self.lines)
