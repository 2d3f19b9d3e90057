"""Read requests for speech and translations (sections 2.1, 2.2 and 2.6 of the service document).

Only those fields are read and checked that a canned answer depends on.
"""

import json
from collections.abc import Container
from typing import Any, NamedTuple

from speechframe.spec.limits import (
    GENERATE_SAMPLE_RATES_HZ,
    STREAM_SAMPLE_RATES_HZ,
    get_default_sample_rate_hz,
)
from speechframe.spec.speech import ChannelType, Format, GenerateRequest, Model
from speechframe.spec.texts import count_billed_characters
from speechframe.testing.audio import tag_of

_AVAILABLE_FORMATS = frozenset({Format.WAV, Format.FLAC})
_FORMATS = {found.value: found for found in Format}
_MODELS = {found.value: found for found in Model}
_CHANNEL_COUNTS = {found.value: found.channels for found in ChannelType}
_REQUEST_FIELDS = GenerateRequest.model_fields
_DEFAULT_FORMAT, _DEFAULT_CHANNEL_TYPE, _DEFAULT_RATE_HZ = (
    _REQUEST_FIELDS[name].default for name in ("format", "channel_type", "sample_rate")
)


class BadRequestError(Exception):
    """Raised if a request is invalid. The service answers 400 with the message."""


class ParsedSpeechRequest(NamedTuple):
    """A valid request for speech.

    Attributes
    ----------
    text, tag
        The text, and its tag (a 64-bit hash).
    characters
        Number of billed characters.
    format, rate_hz, channels
        Format, sample rate and number of channels of the answer.
    as_base64
        Whether the answer contains the audio as Base64, instead of a URL.
    take
        Number of the take (one reading of the text), from 0.
    warning
        Warning that the format was replaced, or None.
    content
        The take and all fields except ``encodeAsBase64``. Two requests with equal content are one order.
    is_stream
        Whether the answer is streamed.
    """

    text: str
    tag: int
    characters: int
    format: Format
    rate_hz: int
    channels: int
    as_base64: bool
    take: int
    warning: str | None
    content: bytes
    is_stream: bool = False

    @property
    def characters_of(self) -> dict[int, int]:
        """Billed characters of the text, by its tag."""
        return {self.tag: self.characters}


class ParsedTranslationRequest(NamedTuple):
    """A valid request for translations.

    Attributes
    ----------
    text, tag
        The text whose script of faults applies to the call, and its tag (a 64-bit hash).
    texts
        All texts.
    target
        The target language.
    content
        The body of the request.
    """

    text: str
    tag: int
    texts: tuple[str, ...]
    target: str
    content: bytes

    @property
    def characters(self) -> int:
        """Number of billed characters."""
        return sum(self.characters_of.values())

    @property
    def characters_of(self) -> dict[int, int]:
        """Billed characters of each text by its tag. If a text occurs twice, its characters are added."""
        found: dict[int, int] = {}
        for text in self.texts:
            found[tag_of(text)] = found.get(tag_of(text), 0) + len(text)
        return found


def read_request(body: bytes, take: str | None, *, is_stream: bool = False) -> ParsedSpeechRequest:
    """Return the request for speech in a JSON body. Raise BadRequestError if the body or a field is invalid.

    `take` is the value of the header with the take, or None without the header. Set `is_stream` for a stream
    (section 2.2), whose default model is falcon-2.
    """
    fields = _parse_object(body)
    text = fields.get("text")
    if not isinstance(text, str) or not text.strip():
        raise BadRequestError("text: a text that is not blank is needed")
    if not isinstance(fields.get("voiceId"), str):
        raise BadRequestError("voiceId: a voice is needed")
    requested_format = _choose_value(_FORMATS, fields.get("format", _DEFAULT_FORMAT), "format")
    used_format = requested_format if requested_format in _AVAILABLE_FORMATS else Format.WAV
    rates_hz: tuple[int, ...] = GENERATE_SAMPLE_RATES_HZ
    rate_hz = _DEFAULT_RATE_HZ
    if is_stream:
        model = _choose_value(_MODELS, fields.get("model", Model.FALCON_2), "model")
        rates_hz, rate_hz = STREAM_SAMPLE_RATES_HZ, get_default_sample_rate_hz(model)
    rate_hz = fields.get("sampleRate", rate_hz)
    if rate_hz not in rates_hz:
        raise BadRequestError(f"sampleRate: allowed are {', '.join(map(str, rates_hz))}")
    take_text = take or "0"
    if not (take_text.isascii() and take_text.isdecimal() and int(take_text) < 1 << 31):
        raise BadRequestError("the take is not a number from 0 to 2147483647")
    as_base64 = fields.pop("encodeAsBase64", None) is True
    return ParsedSpeechRequest(
        text=text,
        tag=tag_of(text),
        characters=count_billed_characters(text),
        format=used_format,
        rate_hz=int(rate_hz),
        channels=_choose_value(
            _CHANNEL_COUNTS, fields.get("channelType", _DEFAULT_CHANNEL_TYPE), "channelType"
        ),
        as_base64=as_base64,
        take=int(take_text),
        warning=None
        if used_format is requested_format
        else f"this service has no {requested_format.value}, the audio is {used_format.value}",
        content=f"{take_text}\n{json.dumps(fields, sort_keys=True)}".encode(),
        is_stream=is_stream,
    )


def read_translation(body: bytes, scripts: Container[str]) -> ParsedTranslationRequest:
    """Return the translation request in a JSON body. Raise BadRequestError if the body or a field is invalid.

    `scripts` contains the texts that have a script of faults. The first such text decides the fault of the
    call.
    """
    fields = _parse_object(body)
    texts, target = fields.get("texts"), fields.get("targetLanguage")
    if (
        not isinstance(texts, list)
        or not texts
        or not all(isinstance(text, str) and text.strip() for text in texts)
    ):
        raise BadRequestError("texts: a list of texts that are not blank is needed")
    if not isinstance(target, str):
        raise BadRequestError("targetLanguage: a language is needed")
    text = next((text for text in texts if text in scripts), texts[0])
    return ParsedTranslationRequest(text, tag_of(text), tuple(texts), target, body)


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError:
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(fields, dict):
        raise BadRequestError("the body is not a JSON object")
    return fields


def _choose_value(choices: dict[str, Any], value: object, name: str) -> Any:
    if not isinstance(value, str) or value not in choices:
        raise BadRequestError(f"{name}: allowed are {', '.join(choices)}")
    return choices[value]
