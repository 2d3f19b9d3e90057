"""The verb `change_voice`, which converts clips to another voice (section 2.5 of the service document).

Each clip is inspected before anything is spent, and read again when it is sent. A clip in a file is not
copied. A clip without a file (bytes, an array, a URL) is stored in the run's folder as
``clips/<sha256>.<ending>``.
"""

import json
from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Any, Unpack

import pyarrow as pa

from speechframe.backends.clips import ClipReader
from speechframe.backends.files import resolve_path
from speechframe.backends.service import SpokenBackend
from speechframe.batch.backend import Request
from speechframe.batch.live import Run
from speechframe.batch.progress import describe_duration
from speechframe.batch.run_options import RunOptions
from speechframe.client import PreparedCall
from speechframe.client.upload import Body, Upload
from speechframe.errors import AudioError
from speechframe.scale.run import make_run
from speechframe.settings import Settings
from speechframe.spec.billing import MILLICREDITS_PER_CREDIT, PRICES, compute_voice_change_millicredits
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.check import FieldProblem, shorten_value
from speechframe.spec.speech import Format
from speechframe.tables.column import Column
from speechframe.wire.changer import encode_convert

# Maps a request field to the argument of `change_voice` that fills the field, if their Python names differ.
_ARGUMENT_OF_FIELD = {
    "file": "audio",
    "voice_id": "voice",
    "multi_native_locale": "locale",
    "encode_output_as_base64": "encode_as_base64",
}

_WIRE_NAMES = ConvertRequest.get_wire_names()
WIRE_OF_ARGUMENT: Mapping[str, str] = MappingProxyType(
    {_ARGUMENT_OF_FIELD.get(n, n): wire for n, wire in _WIRE_NAMES.items() if n != "file_url"}
)
"""Maps each argument of :func:`change_voice` to the wire name of the request field that it fills.

The field `file_url` is left out, because `change_voice` downloads clips behind URLs itself."""

AUDIO_ARGUMENT = "audio"
"""Name of the argument for clips, and of the column made from a plain list of clips."""

# Wire name of the field with the clip. In a stored body, this field contains facts about the clip.
_FILE_FIELD = WIRE_OF_ARGUMENT[AUDIO_ARGUMENT]
# Attributes of a clip that a stored body contains beside its path.
_STORED_CLIP_FIELDS = ("sha256", "size_bytes", "audio_seconds", "media_type")


class ChangeVoiceBackend(SpokenBackend):
    """Backend of the voice changer. The stored body of a request has its fields and facts about the clip."""

    operation = "change_voice"
    columns = SpokenBackend.columns.append(pa.field("transcription", pa.string()))
    arguments = tuple(WIRE_OF_ARGUMENT)
    data_arguments = frozenset({AUDIO_ARGUMENT})
    carried = frozenset({AUDIO_ARGUMENT})
    wire_names = WIRE_OF_ARGUMENT
    has_word_times = False
    spoken_field = "transcription"

    def __init__(self, settings: Settings, constants: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(settings, constants)
        self._clips = ClipReader()

    def source(self, table: Any) -> Any:
        """Return the table, or a list of the audio files if `table` is a folder or an audio file.

        Relative paths in the file of a table begin at the folder of this file.
        """
        return self._clips.open_source(table)

    def check(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Read the clip of a row. Return the request of the row, or all of its problems."""
        clip, problems = None, []
        try:
            clip = self._check_clip(values.get(AUDIO_ARGUMENT))
        except AudioError as error:
            problems = [
                FieldProblem(
                    AUDIO_ARGUMENT, str(error), shorten_value(values.get(AUDIO_ARGUMENT)), "an audio file"
                )
            ]
        # Leave out the bytes, because the clip is read again when it is sent.
        fields = {wire: values.get(name) for name, wire in WIRE_OF_ARGUMENT.items()} | {_FILE_FIELD: b""}
        request, facts, found = self.prepare_request(ConvertRequest, fields, values)
        problems += found
        if problems or request is None or clip is None:
            return problems
        clip_facts = {"path": str(clip.path), **{name: getattr(clip, name) for name in _STORED_CLIP_FIELDS}}
        body = request.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={"file"}
        )
        content, price = _encode(request, clip)[0], compute_voice_change_millicredits(clip.audio_seconds)
        written, varies = json.dumps({**body, _FILE_FIELD: clip_facts}).encode(), request.variation != 0
        return Request(content, written, price, ceil(price / MILLICREDITS_PER_CREDIT), facts, varies)

    def _check_clip(self, value: Any) -> Upload:
        """Return a row's clip, or raise AudioError if the clip cannot be sent."""
        clip = self._clips.read(value, self.folder)
        sizes = {"max_audio_seconds": clip.audio_seconds, "max_upload_bytes": clip.size_bytes}
        for name, size in sizes.items():
            max_size, unit = self.limits.get(name), name.rpartition("_")[2]
            if isinstance(max_size, (int, float)) and size > max_size:
                raise AudioError(f"has {size:,.10g} {unit}, but the service accepts at most {max_size:,.10g}")
        return clip

    def call(self, request: Request, **call_options: Any) -> PreparedCall[Any]:
        """Return the call that a stored body describes. Sending the call reads and checks the clip."""
        fields = json.loads(request.body)
        clip = fields.pop(_FILE_FIELD)
        path = resolve_path(self.folder, clip["path"])
        upload = Upload(**{name: clip[name] for name in _STORED_CLIP_FIELDS}, path=path)
        decoded = ConvertRequest.model_validate({**fields, _FILE_FIELD: b""})
        return PreparedCall("convert", decoded, Body(upload, _encode(decoded, upload)[1]), **call_options)

    def work_of(self, facts: Mapping[str, Any]) -> str:
        """Return the operation, not the engine, because synthesis is the smaller part of the work."""
        del facts
        return self.operation

    def describe(self, price: int) -> str | None:
        """Return the total length of the clips that cost `price` thousandths of a credit."""
        return f"{describe_duration(price / PRICES['convert'].millicredits)} of audio"


def _encode(request: ConvertRequest, clip: Upload) -> tuple[bytes, Any]:
    """Return the content of a call, with the clip's hash in the place of its bytes, and the form to send."""
    # Request Base64 beside the URL, so that no download follows the answer.
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

    Each clip is inspected before anything is spent, because its length determines the price. Clips in files
    are not copied. Clips without a file are stored in the run's folder. Calling again with the same clips
    costs nothing, even if their files have moved.

    Parameters
    ----------
    table
        Any table of :func:`generate`, audio files (a list of paths or clips, or one path), or a folder of
        audio files with its subfolders, as in :func:`transcribe`.
    audio
        The column of clips, or a Series or list of clips. A clip may be a path relative to the table's file,
        an http(s) URL, bytes, or a pair of an array and its rate in Hz. It may also be a mapping as in
        Hugging Face datasets, ``{"bytes", "path"}`` or ``{"array", "sampling_rate"}``. In an earlier run that
        was made from a column ``audio``, this column contains the original clips. The converted
        clips are in ``speech_audio``.
    voice
        Full voice id (``en-US-nora``) or bare name; ``col("x")`` takes it from
        a column, and a list has a voice for each row. The parameters below accept columns and lists, too.
    locale
        Language of the output, if it is not the voice's own.
    style
        One of the voice's styles. The default is its first style.
    pitch, rate
        Change of pitch or speed, from -50 to 50 (default 0).
    variation
        How much pauses, pitch and speed vary, from 0 to 5 (default 1).
    audio_duration
        Requested length in seconds. None (default) and 0 leave the length to the service.
    retain_accent
        True (default) keeps the speaker's accent. False speaks the words anew.
    retain_prosody
        True (default) keeps intonation, rhythm and stress.
    transcription
        The words spoken in the clip, if known.
    return_transcription
        True writes the recognised words to the column ``transcription``.
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
    arguments = {**locals()}
    del arguments["table"], arguments["options"]
    return await make_run(ChangeVoiceBackend(options["service"]), table, arguments, options)
