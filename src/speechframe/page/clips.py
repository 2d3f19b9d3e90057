"""Read clips from runs, frames and lists for a page. Texts and times are read at once, audio on demand."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from speechframe.audio.clip import Clip, Word
from speechframe.audio.codec import inspect_audio
from speechframe.audio.peaks import PEAK_BINS, compute_peaks
from speechframe.batch.live import Run
from speechframe.errors import AudioError, SpeechframeError, StoreError
from speechframe.page.word_times import place_words
from speechframe.store.rows import ROW_ID_COLUMN as ROW_ID
from speechframe.store.rows import Selection
from speechframe.store.schema import AUDIO_COLUMN, CALL_COLUMNS, FINISHED_STATUSES
from speechframe.tables.column import Column

_DATA_COLUMNS = (
    "text",
    "word_durations",
    "audio_seconds",
    "voice_id",
    "locale",
    "status",
    "error_message",
    "credits",
)
"""Columns of a run from which the data of a clip is made."""

_AUDIO_FORMS = "the bytes of a file, its path, a dict with one of these, or a clip"
"""Allowed values of the column with the audio, for messages."""

_BINS_PER_S, _MAX_BINS = 50, 4000
"""Number of stretches of an outline for each second, and largest number. A page can zoom into long clips."""

_DEFAULT_LIMIT = 200
"""Default limit of clips on a page. Browsers and people cannot use many more."""


@dataclass(frozen=True)
class Entry:
    """The data of a clip that a page has before the clip is played.

    Parameters
    ----------
    clip_id
        Name of the clip on the page. :func:`make_shelf` uses an index, which does not reveal the content.
    row_id
        Id of the row in its run or frame.
    label
        Name of the clip that users see.
    text
        Spoken text.
    words
        Each word, with start and end in milliseconds.
    audio_seconds
        Length of the audio in seconds. 0 if there is no audio.
    voice_id, locale, status
        Values of the run's columns with these names.
    problem
        Reason why the clip cannot be played. None if it can be played.
    reason
        Reason for the status of a clip that can be played.
    credits
        Price in credits. None if unknown.
    fields
        All columns of the row except the audio, by name.
    run
        Run of the row. None for clips that are not from a run.
    load
        Function that returns the clip, or raises KeyError. None if there is no clip.
    """

    clip_id: str
    row_id: str
    label: str
    text: str = ""
    words: tuple[Word, ...] = ()
    audio_seconds: float = 0.0
    voice_id: str | None = None
    locale: str | None = None
    status: str | None = None
    problem: str | None = None
    reason: str | None = None
    credits: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    run: Any = field(default=None, repr=False)
    load: Callable[[], Clip] | None = field(default=None, repr=False)

    def read_clip(self) -> Clip:
        """Return the clip with its audio. Raise StoreError with the reason if its audio is missing."""
        if self.problem is not None or self.load is None:
            raise StoreError(self.problem or "the clip has no audio")
        try:
            return self.load()
        except KeyError as error:
            raise StoreError(str(error.args[0])) from None

    def to_page(self) -> dict[str, Any]:
        """Return the data as plain values for the page. Its words are pieces of the text (`place_words`)."""
        return {
            "id": self.clip_id,
            "row_id": self.row_id,
            "label": self.label,
            "text": self.text,
            "words": place_words(self.text, self.words),
            "seconds": round(self.audio_seconds, 3),
            "voice": self.voice_id,
            "locale": self.locale,
            "status": self.status,
            "problem": self.problem,
            "reason": self.reason,
            "credits": self.credits,
        }


class ClipShelf:
    """The clips of one page, in order. :func:`make_shelf` makes a shelf.

    Attributes
    ----------
    entries
        The data of each clip.
    total
        Number of rows in the source. `entries` has fewer if these are too many for one page.
    audible
        Whether the rows have audio. Rows of a translation have none.
    """

    def __init__(
        self, entries: Iterable[Entry] = (), *, total: int | None = None, audible: bool = True
    ) -> None:
        self.entries = tuple(entries)
        self.total = len(self.entries) if total is None else total
        self.audible = audible
        self._by_id = {entry.clip_id: entry for entry in self.entries}

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, clip_id: str) -> Entry:
        return self._by_id[clip_id]

    def read_clip(self, clip_id: str) -> Clip:
        """Return a clip with its audio.

        Raises
        ------
        KeyError
            The page does not have this clip.
        StoreError
            The audio is missing. The message has the reason.
        """
        return self[clip_id].read_clip()

    def read_playable(self, clip_id: str) -> tuple[bytes, str]:
        """Return a clip's audio in a format for browsers, and its content type. See :meth:`Clip.playable`."""
        return self.read_clip(clip_id).playable()

    def compute_peaks(self, clip_id: str) -> bytes:
        """Return the outline of a clip's waveform (see `audio.peaks`), or no bytes if it cannot be read."""
        try:
            return compute_outline(self.read_clip(clip_id))
        except (SpeechframeError, OSError):
            # The clip stays on the page, which shows the error when the clip is played.
            return b""


def compute_outline(clip: Clip) -> bytes:
    """Return the outline of a clip's waveform (see `audio.peaks`), or no bytes if its audio is broken."""
    try:
        bins = round(_BINS_PER_S * clip.audio_seconds) if clip.sample_rate else 0  # the rate may be unknown
        return compute_peaks(clip.samples, min(max(PEAK_BINS, bins), _MAX_BINS))
    except SpeechframeError:
        return b""


def make_shelf(
    source: Any, *, label: Any = None, limit: int | None = _DEFAULT_LIMIT, needs_audio: bool = True
) -> ClipShelf:
    """Return the clips of a source.

    Parameters
    ----------
    source
        A run, a selection of rows, a list of these, a :class:`Clip`, a list of clips, or a DataFrame. The
        DataFrame needs a column ``audio`` with clips, bytes of a file, paths, or dicts with ``bytes`` or
        ``path``.
    label
        Column with the label of each clip, as ``col("name")``. None uses the row's id.
    limit
        Largest number of clips. None reads all.
    needs_audio
        Whether to refuse a run without audio, such as a translation.

    Raises
    ------
    StoreError
        The source does not contain clips (the message lists allowed sources), or has no column for `label`.

    Examples
    --------
    >>> import numpy as np
    >>> from speechframe.audio.codec import encode
    >>> from speechframe.spec.speech import Format
    >>> data = encode(np.zeros(8000, np.float32), 8000, format=Format.WAV)
    >>> shelf = make_shelf(Clip(data, Format.WAV, 8000, text="(silence)"))
    >>> shelf.entries[0].label, shelf.entries[0].audio_seconds, shelf.read_playable("0")[1]
    ('clip 1', 1.0, 'audio/wav')
    """
    name = label.name if isinstance(label, Column) else label
    parts = list(source) if isinstance(source, (list, tuple)) else [source]
    if not parts:
        raise StoreError("the list is empty; pass a list with runs or clips")
    entries: list[Entry] = []
    total = 0
    audible = needs_audio or any(not isinstance(part, (Run, Selection)) or _has_audio(part) for part in parts)
    for position, part in enumerate(parts):
        remaining = None if limit is None else max(limit - len(entries), 0)
        for entry_data in islice(_read_part(part, position, needs_audio=audible), remaining):
            entries.append(Entry(str(len(entries)), label=_get_label(entry_data, name), **entry_data))
        total += _count_rows(part)
    return ClipShelf(entries, total=total, audible=audible)


def read_entry(run: Run, position: int, text_columns: Sequence[str]) -> Entry:
    """Return the data of the row at a position of a run. The first text of `text_columns` is its text.

    The id of the clip is the request key of its call.
    """
    (data,) = _read_run(Selection(run, [position]), needs_audio=_has_audio(run))
    fields, row_id = data["fields"], data["row_id"]
    text = next((str(fields[name]) for name in text_columns if fields.get(name)), "")
    clip_id = fields[run.name_of("request_key")] or f"row {position}"
    return Entry(clip_id, label=row_id, **{**data, "text": text})


def _read_part(part: Any, position: int, *, needs_audio: bool) -> Iterator[dict[str, Any]]:
    """Yield the data of each clip in a part of the source, as fields of :class:`Entry`."""
    if isinstance(part, (Run, Selection)):
        yield from _read_run(part, needs_audio=needs_audio)
    elif isinstance(part, Clip):
        yield _describe_clip(part, f"clip {position + 1}", {})
    elif hasattr(part, "columns") and hasattr(part, "itertuples"):
        yield from _read_frame(part)
    else:
        raise StoreError(
            f"clips cannot be read from the type {type(part).__name__}; allowed: a run (open_run(folder)), a "
            f"selection of its rows, a list of runs, a clip, or a DataFrame with a column {AUDIO_COLUMN!r}"
        )


def _get_label(entry_data: Mapping[str, Any], label: str | None) -> str:
    fields = entry_data["fields"]
    if label in fields:
        return str(fields[label])
    if label in {None, ROW_ID}:
        return str(entry_data["row_id"])
    raise StoreError(f"label={label!r} is not a column; there are: {', '.join(fields) or 'none'}")


def _count_rows(part: Any) -> int:
    if isinstance(part, Run):
        return part.manifest.table.rows
    return 1 if isinstance(part, Clip) else len(part)


def _has_audio(part: Run | Selection) -> bool:
    run: Any = part if isinstance(part, Run) else part.run
    return AUDIO_COLUMN in run.manifest.schema.names


def _read_run(part: Run | Selection, *, needs_audio: bool) -> Iterator[dict[str, Any]]:
    """Yield the data of each clip in a run."""
    run: Any = part if isinstance(part, Run) else part.run
    name_of, our_columns = cache(run.name_of), {*run.manifest.schema.names, *CALL_COLUMNS.names}
    if needs_audio and not _has_audio(part):
        raise StoreError(f"a run of {run.operation} does not contain audio; pass a run that makes speech")
    # A run omits speechframe's columns whose values are already in the caller's table. They are read as well.
    shown = [name for name in run.columns if name != name_of(AUDIO_COLUMN)]
    data_columns = [name_of(name) for name in _DATA_COLUMNS if name in our_columns]
    columns = dict.fromkeys([*shown, *data_columns, name_of(ROW_ID)])
    for batch in part.batches(list(columns), audio=False):
        for row in batch.to_pylist():
            row_id, key = str(row.pop(name_of(ROW_ID))), row[name_of("request_key")]
            status, message = row[name_of("status")], row[name_of("error_message")]
            is_finished = status in FINISHED_STATUSES
            yield {
                "row_id": row_id,
                "text": row.get(name_of("text")) or row.get("text") or "",
                "words": tuple(
                    (w["word"], w["start_ms"], w["end_ms"]) for w in row.get(name_of("word_durations")) or ()
                ),
                "audio_seconds": row.get(name_of("audio_seconds")) or 0.0,
                "voice_id": row[name_of("voice_id")],
                "locale": row[name_of("locale")],
                "status": status,
                "run": run,
                "load": partial(run.clip_of_call, key),
                "problem": None
                if is_finished or not needs_audio
                else _explain_missing_audio(row_id, status, message),
                "reason": message if is_finished else None,
                "credits": row[name_of("credits")],
                # pandas stores its index in columns with this prefix. They are not the caller's columns.
                "fields": {
                    name: value for name, value in row.items() if not name.startswith("__index_level_")
                },
            }


def _explain_missing_audio(row_id: str, status: str | None, message: str | None) -> str:
    reason = f"its status is {status or 'pending'}" + (f" ({message})" if message else "")
    return f"row {row_id!r} has no audio, because {reason}"


def _describe_clip(clip: Clip, row_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a clip. Broken audio becomes a problem."""
    entry_data = {
        "row_id": row_id,
        "text": clip.text,
        "words": clip.words,
        "voice_id": clip.voice_id,
        "fields": fields,
    }
    try:
        info = inspect_audio(
            clip.audio, format=clip.format, sample_rate_hz=clip.sample_rate, channels=clip.channels
        )
    except AudioError as error:
        return {**entry_data, "problem": f"{row_id}: {error}"}
    return {**entry_data, "audio_seconds": info.audio_seconds, "load": lambda: clip}


def _read_frame(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the data of each clip in a DataFrame."""
    if AUDIO_COLUMN not in frame.columns:
        raise StoreError(
            f"the frame has no column {AUDIO_COLUMN!r}; for a run, use run.to_pandas(audio=True). Its "
            f"columns are {', '.join(map(str, frame.columns))}"
        )
    import pandas as pd

    others = [name for name in frame.columns if name != AUDIO_COLUMN]
    for row_id, audio, *values in zip(
        frame.index, frame[AUDIO_COLUMN], *(frame[c] for c in others), strict=True
    ):
        # pandas uses NaN for missing values. A page needs None, because JSON has no NaN.
        fields = {
            str(name): None if pd.api.types.is_scalar(value) and pd.isna(value) else value
            for name, value in zip(others, values, strict=True)
        }
        try:
            yield _describe_clip(_make_clip(audio, fields), str(row_id), fields)
        except (AudioError, StoreError, OSError) as error:
            yield {"row_id": str(row_id), "problem": f"row {row_id!r}: {error}", "fields": fields}


def _make_clip(audio: Any, fields: Mapping[str, Any]) -> Clip:
    """Return a row of a DataFrame as a clip. `audio` is its audio in one of the allowed forms."""
    if isinstance(audio, Clip):
        return audio
    data = audio.get("bytes") if isinstance(audio, Mapping) else audio
    if data is None and isinstance(audio, Mapping):
        data = audio.get("path")
    if isinstance(data, (str, PathLike)) and str(data):
        data = Path(data).read_bytes()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise StoreError(
            f"audio cannot be read from the type {type(audio).__name__}; allowed: {_AUDIO_FORMS}"
        )
    data = bytes(data)
    info = inspect_audio(data)
    return Clip(
        data,
        info.format,
        info.sample_rate_hz,
        info.channels,
        text=str(fields.get("text") or ""),
        words=_convert_words(fields.get("word_durations")),
        voice_id=fields.get("voice_id"),
    )


def _convert_words(given: Any) -> tuple[Word, ...]:
    try:
        # int() converts numbers of numpy, which JSON does not accept.
        words = () if given is None else given
        return tuple((str(w["word"]), int(w["start_ms"]), int(w["end_ms"])) for w in words)
    except (TypeError, KeyError, ValueError):
        raise StoreError("word_durations must be a list of mappings with word, start_ms and end_ms") from None
