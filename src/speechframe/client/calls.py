"""What goes into a call: a checked request and its bytes, how long and large it may be, how it is read."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

from speechframe.client.answers import Raw, explained, spoken_of, translated_of
from speechframe.client.upload import Body, upload_of
from speechframe.errors import AudioError, BadAnswer, InvalidRows
from speechframe.spec import locales
from speechframe.spec._model import DocumentModel
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.check import Checked, FieldProblem, check
from speechframe.spec.chosen import MAX_IDEMPOTENCY_CHARACTERS, PAUSE_SECONDS, SLOWEST_READER_BYTES_S
from speechframe.spec.deprecation import warn_deprecated
from speechframe.spec.speech import ChannelType, GenerateRequest, StreamRequest
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.answers import decode_object
from speechframe.wire.changer import encode_convert
from speechframe.wire.requests import encode_request
from speechframe.wire.translate import longest_translation

R = TypeVar("R", bound=DocumentModel)

# Fields that have an argument of another name.
_OTHER_NAMES = frozenset({"text", "voice_id", "model_version", "file", "file_url", "multi_native_locale"})

KIB = 1024
MIB = 1024 * KIB

# Speech takes about 0.07 s a character; slowed down, of a script with a word a character, perhaps 0.6.
_SECONDS_A_CHARACTER = 0.4
_GRACE_S = 10.0
_LONGEST_S = 86_400.0
# A changed voice at the lowest rate takes perhaps half as long again; some services are slower.
_SLOWEST = 4.0
_FRAME_BYTES = ChannelType.STEREO.channels * 2
_USUAL_RATE_HZ = float(GenerateRequest.model_fields["sample_rate"].get_default())
# For each character of a text: words with their times. For each second of a clip: its transcription.
_JSON_BYTES = 1000
_JSON_BYTES_A_TEXT = 200
# A character outside the basic plane, written as two escapes.
_JSON_BYTES_A_TRANSLATED_CHARACTER = 12


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds.

    Parameters
    ----------
    connect_s
        TCP and TLS together; name lookup and waiting for a free connection count into the attempt alone.
    base_s, per_character_s
        An attempt may take ``base_s + per_character_s * characters``: speech takes about 0.07 s a
        character, so a service that synthesises three times as slowly as it speaks still gets through.
    per_clip_second_s, upload_bytes_a_second
        An attempt with a clip may take ``base_s``, so much for each second of it, and its upload at so slow
        a rate; so may a message to a WebSocket.
    per_translated_character_s
        The same for a translation: a small machine that goes through a third language takes a few
        milliseconds a character.
    download_s
        Longest download of audio that came as a URL. It is counted apart, because the call was billed by
        then. A file of a dub may take longer; of such a file, it is the longest wait for the first byte.
    download_bytes_a_second
        Lowest speed of a file of a dub over each `download_s`. A slower download fails and is tried again.

    Examples
    --------
    >>> round(Timeouts().attempt_s(5000))
    1280
    """

    connect_s: float = 10.0
    base_s: float = 30.0
    per_character_s: float = 0.25
    per_clip_second_s: float = 2.5
    upload_bytes_a_second: float = 64 * KIB
    per_translated_character_s: float = 0.02
    download_s: float = 60.0
    download_bytes_a_second: float = float(SLOWEST_READER_BYTES_S)

    def attempt_s(self, characters: int) -> float:
        """Return how long an attempt for a text of `characters` may take, without a download."""
        return self.base_s + self.per_character_s * characters

    def message_s(self, size_bytes: int) -> float:
        """Return how long a WebSocket may take to take a message of this size."""
        return self.base_s + size_bytes / self.upload_bytes_a_second

    def speech_s(self, text: str) -> float:
        """Return how long all waits for the audio of a text may take together."""
        return self.base_s + _longest_s(text, 0.0)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest answers in bytes; a longer one is cut off and refused, compressed or not.

    The bound of one call follows from its text or clip, its sample rate and the duration it asks for, as if
    the audio were uncompressed stereo: some services answer in another format than asked.

    Parameters
    ----------
    answer_bytes, listing_bytes
        Answers with audio, Base64 included, or translations; any other body with status 200.
    error_bytes
        The body of an error answer; a longer one is read no further, and its status counts.
    download_bytes
        Audio that is not in Base64.
    dubbed_bytes
        A dubbed medium; it goes to disk piece by piece.
    """

    answer_bytes: int = 384 * MIB
    listing_bytes: int = 16 * MIB
    error_bytes: int = 64 * KIB
    download_bytes: int = 512 * MIB
    dubbed_bytes: int = 4096 * MIB

    def spoken_bytes_for(self, request: GenerateRequest | StreamRequest) -> tuple[int, int]:
        """Return the largest answer in JSON, and the most audio, that can answer a request for speech."""
        longest_s = _longest_s(request.text, getattr(request, "audio_duration", None))
        audio_bytes = MIB + _pcm_bytes(longest_s, request.sample_rate)
        answer_bytes = _JSON_BYTES * len(request.text) + audio_bytes * 4 // 3
        return min(self.answer_bytes, answer_bytes), min(self.download_bytes, audio_bytes)

    def speech_bytes_for(self, text: str, rate_hz: float) -> int:
        """Return the most audio that the speech of a text can be."""
        return min(self.download_bytes, MIB + _pcm_bytes(_longest_s(text, 0.0), rate_hz))

    def changed_bytes_for(self, request: ConvertRequest, audio_seconds: float) -> tuple[int, int]:
        """Return the largest answer, and the most audio, that can answer a clip of this length."""
        longest_s = max(min(request.audio_duration or 0.0, _LONGEST_S), _SLOWEST * audio_seconds) + _GRACE_S
        audio_bytes = _pcm_bytes(longest_s, request.sample_rate)
        answer_bytes = MIB + int(_JSON_BYTES * audio_seconds) + audio_bytes * 4 // 3
        return min(self.answer_bytes, answer_bytes), min(self.download_bytes, MIB + audio_bytes)

    def translated_bytes_for(self, request: TranslateRequest) -> int:
        """Return the largest answer to texts: each text, and a translation as long as any can be."""
        characters = sum(len(text) + longest_translation(text) for text in request.texts)
        texts_bytes = _JSON_BYTES_A_TEXT * len(request.texts)
        answer_bytes = 64 * KIB + texts_bytes + _JSON_BYTES_A_TRANSLATED_CHARACTER * characters
        return min(self.answer_bytes, answer_bytes)


def _longest_s(text: str, duration_s: float | None) -> float:
    spoken_s = max(_SECONDS_A_CHARACTER * len(text), min(duration_s or 0.0, _LONGEST_S))
    return spoken_s + PAUSE_SECONDS.high * text.count("[") + _GRACE_S


def _pcm_bytes(seconds: float, rate_hz: float | None) -> int:
    return int(seconds * max(_USUAL_RATE_HZ, rate_hz or 0.0) * _FRAME_BYTES)


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One call, ready to be sent any number of times.

    Parameters
    ----------
    operation
        The endpoint's name in `spec.endpoints`: ``generate``, ``stream`` (read to its end), ``convert`` or
        ``translate``.
    request
        The checked request; its format and channels say how raw audio is read.
    body
        The bytes on the wire; of a call with a clip what is around it, and where it is.
    idempotency_key
        Sent as ``Idempotency-Key`` when given: a service that knows the header bills a repeat of the
        same key and body once.
    take
        Sent as ``X-Take`` when above 0: another reading of the same request, from a service that knows the
        header.

    Examples
    --------
    >>> call = Call.of(GenerateRequest(text="Hello", voice_id="nora"))
    >>> call.body
    b'{"text":"Hello","voiceId":"nora"}'
    """

    operation: str
    request: R
    body: bytes | Body = field(repr=False)
    idempotency_key: str | None = None
    take: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be sent."""
        key, most = self.idempotency_key, MAX_IDEMPOTENCY_CHARACTERS
        if key is not None and not (0 < len(key) <= most and key.isascii() and key.isprintable()):
            raise ValueError(f"an idempotency key is 1 to {most} printable ASCII characters")
        if self.take < 0:
            raise ValueError(f"a take is 0 or above, not {self.take}")

    @classmethod
    def of(
        cls, request: GenerateRequest, *, idempotency_key: str | None = None, take: int = 0
    ) -> "Call[GenerateRequest]":
        """Return the call of a request for speech, with its body encoded."""
        return Call("generate", request, encode_request(request), idempotency_key, take)

    def limits(self, timeouts: Timeouts, bounds: Bounds) -> tuple[float, int, int]:
        """Return how long one attempt may take, the largest answer, and the largest audio behind a URL."""
        request: Any = self.request
        if isinstance(self.body, Body):
            clip = self.body.upload
            limit_s = timeouts.message_s(clip.size_bytes) + timeouts.per_clip_second_s * clip.audio_seconds
            return limit_s, *bounds.changed_bytes_for(request, clip.audio_seconds)
        if self.operation == "translate":
            characters = sum(map(len, request.texts))
            limit_s = timeouts.base_s + timeouts.per_translated_character_s * characters
            return limit_s, bounds.translated_bytes_for(request), 0
        answer_bytes, audio_bytes = bounds.spoken_bytes_for(request)
        limit_s = timeouts.attempt_s(len(request.text))
        return limit_s, audio_bytes if self.operation == "stream" else answer_bytes, audio_bytes

    def audio_url(self, raw: Raw) -> str | None:
        """Return the URL that an answer names for its audio; None where it names none."""
        if raw.has_audio or self.operation == "translate":
            return None
        try:
            url = decode_object(raw.body).get("audioFile" if self.operation == "generate" else "audio_file")
        except BadAnswer:
            return None  # `decode` says what is wrong
        return url if isinstance(url, str) and url.strip() else None

    def decode(self, raw: Raw, *, audio: bytes | None = None) -> Any:
        """Return what an answer holds, a :class:`Spoken` or a :class:`Translated`; any thread may do it.

        `raw` is the answer as ``Client.send_raw`` returns it, `audio` what was behind its :meth:`audio_url`.

        Raises
        ------
        BadAnswer
            The answer cannot be used; most likely it was billed. Carries balance and trace id where the
            answer tells them.
        """
        request: Any = self.request
        try:
            if self.operation == "translate":
                return translated_of(raw, request)
            clip_seconds = self.body.upload.audio_seconds if isinstance(self.body, Body) else None
            return spoken_of(raw, audio, request, clip_seconds)
        except BadAnswer as error:
            load = None if self.operation == "stream" else decode_object
            raise explained(error, raw, load) from None


def generate_call(text: str, *, voice: str, model: str = "gen2", **given: Any) -> Call[GenerateRequest]:
    """Return a checked call for speech; a DeprecationWarning names the line of `stacklevel`."""
    given = {"text": text, "voice_id": voice, "model_version": model.upper(), "stacklevel": 2, **given}
    return _call("generate", GenerateRequest, **given)


def stream_call(text: str, *, voice: str, model: str | None = None, **given: Any) -> Call[StreamRequest]:
    """Return a checked call for a stream (section 2.2); see :meth:`Client.stream`."""
    given = {"text": text, "voice_id": voice, "model": model, "stacklevel": 2, **given}
    return _call("stream", StreamRequest, **given)


def change_call(audio: Any, *, voice: str, locale: str | None = None, **given: Any) -> Call[ConvertRequest]:
    """Return a checked call of the voice changer; blocks while the clip is read."""

    def body(request: ConvertRequest) -> Body:
        try:
            clip = upload_of(audio)
        except AudioError as error:
            line = {"field": "audio", "problem": str(error), "value": "", "allowed": "an audio file"}
            raise InvalidRows([line]) from None
        # Base64 comes beside the URL: the answer needs no second exchange.
        _, form = encode_convert(
            request, clip.sha256, name=clip.name, media_type=clip.media_type, as_base64=True
        )
        return Body(clip, form)

    given = {"voice_id": voice, "multi_native_locale": locale, **given, "file": b""}
    return _call("convert", ConvertRequest, encode=body, **given)


def translate_call(
    texts: Any, *, target: str, source: str | None = None, idempotency_key: str | None = None
) -> Call[TranslateRequest]:
    """Return a checked call of the translation; see :meth:`Client.translate`."""
    fields: dict[str, Any] = {"texts": [texts] if isinstance(texts, str) else list(texts)}
    for name, tag in (("target_language", target), ("source_language", source)):
        try:
            fields[name] = None if tag is None and name == "source_language" else locales.normalise(tag or "")
        except (ValueError, AttributeError) as error:
            line = {"field": name, "problem": str(error), "value": str(tag)[:80], "allowed": ""}
            raise InvalidRows([line]) from None
    return _call("translate", TranslateRequest, idempotency_key=idempotency_key, **fields)


def _call(
    operation: str,
    kind: type[R],
    /,
    *,
    encode: Callable[[R], bytes | Body] = encode_request,
    idempotency_key: str | None = None,
    take: int = 0,
    stacklevel: int | None = None,
    **fields: Any,
) -> Call[R]:
    checked = check(kind, fields)
    request = accepted(checked, kind)
    if stacklevel is not None:
        warn_deprecated(kind, checked.deprecated, stacklevel=stacklevel + 1)
    return Call(operation, request, encode(request), idempotency_key, take)


def accepted(checked: Checked[R], model: type[R]) -> R:
    """Return the request that a check found right; InvalidRows has every problem, unknown fields too."""
    known = ", ".join(name for name in model.model_fields if name not in _OTHER_NAMES)
    unknown = [FieldProblem(name, "is no field of a request", "", known) for name in checked.unknown]
    if checked.problems or unknown or checked.value is None:
        raise InvalidRows([asdict(problem) for problem in (*checked.problems, *unknown)])
    return checked.value
