"""Read the clips of chosen rows, and convert them to the format of an export on all cores."""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from speechframe.audio import codec
from speechframe.errors import ExportError
from speechframe.exports.chosen_rows import ChosenRows, list_published_columns
from speechframe.exports.portions import Workers, map_on_workers
from speechframe.spec.speech import Format
from speechframe.spec.texts import strip_pauses
from speechframe.store.rows import ROW_ID_COLUMN, Selection
from speechframe.store.schema import AUDIO_COLUMN, WORDS_COLUMN

A = TypeVar("A")
B = TypeVar("B")

Word = tuple[str, int, int]

_FACTS = (
    "format",
    "sample_rate",
    "channels",
    "voice_id",
    "locale",
    "text",
    "transcription",
    WORDS_COLUMN,
    "sha256",
)


@dataclass(frozen=True, slots=True)
class ExportedClip:
    """One row of an export with its clip.

    Attributes
    ----------
    run_id, row_id, split
        The row, and the split that contains it.
    path
        Path of the clip below the folder of the export, with ``/``.
    audio
        The encoded clip.
    sha256
        SHA-256 of `audio`.
    audio_seconds, sample_rate, channels
        Length in seconds, sample rate in Hz, number of channels.
    text
        The spoken text, in one line and without pause markers. Empty if the run does not know it.
    words
        Each word with its start and end in milliseconds. Empty if the answer contained no words, and None if
        words were not requested.
    voice_id, locale, speaker
        Voice and language. `speaker` is the row's column ``speaker``, or else the voice.
    batch, index
        All published columns of some rows, and the place of this row in them.
    """

    run_id: str
    row_id: str
    split: str
    path: str
    audio: bytes
    sha256: str
    audio_seconds: float
    sample_rate: int
    channels: int
    text: str
    words: tuple[Word, ...] | None
    voice_id: str
    locale: str
    speaker: str
    batch: pa.RecordBatch
    index: int

    @property
    def row(self) -> dict[str, Any]:
        """The published columns of the row."""
        return {name: self.batch.column(name)[self.index].as_py() for name in self.batch.schema.names}

    @property
    def stem(self) -> str:
        """Path without its suffix, below the folder of clips."""
        return self.path.partition("/")[2].rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class AudioShape:
    """Format and sample rate of the exported clips. A `sample_rate` of None keeps the rate of each clip."""

    format: Format
    sample_rate: int | None

    @property
    def suffix(self) -> str:
        """File name suffix of a clip."""
        return f".{self.format.value.lower()}"


@dataclass(frozen=True, slots=True)
class _Source:
    """One row as it is stored: its place in the export, our columns, and the published columns."""

    run_id: str
    split: str
    path: str
    facts: Mapping[str, Any]
    batch: pa.RecordBatch
    index: int


def read_clips(
    chosen: Sequence[ChosenRows],
    shape: AudioShape,
    folder: str,
    columns: Collection[str],
    write: Callable[[str, bytes, str], None] | None,
    workers: Workers | None,
    is_cancelled: Callable[[], bool],
) -> Generator[ExportedClip]:
    """Yield the rows with their clips in the requested format, in order. All cores or `workers` convert them.

    Paths begin with `folder`, and rows have only the given `columns`. `write` is called with the path, audio
    and SHA-256 of each clip, by the thread that converted it or got it from a worker. A row that lost its
    audio raises ExportError.
    """
    if workers is not None:
        portion = partial(_convert_rows, shape=shape, folder=folder, columns=columns)
        for clip in map_on_workers(portion, chosen, workers, is_cancelled):
            if write is not None:
                write(clip.path, clip.audio, clip.sha256)
            yield clip
        return
    sources = (source for rows in chosen for source in _read_sources(rows, shape, folder, columns))

    def convert(source: _Source) -> ExportedClip:
        clip = _convert(source, shape)
        if write is not None:
            write(clip.path, clip.audio, clip.sha256)
        return clip

    yield from map_on_all_cores(convert, sources)


def _convert_rows(
    rows: ChosenRows, shape: AudioShape, folder: str, columns: Collection[str]
) -> Iterator[ExportedClip]:
    """Yield the rows with their clips, in a worker of an executor."""
    return (_convert(source, shape) for source in _read_sources(rows, shape, folder, columns))


def _read_sources(
    rows: ChosenRows, shape: AudioShape, folder: str, published: Collection[str]
) -> Iterator[_Source]:
    run = rows.run
    # The sent text is not among the run's columns if it is only a copy of the caller's.
    stored = {*run.record_schema.names, ROW_ID_COLUMN}
    known = {name: run.name_of(name) for name in (*_FACTS, AUDIO_COLUMN, ROW_ID_COLUMN) if name in stored}
    others = [name for name in list_published_columns(run) if name in published]
    position = 0
    for batch in Selection(run, rows.places).batches(list(dict.fromkeys([*others, *known.values()]))):
        bare = batch.select(others)
        columns = {ours: batch.column(name).to_pylist() for ours, name in known.items()}
        columns["speaker"] = (
            bare.column("speaker").to_pylist() if "speaker" in others else [None] * batch.num_rows
        )
        for index in range(batch.num_rows):
            facts = {name: values[index] for name, values in columns.items()}
            path = f"{folder}/{rows.paths[position]}{shape.suffix}"
            yield _Source(run.run_id, rows.splits[position], path, facts, bare, index)
            position += 1


def _convert(source: _Source, shape: AudioShape) -> ExportedClip:
    """Return the row with its clip in the requested format."""
    facts = source.facts
    stored = (facts[AUDIO_COLUMN] or {}).get("bytes")
    if not stored:
        raise ExportError(
            f"row {facts[ROW_ID_COLUMN]!r} has no audio any more: a run changed meanwhile. Export again"
        )
    audio, seconds, rate, channels = convert_audio(stored, facts, shape)
    words = facts.get(WORDS_COLUMN)
    voice = facts.get("voice_id") or ""
    return ExportedClip(
        run_id=source.run_id,
        row_id=facts[ROW_ID_COLUMN],
        split=source.split,
        path=source.path,
        audio=audio,
        sha256=hashlib.sha256(audio).hexdigest(),
        audio_seconds=seconds,
        sample_rate=rate,
        channels=channels,
        text=" ".join(strip_pauses(facts.get("text") or facts.get("transcription") or "").split()),
        words=None if words is None else tuple((w["word"], w["start_ms"], w["end_ms"]) for w in words),
        voice_id=voice,
        locale=facts.get("locale") or "",
        speaker=str(facts["speaker"] or voice),
        batch=source.batch,
        index=source.index,
    )


def convert_audio(
    stored: bytes, facts: Mapping[str, Any], shape: AudioShape
) -> tuple[bytes, float, int, int]:
    """Return a stored clip in a format, with its seconds, sample rate in Hz and channels.

    A clip that already has the format and the rate is returned unchanged.
    """
    kind = {
        "format": Format(facts["format"]),
        "sample_rate_hz": facts["sample_rate"],
        "channels": facts.get("channels") or 1,
    }
    info = codec.inspect_audio(stored, **kind)
    rate = shape.sample_rate or info.sample_rate_hz
    if info.format is shape.format and rate == info.sample_rate_hz:
        return stored, info.audio_seconds, rate, info.channels
    if rate == info.sample_rate_hz:
        converted = codec.convert_container(stored, info.format, shape.format)
        if converted is not None:
            return converted, info.audio_seconds, rate, info.channels
    decoded = codec.decode(stored, **kind)
    samples = (
        decoded.samples
        if rate == info.sample_rate_hz
        else codec.resample(decoded.samples, info.sample_rate_hz, rate)
    )
    seconds = len(samples) / rate
    return codec.encode(samples, rate, format=shape.format), seconds, rate, decoded.channels


def map_on_all_cores(function: Callable[[A], B], values: Iterable[A]) -> Generator[B]:
    """Yield `function` of each value, in order. One thread a core works, a few values ahead of the caller.

    Decoding and encoding release Python's global lock, so threads are enough.
    """
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        waiting: deque[Future[B]] = deque()
        try:
            for value in values:
                waiting.append(pool.submit(function, value))
                if len(waiting) > 4 * cores:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
