"""Measure the rows X1 and X2, which compare `speechframe.export` with loops written by hand, and its memory."""

import csv
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.child import Clock
from benchmarks.lab import Lab
from benchmarks.report import Figure, at_most

FORMATS = ("huggingface", "files", "ljspeech", "nemo", "lhotse", "webdataset", "srt", "vtt", "textgrid")
CLIP_BYTES = 60_000
"""Size of a clip as WAV, 1.25 s at 24,000 Hz."""


def measure_x1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row X1, the time of an export in each format beside a loop for this format."""
    rows = lab.limit_rows(20_000, 40)
    with lab.run_service(audio_bytes=CLIP_BYTES) as service, lab.make_folder() as folder:
        run = str(Path(folder, "run"))
        lab.run_child("exporting.build_run", service, rows=rows, characters=88, format="FLAC", run=run)
        for name in FORMATS:
            ratios = []
            for number in range(lab.limit_rounds(2)):
                job = {"run": run, "rows": rows, "format": name}
                ours = lab.run_child("exporting.export_run", out=f"{folder}/ours-{number}", **job)
                hand = lab.run_child("exporting.write_by_hand", out=f"{folder}/hand-{number}", **job)
                ratios.append(ours.wall_s / hand.wall_s)
                for out in ("ours", "hand"):  # each has more than a gigabyte
                    shutil.rmtree(f"{folder}/{out}-{number}")
            what = f"time of an export of {rows:,} clips of FLAC as {name}"
            yield Figure.from_rounds("X1", what, ratios, "x", at_most(1.2), "a loop on all cores")


def measure_x2(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row X2, the peak memory of an export of many clips."""
    rows = lab.limit_rows(100_000, 40)
    with lab.run_service(audio_bytes=8_000) as service, lab.make_folder() as folder:
        run = str(Path(folder, "run"))
        lab.run_child("exporting.build_run", service, rows=rows, characters=12, format="WAV", run=run)
        job = {"run": run, "rows": rows, "format": "huggingface"}
        ran = lab.run_child("exporting.export_run", out=f"{folder}/out", **job)
    what = "peak memory over import of an export"
    yield Figure.from_rounds("X2", what, [ran.over_mb], "MB", at_most(300), f"{rows:,} clips")


def build_run(clock: Clock, to: dict[str, str], rows: int, characters: int, format: str, run: str):
    """Make a run with a clip in each row, and return the number of its rows."""
    import asyncio

    from benchmarks.jobs import make_settings
    from benchmarks.texts import SAMPLE_RATE, VOICE, make_lines
    from speechframe import aio

    with clock:
        made = asyncio.run(
            aio.generate(
                list(make_lines(rows, characters)), voice=VOICE, format=format, sample_rate=SAMPLE_RATE,
                service=make_settings(to), run_dir=run, progress=False, max_concurrency=64, max_credits=10.0**9,
            )
        )  # fmt: skip
    return {"rows": made.stats["done"]}


def export_run(clock: Clock, run: str, out: str, format: str, rows: int):
    """Export a run, and return the number of its rows."""
    del rows
    import asyncio

    from speechframe.batch.live import open_run
    from speechframe.verbs.export import export

    opened = open_run(run)
    with clock:
        report = asyncio.run(export(opened, out, formats=[format], progress=False))
    return {"rows": report.clips}


def write_by_hand(clock: Clock, run: str, out: str, format: str, rows: int):
    """Write one format as a careful user writes it: read batches, decode and encode on all cores, write files."""
    del rows
    import soundfile

    from speechframe.batch.live import open_run

    opened, folder = open_run(run), Path(out)
    columns = [
        "row_id",
        "text",
        "voice_id",
        "locale",
        "word_durations",
        "audio_seconds",
        "sample_rate",
        "audio",
    ]

    def convert(row):
        samples, rate_hz = soundfile.read(BytesIO(row["audio"]["bytes"]), dtype="int16")
        data = BytesIO()
        soundfile.write(data, samples, rate_hz, format="WAV", subtype="PCM_16")
        row["wav"] = data.getvalue()
        if format not in {"huggingface", "webdataset"}:
            (folder / "wavs" / f"{row['row_id']}.wav").write_bytes(row["wav"])
        return row

    def read():
        for batch in opened.batches(columns):
            yield from batch.to_pylist()

    with clock, ThreadPoolExecutor(os.cpu_count()) as pool:
        (folder / "wavs").mkdir(parents=True)
        count = 0
        rows_read = read()
        write = _Writer(folder, format)
        while chunk := [row for _, row in zip(range(256), rows_read, strict=False)]:
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
            self.rows.append(
                {"audio": {"bytes": row["wav"], "path": f"{name}.wav"}, "text": text, "id": name}
            )
            if len(self.rows) == 1000:
                self._write_group()
        elif self.tar is not None:
            facts = json.dumps({"text": text, "id": name}).encode()
            for suffix, data in (("wav", row["wav"]), ("txt", text.encode()), ("json", facts)):
                member = tarfile.TarInfo(f"{name}.{suffix}")
                member.size = len(data)
                self.tar.addfile(member, BytesIO(data))
        elif self.format in {"srt", "vtt", "textgrid"}:
            path = self.folder / f"{name}.{self.format}"
            path.write_text(
                "\n".join(f"{w['start_ms']} {w['end_ms']} {w['word']}" for w in row["word_durations"])
            )
        else:
            self.lines.append([f"wavs/{name}.wav", text, row["audio_seconds"], row["voice_id"]])

    def _write_group(self) -> None:
        pq.write_table(
            pa.Table.from_pylist(self.rows), self.folder / f"train-{self.number}.parquet", compression="zstd"
        )
        self.rows, self.number = [], self.number + 1

    def end(self) -> None:
        if self.rows:
            self._write_group()
        if self.tar is not None:
            self.tar.close()
        if self.lines:
            with (self.folder / "manifest.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(self.lines)


ROWS = {"X1": measure_x1, "X2": measure_x2}
