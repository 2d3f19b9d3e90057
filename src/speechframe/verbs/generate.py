"""The verb `generate`: rows of text in, speech out (sections 2.1 and 2.2 of the service document)."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json import JSONEncoder
from types import MappingProxyType
from typing import Any, Literal, Unpack

from speechframe.batch.backend import MAKERS, Finding, Opened, Record, Request
from speechframe.batch.live import Run
from speechframe.batch.options import RunOptions
from speechframe.batch.run import make
from speechframe.client import Bounds, Call
from speechframe.settings import Settings
from speechframe.spec.billing import billed_characters, speech_millicredits
from speechframe.spec.check import FieldProblem, check, is_speakable, shown
from speechframe.spec.limits import Pool, default_sample_rate_hz
from speechframe.spec.pauses import strip_pauses
from speechframe.spec.speech import Format, GenerateRequest, Model, StreamRequest
from speechframe.tables.columns import Column
from speechframe.verbs import alignment
from speechframe.verbs.judging import SpokenRecord, judge_speech
from speechframe.verbs.pace import SPOKEN_SIGNS
from speechframe.verbs.spoken import SpokenBackend
from speechframe.wire.bodies import encode_content
from speechframe.wire.stream import encode_stream

WORDS = "words"
"""The argument that asks for aligned words; it is no field of a request."""

_GENERATE, _STREAM = GenerateRequest.wire_names(), StreamRequest.wire_names()

# `model` is a field of streams alone.
ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {"voice" if name == "voice_id" else name: wire for name, wire in _GENERATE.items()}
    | {"model": _STREAM["model"]}
)
"""Argument of :func:`generate` to the field it fills."""

_VARIATION = StreamRequest.model_fields["variation"].get_default()
_MOST_TEMPLATES = 1024
_TEXT = b'"text":'
_LETTER = re.compile(r"[^\W_]")

# Written as the whole request is, because these bytes enter request keys.
_written = JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """What the requests of rows that differ in nothing but their text have in common.

    Nearly all rows of a table are alike in every option: these are checked and written once.

    Parameters
    ----------
    content, body
        What is asked for and what is sent, before and after the text.
    facts, varies
        As in :class:`Request`.
    """

    content: tuple[bytes, bytes]
    body: tuple[bytes, bytes]
    facts: Mapping[str, Any]
    varies: bool

    def filled(self, text: str) -> Request:
        """Return the request for a text that has no fault of its own."""
        written, characters = _written(text).encode(), billed_characters(text)
        (before, after), (body_before, body_after) = self.content, self.body
        return Request(
            before + written + after,
            body_before + written + body_after,
            speech_millicredits(characters),
            characters,
            self.facts,
            self.varies,
        )


def around_text(request: bytes, text: str) -> tuple[bytes, bytes]:
    r"""Return what stands before and after the text of a request that is written as JSON.

    Examples
    --------
    >>> around_text(b'{"style":"\\"text\\":","text":"Hi","voiceId":"nora"}', "Hi")
    (b'{"style":"\\"text\\":","text":', b',"voiceId":"nora"}')
    """
    # JSON escapes every quote inside of values. Words of a dictionary are names too, but names are sorted, so
    # these stand before the text.
    before, name, after = request.rpartition(_TEXT)
    return before + name, after[len(_written(text).encode()) :]


class GenerateBackend(SpokenBackend):
    """How a row becomes a call for speech: a plain one for gen2, a stream that is read whole for falcon-2.

    Parameters
    ----------
    settings
        Where the service is.
    model
        One for the whole table.
    words
        ``"align"`` to find words in the audio where the service told none.
    """

    operation = "generate"
    arguments = (*ARGUMENTS, WORDS)
    table_arguments = frozenset({WORDS})
    wire_names = ARGUMENTS

    def __init__(self, settings: Settings, model: Model = Model.GEN2, words: Any = None) -> None:
        super().__init__(settings)
        self.model, self._words = model, words
        self._is_stream = model is Model.FALCON_2
        self.tells_words = not self._is_stream
        self._templates: dict[str, RequestTemplate] = {}
        self._bounds = Bounds()
        if self._is_stream:
            self.pool = Pool.STREAMING
            self.remark = (
                f"{model.value} is streamed: no word durations, no balance, billed characters are computed"
            )

    async def open(self) -> Opened:
        """Open the client; and what listens, where words are to be aligned.

        Raises
        ------
        InvalidRows
            For words that are neither ``"align"`` nor None.
        SettingsError
            Also when there is nothing to align words with.
        """
        self._aligner = await alignment.aligner_for(self._words)
        if self._aligner is not None:
            by = f"words are aligned with the audio by {self._aligner.name}"
            self.remark = f"{self.remark}; {by}" if self.remark else by
        return await super().open()

    def check(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the call of one row, or everything that is wrong with it."""
        options = dict(values)
        text = options.pop("text", None)
        # Equal options are written alike, and 1, 1.0 and True are not.
        name = repr(options)
        template = self._templates.get(name)
        is_sayable = type(text) is str and is_speakable(text) and has_words(text)
        if template is None or not is_sayable:
            found = self._template(values, options)
            if isinstance(found, list):
                return found
            template = found
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            self._templates[name] = template
        assert isinstance(text, str)  # noqa: S101 - for the type: everything else is a problem
        return template.filled(text)

    def _template(
        self, values: Mapping[str, Any], options: Mapping[str, Any]
    ) -> RequestTemplate | list[FieldProblem]:
        """Return what a row has in common with rows like it, or everything that is wrong with it."""
        kind: type[GenerateRequest | StreamRequest] = GenerateRequest
        problems: list[FieldProblem] = []
        given = {name: value for name, value in values.items() if name in ARGUMENTS and name != "model"}
        if self._is_stream:
            kind = StreamRequest
            problems += [
                FieldProblem(
                    name,
                    f"does not exist for {self.model.value}",
                    shown(given[name]),
                    f"leave it out, or model={Model.GEN2.value!r}",
                )
                for name in sorted(given.keys() - {"voice"} - _STREAM.keys())
            ]
        elif str(model := options.get("model", Model.GEN2)).lower() != Model.GEN2:
            allowed = f"{Model.GEN2.value}, or {Model.FALCON_2.value} for the whole table"
            problems.append(FieldProblem("model", "is not the model of this table", shown(model), allowed))
        fields = kind.wire_names().values()
        data = {wire: given[name] for name in given if (wire := ARGUMENTS[name]) in fields}
        checked = check(kind, data)
        problems += map(self.by_argument, checked.problems)
        text, voice = values.get("text"), values.get("voice")
        if isinstance(text, str) and is_speakable(text) and not has_words(text):
            problems.append(
                FieldProblem("text", "has nothing to say", shown(text), "letters, digits or signs")
            )
        if not isinstance(voice, str):
            return problems
        field = "multi_native_locale" if values.get("locale") is None else "locale"
        locale, style = (v if isinstance(v, str) else None for v in (values.get(field), values.get("style")))
        resolved = self.book.resolve(voice, locale, style)
        problems += resolved.problems
        if problems or checked.value is None:
            return problems
        request = checked.value.model_copy(update={"voice_id": resolved.voice_id, field: resolved.locale})
        varies = not isinstance(request, StreamRequest) and request.variation != 0
        if isinstance(request, StreamRequest):
            content = body = encode_stream(_named(request))
        else:
            # A length of 0 is ignored. Base64 is one exchange less than a URL, and the service keeps no copy.
            request = request.model_copy(update={"audio_duration": request.audio_duration or None})
            content, body = encode_content(request, as_base64=True)
        facts = {
            "model": self.model.value,
            "locale": resolved.spoken,
            "voice_id": resolved.voice_id,
            "format": request.format.value,
        }
        text = request.text
        return RequestTemplate(around_text(content, text), around_text(body, text), facts, varies)

    def call(self, request: Request) -> Call[Any]:
        """Return the call of a request's body."""
        if self._is_stream:
            return Call("stream", StreamRequest.model_validate_json(request.body), request.body)
        return Call("generate", GenerateRequest.model_validate_json(request.body), request.body)

    def most_audio_bytes(self, call: Call[Any]) -> int:
        """Return how large audio behind an address can be."""
        return int(self._bounds.download_bytes_for(call.request))

    def text_of(self, call: Call[Any]) -> str | None:
        """Return the text."""
        return str(call.request.text)

    def judge(self, request: Request, record: Record, learned: dict[str, Any]) -> list[Finding]:
        """Return what speaks against an answer, by its text and by what is usual for its voice."""
        assert isinstance(record, SpokenRecord)  # noqa: S101 - for the type: made in `records`
        facts = request.facts
        return judge_speech(record, (facts["model"], facts["voice_id"], facts["locale"]), learned)

    async def after(self, run: Any, is_stopped: Callable[[], bool]) -> None:
        """Find the words of rows of which the service told none, where that is asked for."""
        if self._aligner is not None and not is_stopped():
            await alignment.align(run, self._aligner, is_stopped)


def _named(request: StreamRequest) -> StreamRequest:
    """Return a request that names model and sample rate, whose defaults differ between regions.

    What the model ignores is not sent: rows that differ in nothing else are one call.
    """
    rate_hz = request.sample_rate or float(default_sample_rate_hz(Model.FALCON_2))
    return request.model_copy(
        update={"model": Model.FALCON_2, "sample_rate": rate_hz, "variation": _VARIATION}
    )


def has_words(text: str) -> bool:
    """Return whether there is anything in a text that is read out.

    Examples
    --------
    >>> [has_words(text) for text in ("Hi", "7", "%", "...", "\u200b\u200b", "[pause 1s] -")]
    [True, True, True, False, False, False]
    """
    plain = strip_pauses(text) if "[" in text else text
    return bool(_LETTER.search(plain)) or any(
        character in SPOKEN_SIGNS or unicodedata.category(character)[0] == "S" for character in plain
    )


def model_of(asked: Any) -> Model:
    """Return the model a run is of; gen2 where that is no single model, and then every row is told so.

    Parameters
    ----------
    asked
        The argument ``model`` as the caller gave it, None where it was not given.

    Examples
    --------
    >>> model_of("falcon-2"), model_of(None)
    (<Model.FALCON_2: 'falcon-2'>, <Model.GEN2: 'gen2'>)
    """
    try:
        return Model(asked) if isinstance(asked, str) else Model.GEN2
    except ValueError:
        return Model.GEN2


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
    **options: Unpack[RunOptions],
) -> Run:
    """Return a :class:`Run`: every row of `table` spoken, with word durations and credit usage.

    The run is a folder of Parquet files. Calling again with the same rows and
    parameters costs nothing; after a crash only what is missing is made.

    Parameters
    ----------
    table
        A pandas or polars frame, Arrow table, Hugging Face dataset, list of strings,
        another run, or the path of a CSV, TSV, JSONL, Parquet, XLSX or text file.
    text
        The column that holds the text (or a Series or list of texts).
    voice
        Full voice id (``en-US-nora``) or bare name; ``col("x")`` takes it from
        a column, a list gives one a row. So do all parameters below but `words`;
        gen2 and falcon-2 do not mix in one table.
    locale
        Language of the audio, if it is not the voice's own.
    style
        One of the voice's styles.
    pitch, rate
        -50 to 50.
    variation
        0 to 5: how much pause, pitch and speed vary (default 1).
    model
        ``"gen2"`` (default), or ``"falcon-2"``, which has voices of its own (``voices("falcon-2")``) and is
        streamed: answers have no words and tell no balance, `variation` is ignored, and there is no
        `audio_duration`, `word_durations_as_original_text`, `encode_as_base64` and `model_version`.
    format
        ``FLAC`` (default), ``WAV``, ``MP3``, ``OGG``, ``PCM``, ``ALAW`` or ``ULAW``.
    sample_rate
        8000, 24000, 44100 (default) or 48000 Hz; falcon-2 has 16000 too, and 24000 as its default.
    channel_type
        ``MONO`` (default) or ``STEREO``.
    audio_duration
        Wanted length in seconds; 0 is ignored.
    word_durations_as_original_text
        True: word durations carry the words as they are written (English only).
    pronunciation_dictionary
        Word to ``{"type": "IPA" | "SAY_AS", "pronunciation": ...}``.
    encode_as_base64
        False asks for a URL instead of audio in the answer; the bytes are the same.
    model_version, multi_native_locale
        As in the document; the latter is deprecated, use `locale`.
    words
        ``"align"``: rows of which the service told no words get them from their audio, by the recogniser of
        the extra ``asr``, when all calls are done. The column ``words_basis`` says which those are.
    **options
        See :class:`RunOptions`: ``run_dir``, ``id``, ``max_concurrency``, ``max_credits``, ``cache``,
        ``max_retakes``, ``truth_checks``, ``take``, ``on_invalid``, ``wait``, ``dry_run`` and more.

    Raises
    ------
    InvalidRows
        Before anything is spent, when rows cannot be sent; ``problems`` has every one.
    RunMismatch, RunLocked, StoreError
        When the folder cannot take this run.
    SettingsError, ServiceError, ConnectionFailed
        When an option or a house rule forbids it, there is nothing to align words with, or the service cannot
        be used at all. Later errors are columns of their rows.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.generate(["Good morning.", "See you soon."], voice="en-US-nora")  # doctest: +SKIP
    >>> run.to_pandas()[["text", "audio_seconds", "credits"]]  # doctest: +SKIP
    """
    arguments = {name: value for name, value in locals().items() if name in {*ARGUMENTS, WORDS}}
    backend = GenerateBackend(options["service"], model_of(model), words)
    return await make(backend, table, arguments, options)


MAKERS["generate"] = lambda service, given: GenerateBackend(
    service, model_of(given.get("model")), given.get(WORDS)
)
