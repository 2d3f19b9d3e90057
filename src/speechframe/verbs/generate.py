"""The verb `generate`, which speaks each row of a table (sections 2.1 and 2.2 of the service document)."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from json import JSONDecoder, JSONEncoder
from os import PathLike
from types import MappingProxyType
from typing import Any, Literal, Self, Unpack

import pyarrow as pa

from speechframe.backends import alignment
from speechframe.backends.cast import CastSheet, read_cast
from speechframe.backends.judging import SPOKEN_SIGNS
from speechframe.backends.pronunciations import PronunciationSheet, read_pronunciations
from speechframe.backends.service import SpokenBackend
from speechframe.backends.spoken_text import make_finder, make_spoken_text, read_fill, read_object
from speechframe.batch.backend import Opened, Request, RowWithoutCall
from speechframe.batch.live import Run
from speechframe.batch.run import make_run
from speechframe.batch.run_options import RunOptions
from speechframe.client import PreparedCall
from speechframe.errors import InvalidRows
from speechframe.settings import Settings
from speechframe.spec.billing import PRICES
from speechframe.spec.check import FieldProblem, shorten_value
from speechframe.spec.limits import Pool, get_default_sample_rate_hz
from speechframe.spec.speech import Format, GenerateRequest, Model, StreamRequest
from speechframe.spec.texts import count_billed_characters, find_text_fault, strip_pauses
from speechframe.store.schema import SKIPPED, columns
from speechframe.tables.column import Column
from speechframe.tables.table import make_problem
from speechframe.wire.requests import encode_request
from speechframe.wire.speech import encode_content

_GENERATE_WIRES, _STREAM_WIRES = GenerateRequest.get_wire_names(), StreamRequest.get_wire_names()

# Only streams have the field `model`.
WIRE_OF_ARGUMENT: Mapping[str, str] = MappingProxyType(
    {"voice" if name == "voice_id" else name: wire for name, wire in _GENERATE_WIRES.items()}
    | {"model": _STREAM_WIRES["model"]}
)
"""Maps each argument of :func:`generate` but ``words`` to the wire name of the field that it fills."""

_SPOKEN_TEXT_COLUMN = columns(spoken_text=pa.string())
_SPEAKING_ARGUMENTS = frozenset(
    {"spoken", "fill", "pronunciations", "cast", "character", "translation_state", "read_column"}
)
"""Arguments from which :meth:`GenerateBackend._prepare_row` makes the arguments of a request."""
_NOTHING_TO_SPEAK = "there is nothing to speak"
_STALE, _STALE_REASON = "stale", "the source has changed since its translation by people"
_DICTIONARY_EXAMPLE = '{"SQL": {"type": "SAY_AS", "pronunciation": "sequel"}}'

_PRICE_A_CHARACTER = PRICES["generate"].millicredits  # thousandths of a credit for a billed character
_STREAM_VARIATION = StreamRequest.model_fields["variation"].get_default()  # streams ignore other values
_MAX_CACHED_TEMPLATES = 1024  # cached sets of options
_TEXT_FIELD = b'"text":'
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")

# Encode the text like the whole request, because request keys are made from these bytes.
_write_json = JSONEncoder(ensure_ascii=False).encode
_read_json = JSONDecoder().raw_decode

# The parts that requests share if they differ only in their text. These are the bytes before and after the
# text in `Request.content`, the same two in `Request.body`, and the fields `facts` and `varies`.
Template = tuple[bytes, bytes, bytes, bytes, dict[str, Any], bool]


class GenerateBackend(SpokenBackend):
    """Backend of `generate`. The model gen2 has plain calls. falcon-2 has streams, read to their end."""

    operation = "generate"
    arguments = (*WIRE_OF_ARGUMENT, "words")
    table_arguments = frozenset({"words", "pronunciations", "cast"})
    wire_names = WIRE_OF_ARGUMENT

    def __init__(
        self,
        settings: Settings,
        model: Model = Model.GEN2,
        words: Any = None,
        *,
        is_spoken: bool = False,
        fill: Any = None,
        pronunciations: Any = None,
        cast: Any = None,
    ) -> None:
        super().__init__(settings)
        self.model, self._words = model, words
        self._is_spoken, self._fill = is_spoken, fill
        self._pronunciations = None if pronunciations is None else PronunciationSheet(pronunciations)
        self._cast = None if cast is None else CastSheet(cast)
        self.optional_columns = {
            **({"translation_state": "translation_state"} if is_spoken else {}),
            **({"character": "character"} if cast is not None else {}),
        }
        if is_spoken:
            self.row_columns = _SPOKEN_TEXT_COLUMN
            self.arguments = (*self.arguments, "read_column")
        self._is_stream = model is Model.FALCON_2
        self._request_type: type[GenerateRequest | StreamRequest] = (
            StreamRequest if self._is_stream else GenerateRequest
        )
        self.has_word_times = not self._is_stream
        self._templates: dict[str, Template] = {}
        self._parse = lru_cache(_MAX_CACHED_TEMPLATES)(self._request_type.model_validate_json)
        self._aligner: Any = None  # the recogniser that finds word times, if words="align"
        if self._is_stream:
            self.pool = Pool.STREAMING  # the service has a separate cap on concurrent streams
            self.remark = (
                f"{model.value} is streamed; no word durations, no balance, billed characters are computed"
            )

    @classmethod
    def from_constants(cls, settings: Settings, constants: Mapping[str, Any]) -> Self:
        """Return the backend for the constant arguments of a run that belong to the whole table."""
        return cls(
            settings,
            find_model(constants.get("model")),
            constants.get("words"),
            is_spoken=bool(constants.get("spoken")),
            fill=constants.get("fill"),
            pronunciations=constants.get("pronunciations"),
            cast=constants.get("cast"),
        )

    async def open(self) -> Opened:
        """Open the client. If ``words="align"``, also load the recogniser, or raise SettingsError."""
        if self._words is not None:
            self._aligner = await alignment.load_aligner(self._words)
            remark = f"words are aligned with the audio by {self._aligner.name}"
            self.remark = f"{self.remark}; {remark}" if self.remark else remark
        return await super().open()

    def check(self, values: Mapping[str, Any]) -> Request | RowWithoutCall | list[FieldProblem]:
        """Return the request of one row, the reason why it needs no call, or all of its problems."""
        row = self._prepare_row(values)
        if not isinstance(row, dict):
            return row
        found = self._make_request(row)
        if self._is_spoken and isinstance(found, Request):
            return replace(found, row_values={**found.row_values, "spoken_text": row["text"]})
        return found

    def list_notes(self) -> list[str]:
        """Return a note about words of `pronunciations` that are in no row, if there are any."""
        return [] if self._pronunciations is None else self._pronunciations.list_notes()

    def _prepare_row(self, values: Mapping[str, Any]) -> dict[str, Any] | RowWithoutCall | list[FieldProblem]:
        """Return the arguments of a row's request, with its voice from the cast and with its spoken text."""
        row = {name: value for name, value in values.items() if name not in _SPEAKING_ARGUMENTS}
        problems: list[FieldProblem] = []
        if self._is_spoken and values.get("translation_state") == _STALE:
            return RowWithoutCall(SKIPPED, _STALE_REASON)
        if self._cast is not None:
            row, problems = self._cast.complete(row, values.get("character"))
        if self._is_spoken and isinstance(row.get("text", ""), str):
            row["text"], faults = self._make_spoken_text(row, values)
            if not has_words(row["text"]) and not faults:
                return RowWithoutCall(SKIPPED, _NOTHING_TO_SPEAK)
            problems += faults
        dictionary = row.get("pronunciation_dictionary")
        if isinstance(dictionary, str):
            entries = read_object("pronunciation_dictionary", dictionary, _DICTIONARY_EXAMPLE)
            if isinstance(entries, FieldProblem):
                problems.append(entries)
            row["pronunciation_dictionary"] = entries
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

    def _make_request(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the request of prepared arguments, or all problems of the row."""
        if self._pronunciations is not None and isinstance(values.get("text"), str):
            used = self._pronunciations.choose(values["text"], *self._find_voice(values))
            values = {**values, "pronunciation_dictionary": used} if used else values
        options = dict(values)
        text: Any = options.pop("text", None)
        # Check and encode each set of options once, because most rows of a table have the same options. Use
        # their `repr` as the key, because 1, 1.0 and True are equal but make different requests.
        key = repr(options)
        template = self._templates.get(key)
        if template is None or not (type(text) is str and find_text_fault(text) is None and has_words(text)):
            checked = self._make_template(values)
            if isinstance(checked, list):
                return checked
            if len(self._templates) >= _MAX_CACHED_TEMPLATES:
                self._templates.clear()
            template = self._templates[key] = checked
        before, after, body_before, body_after, facts, varies = template
        json_text, characters = _write_json(text).encode(), count_billed_characters(text)
        content, body = before + json_text + after, body_before + json_text + body_after
        return Request(content, body, characters * _PRICE_A_CHARACTER, characters, facts, varies)

    def _make_template(self, values: Mapping[str, Any]) -> Template | list[FieldProblem]:
        """Return the parts of a row's request without its text, or all problems of the row."""
        wire_names = self._request_type.get_wire_names().values()
        given = {
            name: value for name, value in values.items() if name in WIRE_OF_ARGUMENT and name != "model"
        }
        problems: list[FieldProblem] = []
        if self._is_stream:
            message, allowed = f"does not exist for {self.model.value}", f"use model={Model.GEN2.value!r}"
            problems += [
                FieldProblem(name, message, shorten_value(given[name]), f"leave it out, or {allowed}")
                for name in sorted(given)
                if WIRE_OF_ARGUMENT[name] not in wire_names
            ]
        elif str(model := values.get("model", Model.GEN2)).lower() != Model.GEN2:
            allowed = f"{Model.GEN2.value}, or {Model.FALCON_2.value} for the whole table"
            problems.append(
                FieldProblem("model", "is not the model of this table", shorten_value(model), allowed)
            )
        fields = {
            wire: value for name, value in given.items() if (wire := WIRE_OF_ARGUMENT[name]) in wire_names
        }
        request, facts, found = self.prepare_request(self._request_type, fields, values)
        problems += found
        text = values.get("text")
        if isinstance(text, str) and find_text_fault(text) is None and not has_words(text):
            problems.append(
                FieldProblem("text", "has nothing to speak", shorten_value(text), "letters, digits or signs")
            )
        if problems or request is None:
            return problems
        if isinstance(request, StreamRequest):
            # Send model and sample rate, because their defaults differ between regions. Set the ignored field
            # `variation` to its default, so that rows that differ only in it share a call.
            rate_hz = request.sample_rate or float(get_default_sample_rate_hz(Model.FALCON_2))
            named = {"model": Model.FALCON_2, "sample_rate": rate_hz, "variation": _STREAM_VARIATION}
            content = body = encode_request(request.model_copy(update=named))
        else:
            # Request Base64 by default. Base64 saves a download, and the service keeps no copy of the audio.
            content, body = encode_content(request, as_base64=True)
        varies = not self._is_stream and request.variation != 0
        before, _, after = _split_at_text(content)
        body_before, _, body_after = _split_at_text(body)
        return before, after, body_before, body_after, facts, varies

    def call(self, request: Request, **call_options: Any) -> PreparedCall[Any]:
        """Return the call that a stored body describes."""
        # Parse requests that differ only in their text once, with "-" as the text. `check` has checked each
        # text.
        before, text, after = _split_at_text(request.body)
        parsed = self._parse(before + b'"-"' + after).model_copy(update={"text": text})
        return PreparedCall("stream" if self._is_stream else "generate", parsed, request.body, **call_options)

    async def after(self, run: Any, is_stopped: Callable[[], bool]) -> None:
        """After all calls, find the words of rows without words in their audio, if ``words="align"``."""
        if self._aligner is not None and not is_stopped():
            await alignment.align(run, self._aligner, is_stopped)


def _split_at_text(request: bytes) -> tuple[bytes, str, bytes]:
    """Return the bytes before the text of a request in JSON, the text, and the bytes after the text."""
    # JSON escapes quotes inside values, so only a name can match. The pronunciation dictionary may have the
    # word "text", too, but it comes before the field, because names are sorted. So search from the end.
    before, name, rest = request.rpartition(_TEXT_FIELD)
    written = rest.decode()
    text, end = _read_json(written)
    return before + name, text, written[end:].encode()


def has_words(text: str) -> bool:
    """Return whether a voice speaks any part of a text. False for "..." and "[pause 1s] -"."""
    plain = strip_pauses(text) if "[" in text else text
    return bool(_LETTER_OR_DIGIT.search(plain)) or any(
        character in SPOKEN_SIGNS or unicodedata.category(character)[0] == "S" for character in plain
    )


def find_model(name: Any) -> Model:
    """Return the model of this name, or gen2 for an unknown name. `check` then refuses the rows."""
    return next((model for model in Model if isinstance(name, str) and model == name), Model.GEN2)


def _refuse_combinations(given: Mapping[str, Any]) -> None:
    """Raise InvalidRows if arguments of the whole table are missing, or cannot be combined."""
    problems: list[tuple[str, str, str]] = []
    if given["voice"] is None and given["cast"] is None:
        problems.append(("voice", "is missing", "a voice, or cast= with a voice for each character"))
    if given["pronunciations"] is not None and given["pronunciation_dictionary"] is not None:
        fault, allowed = "cannot be combined with pronunciation_dictionary", "one of the two"
        problems.append(("pronunciations", fault, allowed))
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
        A pandas or polars frame, Arrow table, Hugging Face dataset, list of strings,
        another run, or the path of a CSV, TSV, JSONL, Parquet, XLSX or text file.
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
        Maps a word to ``{"type": "IPA" | "SAY_AS", "pronunciation": ...}``. ``col("x")`` takes such an
        object from a column, also as JSON text.
    encode_as_base64
        False requests only a URL instead of audio in the answer. The bytes are the same.
    model_version
        Version of the model, as in the service document.
    multi_native_locale
        Deprecated. Use `locale`.
    words
        ``"align"`` finds the words of rows without words in their audio, after all calls. This needs the
        recogniser of the extra ``asr``. The column ``words_basis`` marks these rows.
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
    arguments = {
        "text": text,
        "voice": voice,
        "locale": locale,
        "style": style,
        "pitch": pitch,
        "rate": rate,
        "variation": variation,
        "model": model,
        "format": format,
        "sample_rate": sample_rate,
        "channel_type": channel_type,
        "audio_duration": audio_duration,
        "word_durations_as_original_text": word_durations_as_original_text,
        "pronunciation_dictionary": pronunciation_dictionary,
        "encode_as_base64": encode_as_base64,
        "model_version": model_version,
        "multi_native_locale": multi_native_locale,
        "words": words,
        "spoken": spoken or None,
        "fill": read_fill(fill),
        "pronunciations": read_pronunciations(pronunciations),
        "cast": read_cast(cast),
    }
    _refuse_combinations(arguments)
    return await make_run(
        GenerateBackend.from_constants(options["service"], arguments), table, arguments, options
    )
