"""The verb `generate`: rows of text in, speech out (section 2.1 of the service document)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, Unpack

from speechframe.old_batch.aligning import WORDS
from speechframe.old_batch.catalogue import VoiceBook
from speechframe.old_batch.columns import Column
from speechframe.old_batch.drive import drive
from speechframe.old_batch.mould import Mould, Moulds, around_text
from speechframe.old_batch.operation import (
    Checked,
    Context,
    Planned,
    Service,
    Single,
    Textual,
    begin_key,
    spoken_record,
)
from speechframe.old_batch.options import RunOptions
from speechframe.old_batch.run import Run
from speechframe.old_batch.speech_fields import ARGUMENTS, voice_in
from speechframe.old_batch.stream_rows import StreamOperation
from speechframe.old_batch.truth import Truth
from speechframe.old_batch.verbs import verb
from speechframe.old_client import Spoken
from speechframe.old_store import Record
from speechframe.spec.check import FieldProblem, check, is_speakable
from speechframe.spec.limits import Pool
from speechframe.spec.speech import Format, GenerateRequest, Model
from speechframe.wire.bodies import encode_content

_FIELD_OF = {argument: name for argument, name in ARGUMENTS.items() if argument != "model"}


@dataclass
class GenerateOperation(Single, Textual):
    """How a row becomes a generate call and its answer a record.

    Parameters
    ----------
    book
        The service's voices.
    service
        The service's identity.
    """

    book: VoiceBook
    service: str
    name: str = "generate"
    pool: str = Pool.OTHER
    arguments: Mapping[str, str] = field(default_factory=lambda: ARGUMENTS)
    data_arguments: frozenset[str] = frozenset({"text"})
    _moulds: Moulds = field(default_factory=Moulds, init=False, repr=False, compare=False)

    @classmethod
    def on(cls, service: Service) -> Self:
        """Return the verb as it is with a service."""
        return cls(service.book, service.identity)

    @staticmethod
    def looker() -> Truth:
        """Return what doubts spoken answers."""
        return Truth()

    def check(self, values: Mapping[str, Any], take: int) -> Checked:
        """Return the call of one row, or everything that is wrong with it."""
        name = self._moulds.name_of(values, take)
        mould, text = self._moulds.get(name), values.get("text")
        if mould is not None and type(text) is str and is_speakable(text):
            return mould.filled(text)
        model = values.get("model", Model.GEN2)
        if model not in {Model.GEN2, Model.GEN2.upper()}:
            allowed = f"{Model.GEN2.value}, or {Model.FALCON_2.value} for the whole table"
            return Checked(None, (FieldProblem("model", "cannot be generated with", repr(model), allowed),))
        data = {name: values[argument] for argument, name in _FIELD_OF.items() if argument in values}
        checked = check(GenerateRequest, data)
        voice, found = voice_in(self.book, data)
        problems = (*checked.problems, *found)
        if problems or checked.value is None:
            return Checked(None, problems)
        mould = self._mould(checked.value, voice or "", take)
        self._moulds.keep(name, mould)
        return mould.filled(checked.value.text)

    def _mould(self, request: GenerateRequest, voice: str, take: int) -> Mould:
        note = None
        if take and request.variation == 0:
            # Without variation every take is the same: it is the first one, and costs nothing more.
            take, note = 0, "retake_identical"
        if voice != request.voice_id:
            request = request.model_copy(update={"voice_id": voice})
        # One round trip less than a URL, and the service keeps no copy.
        content, body = encode_content(request, as_base64=True)
        return Mould(
            request=request,
            key=begin_key(self.name, model=Model.GEN2, take=take, service=self.service),
            content=around_text(content, request.text),
            body=around_text(body, request.text),
            take=take,
            voice_id=voice,
            locale=request.locale or request.multi_native_locale or self.book.locale_of(voice),
            model=Model.GEN2.value,
            format=request.format.value,
            note=note,
        )

    @staticmethod
    def records(planned: Planned, answer: Spoken, context: Context) -> tuple[Record]:
        """Return what is kept of an answer."""
        return (spoken_record(planned, answer, context),)


@verb(chapter="speech", operation=GenerateOperation, by_model={Model.FALCON_2: StreamOperation})
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
    return await drive("generate", table, arguments, options)
