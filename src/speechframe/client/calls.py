"""What goes into a call: a checked request, its bytes, and how the answer is read."""

import re
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any, Generic, TypeVar

from speechframe.client.answers import Raw, explained, spoken_of, streamed_of, translated_of
from speechframe.client.limits import Bounds, Timeouts
from speechframe.client.upload import Body, upload_of
from speechframe.errors import AudioError, BadAnswer, InvalidRows
from speechframe.spec import locales
from speechframe.spec._model import DocumentModel
from speechframe.spec.billing import CREDIT, billed_characters, convert_millicredits
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.check import Checked, check
from speechframe.spec.chosen import MAX_IDEMPOTENCY_CHARACTERS
from speechframe.spec.deprecation import warn_deprecated
from speechframe.spec.speech import GenerateRequest, StreamRequest
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.answers import decode_object
from speechframe.wire.bodies import decode_generate, encode_generate
from speechframe.wire.changer import decode_convert, encode_convert
from speechframe.wire.stream import encode_stream
from speechframe.wire.translate import encode_translate

__all__ = ["Call", "accepted", "change_call", "generate_call", "stream_call", "translate_call"]

R = TypeVar("R", bound=DocumentModel)
M = TypeVar("M", bound=DocumentModel)

_OWN_ARGUMENTS = frozenset({"text", "voice_id", "model_version"})
_OWN_OF_CLIPS = frozenset({"voice_id", "file", "file_url", "multi_native_locale"})
_URL_FIELDS = {"generate": "audioFile", "convert": "audio_file"}
_AUDIO_INSIDE = re.compile(rb'"encoded(?:Audio|_audio)"\s*:\s*"[^"]')


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
        key = self.idempotency_key
        if key is not None and not (
            0 < len(key) <= MAX_IDEMPOTENCY_CHARACTERS and key.isascii() and key.isprintable()
        ):
            raise ValueError(
                f"an idempotency key is 1 to {MAX_IDEMPOTENCY_CHARACTERS} printable ASCII characters"
            )
        if self.take < 0:
            raise ValueError(f"a take is 0 or above, not {self.take}")

    @classmethod
    def of(
        cls, request: GenerateRequest, *, idempotency_key: str | None = None, take: int = 0
    ) -> "Call[GenerateRequest]":
        """Return the call of a request for speech, with its body encoded."""
        return Call("generate", request, encode_generate(request), idempotency_key, take)

    @property
    def is_json(self) -> bool:
        """Whether a good answer is a JSON object; otherwise it is audio."""
        return self.operation != "stream"

    def timeout_s(self, timeouts: Timeouts) -> float:
        """Return how long one attempt may take, without a download."""
        request: Any = self.request
        if isinstance(self.body, Body):
            return timeouts.clip_s(self.body.upload.audio_seconds, self.body.upload.size_bytes)
        if self.operation == "translate":
            return timeouts.translation_s(sum(map(len, request.texts)))
        return timeouts.attempt_s(len(request.text))

    def max_bytes(self, bounds: Bounds) -> tuple[int, int]:
        """Return the largest answer, and the largest audio that an answer may name a URL of."""
        request: Any = self.request
        if isinstance(self.body, Body):
            return bounds.changed_bytes_for(request, self.body.upload.audio_seconds)
        if self.operation == "translate":
            return bounds.translated_bytes_for(request), 0
        audio_bytes = bounds.download_bytes_for(request)
        return (bounds.answer_bytes_for(request) if self.is_json else audio_bytes), audio_bytes

    def audio_url(self, raw: Raw) -> str | None:
        """Return the URL that an answer names for its audio; None where it names none."""
        name = _URL_FIELDS.get(self.operation)
        # Nearly always the audio is there; then nothing is parsed.
        if name is None or holds_audio(raw.body):
            return None
        try:
            url = decode_object(raw.body).get(name)
        except BadAnswer:
            return None  # `decode` says what is wrong
        return url if isinstance(url, str) and url.strip() else None

    def decode(self, raw: Raw, *, audio: bytes | None = None) -> Any:
        """Return what an answer holds, a :class:`Spoken` or a :class:`Translated`; any thread may do it.

        Parameters
        ----------
        raw
            The answer, as ``Client.send_once`` returns it.
        audio
            What was behind :meth:`audio_url`, where the answer has one.

        Raises
        ------
        BadAnswer
            The answer cannot be used; most likely it was billed. Carries balance and trace id where the
            answer tells them.
        """
        try:
            return self._decoded(raw, audio)
        except BadAnswer as error:
            failure = explained(error, raw, is_json=self.is_json)
        raise failure

    def _decoded(self, raw: Raw, audio: bytes | None) -> Any:
        request: Any = self.request
        if self.operation == "translate":
            return translated_of(raw, request)
        if isinstance(self.body, Body):
            seconds = self.body.upload.audio_seconds
            billed = ceil(convert_millicredits(seconds) / CREDIT)
            return spoken_of(raw, audio, request, partial(decode_convert, clip_seconds=seconds), billed)
        billed = billed_characters(request.text)
        if self.operation == "stream":
            return streamed_of(raw, request, billed)
        decode = partial(decode_generate, characters=len(request.text))
        return spoken_of(raw, audio, request, decode, billed)


def generate_call(
    text: str,
    *,
    voice: str,
    model: str = "gen2",
    take: int = 0,
    idempotency_key: str | None = None,
    stacklevel: int = 2,
    **fields: Any,
) -> Call[GenerateRequest]:
    """Return a checked call for speech (section 2.1); see :meth:`Client.generate`.

    `stacklevel` says whose line a DeprecationWarning names, as in `warnings.warn`.

    Raises
    ------
    InvalidRows
        For a value out of range, an unknown field or model; ``problems`` lists all.
    """
    checked = check(
        GenerateRequest, {"text": text, "voice_id": voice, "model_version": model.upper(), **fields}
    )
    request = accepted(checked, GenerateRequest)
    warn_deprecated(GenerateRequest, checked.deprecated, stacklevel=stacklevel)
    return Call.of(request, idempotency_key=idempotency_key, take=take)


def stream_call(
    text: str,
    *,
    voice: str,
    model: str | None = None,
    take: int = 0,
    idempotency_key: str | None = None,
    stacklevel: int = 2,
    **fields: Any,
) -> Call[StreamRequest]:
    """Return a checked call for a stream (section 2.2); see :meth:`Client.stream`."""
    checked = check(StreamRequest, {"text": text, "voice_id": voice, "model": model, **fields})
    request = accepted(checked, StreamRequest)
    warn_deprecated(StreamRequest, checked.deprecated, stacklevel=stacklevel)
    return Call("stream", request, encode_stream(request), idempotency_key, take)


def change_call(
    audio: Any,
    *,
    voice: str,
    locale: str | None = None,
    take: int = 0,
    idempotency_key: str | None = None,
    **fields: Any,
) -> Call[ConvertRequest]:
    """Return a checked call of the voice changer; blocks while the clip is read.

    Raises
    ------
    InvalidRows
        For a value out of range, an unknown field, or a clip that is no audio; ``problems`` lists all.
    """
    given = {"voice_id": voice, "multi_native_locale": locale, **fields, "file": b""}
    request = accepted(check(ConvertRequest, given), ConvertRequest, _OWN_OF_CLIPS)
    try:
        upload = upload_of(audio)
    except AudioError as error:
        line = {"field": "audio", "problem": str(error), "value": "", "allowed": "an audio file"}
        raise InvalidRows([line]) from None
    # Base64 comes beside the URL: the answer needs no second exchange.
    _, form = encode_convert(
        request, upload.sha256, name=upload.name, media_type=upload.media_type, as_base64=True
    )
    return Call("convert", request, Body(upload, form), idempotency_key, take)


def translate_call(
    texts: Any, *, target: str, source: str | None = None, idempotency_key: str | None = None
) -> Call[TranslateRequest]:
    """Return a checked call of the translation; see :meth:`Client.translate`.

    Raises
    ------
    InvalidRows
        For a value that cannot be sent; ``problems`` lists all.

    Examples
    --------
    >>> translate_call(["Hello"], target="fr_fr").body
    b'{"targetLanguage":"fr-FR","texts":["Hello"]}'
    """
    problems: list[dict[str, Any]] = []
    fields: dict[str, Any] = {"texts": [texts] if isinstance(texts, str) else list(texts)}
    for name, tag in (("target_language", target), ("source_language", source)):
        try:
            fields[name] = None if tag is None and name == "source_language" else locales.normalise(tag or "")
        except (ValueError, AttributeError) as error:
            problems.append({"field": name, "problem": str(error), "value": str(tag)[:80], "allowed": ""})
    if problems:
        raise InvalidRows(problems)
    request = accepted(check(TranslateRequest, fields), TranslateRequest)
    return Call("translate", request, encode_translate(request), idempotency_key)


def accepted(checked: Checked[M], model: type[M], own: frozenset[str] = _OWN_ARGUMENTS) -> M:
    """Return the request that a check found right.

    Parameters
    ----------
    checked
        What the check found.
    model
        The table of the document.
    own
        Fields that have an argument of another name.

    Raises
    ------
    InvalidRows
        For a value out of range, or a field that does not exist; ``problems`` lists all.
    """
    problems = [
        {"field": p.field, "problem": p.problem, "value": p.value, "allowed": p.allowed}
        for p in checked.problems
    ]
    if checked.unknown:
        known = ", ".join(name for name in model.model_fields if name not in own)
        problems += [
            {"field": name, "problem": "is no field of a request", "value": "", "allowed": known}
            for name in checked.unknown
        ]
    if problems or checked.value is None:
        raise InvalidRows(problems)
    return checked.value


def holds_audio(body: bytes) -> bool:
    """Return whether an answer has its audio in it, in Base64."""
    return _AUDIO_INSIDE.search(body) is not None
