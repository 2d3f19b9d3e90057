"""Check arguments and prepare calls. Compute the time and size limits of calls, and decode their answers.

Section numbers in this package are those of the service document.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

from speechframe.client.answers import RawAnswer, complete_error, decode_spoken, decode_translated
from speechframe.client.upload import Body, read_clip
from speechframe.errors import AudioError, BadAnswer, InvalidRows
from speechframe.spec import locales
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.check import CheckResult, FieldProblem, check
from speechframe.spec.chosen import MAX_IDEMPOTENCY_CHARACTERS, MIN_READER_BYTES_PER_S, PAUSE_SECONDS_RANGE
from speechframe.spec.deprecation import warn_deprecated
from speechframe.spec.fields._model import DocumentModel
from speechframe.spec.speech import ChannelType, GenerateRequest, StreamRequest
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.answers import decode_object
from speechframe.wire.changer import encode_convert
from speechframe.wire.requests import encode_request
from speechframe.wire.translate import get_max_translation_characters

R = TypeVar("R", bound=DocumentModel)

# Fields of requests that the error for an unknown argument does not list as allowed. `text` and `file` are
# always given, and callers give the others under another name.
_RENAMED_FIELDS = frozenset({"text", "voice_id", "model_version", "file", "file_url", "multi_native_locale"})

KIB = 1024
MIB = 1024 * KIB

# Longest speech that a text may give, in seconds a character. Usual speech takes about 0.07 s. Slow speech
# in a script with one word per character takes perhaps 0.6 s. In mono it still fits in the bounds in bytes,
# because these bounds count stereo. It may exceed the time limit.
_MAX_SECONDS_A_CHARACTER = 0.4
# Seconds added to each longest speech, mainly for short texts.
_EXTRA_SPEECH_S = 10.0
# A requested length counts only up to one day, in seconds.
_MAX_REQUESTED_S = 86_400.0
# Longest changed clip, as a multiple of the clip's length. At the lowest speaking rate, changed speech is
# perhaps 1.5 times as long. The speech of some services is longer.
_MAX_CHANGED_RATIO = 4.0
# Size of a frame (one sample of each channel) in stereo with 16 bits.
_STEREO_FRAME_BYTES = ChannelType.STEREO.channels * 2
# Default sample rate. A bound counts at least this rate, even if the request has a lower one.
_DEFAULT_RATE_HZ = float(GenerateRequest.model_fields["sample_rate"].get_default())
# Bytes of JSON for each character of a text (words with times) and each second of a clip (transcription).
_JSON_BYTES_A_CHARACTER_OR_SECOND = 1000
# Bytes of JSON for each translated text, beside the two texts.
_JSON_BYTES_A_TEXT = 200
# A character outside Unicode's basic plane may be written as two escapes of six bytes.
_JSON_BYTES_A_TRANSLATED_CHARACTER = 12


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds.

    Parameters
    ----------
    connect_s
        TCP and TLS together. The time of the attempt also covers name lookup and waiting for a connection.
    base_s, per_character_s
        An attempt may take ``base_s + per_character_s * characters``. Speech takes about 0.07 s a character,
        so a service may synthesise three times as slowly as it speaks.
    per_clip_second_s, upload_bytes_a_second
        An attempt with a clip may take ``base_s``, `per_clip_second_s` for each second of the clip, and the
        upload at `upload_bytes_a_second`. A message to a WebSocket may take ``base_s`` and the upload.
    per_translated_character_s
        A translation may take ``base_s`` and this time for each character. A small machine that translates
        through a third language takes a few milliseconds a character.
    download_s
        Longest download of audio behind a URL. The limit of the attempt does not cover the download, because
        the call was billed by then. A dubbed file may take longer, if its first byte comes within this time.
    download_bytes_a_second
        Lowest speed of a dubbed file's download over each `download_s`. A slower download fails and is
        retried.

    Examples
    --------
    >>> round(Timeouts().compute_attempt_limit_s(5000))
    1280
    """

    connect_s: float = 10.0
    base_s: float = 30.0
    per_character_s: float = 0.25
    per_clip_second_s: float = 2.5
    upload_bytes_a_second: float = 64 * KIB
    per_translated_character_s: float = 0.02
    download_s: float = 60.0
    download_bytes_a_second: float = float(MIN_READER_BYTES_PER_S)

    def compute_attempt_limit_s(self, characters: int) -> float:
        """Return the time limit of an attempt for a text of `characters`, without a download."""
        return self.base_s + self.per_character_s * characters

    def compute_upload_limit_s(self, size_bytes: int) -> float:
        """Return the time limit for the upload of a message or file of this size."""
        return self.base_s + size_bytes / self.upload_bytes_a_second

    def compute_stream_wait_limit_s(self, text: str) -> float:
        """Return the limit of all waits for the pieces of a stream together. The stream speaks `text`."""
        return self.base_s + _estimate_longest_s(text, 0.0)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Largest sizes of answers in bytes, both compressed and decompressed. Larger answers are refused.

    The bound of one call is often smaller. It follows from the text or clip, the sample rate and the
    requested duration. Audio counts as uncompressed stereo, because some services return another format than
    the requested one.

    Parameters
    ----------
    answer_bytes, other_answer_bytes
        `answer_bytes` is for answers with translations or audio (Base64 included), `other_answer_bytes` for
        all other bodies with status 200.
    error_bytes
        The body of an error answer. The rest of a longer body is left unread.
    download_bytes
        Audio that is not in Base64, so a download or a stream that is read to its end.
    dubbed_bytes
        A dubbed media file, which goes to disk piece by piece.
    """

    answer_bytes: int = 384 * MIB
    other_answer_bytes: int = 16 * MIB
    error_bytes: int = 64 * KIB
    download_bytes: int = 512 * MIB
    dubbed_bytes: int = 4096 * MIB

    def compute_max_speech_bytes(self, request: GenerateRequest | StreamRequest) -> tuple[int, int]:
        """Return the largest JSON answer and the largest audio of a request for speech, in bytes."""
        longest_s = _estimate_longest_s(request.text, getattr(request, "audio_duration", None))
        audio_bytes = MIB + _calculate_pcm_bytes(longest_s, request.sample_rate)
        answer_bytes = _JSON_BYTES_A_CHARACTER_OR_SECOND * len(request.text) + audio_bytes * 4 // 3
        return min(self.answer_bytes, answer_bytes), min(self.download_bytes, audio_bytes)

    def compute_max_audio_bytes(self, text: str, rate_hz: float) -> int:
        """Return the largest audio of a text at a sample rate, in bytes."""
        return min(self.download_bytes, MIB + _calculate_pcm_bytes(_estimate_longest_s(text, 0.0), rate_hz))

    def compute_max_voice_change_bytes(
        self, request: ConvertRequest, audio_seconds: float
    ) -> tuple[int, int]:
        """Return the largest answer and the largest audio of a changed clip, in bytes."""
        longest_s = (
            max(min(request.audio_duration or 0.0, _MAX_REQUESTED_S), _MAX_CHANGED_RATIO * audio_seconds)
            + _EXTRA_SPEECH_S
        )
        audio_bytes = _calculate_pcm_bytes(longest_s, request.sample_rate)
        answer_bytes = MIB + int(_JSON_BYTES_A_CHARACTER_OR_SECOND * audio_seconds) + audio_bytes * 4 // 3
        return min(self.answer_bytes, answer_bytes), min(self.download_bytes, MIB + audio_bytes)

    def compute_max_translation_bytes(self, request: TranslateRequest) -> int:
        """Return the largest answer in bytes. It has each text and its longest possible translation."""
        characters = sum(len(text) + get_max_translation_characters(text) for text in request.texts)
        texts_bytes = _JSON_BYTES_A_TEXT * len(request.texts)
        answer_bytes = 64 * KIB + texts_bytes + _JSON_BYTES_A_TRANSLATED_CHARACTER * characters
        return min(self.answer_bytes, answer_bytes)


def _estimate_longest_s(text: str, duration_s: float | None) -> float:
    """Return the longest speech of a text with its pauses in seconds. `duration_s` is a requested length."""
    spoken_s = max(_MAX_SECONDS_A_CHARACTER * len(text), min(duration_s or 0.0, _MAX_REQUESTED_S))
    return spoken_s + PAUSE_SECONDS_RANGE.high * text.count("[") + _EXTRA_SPEECH_S


def _calculate_pcm_bytes(seconds: float, rate_hz: float | None) -> int:
    """Return the size of uncompressed stereo, at the default sample rate at least."""
    return int(seconds * max(_DEFAULT_RATE_HZ, rate_hz or 0.0) * _STEREO_FRAME_BYTES)


@dataclass(frozen=True, slots=True)
class PreparedCall(Generic[R]):
    """One call, ready to be sent any number of times.

    Parameters
    ----------
    operation
        The endpoint's name in `spec.endpoints`: ``generate``, ``stream`` (read to its end), ``convert`` or
        ``translate``.
    request
        The checked request. Its format and channels determine how raw audio is read.
    body
        The bytes of the HTTP body. For a call with a clip, the clip's upload and the form around the clip.
    idempotency_key
        Sent as ``Idempotency-Key`` if given. A service that supports the header bills several calls with the
        same key and body once.
    take
        Sent as ``X-Take`` if above 0. A service that supports the header then returns another reading of the
        same request.

    Examples
    --------
    >>> call = PreparedCall.from_request(GenerateRequest(text="Hello", voice_id="nora"))
    >>> call.body
    b'{"text":"Hello","voiceId":"nora"}'
    """

    operation: str
    request: R
    body: bytes | Body = field(repr=False)
    idempotency_key: str | None = None
    take: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError if the key or the take cannot be sent."""
        key, max_characters = self.idempotency_key, MAX_IDEMPOTENCY_CHARACTERS
        if key is not None and not (0 < len(key) <= max_characters and key.isascii() and key.isprintable()):
            raise ValueError(
                f"the idempotency key must have 1 to {max_characters} printable ASCII characters"
            )
        if self.take < 0:
            raise ValueError(f"the take is {self.take}; allowed: 0 or above")

    @classmethod
    def from_request(
        cls, request: GenerateRequest, *, idempotency_key: str | None = None, take: int = 0
    ) -> "PreparedCall[GenerateRequest]":
        """Return the call of a request for speech, with its body encoded."""
        return PreparedCall("generate", request, encode_request(request), idempotency_key, take)

    def compute_limits(self, timeouts: Timeouts, bounds: Bounds) -> tuple[float, int, int]:
        """Return the limit of one attempt in seconds, and the largest answer and download in bytes."""
        request: Any = self.request
        if isinstance(self.body, Body):
            clip = self.body.upload
            limit_s = timeouts.compute_upload_limit_s(clip.size_bytes)
            limit_s += timeouts.per_clip_second_s * clip.audio_seconds
            return limit_s, *bounds.compute_max_voice_change_bytes(request, clip.audio_seconds)
        if self.operation == "translate":
            characters = sum(map(len, request.texts))
            limit_s = timeouts.base_s + timeouts.per_translated_character_s * characters
            return limit_s, bounds.compute_max_translation_bytes(request), 0
        answer_bytes, audio_bytes = bounds.compute_max_speech_bytes(request)
        limit_s = timeouts.compute_attempt_limit_s(len(request.text))
        return limit_s, audio_bytes if self.operation == "stream" else answer_bytes, audio_bytes

    def find_audio_url(self, raw: RawAnswer) -> str | None:
        """Return the URL of the audio in an answer, or None if the answer contains no such URL."""
        if raw.has_audio or self.operation == "translate":
            return None
        try:
            url = decode_object(raw.body).get("audioFile" if self.operation == "generate" else "audio_file")
        except BadAnswer:
            return None  # `decode` raises the error
        return url if isinstance(url, str) and url.strip() else None

    def decode(self, raw: RawAnswer, *, audio: bytes | None = None) -> Any:
        """Decode an answer to a :class:`Spoken` or a :class:`Translated`. Any thread may call this.

        `raw` is the result of ``Client.send_raw``, and `audio` the bytes behind its :meth:`find_audio_url`.

        Raises
        ------
        BadAnswer
            The answer cannot be used. It was most likely billed. The error has the balance and the trace id,
            if the answer contains them.
        """
        request: Any = self.request
        try:
            if self.operation == "translate":
                return decode_translated(raw, request)
            clip_seconds = self.body.upload.audio_seconds if isinstance(self.body, Body) else None
            return decode_spoken(raw, audio, request, clip_seconds)
        except BadAnswer as error:
            load = None if self.operation == "stream" else decode_object
            raise complete_error(error, raw, load) from None


def prepare_generate(
    text: str, *, voice: str, model: str = "gen2", **given: Any
) -> PreparedCall[GenerateRequest]:
    """Return a checked call for speech. `stacklevel` selects the line that a DeprecationWarning names."""
    given = {"text": text, "voice_id": voice, "model_version": model.upper(), "stacklevel": 2, **given}
    return _prepare_call("generate", GenerateRequest, **given)


def prepare_stream(
    text: str, *, voice: str, model: str | None = None, **given: Any
) -> PreparedCall[StreamRequest]:
    """Return a checked call for a stream over HTTP (section 2.2), see :meth:`Client.stream`."""
    given = {"text": text, "voice_id": voice, "model": model, "stacklevel": 2, **given}
    return _prepare_call("stream", StreamRequest, **given)


def prepare_convert(
    audio: Any, *, voice: str, locale: str | None = None, **given: Any
) -> PreparedCall[ConvertRequest]:
    """Return a checked call of the voice changer. Blocks the thread while the clip is read."""

    def encode_clip(request: ConvertRequest) -> Body:
        try:
            clip = read_clip(audio)
        except AudioError as error:
            line = {"field": "audio", "problem": str(error), "value": "", "allowed": "an audio file"}
            raise InvalidRows([line]) from None
        # Request Base64 beside the URL, so that no download follows the answer.
        _, form = encode_convert(
            request, clip.sha256, name=clip.name, media_type=clip.media_type, as_base64=True
        )
        return Body(clip, form)

    given = {"voice_id": voice, "multi_native_locale": locale, **given, "file": b""}
    return _prepare_call("convert", ConvertRequest, encode=encode_clip, **given)


def prepare_translate(
    texts: Any, *, target: str, source: str | None = None, idempotency_key: str | None = None
) -> PreparedCall[TranslateRequest]:
    """Return a checked call of the translation, see :meth:`Client.translate`."""
    fields: dict[str, Any] = {"texts": [texts] if isinstance(texts, str) else list(texts)}
    tags = {"target_language": target} | ({} if source is None else {"source_language": source})
    for name, given_tag in tags.items():
        try:
            fields[name] = locales.normalise(given_tag or "")
        except (ValueError, AttributeError) as error:
            problem = {"field": name, "problem": str(error), "value": str(given_tag)[:80], "allowed": ""}
            raise InvalidRows([problem]) from None
    return _prepare_call("translate", TranslateRequest, idempotency_key=idempotency_key, **fields)


def _prepare_call(
    operation: str,
    kind: type[R],
    /,
    *,
    encode: Callable[[R], bytes | Body] = encode_request,
    idempotency_key: str | None = None,
    take: int = 0,
    stacklevel: int | None = None,
    **fields: Any,
) -> PreparedCall[R]:
    """Return the call of a request with these `fields`. InvalidRows if a field is unknown or wrong."""
    checked = check(kind, fields)
    request = require_valid(checked, kind)
    if stacklevel is not None:
        warn_deprecated(kind, checked.deprecated, stacklevel=stacklevel + 1)
    return PreparedCall(operation, request, encode(request), idempotency_key, take)


def require_valid(checked: CheckResult[R], kind: type[R]) -> R:
    """Return the request that a check found valid, or raise InvalidRows with all problems."""
    known = ", ".join(name for name in kind.model_fields if name not in _RENAMED_FIELDS)
    unknown = [FieldProblem(name, "is not a field of a request", "", known) for name in checked.unknown]
    if checked.problems or unknown or checked.value is None:
        raise InvalidRows([asdict(problem) for problem in (*checked.problems, *unknown)])
    return checked.value
