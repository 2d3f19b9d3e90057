"""Measure the quality of the clips of runs, and grade each row."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain, compress, islice, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from speechframe.audio import codec
from speechframe.audio.clip_measures import BANDS_HZ, ClipMeasures, measure_clip
from speechframe.batch.progress import open_bar
from speechframe.errors import AudioError, ExportError
from speechframe.exports.chosen_rows import (
    ChosenRows,
    Grades,
    index_rows,
    open_rows,
    open_runs,
    read_grades,
    read_rows,
)
from speechframe.exports.clips import map_on_all_cores
from speechframe.exports.grades import (
    BAD,
    CHECK,
    COMPARISONS,
    ENOUGH_CLIPS,
    GOOD,
    LANGUAGES_BY_CHARACTER,
    MAX_WORD_ERROR,
    TRUSTED_LANGUAGES,
    compare_with_voices,
    grade_rows,
)
from speechframe.exports.portions import Workers, find_workers, map_on_workers
from speechframe.recognition.clarity import find_error_rates
from speechframe.spec.speech import Format, GenerateRequest
from speechframe.spec.texts import Pause, split_pauses, strip_pauses
from speechframe.store.journal import load_json
from speechframe.store.reader import StoredRun
from speechframe.store.rows import ROW_ID_COLUMN, Selection
from speechframe.store.schema import AUDIO_COLUMN, CACHED, DONE, FINISHED_STATUSES, REQUEST
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

_FACTS = (
    *(ROW_ID_COLUMN, "status", "error_message", "sha256", "audio_seconds"),
    *("voice_id", "locale", "text", "transcription", "request_key"),
)
_AUDIO_FACTS = (AUDIO_COLUMN, "format", "sample_rate", "channels", "sha256")
NUMBERS = tuple(each.name for each in fields(ClipMeasures) if each.name != "spectrum_db")
"""Measures of a clip that are numbers."""
_PROSODY = tuple(
    GenerateRequest.get_wire_names()[name] for name in ("style", "rate", "pitch", "audio_duration")
)
"""Fields of a request that change how a voice sounds. Clips compare only if these are equal."""
_WORD_ERRORS = ("wer", "cer", "word_error", "word_error_remark")
_ROWS_AT_ONCE = 4096
_Measured = tuple[str, ClipMeasures | AudioError]
"""SHA-256 of a clip, and its measures or the reason why it cannot be decoded."""
_FIRST = ("voice_id", "locale", "grade", "reasons", "advice")


def quality(
    runs: Any,
    *,
    transcripts: Any = None,
    progress: bool = True,
    executor: Any = None,
    executor_workers: int | None = None,
) -> "pd.DataFrame":
    """Return measures, a grade and its reasons for each row of runs.

    A clip is compared with the other clips of its voice in these runs. Give all runs of a dataset at once.
    All cores work, or the workers of `executor`.

    Parameters
    ----------
    runs
        A run with audio, its folder, rows of it such as ``run.select(...)``, or a list of these.
    transcripts
        The run of :func:`transcribe` over the run, with a reference. For a list of runs, a list with one for
        each. Its word error counts only in languages in which the recogniser can be trusted, and only if the
        clip did not change since.
    progress
        False shows no progress bar.
    executor, executor_workers
        A ``concurrent.futures.Executor`` or a client of Dask, and the number of its workers (default: read
        from it). The workers need the same version of speechframe, and must be able to read the runs.

    Returns
    -------
    pandas.DataFrame
        One row for each row of the runs, by ``row_id``, or by ``run_id`` and ``row_id`` for a list of runs.
        The columns are:

        ``voice_id``, ``locale``
            Voice and language of the row.
        ``grade``, ``reasons``, ``advice``
            ``good``, ``check`` or ``bad``, a list of reasons, and the next step.
        ``audio_seconds``, ``loudness_lufs``, ``true_peak_dbtp``, ``clipped_fraction``
            Length, loudness and true peak by EBU R 128, and the share of clipped samples.
        ``silence_start_s``, ``silence_end_s``, ``silence_inside_s``
            Silence at both ends, and the longest silence between them.
        ``end_db``, ``snr_db``, ``bandwidth_hz``
            Level of the last 20 ms relative to the speech, level of the speech relative to the quietest part,
            and the highest frequency with sound.
        ``characters_per_second``
            Pace in letters, without silence at the ends. NaN for texts with digits.
        ``voice_clips``
            Number of different clips that describe the voice.
        ``loudness_vs_voice_lu``, ``silence_vs_voice_s``, ``rate_vs_voice``
            Difference of loudness and of the longest silence from the voice's, and the factor by which the
            clip sounds higher. NaN if the voice has fewer than 12 clips. The silence is then compared with a
            pause between sentences.
        ``silence_end_vs_voice``, ``pace_vs_voice``, ``end_vs_voice``
            Difference from the voice in robust standard deviations. NaN if the voice has fewer than 12 clips.
        ``wer``, ``cer``, ``word_error``, ``word_error_remark``
            Only with `transcripts`: word and character error, the error that counts, and why no error counts.

    Raises
    ------
    ExportError
        A value is not a run with audio, `transcripts` are not transcripts of these runs, or a worker of
        `executor` died.
    SettingsError
        The executor cannot be used, or its workers cannot read a run.

    Examples
    --------
    >>> import speechframe as spf
    >>> found = spf.quality(run)  # doctest: +SKIP
    >>> spf.resume(run, redo=list(found.index[found["grade"] == "bad"]))  # doctest: +SKIP
    """
    opened = open_runs(runs)
    workers = find_workers(executor, executor_workers, opened)
    frame = measure_runs(opened, transcripts=transcripts, progress=progress, workers=workers)
    return index_rows(runs, frame.reset_index())


def measure_runs(
    runs: Sequence[Selection],
    *,
    transcripts: Any = None,
    progress: bool = True,
    is_cancelled: Callable[[], bool] = lambda: False,
    workers: Workers | None = None,
) -> "pd.DataFrame":
    """Return the frame of :func:`quality` by run id and row id. Raise ExportError once it is cancelled."""
    import pandas as pd

    rows = (row for run in runs for row in _read_rows_of(run))
    # In pieces, because dicts take five times the memory of a frame.
    pieces = [pd.DataFrame(some) for some in iter(lambda: list(islice(rows, _ROWS_AT_ONCE)), [])]
    if not pieces:
        raise ExportError("no row can be measured, because the runs are empty")
    frame = pd.concat(pieces, ignore_index=True)
    if transcripts is not None:
        frame = _add_word_errors(frame, transcripts, runs)
    return grade_clips(frame, *_measure_clips(runs, frame, is_cancelled, workers, is_shown=progress))


def grade_clips(
    frame: "pd.DataFrame",
    numbers: NDArray[np.float64],
    spectra_db: NDArray[np.float16],
    places: NDArray[np.intp],
) -> "pd.DataFrame":
    """Return the frame of :func:`quality` from facts of rows, measures of clips, and each row's clip."""
    for column, name in enumerate(NUMBERS):
        frame[name] = numbers[places, column]
    silence_s = frame["silence_start_s"] + frame["silence_end_s"] + frame["pauses_s"]
    frame["characters_per_second"] = frame["letters"] / (frame["audio_seconds"] - silence_s).clip(lower=0.05)
    frame["log_pace"] = np.log(frame["characters_per_second"])
    compare_with_voices(frame, spectra_db, places)
    grade_rows(frame)
    rates = _find_error_rates(frame)
    frame["advice"] = list(map(_advise, frame["grade"], frame["status"], frame["varies"], rates))
    columns = [*_FIRST, *NUMBERS, "characters_per_second", *COMPARISONS, *_WORD_ERRORS]
    return frame.set_index(["run_id", "row_id"])[[name for name in columns if name in frame]]


def grade_runs(
    runs: Sequence[Selection], only: str, measured: "pd.DataFrame | None", **options: Any
) -> "tuple[pd.DataFrame | None, Grades | None]":
    """Return the frame of :func:`quality`, measured if `only` needs it, and the grades that `only` needs."""
    if only not in {"kept", "good"}:
        raise ExportError(f"only={only!r} is not allowed; allowed: 'kept', 'good'")
    if only == "kept":
        return measured, None
    if measured is None:
        measured = measure_runs(runs, **options)
    return measured, read_grades(measured, runs)


def _read_rows_of(rows: Selection) -> Iterator[dict[str, Any]]:
    """Yield facts of each row, with the numbers of its text, and the reason if it has no clip."""
    run = rows.run
    stored = {*run.record_schema.names, ROW_ID_COLUMN}
    found = read_rows(rows, [name for name in _FACTS if name in stored])
    for row, (varies, request) in zip(found, _read_requests(rows), strict=True):
        prosody = " ".join(str(request.get(name) or "") for name in _PROSODY)
        has_clip = row["status"] in FINISHED_STATUSES and row["sha256"] and row["audio_seconds"]
        why = f": {row['error_message']}" if row["error_message"] else ""
        voice, locale = row.get("voice_id") or "", row.get("locale") or ""
        yield {
            "run_id": run.run_id,
            "row_id": row[ROW_ID_COLUMN],
            "voice_id": voice,
            "locale": locale,
            "voice": f"{voice} {locale} {prosody}",
            "sha256": row["sha256"] if has_clip else None,
            "request_key": row["request_key"],
            "status": row["status"],
            "varies": varies,
            "problem": "" if has_clip else f"it has no audio: it is {row['status']}{why}",
            **measure_text(row.get("text") or row.get("transcription") or ""),
        }


def _read_requests(rows: Selection) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield whether another take of a row would differ, and the fields of its request."""
    table = rows.run.manifest.table
    is_wanted = np.zeros(table.rows, bool)
    is_wanted[list(rows.positions)] = True
    with pq.ParquetFile(rows.run.folder.get_source(table.file)) as file:
        batches = file.iter_batches(columns=[REQUEST])
        requests = (request for batch in batches for request in batch.column(0).to_pylist())
        for request in compress(requests, is_wanted):
            known, _, body = (request or b"").partition(b"\n")
            yield bool(known and load_json(known)[1]), load_json(body) if body.startswith(b"{") else {}


def measure_text(text: str) -> dict[str, float]:
    """Return the letters of a text, and the sum and the longest of its pause markers in seconds.

    The letters are NaN if the text has digits, because a digit may be spoken with one letter or with ten.
    """
    pauses = [piece.seconds for piece in split_pauses(text) if isinstance(piece, Pause)]
    plain = strip_pauses(text)
    letters = math.nan if any(map(str.isdigit, plain)) else sum(map(str.isalpha, plain)) or math.nan
    return {"letters": letters, "pauses_s": sum(pauses), "marker_s": max(pauses, default=0.0)}


def _measure_clips(
    runs: Sequence[Selection],
    frame: "pd.DataFrame",
    is_cancelled: Callable[[], bool],
    workers: Workers | None,
    *,
    is_shown: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float16], NDArray[np.intp]]:
    """Return the measures and the spectrum of each different clip, and the place of each row's clip in them.

    The last place stands for rows without a clip.
    """
    import pandas as pd

    places, hashes = pd.factorize(frame["sha256"])  # -1 for rows without a clip
    position_of = {sha256: position for position, sha256 in enumerate(hashes)}
    is_wanted = ~frame.duplicated("sha256") & (places >= 0)
    numbers = np.full((len(hashes) + 1, len(NUMBERS)), np.nan)
    spectra_db = np.full((len(hashes) + 1, len(BANDS_HZ)), np.nan, np.float16)
    problems = np.full(len(hashes) + 1, "its audio changed while the run was measured: measure again", object)
    wanted = [
        ChosenRows(rows.run, [*compress(rows.positions, is_wanted[frame["run_id"] == rows.run.run_id])])
        for rows in runs
    ]
    if workers is None:
        measured = map_on_all_cores(_measure, chain.from_iterable(map(_read_clips, wanted)))
    else:
        measured = map_on_workers(_measure_rows, wanted, workers, is_cancelled)
    bar = open_bar(len(position_of), "quality", "clip", is_shown=is_shown)
    try:
        for sha256, measures in measured:
            if is_cancelled():
                raise ExportError("the measurement of quality was stopped")
            if (position := position_of.get(sha256)) is None:
                continue
            problems[position] = f"its audio cannot be decoded: {measures}"
            if isinstance(measures, ClipMeasures):
                numbers[position] = [getattr(measures, name) for name in NUMBERS]
                spectra_db[position], problems[position] = measures.spectrum_db, ""
            bar.update()
    finally:
        measured.close()
        bar.close()
    frame["problem"] = np.where(places < 0, frame["problem"], problems[places])
    return numbers, spectra_db, places


def _measure_rows(rows: ChosenRows) -> Iterator[_Measured]:
    """Yield the measures of each clip, in a worker of an executor."""
    return map(_measure, _read_clips(rows))


def _read_clips(rows: ChosenRows) -> Iterator[dict[str, Any]]:
    run = rows.run
    names = {name: run.name_of(name) for name in _AUDIO_FACTS if name in run.record_schema.names}
    for batch in Selection(run, rows.places).batches(list(names.values())):
        for number in range(batch.num_rows):
            yield {ours: batch.column(name)[number].as_py() for ours, name in names.items()}


def _measure(clip: Mapping[str, Any]) -> _Measured:
    """Return the measures of a clip, or the reason why it cannot be decoded, by its SHA-256."""
    try:
        audio = codec.decode(
            (clip[AUDIO_COLUMN] or {}).get("bytes") or b"",
            format=Format(clip["format"]) if clip.get("format") else None,
            sample_rate_hz=clip.get("sample_rate"),
            channels=clip.get("channels") or 1,
        )
        return clip["sha256"], measure_clip(audio.samples, audio.sample_rate_hz)
    except AudioError as error:
        return clip["sha256"], error


def _add_word_errors(frame: "pd.DataFrame", transcripts: Any, runs: Sequence[Selection]) -> "pd.DataFrame":
    """Return the frame with the columns ``_WORD_ERRORS``."""
    import pandas as pd

    given = transcripts if isinstance(transcripts, (list, tuple)) else [transcripts]
    if len(given) != len(runs):
        raise ExportError(f"transcripts= must have {format_count(len(runs), 'run')}: give one for each run")
    errors = [_read_word_errors(one, rows.run, frame) for one, rows in zip(given, runs, strict=True)]
    frame = frame.merge(pd.concat(errors), how="left", on=["run_id", "row_id"])
    language = frame["locale"].str.partition("-")[0]
    counts = frame["cer"].where(language.isin(LANGUAGES_BY_CHARACTER), frame["wer"])
    is_trusted = language.isin(TRUSTED_LANGUAGES)
    untrusted = "does not count: the recogniser cannot be trusted in " + frame["locale"]
    missing = pd.Series("no transcript of this clip with a reference", frame.index).where(counts.isna(), "")
    return frame.assign(
        word_error=counts.where(is_trusted), word_error_remark=missing.where(is_trusted, untrusted)
    )


def _read_word_errors(given: Any, run: StoredRun, frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the word errors of a run's clips in `frame`. Raise ExportError if there are none.

    Transcripts of a run name the call of each clip. Transcripts of an earlier take are left out.
    """
    import pandas as pd

    expected = f"transcripts= must be transcribe(run, reference=...) of the run {run.short_path}"
    names = ["row_id", "wer", "cer"]
    keys: Iterable[str | None] = repeat(None)
    if isinstance(given, pd.DataFrame):
        if lacking := [name for name in names if name not in given]:
            raise ExportError(f"{expected}; the given frame has no column {lacking[0]!r}")
        found = given[names]
    else:
        rows = open_rows(given)
        if rows.run.operation != "transcribe":
            raise ExportError(f"{expected}; {rows.run.short_path} is a run of {rows.run.operation}")
        found = pd.DataFrame([*read_rows(rows, names)], columns=names)
        keys = (request.get("key") for _, request in _read_requests(rows))
    own = frame[frame["run_id"] == run.run_id]
    calls = dict(zip(own["row_id"], own["request_key"], strict=True))
    of_clips = zip(found["row_id"], keys, strict=False)
    is_own = [row_id in calls and key in {None, calls[row_id]} for row_id, key in of_clips]
    if not any(is_own):
        raise ExportError(f"{expected}; none of the given transcripts is of a clip of this run")
    return found[is_own].assign(run_id=run.run_id)


def _find_error_rates(frame: "pd.DataFrame") -> list[float]:
    """Return the error rate of the voice of each row whose only fault is its word error, else 0."""
    if "word_error" not in frame:
        return [0.0] * len(frame)
    is_misheard = (frame["word_error"] > MAX_WORD_ERROR) & (frame["reasons"].map(len) == 1)
    rows = zip(is_misheard, frame["voice_id"], frame["locale"], strict=True)
    return [find_error_rates(voice).get(locale, 0.0) if found else 0.0 for found, voice, locale in rows]


def _advise(grade: str, status: str, varies: object, error_rate: float) -> str:
    if status not in FINISHED_STATUSES:
        return "make the row: resume, unless it is invalid"
    if grade == GOOD:
        return ""
    if grade != BAD:
        return "listen to the clip"
    if error_rate > MAX_WORD_ERROR:
        return f"use another voice: a recogniser misheard {error_rate:.0%} of this voice's words in tests"
    if status in {DONE, CACHED} and not varies:
        return "another take would be identical: use another voice or another text"
    return "make another take: resume with redo"


def describe_quality(measured: "pd.DataFrame") -> tuple[str, ...]:
    """Return sentences on a frame of :func:`quality`, for the card of a dataset."""
    grades, clips = measured["grade"].value_counts(), measured.dropna(subset="loudness_lufs")
    numbers = ", ".join(f"{grades.get(grade, 0):,} {grade}" for grade in (GOOD, CHECK, BAD))
    sentences = [f"Quality of {format_count(len(measured), 'row')}: {numbers}."]
    if len(clips):
        low, middle, high = clips["loudness_lufs"].quantile([0.05, 0.5, 0.95])
        width, peak = clips["bandwidth_hz"].median() / 1000, clips["true_peak_dbtp"].max()
        sentences += [
            f"Loudness: {middle:.1f} LUFS, 90 % of clips {low:.1f} to {high:.1f}, peak {peak:.1f} dBTP.",
            f"Native bandwidth: {width:.1f} kHz.",
        ]
    if few := int((clips["voice_clips"] < ENOUGH_CLIPS).sum()):
        sentences.append(
            f"{format_count(few, 'clip')} had too few others of the voice ({ENOUGH_CLIPS}) to compare."
        )
    if "word_error" in measured and measured["word_error"].notna().any():
        rows = format_count(int(measured["word_error"].count()), "clip")
        median = measured["word_error"].median()
        sentences.append(f"Word error of a recogniser: {median:.1%} in the median of {rows}.")
    return tuple(sentences)
