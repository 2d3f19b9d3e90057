"""The verb `change_voice`, which converts rows of clips to another voice (section 2.5 of the document).

Each clip is inspected before anything is spent, and read again when it is sent. Files stay in their places.
A clip without a file (bytes, an array, a URL) is kept in the run's folder as ``clips/<sha256>.<ending>``.
"""

import json
from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Any, Unpack

import pyarrow as pa

from speechframe.backends.clips import ClipReader
from speechframe.backends.files import kept_path
from speechframe.backends.service import SpokenBackend
from speechframe.batch.backend import Request
from speechframe.batch.live import Run
from speechframe.batch.progress import duration
from speechframe.batch.run import make
from speechframe.batch.run_options import RunOptions
from speechframe.client import PreparedCall
from speechframe.client.upload import Body, Upload
from speechframe.errors import AudioError
from speechframe.settings import Settings
from speechframe.spec.billing import CREDIT, PRICES, convert_millicredits
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.check import FieldProblem, shown
from speechframe.spec.speech import Format
from speechframe.tables.column import Column
from speechframe.wire.changer import encode_convert

# Field of the document to our argument, if the names differ. `_WIRES` leaves out `file_url`, because
# `change_voice` downloads clips behind URLs itself.
_RENAMED = {
    "file": "audio",
    "voice_id": "voice",
    "multi_native_locale": "locale",
    "encode_output_as_base64": "encode_as_base64",
}

_WIRES = {name: wire for name, wire in ConvertRequest.wire_names().items() if name != "file_url"}

ARGUMENTS: Mapping[str, str] = MappingProxyType({_RENAMED.get(n, n): wire for n, wire in _WIRES.items()})
"""Argument of :func:`change_voice` to the request field that it fills."""

AUDIO = "audio"
"""Name of the argument for clips, and of the column made from a plain list of clips."""

_FILE = ARGUMENTS[AUDIO]
_KEPT_OF_CLIP = ("sha256", "size_bytes", "audio_seconds", "media_type")


class ChangeVoiceBackend(SpokenBackend):
    """Backend of the voice changer. A request's body contains the fields and facts about the clip."""

    operation = "change_voice"
    columns = SpokenBackend.columns.append(pa.field("transcription", pa.string()))
    arguments = tuple(ARGUMENTS)
    data_arguments = frozenset({AUDIO})
    carried = frozenset({AUDIO})
    wire_names = ARGUMENTS
    has_word_times = False
    spoken_field = "transcription"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._clips = ClipReader()

    def source(self, table: Any) -> Any:
        """Return the table, or the files of a folder. Relative paths in a table file begin at its folder."""
        return self._clips.open_source(table)

    def check(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the request of one row, or all problems of the row. Reads the clip."""
        clip, problems = None, []
        try:
            clip = self._clip(values.get(AUDIO))
        except AudioError as error:
            problems = [FieldProblem(AUDIO, str(error), shown(values.get(AUDIO)), "an audio file")]
        # The bytes are left out, because the clip is read again when it is sent.
        fields = {wire: values.get(name) for name, wire in ARGUMENTS.items()} | {_FILE: b""}
        request, facts, found = self.checked(ConvertRequest, fields, values)
        problems += found
        if problems or request is None or clip is None:
            return problems
        known = {"path": str(clip.path), **{name: getattr(clip, name) for name in _KEPT_OF_CLIP}}
        body = request.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={"file"}
        )
        content, price = _encode(request, clip)[0], convert_millicredits(clip.audio_seconds)
        written, varies = json.dumps({**body, _FILE: known}).encode(), request.variation != 0
        return Request(content, written, price, ceil(price / CREDIT), facts, varies)

    def _clip(self, value: Any) -> Upload:
        """Return a row's clip, or raise AudioError if the clip cannot be sent."""
        clip = self._clips.read(value, self.folder)
        sizes = {"max_audio_seconds": clip.audio_seconds, "max_upload_bytes": clip.size_bytes}
        for name, size in sizes.items():
            most, unit = self.limits.get(name), name.rpartition("_")[2]
            if isinstance(most, (int, float)) and size > most:
                raise AudioError(f"has {size:,.10g} {unit}, but the service accepts at most {most:,.10g}")
        return clip

    def call(self, request: Request, **call_options: Any) -> PreparedCall[Any]:
        """Return the call of a request's body. Sending reads the clip and checks its hash."""
        fields = json.loads(request.body)
        clip = fields.pop(_FILE)
        path = kept_path(self.folder, clip["path"])
        upload = Upload(**{name: clip[name] for name in _KEPT_OF_CLIP}, path=path)
        decoded = ConvertRequest.model_validate({**fields, _FILE: b""})
        return PreparedCall("convert", decoded, Body(upload, _encode(decoded, upload)[1]), **call_options)

    def work_of(self, facts: Mapping[str, Any]) -> str:
        """Return the operation, because speech is the smaller part of the work."""
        del facts
        return self.operation

    def describe(self, price: int) -> str | None:
        """Return the total length of the clips for a price."""
        return f"{duration(price / PRICES['convert'].millicredits)} of audio"


def _encode(request: ConvertRequest, clip: Upload) -> tuple[bytes, Any]:
    """Return the request's content with the clip's hash, and the form around the clip's bytes."""
    # Request Base64 beside the URL, so that the answer needs no second exchange.
    return encode_convert(request, clip.sha256, name=clip.name, media_type=clip.media_type, as_base64=True)


async def change_voice(
    table: Any,
    *,
    audio: str | Column | Any = "audio",
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
    """Return a :class:`Run` with every clip of `table` in another voice.

    Each clip is inspected before anything is spent, because its length is the price.
    Files stay in their places. Clips without a file of their own are kept in
    the run's folder. Calling again with the same clips costs nothing, even if
    their files have moved.

    Parameters
    ----------
    table
        Any table of :func:`generate`, audio files (a list of paths or clips, or one path), or a folder of
        audio files.
    audio
        The column of clips, or a Series or list of clips. A clip may be a path relative to the table's file,
        an http(s) URL, bytes, or a pair of an array and its rate in Hz. It may also be a mapping as in
        Hugging Face datasets, ``{"bytes", "path"}`` or ``{"array", "sampling_rate"}``. In an earlier run that
        was made from a column ``audio``, this column contains the original clips. The new ones are in
        ``speech_audio``.
    voice
        Full voice id (``en-US-nora``) or bare name; ``col("x")`` takes it from
        a column, and a list has a voice for each row. The parameters below accept columns and lists, too.
    locale
        Language of the output.
    style
        One of the voice's styles.
    pitch, rate
        Change of pitch or speed, from -50 to 50.
    variation
        How much pauses, pitch and speed vary, from 0 to 5 (default 1).
    audio_duration
        Wanted length in seconds. 0 is ignored.
    retain_accent
        True (default) keeps the speaker's accent. False speaks the words anew.
    retain_prosody
        True (default) keeps intonation, rhythm and stress.
    transcription
        The words spoken in the clip, if known.
    return_transcription
        True writes the spoken words to the column ``transcription``.
    format
        ``FLAC`` (default), ``WAV``, ``MP3``, ``ALAW`` or ``ULAW``.
    sample_rate
        8000, 24000, 44100 (default) or 48000 Hz.
    channel_type
        ``MONO`` (default) or ``STEREO``.
    pronunciation_dictionary
        Word to ``{"type": "IPA" | "SAY_AS", "pronunciation": ...}``.
    encode_as_base64
        False requests only a URL instead of audio in the answer. The bytes are the same.
    **options
        See :class:`RunOptions`: ``run_dir``, ``id``, ``max_credits``, ``dry_run``, ``wait`` and more.

    Raises
    ------
    InvalidRows
        Rows cannot be sent, for example because a clip is not audio. Raised before anything is spent.
        ``problems`` contains every problem.
    RunMismatch, RunLocked, StoreError, SettingsError, ServiceError, ConnectionFailed
        As :func:`generate`.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.change_voice(["take-1.wav", "take-2.wav"], voice="en-US-nora")  # doctest: +SKIP
    >>> run.to_pandas()[["audio", "audio_seconds", "credits"]]  # doctest: +SKIP
    """
    arguments = {
        "audio": audio,
        "voice": voice,
        "locale": locale,
        "style": style,
        "pitch": pitch,
        "rate": rate,
        "variation": variation,
        "audio_duration": audio_duration,
        "retain_accent": retain_accent,
        "retain_prosody": retain_prosody,
        "transcription": transcription,
        "return_transcription": return_transcription,
        "format": format,
        "sample_rate": sample_rate,
        "channel_type": channel_type,
        "pronunciation_dictionary": pronunciation_dictionary,
        "encode_as_base64": encode_as_base64,
    }
    return await make(ChangeVoiceBackend.of(options["service"], arguments), table, arguments, options)
