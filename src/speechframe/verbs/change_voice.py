"""The verb `change_voice`: rows of clips in, the same in another voice out (section 2.5 of the document)."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack

import pyarrow as pa

from speechframe.batch.backend import MAKERS, Answer, Attempt, Finding, Record, Request
from speechframe.batch.live import Run
from speechframe.batch.options import RunOptions
from speechframe.batch.progress import duration
from speechframe.batch.run import make
from speechframe.client import Bounds, Call
from speechframe.client.upload import Body
from speechframe.errors import AudioError, InvalidRows
from speechframe.settings import Settings
from speechframe.spec.billing import CREDIT, PRICES, convert_millicredits
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.check import FieldProblem, check, shown
from speechframe.spec.speech import Format
from speechframe.store.manifest import FILE as MANIFEST_FILE
from speechframe.tables.columns import Column, problem
from speechframe.verbs.clips import AUDIO_SUFFIXES, ClipReference, ClipTaker
from speechframe.verbs.judging import SpokenRecord, judge_clip
from speechframe.verbs.spoken import SpokenBackend
from speechframe.wire.changer import encode_convert

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

_FILE, _LOCALE = ARGUMENTS[AUDIO], ARGUMENTS["locale"]


class ChangeVoiceBackend(SpokenBackend):
    """How a clip becomes a call of the voice changer.

    A request's body holds its fields, and under ``file`` the :class:`ClipReference`.

    Parameters
    ----------
    settings
        Where the service is.
    """

    operation = "change_voice"
    columns = SpokenBackend.columns.append(pa.field("transcription", pa.string()))
    arguments = tuple(ARGUMENTS)
    data_arguments = frozenset({AUDIO})
    carried = frozenset({AUDIO})
    wire_names = ARGUMENTS
    tells_words = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._clips = ClipTaker(Path.cwd())
        self._bounds = Bounds()

    def source(self, table: Any) -> Any:
        """Return the files of a folder of clips, or of one clip; of a table's file, just that.

        Clips that a file names are looked for beside it.

        Raises
        ------
        InvalidRows
            For a folder without any.
        """
        if not isinstance(table, (str, os.PathLike)):
            return table
        path = Path(table).expanduser()
        if path.is_dir() and not (path / MANIFEST_FILE).exists():
            found = sorted(p for p in path.iterdir() if p.suffix.lower() in AUDIO_SUFFIXES and p.is_file())
            if not found:
                allowed = f"a folder with files that end in {', '.join(sorted(AUDIO_SUFFIXES))}"
                raise InvalidRows([problem("table", f"{path} holds no audio files", allowed=allowed)])
            return [str(each) for each in found]
        if path.suffix.lower() in AUDIO_SUFFIXES:
            return [str(path)]
        self._clips = ClipTaker(path.absolute().parent)
        return table

    def check(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the call of one row, or everything that is wrong with it; its clip is read for that."""
        data = {wire: values[name] for name, wire in ARGUMENTS.items() if name in values and name != AUDIO}
        # The clip is read again when it is sent.
        checked = check(ConvertRequest, {**data, _FILE: b""})
        clip, problems = self._clip(values.get(AUDIO))
        problems += map(self.by_argument, checked.problems)
        voice = values.get("voice")
        if not isinstance(voice, str):
            return problems
        asked = (values.get("locale"), values.get("style"))
        resolved = self.book.resolve(voice, *(value if isinstance(value, str) else None for value in asked))
        problems += resolved.problems
        if problems or checked.value is None or clip is None:
            return problems
        request = checked.value.model_copy(
            update={
                "voice_id": resolved.voice_id,
                "multi_native_locale": resolved.locale,
                "audio_duration": checked.value.audio_duration or None,  # a length of 0 is ignored
            }
        )
        fields = request.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={"file"}
        )
        content, _ = _encoded(request, clip)
        price = convert_millicredits(clip.audio_seconds)
        return Request(
            content,
            json.dumps({**fields, _FILE: asdict(clip)}).encode(),
            price,
            ceil(price / CREDIT),
            {
                "model": self.model.value,
                "locale": resolved.spoken,
                "voice_id": resolved.voice_id,
                "format": request.format.value,
            },
            varies=request.variation != 0,
        )

    def _clip(self, value: Any) -> tuple[ClipReference | None, list[FieldProblem]]:
        """Return a row's clip and what is wrong with it."""
        try:
            clip = self._clips.take(value, self.folder)
        except AudioError as error:
            return None, [FieldProblem(AUDIO, str(error), shown(value), "an audio file")]
        if clip is None:
            return None, [FieldProblem(AUDIO, "is missing", "", "a clip")]
        limits = (
            ("max_audio_seconds", clip.audio_seconds, "seconds"),
            ("max_upload_bytes", clip.size_bytes, "bytes"),
        )
        return clip, [
            FieldProblem(AUDIO, f"has {found:,.10g} {unit}, the service takes at most {most:,.10g}", "", "")
            for name, found, unit in limits
            if isinstance(most := self.limits.get(name), (int, float)) and found > most
        ]

    def call(self, request: Request) -> Call[Any]:
        """Return the call of a request's body, with its clip still to be read."""
        fields, clip = _parts(request.body)
        asked = ConvertRequest.model_validate({**fields, _FILE: b""})
        _, form = _encoded(asked, clip)
        return Call("convert", asked, Body(clip.upload(self.folder), form))

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Make one attempt.

        Raises
        ------
        AudioError
            Also when the clip's file is gone or another one by now: nothing was sent.
        """
        if attempt.noted is None:
            await asyncio.to_thread(_parts(request.body)[1].check_unchanged, self.folder)
        return await super().send(request, attempt)

    def most_audio_bytes(self, call: Call[Any]) -> int:
        """Return how large audio behind an address can be."""
        assert isinstance(call.body, Body)  # noqa: S101 - for the type: made in `call`
        return int(self._bounds.changed_bytes_for(call.request, call.body.upload.audio_seconds)[1])

    def text_of(self, call: Call[Any]) -> str | None:
        """Return the transcription that was handed in."""
        return call.request.transcription or None

    def judge(self, request: Request, record: Record, learned: dict[str, Any]) -> list[Finding]:
        """Return what speaks against an answer, by the length of its clip."""
        del learned
        assert isinstance(record, SpokenRecord)  # noqa: S101 - for the type: made in `records`
        return judge_clip(record, _parts(request.body)[1].audio_seconds)

    def describe(self, price: int) -> str | None:
        """Return the length of the clips that a price is paid for."""
        return f"{duration(price / PRICES['convert'].millicredits)} of audio"

    def differences(self, before: bytes, after: bytes) -> tuple[str, ...]:
        """Return the names of the arguments in which two bodies differ: a clip by its content alone."""

        def comparable(body: bytes) -> bytes:
            fields, clip = _parts(body)
            return json.dumps({**fields, _FILE: clip.sha256}).encode()

        return super().differences(comparable(before), comparable(after))


def _parts(body: bytes) -> tuple[dict[str, Any], ClipReference]:
    """Return the fields of a request's body, and its clip."""
    fields = json.loads(body)
    return fields, ClipReference(**fields.pop(_FILE))


def _encoded(request: ConvertRequest, clip: ClipReference) -> tuple[bytes, Any]:
    """Return what is asked for, the clip by its hash, and the form around the clip's bytes."""
    upload = clip.upload(None)
    # Base64 comes beside the address: the answer needs no second exchange.
    return encode_convert(request, clip.sha256, name=upload.name, media_type=clip.media_type, as_base64=True)


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
    return await make(ChangeVoiceBackend(options["service"]), table, arguments, options)


MAKERS["change_voice"] = lambda service, _: ChangeVoiceBackend(service)
