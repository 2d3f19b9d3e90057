"""The verb `generate`, which speaks each row of a table (sections 2.1 and 2.2 of the service document)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Any, Literal, Unpack

import pyarrow as pa

from speechframe.backends.cast import CastSheet, read_cast
from speechframe.backends.kept import LOCK_COLUMNS, add_last_kept, find_correction, keep_audio
from speechframe.backends.pronunciations import PronunciationSheet, read_pronunciations
from speechframe.backends.slots import SLOT_COLUMNS, SlotFitter, compute_available_s, revise_line
from speechframe.backends.speech import (
    NOTHING_TO_SPEAK,
    PRICE_A_CHARACTER,
    WIRE_OF_ARGUMENT,
    SpeechBackend,
    change_fields,
    has_words,
    read_text,
)
from speechframe.backends.spoken_text import make_finder, make_spoken_text, read_fill, read_object
from speechframe.batch.backend import Request, RowWithoutCall
from speechframe.batch.live import Run
from speechframe.batch.run_options import RunOptions
from speechframe.errors import InvalidRows, SettingsError, make_problem
from speechframe.scale.run import make_run
from speechframe.settings import Settings
from speechframe.spec.check import FieldProblem, shorten_value
from speechframe.spec.speech import Format, Model
from speechframe.spec.texts import count_billed_characters, find_text_fault
from speechframe.store.schema import SKIPPED, columns
from speechframe.tables.column import Column

_SPOKEN_TEXT_COLUMN = columns(spoken_text=pa.string())
_NO_SPEECH_REASON = "there is nothing to speak"
_STALE, _STALE_REASON = "stale", "the source has changed since its translation by people"

_ROW_ARGUMENTS = frozenset(
    {"row_id", "slot", "gap", "is_fitted", "lock", "spoken", "fill", "pronunciations", "cast", "character"}
    | {"translation_state", "read_column"}
)
"""Arguments of a row that are no part of its request."""
_DECIDED_COLUMNS = tuple(name for name in SLOT_COLUMNS.names if name != "available_s")
"""Row columns that become unknown if the text of a row changes."""


class GenerateBackend(SpeechBackend):
    """Backend of `generate`. It makes the request of each row from the table, the sheets and the reviews."""

    operation = "generate"
    arguments = (*WIRE_OF_ARGUMENT, "words", "row_id", "slot", "gap", "is_fitted", "lock")
    table_arguments = frozenset({"words", "is_fitted", "lock", "pronunciations", "cast"})

    def __init__(self, settings: Settings, constants: Mapping[str, Any]) -> None:
        super().__init__(settings, constants)
        self.is_revised = is_fitted = bool(constants.get("is_fitted"))
        self._is_spoken = is_spoken = bool(constants.get("spoken"))
        self._lock, self._fill = constants.get("lock"), constants.get("fill")
        pronunciations, cast = constants.get("pronunciations"), constants.get("cast")
        self._pronunciations = None if pronunciations is None else PronunciationSheet(pronunciations)
        self._cast = None if cast is None else CastSheet(cast)
        self.row_columns = pa.schema(
            [
                *(_SPOKEN_TEXT_COLUMN if is_spoken else ()),
                *(SLOT_COLUMNS if is_fitted else ()),
                *(LOCK_COLUMNS if self._lock is not None else ()),
            ]
        )
        self.optional_columns = {
            **({"gap": "gap_s"} if is_fitted else {}),
            **({"translation_state": "translation_state"} if is_spoken else {}),
            **({"character": "character"} if cast is not None else {}),
        }
        if is_spoken:
            self.arguments = (*self.arguments, "read_column")

    def check(self, values: Mapping[str, Any]) -> Request | RowWithoutCall | list[FieldProblem]:
        """Return the request of one row, the reason why it needs no call, or all of its problems."""
        if self._is_plain:
            return self.make_request(values)
        earlier = self.earlier.find(values.get("row_id", "")) if self._is_remembered else None
        row = self._prepare_row(values)
        if isinstance(row, RowWithoutCall):
            return row if self._lock is None else add_last_kept(row, earlier, self.earlier)
        found = row if isinstance(row, list) else self._make_line(row, earlier)
        if isinstance(found, list):
            return found
        if values.get("slot") is not None:
            available_s = compute_available_s(values["slot"], values.get("gap"))
            if isinstance(available_s, FieldProblem):
                return [available_s]
            found = self._slots.fit(found, earlier, available_s)
            self.possible_millicredits = self._slots.undecided_millicredits
        return found if self._lock is None else keep_audio(found, earlier, self.earlier, self.differences)

    def _make_line(self, row: dict[str, Any], earlier: Request | None) -> Request | list[FieldProblem]:
        """Return the request of a prepared row with its corrected text and its words, or the problems."""
        row_values: dict[str, Any] = {**find_correction(earlier, row.get("text"))}
        if row_values:
            row["text"] = row_values["spoken_text"]
        elif self._is_spoken:
            row_values["spoken_text"] = row.get("text")
        if self._pronunciations is not None and isinstance(row.get("text"), str):
            used = self._pronunciations.choose(row["text"], *self._find_voice(row))
            row |= {"pronunciation_dictionary": used} if used else {}
        found = self.make_request(row)
        return replace(found, row_values=row_values) if row_values and isinstance(found, Request) else found

    @cached_property
    def _is_remembered(self) -> bool:
        """Whether the run's table so far matters for the rows of the next one."""
        return self.is_revised or self._lock is not None or self.earlier.has_column("corrected_from")

    @cached_property
    def _is_plain(self) -> bool:
        """Whether rows have no further arguments than those of their requests."""
        return not (self._is_spoken or self._cast or self._pronunciations or self._is_remembered)

    @cached_property
    def _slots(self) -> SlotFitter:
        return SlotFitter(self.earlier)

    def revise(self, request: Request, seconds_of: Callable[[str], float | None]) -> Request | None:
        """Return the new request of a line whose natural length is known now, or None."""
        return revise_line(request, seconds_of(request.key))

    def correct(self, request: Request, text: str) -> Request | list[FieldProblem]:
        """Return the request of a row with a corrected text, or the problems of this text."""
        spoken = read_text(request.body)
        if text == spoken:
            return request
        fault = find_text_fault(text) or (None if has_words(text) else NOTHING_TO_SPEAK)
        if fault is not None:
            return [FieldProblem("corrected_text", fault[0], shorten_value(text), fault[1])]
        changes: dict[str, Any] = {"text": text, "audioDuration": None}
        if self._pronunciations is not None:
            voice = request.facts["locale"], request.facts["voice_id"]
            changes["pronunciationDictionary"] = self._pronunciations.choose(text, *voice) or None
        content, body = change_fields(request.body, **changes)
        characters = count_billed_characters(text)
        kept = {name: v for name, v in request.row_values.items() if name not in _DECIDED_COLUMNS}
        first = kept.get("corrected_from", spoken)
        row_values = {**dict.fromkeys(_DECIDED_COLUMNS), **kept, "spoken_text": text, "corrected_from": first}
        return Request(
            content,
            body,
            characters * PRICE_A_CHARACTER,
            characters,
            request.facts,
            request.varies,
            row_id=request.row_id,
            row_values=row_values,
        )

    def finish_table(self) -> list[str]:
        """Return a note about words of `pronunciations` that are in no row, if there are any."""
        return [] if self._pronunciations is None else self._pronunciations.list_notes()

    def _prepare_row(self, values: Mapping[str, Any]) -> dict[str, Any] | RowWithoutCall | list[FieldProblem]:
        """Return the arguments of a row's request, with its voice from the cast and with its spoken text."""
        row = {name: value for name, value in values.items() if name not in _ROW_ARGUMENTS}
        problems: list[FieldProblem] = []
        if self._is_spoken and values.get("translation_state") == _STALE:
            return RowWithoutCall(SKIPPED, _STALE_REASON)
        if self._cast is not None:
            row, problems = self._cast.complete(row, values.get("character"))
        if self._is_spoken and isinstance(row.get("text", ""), str):
            row["text"], faults = self._make_spoken_text(row, values)
            if not has_words(row["text"]) and not faults:
                return RowWithoutCall(SKIPPED, _NO_SPEECH_REASON)
            problems += faults
        return problems or row

    def _make_spoken_text(
        self, row: Mapping[str, Any], values: Mapping[str, Any]
    ) -> tuple[str, list[FieldProblem]]:
        """Return the text to speak in a row, and the problems of its placeholders."""
        fill: Any = self._fill
        if not isinstance(fill, Mapping):
            own = read_object("fill", values.get("fill") or {}, '{"count": "3"}')
            if isinstance(own, FieldProblem):
                return "", [own]
            fill = {"*": own}
        read_column = values.get("read_column", {}.get)
        return make_spoken_text(row.get("text", ""), make_finder(fill, self._find_voice(row)[0], read_column))

    def _find_voice(self, row: Mapping[str, Any]) -> tuple[str | None, str]:
        """Return the locale and the voice id of a row, as the catalogue spells them if it has them."""
        voice, locale = row.get("voice"), row.get("locale", row.get("multi_native_locale"))
        locale = locale if isinstance(locale, str) else None
        if not isinstance(voice, str):
            return locale, ""
        found = self.book.resolve(voice, locale)
        return found.spoken_locale, found.voice_id


def _refuse_combinations(given: Mapping[str, Any]) -> None:
    """Raise InvalidRows if arguments of the whole table are missing, or cannot be combined."""
    problems: list[tuple[str, str, str]] = []
    if given["voice"] is None and given["cast"] is None:
        problems.append(("voice", "is missing", "a voice, or cast= with a voice for each character"))
    if given["pronunciations"] is not None and given["pronunciation_dictionary"] is not None:
        fault, allowed = "cannot be combined with pronunciation_dictionary", "one of the two"
        problems.append(("pronunciations", fault, allowed))
    if given["slot"] is not None and given["audio_duration"] is not None:
        problems.append(("slot", "cannot be combined with audio_duration", "one of the two"))
    if given["fill"] is not None and not given["spoken"]:
        problems.append(("fill", "needs spoken=True", "spoken=True, or leave fill out"))
    if problems:
        raise InvalidRows([make_problem(name, fault, allowed=allowed) for name, fault, allowed in problems])


async def generate(
    table: Any,
    *,
    text: str | Column | Any = "text",
    voice: str | Column | Any = None,
    locale: str | Column | Any = None,
    style: str | Column | Any = None,
    pitch: int | Column | Any = None,
    rate: int | Column | Any = None,
    variation: int | Column | Any = None,
    model: str = Model.GEN2.value,
    format: str | Column | Any = Format.FLAC.value,
    sample_rate: int | Column | Any = None,
    channel_type: str | Column | Any = None,
    audio_duration: float | Column | Any = None,
    word_durations_as_original_text: bool | Column | Any = None,
    pronunciation_dictionary: Mapping[str, Any] | Column | None = None,
    encode_as_base64: bool | Column | Any = None,
    model_version: str | None = None,
    multi_native_locale: str | Column | Any = None,
    words: Literal["align"] | None = None,
    slot: str | Any = None,
    lock: Literal["kept"] | None = None,
    spoken: bool = False,
    fill: Mapping[str, Any] | Column | None = None,
    pronunciations: str | PathLike[str] | Any = None,
    cast: str | PathLike[str] | Any = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Return a :class:`Run` with every row of `table` spoken, with word durations and credit usage.

    The run is a folder of Parquet files. Calling again with the same rows and parameters costs nothing. After
    a crash, the same call makes only the missing rows.

    Parameters
    ----------
    table
        A pandas, polars or Dask frame, Arrow table, dataset (of Arrow, Ray or Hugging Face), list of strings,
        another run, or the path of a CSV, TSV, JSONL, Parquet, XLSX or text file, or of a folder of Parquet.
    text
        The column with the text, or a Series or list of texts.
    voice
        Full voice id (``en-US-nora``) or bare name; ``col("x")`` takes it from a column, and a list has a
        voice for each row. Most parameters below accept columns and lists, too. A table has one model. With
        `cast`, the voice may be left out.
    locale
        Language of the audio, if it is not the voice's own.
    style
        One of the voice's styles. The default is its first style.
    pitch, rate
        Change of pitch or speed, from -50 to 50. The default is 0.
    variation
        How much pauses, pitch and speed vary, from 0 to 5 (default 1).
    model
        ``"gen2"`` (default) or ``"falcon-2"``. falcon-2 has its own voices (``voices("falcon-2")``) and is
        streamed, so answers contain neither words nor a balance. falcon-2 ignores `variation` and refuses
        `audio_duration`, `word_durations_as_original_text`, `encode_as_base64` and `model_version`.
    format
        ``FLAC`` (default), ``WAV``, ``MP3``, ``OGG``, ``PCM``, ``ALAW`` or ``ULAW``.
    sample_rate
        8000, 24000, 44100 (default) or 48000 Hz. falcon-2 also has 16000, and its default is 24000.
    channel_type
        ``MONO`` (default) or ``STEREO``.
    audio_duration
        Requested length in seconds. None (default) and 0 leave the length to the service.
    word_durations_as_original_text
        True returns word durations with the words as written in the text (English only).
    pronunciation_dictionary
        Maps a word to ``{"type": "IPA" | "SAY_AS", "pronunciation": ...}``; ``col("x")`` takes such an
        object, or its JSON text, from a column.
    encode_as_base64
        False requests only a URL instead of audio in the answer. The bytes are the same.
    model_version
        Version of the model, as in the service document.
    multi_native_locale
        Deprecated. Use `locale`.
    words
        ``"align"`` finds the words of rows without words in their audio, after all calls. This needs the
        recogniser of the extra ``asr``. The column ``words_basis`` marks these rows.
    slot
        Column with the seconds that a line may take. A line that does not fit, but is at most 1.3 times too
        long, is spoken and paid again with the length of its slot. Up to .5 s of the column ``gap_s`` (the
        time to the next line) counts, too. A longer line stays as it is: ``slot_status`` is
        ``needs_shortening``, and ``characters_to_lose`` says by how much. Further columns are
        ``available_s``, ``natural_s``, ``natural_basis`` (``predicted`` lines were made only once),
        ``fit_ratio`` and ``over_s``.
    lock
        ``"kept"`` does not make a row again if the newest review of its current audio is ``keep``, and if
        its spoken text is the same. The column ``held_back`` names the changed arguments. If the text has
        changed, ``last_kept`` is the ``request_key`` of the kept audio, for ``run.clip_of_call``. A lock
        needs the same ``run_dir``.
    spoken
        True removes tags from each text, decodes entities, fills placeholders and collapses whitespace,
        before the text is checked and priced. The column ``spoken_text`` has the result. Rows without words
        are skipped, and also rows whose column ``translation_state`` is ``stale``.
    fill
        Values of placeholders by locale, language or ``"*"``, such as ``{"pt-BR": {"count": "3"}}``, or
        ``col("x")`` for a column with an object (or JSON text) of values for the row. ``%s`` and ``%d`` have
        the names ``"1"``, ``"2"`` in order, and ``{0}`` has the name ``"0"``. A placeholder without a value
        is filled from the column of its name. If there is none, the placeholder is a problem.
    pronunciations
        Pronunciations of words, as a frame, list of dicts or file with the columns ``word``, ``locale``,
        ``voice`` (both empty or ``*`` for any), and either ``ipa`` or ``say_as``. Or a dict of word to the
        text to say. A request gets only the words of its text. So a new word makes only the rows again that
        contain it. A word in lower case matches any case, and the longest word wins.
    cast
        Voices by character, as a frame, list of dicts or file with the columns ``character``, ``locale``
        (both empty or ``*`` for any), ``voice``, ``style``, ``rate`` and ``pitch``. The column ``character``
        of the table names the character of each row. The line with the fewest ``*`` counts. Arguments of
        this function take precedence over the cast.
    **options
        See :class:`RunOptions`: ``run_dir``, ``id``, ``max_credits``, ``dry_run``, ``wait`` and more.

    Raises
    ------
    InvalidRows
        If rows cannot be sent. ``problems`` lists all problems, and nothing was spent.
    RunMismatch, RunLocked, StoreError
        If the folder cannot be used for this run.
    SettingsError, ServiceError, ConnectionFailed
        If an option or a limit in the settings forbids the run, the recogniser for ``words`` is missing, or
        the service cannot be used at all. Later errors are columns of their rows.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.generate(["Good morning.", "See you soon."], voice="en-US-nora")  # doctest: +SKIP
    >>> run.to_pandas()[["text", "audio_seconds", "credits"]]  # doctest: +SKIP
    """
    arguments = {**locals()}
    del arguments["table"], arguments["options"]
    arguments |= {
        "slot": Column(slot) if isinstance(slot, str) else slot,
        "is_fitted": None if slot is None else True,
        "spoken": spoken or None,
        "fill": read_fill(fill),
        "pronunciations": read_pronunciations(pronunciations),
        "cast": read_cast(cast),
    }
    if lock not in {None, "kept"}:
        raise SettingsError(f"lock={lock!r} does not exist: use lock='kept', or leave it out")
    if lock is not None and options.get("run_dir") is None:
        raise SettingsError("lock='kept' needs run_dir, the folder of the run whose audio was reviewed")
    _refuse_combinations(arguments)
    return await make_run(GenerateBackend(options["service"], arguments), table, arguments, options)
