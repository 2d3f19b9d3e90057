"""The verb `change_voice`: rows of clips in, the same in another voice out (section 2.5 of the document)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, Unpack

from speechframe.old_batch.catalogue import VOICE_FIELD, VoiceBook
from speechframe.old_batch.columns import Column
from speechframe.old_batch.drive import drive
from speechframe.old_batch.intake import ClipTaker, clip_files, upload_from
from speechframe.old_batch.operation import (
    Checked,
    Context,
    Planned,
    Service,
    Single,
    request_key,
    spoken_record,
)
from speechframe.old_batch.options import RunOptions
from speechframe.old_batch.progress import duration
from speechframe.old_batch.run import Run
from speechframe.old_batch.table import TableInput, open_table
from speechframe.old_batch.table_files import at_home
from speechframe.old_batch.truth import ClipTruth
from speechframe.old_batch.verbs import verb
from speechframe.old_client import Spoken
from speechframe.old_client.changer import billed_for, with_clip
from speechframe.old_client.upload import Upload
from speechframe.old_store import Record, RunFolder
from speechframe.spec.billing import PRICES, Millicredits, convert_millicredits
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.check import FieldProblem, check
from speechframe.spec.limits import Pool
from speechframe.spec.speech import Format, Model

# What is called otherwise here than in the document, and what cannot be given.
_RENAMED = {
    "file": "audio",
    "voice_id": "voice",
    "multi_native_locale": "locale",
    "encode_output_as_base64": "encode_as_base64",
}
_NOT_GIVEN = {"file_url"}

ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        _RENAMED.get(name, name): wire
        for name, wire in ConvertRequest.wire_names().items()
        if name not in _NOT_GIVEN
    }
)
"""Argument of :func:`change_voice` to the field it fills."""

AUDIO = "audio"
"""The argument that names clips, and the name a plain list of them gets as a column."""

_FILE = ARGUMENTS[AUDIO]
_FIELD_OF = {argument: name for argument, name in ARGUMENTS.items() if argument != AUDIO}
# What the book of voices calls the fields it looks at.
_BOOK_FIELDS = {VOICE_FIELD: ARGUMENTS["voice"], "locale": ARGUMENTS["locale"]}


@dataclass
class ChangeVoiceOperation(Single):
    """How a row becomes a call of the voice changer and its answer a record.

    Parameters
    ----------
    book
        The service's voices.
    service
        The service's identity.
    limits
        Its page of limits.
    folder
        Where clips are that the run keeps; None until something is sent.
    """

    book: VoiceBook
    service: str
    limits: Mapping[str, Any] = field(default_factory=dict)
    folder: RunFolder | None = None
    name: str = "change_voice"
    pool: str = Pool.OTHER
    arguments: Mapping[str, str] = field(default_factory=lambda: ARGUMENTS)
    data_arguments: frozenset[str] = frozenset({AUDIO})

    @classmethod
    def on(cls, service: Service) -> Self:
        """Return the verb as it is with a service."""
        return cls(service.book, service.identity, service.limits)

    def at(self, folder: RunFolder) -> Self:
        """Return the verb as it is in a run's folder."""
        return replace(self, folder=folder)

    @staticmethod
    def looker() -> ClipTruth:
        """Return what doubts answers."""
        return ClipTruth()

    @staticmethod
    def amount(millicredits: Millicredits) -> str:
        """Return the length of the clips that this is the price of."""
        return f"{duration(millicredits / PRICES['convert'].millicredits)} of audio"

    @staticmethod
    def open(table: Any, columns: Mapping[str, str]) -> TableInput:
        """Return the caller's table, or a table of the audio files it names; clips are taken in."""
        base = Path.cwd()
        if isinstance(table, (str, PathLike)):
            files = clip_files(table)
            base = base if files is not None else at_home(table).absolute().parent
            table = table if files is None else files
        carry = frozenset({columns[AUDIO]}) if AUDIO in columns else frozenset()
        read = open_table(table, plain=AUDIO, carry=carry, named=columns.values())
        read.takers = {AUDIO: ClipTaker(base)}
        return read

    def check(self, values: Mapping[str, Any], take: int) -> Checked:
        """Return the call of one row, or everything that is wrong with it."""
        reference = values.get(AUDIO)
        data = {name: values[argument] for argument, name in _FIELD_OF.items() if argument in values}
        # Its bytes are read when they are sent.
        checked = check(ConvertRequest, {**data, _FILE: b""})
        problems = [*self._clip_problems(reference), *checked.problems]
        voice = data.get(ARGUMENTS["voice"])
        if isinstance(voice, str):
            asked = (data.get(name) for name in (ARGUMENTS["locale"], "style"))
            voice, found = self.book.resolve(voice, *(v if isinstance(v, str) else None for v in asked))
            problems += [replace(p, field=_BOOK_FIELDS.get(p.field, p.field)) for p in found]
        if problems or checked.value is None or reference is None:
            return Checked(None, tuple(problems))
        return self._plan(checked.value, upload_from(reference, self.folder), voice, take)

    def _clip_problems(self, reference: Mapping[str, Any] | None) -> list[FieldProblem]:
        if reference is None:
            return [FieldProblem(_FILE, "is missing", "", "a clip")]
        if reference["problem"] is not None:
            return [FieldProblem(_FILE, reference["problem"], "", "")]
        return [
            FieldProblem(
                _FILE, f"has {reference[name]:,.10g} {unit}, the service takes at most {most:,.10g}", "", ""
            )
            for limit, name, unit in (
                ("max_audio_seconds", "audio_seconds", "seconds"),
                ("max_upload_bytes", "size_bytes", "bytes"),
            )
            if isinstance(most := self.limits.get(limit), (int, float)) and reference[name] > most
        ]

    def _plan(self, request: ConvertRequest, upload: Upload, voice: str | None, take: int) -> Checked:
        note = None
        if take and request.variation == 0:
            # Without variation every take is the same: it is the first one, and costs nothing more.
            take, note = 0, "retake_identical"
        if voice != request.voice_id:
            request = request.model_copy(update={"voice_id": voice})
        # Base64 comes beside the URL: the answer needs no second exchange.
        content, call = with_clip(request, upload, as_base64=True, take=take)
        planned = Planned(
            request_key=request_key(self.name, content, model=Model.GEN2, take=take, service=self.service),
            take=take,
            call=call,
            characters=billed_for(upload),
            millicredits=convert_millicredits(upload.audio_seconds),
            text=request.transcription or "",
            voice_id=request.voice_id,
            locale=request.multi_native_locale or self.book.locale_of(request.voice_id),
            model=Model.GEN2.value,
            format=request.format.value,
        )
        return Checked(planned, note=note)

    @staticmethod
    def records(planned: Planned, answer: Spoken, context: Context) -> tuple[Record]:
        """Return what is kept of an answer."""
        return (spoken_record(planned, answer, context),)


@verb(chapter="changer", operation=ChangeVoiceOperation)
async def change_voice(
    table: Any,
    *,
    audio: str | Column | Any = AUDIO,
    voice: str | Column | Any,
    locale: str | Column | Any = None,
    style: str | Column | Any = None,
    pitch: int | Column | Any = None,
    rate: int | Column | Any = None,
    variation: int | Column | Any = None,
    audio_duration: float | Column | Any = None,
    retain_accent: bool | Column | Any = None,
    retain_prosody: bool | Column | Any = None,
    transcription: str | Column | Any = None,
    return_transcription: bool | Column | Any = None,
    format: str | Column | Any = Format.FLAC.value,
    sample_rate: int | Column | Any = None,
    channel_type: str | Column | Any = None,
    pronunciation_dictionary: Mapping[str, Any] | None = None,
    encode_as_base64: bool | Column | Any = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Return a :class:`Run`: every clip of `table` in another voice.

    Each clip is looked at before anything is spent: the price is its length.
    Files stay where they are; clips without a file of their own are kept in
    the run's folder. Calling again with the same clips, wherever they are now,
    costs nothing.

    Parameters
    ----------
    table
        A table as :func:`generate` takes it, an earlier run, audio files (a list of paths or clips, one
        path), or a folder of audio files.
    audio
        The column of clips (or a Series or list of them): paths, relative to the table's file; http(s) URLs;
        bytes; ``{"bytes", "path"}`` or ``{"array", "sampling_rate"}`` as Hugging Face datasets have them;
        pairs of an array and its rate in Hz. Of an earlier run that was made from a column ``audio`` of its
        own, that column is the clips it was given, and ``speech_audio`` what it made of them.
    voice
        Full voice id (``en-US-nora``) or bare name; ``col("x")`` takes it from
        a column, a list gives one a row. So do all parameters below.
    locale
        Language of the output.
    style
        One of the voice's styles.
    pitch, rate
        -50 to 50.
    variation
        0 to 5: how much pause, pitch and speed vary (default 1).
    audio_duration
        Wanted length in seconds; 0 is ignored.
    retain_accent
        True (default) keeps the speaker's accent; False speaks the words anew.
    retain_prosody
        True (default) keeps intonation, rhythm and stress.
    transcription
        What is said in the clip, where that is known.
    return_transcription
        True: the column ``transcription`` says what was said.
    format
        ``FLAC`` (default), ``WAV``, ``MP3``, ``ALAW`` or ``ULAW``.
    sample_rate
        8000, 24000, 44100 (default) or 48000 Hz.
    channel_type
        ``MONO`` (default) or ``STEREO``.
    pronunciation_dictionary
        Word to ``{"type": "IPA" | "SAY_AS", "pronunciation": ...}``.
    encode_as_base64
        False asks for a URL alone instead of audio in the answer; the bytes are the same.
    **options
        See :class:`RunOptions`: ``run_dir``, ``id``, ``max_concurrency``, ``max_credits``, ``cache``,
        ``max_retakes``, ``truth_checks``, ``take``, ``on_invalid``, ``wait``, ``dry_run`` and more.

    Raises
    ------
    InvalidRows
        Before anything is spent, when rows cannot be sent (a clip that is no audio, too); ``problems`` has
        every one.
    RunMismatch, RunLocked, StoreError
        When the folder cannot take this run.
    SettingsError, ServiceError, ConnectionFailed
        When an option or a house rule forbids it, or the service cannot be used at all. Later errors are
        columns of their rows.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.change_voice(["take-1.wav", "take-2.wav"], voice="en-US-nora")  # doctest: +SKIP
    >>> run.to_pandas()[["audio", "audio_seconds", "credits"]]  # doctest: +SKIP
    """
    arguments = {name: value for name, value in locals().items() if name in ARGUMENTS}
    return await drive("change_voice", table, arguments, options)
