"""What a request for speech asks: as much of sections 2.1 and 2.2 as canned audio depends on."""

import json
from typing import Any, NamedTuple

from speechframe.spec.billing import billed_characters
from speechframe.spec.limits import GENERATE_SAMPLE_RATES_HZ, STREAM_SAMPLE_RATES_HZ, default_sample_rate_hz
from speechframe.spec.speech import ChannelType, Format, GenerateRequest, Model
from speechframe.testing.audio import tag_of

__all__ = ["BadRequestError", "Wanted", "read_request"]

_SPOKEN = frozenset({Format.WAV, Format.FLAC})
_FORMATS = {found.value: found for found in Format}
_MODELS = {found.value: found for found in Model}
_CHANNELS = {found.value: found.channels for found in ChannelType}
_FIELDS = GenerateRequest.model_fields
_FORMAT, _CHANNEL_TYPE, _RATE_HZ = (
    _FIELDS[name].default for name in ("format", "channel_type", "sample_rate")
)


class BadRequestError(Exception):
    """The request is answered with 400."""


class Wanted(NamedTuple):
    """A request that can be answered.

    Parameters
    ----------
    text, tag, characters
        The text, what stands for it, and the characters that are billed.
    format, rate_hz, channels
        Of the audio.
    as_base64
        Base64 instead of a URL.
    is_stream
        The audio is the answer, in chunks.
    take
        Which take, 0 for none.
    warning
        What was replaced.
    content
        What makes the request this one, however its audio is delivered.
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


def read_request(body: bytes, take: str | None, *, is_stream: bool = False) -> Wanted:
    """Return what a body asks.

    Parameters
    ----------
    body
        The JSON.
    take
        The header of takes, None where it is absent or ignored.
    is_stream
        It is one for a stream (section 2.2), which falcon-2 speaks where it names no model.

    Raises
    ------
    BadRequestError
        With words about the field.
    """
    fields = _object(body)
    text = fields.get("text")
    if not isinstance(text, str) or not text.strip():
        raise BadRequestError("text: a text that is not blank is needed")
    if not isinstance(fields.get("voiceId"), str):
        raise BadRequestError("voiceId: a voice is needed")
    asked = _choice(_FORMATS, fields.get("format", _FORMAT), "format")
    given = asked if asked in _SPOKEN else Format.WAV
    rates_hz: tuple[int, ...] = GENERATE_SAMPLE_RATES_HZ
    rate_hz = _RATE_HZ
    if is_stream:
        model = _choice(_MODELS, fields.get("model", Model.FALCON_2), "model")
        rates_hz, rate_hz = STREAM_SAMPLE_RATES_HZ, default_sample_rate_hz(model)
    rate_hz = fields.get("sampleRate", rate_hz)
    if rate_hz not in rates_hz:
        raise BadRequestError(f"sampleRate: allowed are {', '.join(map(str, rates_hz))}")
    number = take or "0"
    if not (number.isascii() and number.isdecimal() and int(number) < 1 << 31):
        raise BadRequestError("the take is no number from 0 to 2147483647")
    as_base64 = fields.pop("encodeAsBase64", None) is True
    return Wanted(
        text=text,
        tag=tag_of(text),
        characters=billed_characters(text),
        format=given,
        rate_hz=int(rate_hz),
        channels=_choice(_CHANNELS, fields.get("channelType", _CHANNEL_TYPE), "channelType"),
        as_base64=as_base64,
        take=int(number),
        warning=None if given is asked else f"this service has no {asked.value}, the audio is {given.value}",
        content=f"{number}\n{json.dumps(fields, sort_keys=True)}".encode(),
        is_stream=is_stream,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError:
        raise BadRequestError("the body is no JSON") from None
    if not isinstance(fields, dict):
        raise BadRequestError("the body is no JSON object")
    return fields


def _choice(choices: dict[str, Any], value: object, name: str) -> Any:
    if not isinstance(value, str) or value not in choices:
        raise BadRequestError(f"{name}: allowed are {', '.join(choices)}")
    return choices[value]
