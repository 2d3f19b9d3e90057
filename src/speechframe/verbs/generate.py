"""The verb `generate`, which speaks each row of a table (sections 2.1 and 2.2 of the service document)."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from json import JSONDecoder, JSONEncoder
from types import MappingProxyType
from typing import Any, Literal, Self, Unpack

import pyarrow as pa

from speechframe.backends import alignment
from speechframe.backends.judging import SPOKEN_SIGNS
from speechframe.backends.kept import LOCK_COLUMNS, find_correction, keep_audio
from speechframe.backends.service import SpokenBackend
from speechframe.backends.slots import (
    MEASURED,
    PREDICTED,
    SLOT_COLUMNS,
    LineFit,
    Paces,
    compute_available_s,
    fit_line,
)
from speechframe.batch.backend import Opened, Request, RowWithoutCall
from speechframe.batch.live import Run
from speechframe.batch.run import make_run
from speechframe.batch.run_options import RunOptions
from speechframe.client import PreparedCall
from speechframe.errors import SettingsError
from speechframe.settings import Settings
from speechframe.spec.billing import PRICES
from speechframe.spec.check import FieldProblem, shorten_value
from speechframe.spec.limits import Pool, get_default_sample_rate_hz
from speechframe.spec.speech import Format, GenerateRequest, Model, StreamRequest
from speechframe.spec.texts import count_billed_characters, find_text_fault, strip_pauses
from speechframe.tables.column import Column
from speechframe.wire.requests import encode_canonical_json, encode_request
from speechframe.wire.speech import DELIVERY_FIELD, encode_content

_GENERATE_WIRES, _STREAM_WIRES = GenerateRequest.get_wire_names(), StreamRequest.get_wire_names()

# Only streams have the field `model`.
WIRE_OF_ARGUMENT: Mapping[str, str] = MappingProxyType(
    {"voice" if name == "voice_id" else name: wire for name, wire in _GENERATE_WIRES.items()}
    | {"model": _STREAM_WIRES["model"]}
)
"""Maps each argument of :func:`generate` but ``words`` to the wire name of the field that it fills."""

_PRICE_A_CHARACTER = PRICES["generate"].millicredits  # thousandths of a credit for a billed character
_STREAM_VARIATION = StreamRequest.model_fields["variation"].get_default()  # streams ignore other values
_MAX_CACHED_TEMPLATES = 1024  # cached sets of options
_TEXT_FIELD = b'"text":'
_NOTHING_TO_SPEAK = "has nothing to speak", "letters, digits or signs"
_ROW_ARGUMENTS = frozenset({"row_id", "slot", "gap", "is_fitted", "lock"})
"""Arguments of a row that are no part of its request."""
_DECIDED_COLUMNS = tuple(name for name in SLOT_COLUMNS.names if name != "available_s")
"""Row columns that become unknown if the text of a row changes."""
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
    arguments = (*WIRE_OF_ARGUMENT, "words", "row_id", "slot", "gap", "is_fitted", "lock")
    table_arguments = frozenset({"words", "is_fitted", "lock"})
    wire_names = WIRE_OF_ARGUMENT

    def __init__(
        self,
        settings: Settings,
        model: Model = Model.GEN2,
        words: Any = None,
        *,
        is_fitted: bool = False,
        lock: str | None = None,
    ) -> None:
        super().__init__(settings)
        self.is_revised, self._lock = is_fitted, lock
        self.row_columns = pa.schema(
            [*(SLOT_COLUMNS if is_fitted else ()), *(LOCK_COLUMNS if lock is not None else ())]
        )
        self.optional_columns = {"gap": "gap_s"} if is_fitted else {}
        self.model, self._words = model, words
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
        """Return the backend for the `model` and the `words` among the constant arguments of a run."""
        return cls(
            settings,
            find_model(constants.get("model")),
            constants.get("words"),
            is_fitted=bool(constants.get("is_fitted")),
            lock=constants.get("lock"),
        )

    async def open(self) -> Opened:
        """Open the client. If ``words="align"``, also load the recogniser, or raise SettingsError."""
        if self._words is not None:
            self._aligner = await alignment.load_aligner(self._words)
            remark = f"words are aligned with the audio by {self._aligner.name}"
            self.remark = f"{self.remark}; {remark}" if self.remark else remark
        return await super().open()

    def check(self, values: Mapping[str, Any]) -> Request | RowWithoutCall | list[FieldProblem]:
        """Return the request of one row, or all of its problems."""
        row = {name: value for name, value in values.items() if name not in _ROW_ARGUMENTS}
        row_id = values.get("row_id", "")
        is_remembered = self.is_revised or self._lock is not None or self.earlier.has_column("corrected_from")
        earlier = self.earlier.find(row_id) if is_remembered else None
        corrected = find_correction(earlier, row.get("text"))
        if corrected:
            row["text"] = corrected["spoken_text"]
        found = self._make_request(row)
        if isinstance(found, list):
            return found
        found = replace(found, row_values={**found.row_values, **corrected})
        if values.get("slot") is not None:
            available_s = compute_available_s(values["slot"], values.get("gap"))
            if isinstance(available_s, FieldProblem):
                return [available_s]
            if row.get("audio_duration"):
                fault, allowed = "cannot be combined with slot", "one of the two"
                return [FieldProblem("audio_duration", fault, str(row["audio_duration"]), allowed)]
            found = self._fit(found, earlier, available_s)
        if self._lock is None:
            return found
        return keep_audio(found, earlier, self.earlier, _read_text, self.differences)

    def _fit(self, request: Request, earlier: Request | None, available_s: float) -> Request:
        """Return the request of a line with a slot. Its length may be known, predicted, or not yet known."""
        line, known = _split_options(request.body), {} if earlier is None else earlier.row_values
        is_same = earlier is not None and earlier.body != b"" and _split_options(earlier.body) == line
        basis = known.get("natural_basis") if is_same else None
        # A decision by prediction stays while the slot stays.
        if basis == MEASURED or (basis == PREDICTED and known.get("available_s") == available_s):
            natural_s = known["natural_s"]
        else:
            natural_s, basis = self._paces.predict(line[0], request.characters, available_s), PREDICTED
        if natural_s is None:
            self.possible_millicredits += request.price
            return replace(request, row_values={**request.row_values, "available_s": available_s})
        return _apply_fit(request, fit_line(available_s, natural_s, basis, request.characters))

    @cached_property
    def _paces(self) -> Paces:
        return Paces(
            (_split_options(line.body)[0], line.characters, line.row_values["natural_s"])
            for line in self.earlier
            if line.row_values.get("natural_basis") == MEASURED
        )

    def revise(self, request: Request, seconds_of: Callable[[str], float | None]) -> Request | None:
        """Return the new request of a line whose natural length is known now, or None."""
        available_s = request.row_values.get("available_s")
        if available_s is None or "slot_status" in request.row_values:
            return None
        if (natural_s := seconds_of(request.key)) is None:
            return None
        if "held_back" in request.row_values:  # the audio stays as it is
            fit = fit_line(available_s, natural_s, MEASURED, request.characters, max_ratio=1.0)
            unknown = dict.fromkeys(("natural_s", "natural_basis"))
            return replace(request, row_values={**request.row_values, **fit.row_values, **unknown})
        return _apply_fit(request, fit_line(available_s, natural_s, MEASURED, request.characters))

    def correct(self, request: Request, text: str) -> Request | list[FieldProblem]:
        """Return the request of a row with a corrected text, or the problems of this text."""
        spoken = _read_text(request.body)
        if text == spoken:
            return request
        fault = find_text_fault(text) or (None if has_words(text) else _NOTHING_TO_SPEAK)
        if fault is not None:
            return [FieldProblem("corrected_text", fault[0], shorten_value(text), fault[1])]
        content, body = change_fields(request.body, text=text, audioDuration=None)
        characters = count_billed_characters(text)
        kept = {name: v for name, v in request.row_values.items() if name not in _DECIDED_COLUMNS}
        first = kept.get("corrected_from", spoken)
        row_values = {**dict.fromkeys(_DECIDED_COLUMNS), **kept, "spoken_text": text, "corrected_from": first}
        return Request(
            content,
            body,
            characters * _PRICE_A_CHARACTER,
            characters,
            request.facts,
            request.varies,
            row_id=request.row_id,
            row_values=row_values,
        )

    def _make_request(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the request of one row without regard to its slot and its earlier requests."""
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


def change_fields(body: bytes, **changes: Any) -> tuple[bytes, bytes]:
    """Return the content and the body of a request with changed fields. None removes a field."""
    fields = {**json.loads(body), **changes}
    fields = {name: value for name, value in fields.items() if value is not None}
    content = {name: value for name, value in fields.items() if name != DELIVERY_FIELD}
    return encode_canonical_json(content), encode_canonical_json(fields)


def _apply_fit(request: Request, fit: LineFit) -> Request:
    """Return a request with the row values and the length that fit a line to its slot."""
    found = replace(request, row_values={**request.row_values, **fit.row_values})
    if fit.audio_duration is None:
        return found
    content, body = change_fields(request.body, audioDuration=fit.audio_duration)
    return replace(found, content=content, body=body, base_key="", key="", take=0)


def _split_options(body: bytes) -> tuple[bytes, str]:
    """Return the options of a request without its text and its length, as bytes, and its text."""
    options, _ = change_fields(body, text=None, audioDuration=None)
    return options, _read_text(body)


def _read_text(body: bytes) -> str:
    return _split_at_text(body)[1]


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


async def generate(
    table: Any,
    *,
    text: str | Column | Any = "text",
    voice: str | Column | Any,
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
    pronunciation_dictionary: Mapping[str, Any] | None = None,
    encode_as_base64: bool | Column | Any = None,
    model_version: str | None = None,
    multi_native_locale: str | Column | Any = None,
    words: Literal["align"] | None = None,
    slot: str | Any = None,
    lock: Literal["kept"] | None = None,
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
        voice for each row. Most parameters below accept columns and lists, too. A table has one model.
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
        Maps a word to ``{"type": "IPA" | "SAY_AS", "pronunciation": ...}``.
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
        "slot": Column(slot) if isinstance(slot, str) else slot,
        "is_fitted": None if slot is None else True,
        "lock": lock,
    }
    if lock not in {None, "kept"}:
        raise SettingsError(f"lock={lock!r} does not exist: use lock='kept', or leave it out")
    if lock is not None and options.get("run_dir") is None:
        raise SettingsError("lock='kept' needs run_dir, the folder of the run whose audio was reviewed")
    return await make_run(
        GenerateBackend.from_constants(options["service"], arguments), table, arguments, options
    )
