"""The verbs `export` and `to_datasets`, which publish rows of runs as a dataset."""

import hashlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.audio.codec import ALLOWED_RATES_HZ
from speechframe.batch.progress import open_bar
from speechframe.batch.run import run_in_thread
from speechframe.client import Client
from speechframe.errors import ExportError, SpeechframeError
from speechframe.exports.card import UNKNOWN, Card
from speechframe.exports.chosen_rows import open_runs
from speechframe.exports.clips import AudioShape
from speechframe.exports.export import export_runs
from speechframe.exports.portions import find_workers
from speechframe.exports.quality import grade_runs
from speechframe.exports.report import ExportReport
from speechframe.exports.split import as_splits
from speechframe.settings import find_default_cache_folder
from speechframe.spec.speech import Format, Model

if TYPE_CHECKING:
    import pandas as pd


_AUDIO_FORMATS = (Format.WAV, Format.FLAC)
_CARD_FIELDS = ("title", "description", "text_source", "text_licence", "licence")


async def export(
    runs: Any,
    out: str | PathLike[str],
    *,
    name: str = "{row_id}",
    formats: Sequence[str] = ("huggingface",),
    split: "pd.Series | Mapping[Any, str] | None" = None,
    only: str = "kept",
    sample_rate: int | None = None,
    audio_format: str = Format.WAV.value,
    card: Mapping[str, str] | None = None,
    quality: "pd.DataFrame | None" = None,
    progress: bool = True,
    service: Any = None,
    executor: Any = None,
    executor_workers: int | None = None,
) -> ExportReport:
    """Write rows of runs as a dataset for other tools, and return an :class:`ExportReport`.

    Each clip is written once, and each format adds its manifest. The folder appears whole: if the export
    fails or is killed, an earlier export stays as it was. Another export to the same folder replaces it, and
    keeps the clip files that did not change.

    Parameters
    ----------
    runs
        A run with audio, its folder, rows of it such as ``run.select(...)``, or a list of these.
    out
        The folder. It must be new, empty, or an earlier export.
    name
        Path of a clip without its suffix, with columns in braces: ``"{locale}/{voice_id}/{id}"``. ``row_id``
        is the id of the row. Characters that file names cannot have become ``_`` and are counted.
    formats
        ``huggingface``, ``files``, ``ljspeech``, ``nemo``, ``lhotse``, ``webdataset``, ``srt``, ``vtt``,
        ``textgrid``, and formats of other packages.
    split
        Result of :func:`split`, or a mapping from row id to the name of a split. Other rows are left out.
        None puts all rows into ``train``.
    only
        ``"kept"`` (default) exports rows that are done or cached and not rejected, and suspect rows that a
        review keeps. ``"good"`` exports those of them whose quality is good.
    sample_rate
        Sample rate of the clips in Hz. None keeps the rate of each clip.
    audio_format
        ``"WAV"`` (default, 16 bit) or ``"FLAC"``.
    card
        Words for the card: ``title``, ``description``, ``text_source``, ``text_licence``, ``licence``.
    quality
        Result of :func:`quality` for the same runs. None measures if ``only="good"`` needs it.
    progress
        False shows no progress bar.
    service
        Service whose catalogue describes the voices on the card. See :class:`Settings`.
    executor, executor_workers
        Workers that read and convert the clips, as for :func:`quality`. This process writes all files.

    Raises
    ------
    ExportError
        An argument is unusable, two rows would have the same path, no row is left, the disk is full, a worker
        of `executor` died, or the written files do not contain all rows. Nothing that looks finished is left.
    SettingsError
        The executor cannot be used, or its workers cannot read a run.

    Examples
    --------
    >>> import speechframe as spf
    >>> parts = spf.split(run, {"train": 0.9, "test": 0.1})  # doctest: +SKIP
    >>> report = spf.export(run, "out/corpus", split=parts, formats=["huggingface", "nemo"])  # doctest: +SKIP
    >>> print(report)  # doctest: +SKIP
    """
    opened = open_runs(runs)
    shape = AudioShape(_check_audio_format(audio_format), sample_rate)
    if sample_rate is not None and sample_rate not in ALLOWED_RATES_HZ:
        allowed = f"{ALLOWED_RATES_HZ[0]:,} to {ALLOWED_RATES_HZ[-1]:,} Hz, or None"
        raise ExportError(f"sample_rate={sample_rate} is not allowed; allowed: {allowed}")
    card_fields: dict[str, Any] = dict(card or {})
    if unknown := [key for key in card_fields if key not in _CARD_FIELDS]:
        raise ExportError(f"card= has the unknown entry {unknown[0]!r}; allowed: {', '.join(_CARD_FIELDS)}")
    splits = None if split is None else as_splits(split, opened)
    workers = find_workers(executor, executor_workers, opened)
    voices, why = await _read_voices(service)

    def write(is_cancelled: Any) -> ExportReport:
        options = {"progress": progress, "is_cancelled": is_cancelled, "workers": workers}
        measured, grades = grade_runs(opened, only, quality, **options)
        facts = Card(**card_fields, voices=voices)
        facts.has_converted_speech = any(rows.run.operation == "change_voice" for rows in opened)
        return export_runs(
            opened,
            Path(out).expanduser().absolute(),
            name=name,
            formats=formats,
            splits=splits,
            grades=grades,
            shape=shape,
            card=facts,
            quality=measured,
            remarks=[f"Facts of the voices are {UNKNOWN}: {why}"] if why else [],
            progress=lambda total: open_bar(total, "export", "clip", is_shown=progress),
            is_cancelled=is_cancelled,
            workers=workers,
        )

    return await run_in_thread(write)


def _check_audio_format(name: str) -> Format:
    found = {each.value.lower(): each for each in _AUDIO_FORMATS}.get(str(name).lower())
    if found is None:
        raise ExportError(f"audio_format={name!r} is not allowed; allowed: {', '.join(_AUDIO_FORMATS)}")
    return found


async def _read_voices(service: Any) -> tuple[dict[str, dict[str, Any]], str]:
    """Return facts of all voices of a service by id, and the reason if they cannot be read."""
    if service is None:
        return {}, "no service can be reached"
    found: dict[str, dict[str, Any]] = {}
    try:
        async with Client(service) as client:
            for model in Model:
                found |= {voice.voice_id: voice.model_dump() for voice in await client.voices(model.value)}
    except SpeechframeError as error:
        return found, str(error).partition("\n")[0]
    return found, ""


async def to_datasets(
    runs: Any,
    *,
    split: "pd.Series | Mapping[Any, str] | None" = None,
    out: str | PathLike[str] | None = None,
    only: str = "kept",
    sample_rate: int | None = None,
    quality: "pd.DataFrame | None" = None,
    progress: bool = True,
    service: Any = None,
) -> Any:
    """Return rows of runs as a ``DatasetDict`` of the library `datasets`, over memory-mapped files.

    The column ``audio`` has the bytes of each clip, because decoding in `datasets` needs torch.

    Parameters
    ----------
    runs, split, only, sample_rate, quality, progress, service
        As for :func:`export`.
    out
        Folder of the Parquet files. None is a folder in the user's cache.

    Raises
    ------
    ExportError
        As for :func:`export`, and if the library `datasets` is not installed.

    Examples
    --------
    >>> data = spf.to_datasets([run_en, run_de], split=parts)  # doctest: +SKIP
    >>> data["train"][0]["text"]  # doctest: +SKIP
    """
    try:
        datasets = import_module("datasets")
    except ModuleNotFoundError:
        raise ExportError("to_datasets() needs the library datasets: pip install datasets") from None
    if out is None:
        # A run has one folder, and each selection of its rows has another.
        parts = [(rows, len(rows) < rows.run.manifest.table.rows) for rows in open_runs(runs)]
        ids = " ".join(f"{rows.run.run_id}{rows.positions if is_part else ''}" for rows, is_part in parts)
        out = find_default_cache_folder().parent / "datasets" / hashlib.sha256(ids.encode()).hexdigest()[:16]
    options: dict[str, Any] = {"only": only, "sample_rate": sample_rate, "quality": quality}
    report = await export(
        runs, out, split=split, formats=["huggingface"], progress=progress, service=service, **options
    )
    files = {
        name: sorted(str(path) for path in report.path.glob(f"data/{name}-*-of-*.parquet"))
        for name in report.splits
    }
    had_bars = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()  # the export has shown a bar already
    try:
        return datasets.load_dataset("parquet", data_files=files, cache_dir=str(report.path / ".cache"))
    finally:
        if had_bars:
            datasets.enable_progress_bars()
