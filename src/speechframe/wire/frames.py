"""Conversion of WebSocket messages to frames and back (section 6), for client and service.

An invalid field in a client's frame is ignored with a warning, and the other fields are used (section 7.4).
Only a message that is not a single JSON object is an error (section 7.3). Unknown messages of a service are
returned as `UnknownFrame` and raise no exception.
"""

import re
from binascii import b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from speechframe.spec.check import shorten_value
from speechframe.spec.chosen import MAX_CONTEXT_ID_CHARACTERS, MAX_FRAME_BYTES
from speechframe.spec.codes import WarningCode
from speechframe.spec.fields._json import read_json
from speechframe.spec.limits import BUFFER_DELAY_MS, BUFFER_SIZE
from speechframe.spec.socket import (
    AudioFrame,
    ClientFrame,
    ErrorFrame,
    FinalFrame,
    PredictiveChunking,
    VoiceConfig,
    WarningFrame,
)
from speechframe.wire.answers import (
    MAX_MESSAGE_CHARACTERS,
    MAX_TRACE_CHARACTERS,
    NotJsonError,
    SecretMasker,
    decode_base64,
    load_json,
    name_wrong_fields,
    shorten_to_line,
)
from speechframe.wire.errors import MAX_CODE_CHARACTERS, read_code

_MAX_ERROR_CHARACTERS = 500
"""Largest number of characters of an error message to the client."""
_NUMBER_PATTERN = re.compile(r"\s*[+-]?[0-9]{1,20}(?:\.0{0,20})?\s*", re.ASCII)
_BUFFER_FIELDS = ("min_buffer_size", "max_buffer_delay_in_ms")
_WARNINGS_BY_FIELD = {
    "min_buffer_size": (WarningCode.INVALID_BUFFER_SIZE, f"a whole number from {BUFFER_SIZE}"),
    "max_buffer_delay_in_ms": (
        WarningCode.INVALID_BUFFER_DELAY,
        f"a whole number of milliseconds from {BUFFER_DELAY_MS}",
    ),
    "predictive_chunking": (WarningCode.INVALID_PREDICTIVE_CHUNKING, " or ".join(PredictiveChunking)),
}
_ALLOWED_BY_FIELD = {
    "voice_config": "an object",
    "text": "text",
    "context_id": f"text of at most {MAX_CONTEXT_ID_CHARACTERS} characters",
    "end": "true or false",
}
_VOICE_ID_NAMES = frozenset({"voiceId", "voice_id"})


@dataclass(frozen=True, slots=True)
class FrameWarning:
    """A warning about an ignored part of a frame. `message` is the text for people."""

    code: WarningCode
    message: str


@dataclass(frozen=True, slots=True)
class ParsedFrame:
    """The result of reading a client's message.

    Attributes
    ----------
    frame
        The frame with its valid fields. None if the message is not a single JSON object.
    warnings
        A warning for each ignored field.
    error
        Reason why there is no frame, as the message for INVALID_JSON. Otherwise None.
    """

    frame: ClientFrame | None
    warnings: tuple[FrameWarning, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ReceivedAudio:
    """An audio frame with decoded audio.

    `final` is True if the frame is also the final frame of its context. `notice` is an error or warning in
    the same frame.
    """

    audio: bytes
    context_id: str | None
    trace_id: str | None
    final: bool = False
    notice: ErrorFrame | WarningFrame | None = None


@dataclass(frozen=True, slots=True)
class UnknownFrame:
    """A message of the service that is not a valid frame, with the reason.

    `is_audio` is True if the message has audio that cannot be decoded.
    """

    reason: str
    context_id: str | None = None
    is_audio: bool = False


ServerFrame = ReceivedAudio | FinalFrame | ErrorFrame | WarningFrame | UnknownFrame


def parse_client_frame(message: str | bytes) -> ParsedFrame:
    """Return the frame in a client's WebSocket message, with warnings about all ignored parts.

    Parameters
    ----------
    message
        Text of the message. Bytes are a binary message, which is an error.

    Examples
    --------
    >>> parse_client_frame('{"text": "Hi", "min_buffer_size": "7", "end": "yes"}').frame.min_buffer_size
    7
    >>> parse_client_frame('{"text": "a"}{"text": "b"}').error
    'the message is not a single JSON object: Extra data'
    """
    try:
        fields = _read_object(message)
    except ValueError as error:
        return ParsedFrame(None, error=str(error)[:_MAX_ERROR_CHARACTERS])
    given = {name: value for name, value in fields.items() if value is not None}
    warnings = [_make_warning("context_id", given.pop("context_id"))] if _has_long_id(given) else []
    warnings += [
        _make_warning(name, given.pop(name)) for name in _BUFFER_FIELDS if not _is_number(given.get(name, 0))
    ]
    warnings += _remove_wrong_fields(given)
    if given.get("clear", False) is not False and "text" in given:
        del given["text"]
        warning = "text beside clear is dropped; send it in the next frame"
        warnings.append(FrameWarning(WarningCode.TEXT_IGNORED_WITH_CLEAR, warning))
    return ParsedFrame(ClientFrame.model_validate(given), tuple(warnings))


def encode_frame(frame: ClientFrame | AudioFrame | FinalFrame | ErrorFrame | WarningFrame) -> str:
    """Return the JSON text of a frame of the client or of the service.

    A frame of the client contains only the fields that were set. A frame of the service also contains
    defaults. Fields with None are left out.

    Examples
    --------
    >>> encode_frame(ClientFrame(text="Hi", end=True))
    '{"text":"Hi","end":true}'
    >>> encode_frame(FinalFrame(context_id="a", trace_id="t-1"))
    '{"final":true,"context_id":"a","trace_id":"t-1"}'
    """
    if isinstance(frame, ClientFrame):
        return frame.model_dump_json(exclude_unset=True, exclude_none=True)
    # Send defaults too, so that an error frame always contains `fatal`.
    return frame.model_dump_json(exclude_none=True)


def make_audio_frame(audio: bytes, *, context_id: str | None, trace_id: str) -> AudioFrame:
    """Return a frame with a piece of audio."""
    text = b2a_base64(audio, newline=False).decode("ascii")
    return AudioFrame(audio=text, context_id=context_id, trace_id=trace_id)


def parse_server_frame(message: str | bytes, clean: SecretMasker = str) -> ServerFrame:
    r"""Return the frame in a WebSocket message of the service. Invalid messages become an `UnknownFrame`.

    Unknown codes stay text. A missing id is None, and a missing text is empty. Other fields are ignored.
    Texts, codes and trace ids are masked, put on one line and shortened.

    Parameters
    ----------
    message
        Text or bytes of the message.
    clean
        Function that masks secrets.

    Examples
    --------
    >>> parse_server_frame('{"audio": "AAE=", "context_id": "a"}')
    ReceivedAudio(audio=b'\x00\x01', context_id='a', trace_id=None, final=False, notice=None)
    >>> parse_server_frame('{"error": "new", "error_code": "NEW"}').error_code
    'NEW'
    """
    try:
        fields, _ = load_json(message if isinstance(message, bytes) else message.encode("utf-8", "replace"))
    except NotJsonError as error:
        return UnknownFrame(f"not JSON: {error}")
    if not isinstance(fields, dict):
        return UnknownFrame("not a JSON object")
    context_id = _read_text(fields.get("context_id"))
    trace_id = _read_line(fields.get("trace_id"), MAX_TRACE_CHARACTERS, clean) or None
    ids: dict[str, Any] = {"context_id": context_id, "trace_id": trace_id}
    notice = _read_error_or_warning(fields, ids, clean)
    audio, final = fields.get("audio"), fields.get("final")
    if notice is not None and not (audio or final):
        return notice
    if audio is not None:
        data = decode_base64(audio.encode("utf-8", "replace")) if isinstance(audio, str) else None
        if data is not None:
            return ReceivedAudio(data, context_id, trace_id, final is True, notice)
        lost = UnknownFrame("audio is not Base64", context_id, is_audio=True)
        return notice if isinstance(notice, ErrorFrame) and notice.fatal else lost
    if final:
        return FinalFrame(**ids) if notice is None else ReceivedAudio(b"", context_id, trace_id, True, notice)
    return UnknownFrame("not a known frame", context_id)


def _read_error_or_warning(
    fields: Mapping[str, Any], about: Mapping[str, Any], clean: SecretMasker
) -> ErrorFrame | WarningFrame | None:
    """Return the error or warning in a frame that may have audio too. Return None if there is neither."""
    # Some services send all fields in every frame, most of them null or empty.
    if fields.get("error") or fields.get("error_code") or fields.get("fatal") is True:
        return ErrorFrame(
            error=_read_line(fields.get("error"), MAX_MESSAGE_CHARACTERS, clean),
            error_code=_read_code(fields.get("error_code"), clean),
            # Only a clearly fatal error ends a context. If the client continued by mistake, later messages
            # would show it, but a mistaken stop would stay unnoticed. An error in a final frame is fatal,
            # because no frame follows.
            fatal=fields.get("fatal") is True or bool(fields.get("final")),
            **about,
        )
    if fields.get("warning") or fields.get("warning_code"):
        return WarningFrame(
            warning=_read_line(fields.get("warning"), MAX_MESSAGE_CHARACTERS, clean),
            warning_code=_read_code(fields.get("warning_code"), clean),
            **about,
        )
    return None


def _read_object(message: str | bytes) -> dict[str, Any]:
    """Return the fields of a message. If it is invalid, raise ValueError with a message for the client."""
    if isinstance(message, bytes | bytearray | memoryview):
        raise ValueError("the message is binary; send JSON as text")  # noqa: TRY004 - sent to the client
    if len(message) > MAX_FRAME_BYTES or len(message.encode("utf-8", "replace")) > MAX_FRAME_BYTES:
        raise ValueError(f"the frame is larger than {MAX_FRAME_BYTES:,} bytes; send the text in several")
    try:
        fields = read_json(message)
    except ValueError as error:
        # `msg` is the fault of a JSONDecodeError without its place.
        fault = getattr(error, "msg", error)
        raise ValueError(f"the message is not a single JSON object: {fault}") from None
    if not isinstance(fields, dict):
        raise ValueError("the message is not a single JSON object")  # noqa: TRY004 - sent to the client
    return fields


def _has_long_id(given: Mapping[str, Any]) -> bool:
    # Every frame of audio repeats the id, so a long id is ignored.
    context_id = given.get("context_id")
    return isinstance(context_id, str) and len(context_id) > MAX_CONTEXT_ID_CHARACTERS


def _is_number(value: Any) -> bool:
    # Check the text here, because int() would also accept "1_0".
    return (
        _NUMBER_PATTERN.fullmatch(value) is not None
        if isinstance(value, str)
        else isinstance(value, int | float)
    )


def _remove_wrong_fields(given: dict[str, Any]) -> list[FrameWarning]:
    """Remove the invalid fields from a frame and from its voice_config, and return a warning for each."""
    warnings = []
    config = given.get("voice_config")
    if isinstance(config, dict):
        given["voice_config"] = config = _merge_voice_ids(config)
        for name in _find_wrong_fields(VoiceConfig, config):
            value = config.pop(name)
            fault = (
                f"voice_config.{name} has a value of a wrong type or range ({shorten_value(value)}) "
                "and is ignored"
            )
            warnings.append(FrameWarning(WarningCode.INVALID_FIELD_TYPE, fault))
    return warnings + [
        _make_warning(name, given.pop(name)) for name in _find_wrong_fields(ClientFrame, given)
    ]


def _merge_voice_ids(config: Mapping[str, Any]) -> dict[str, Any]:
    # Both spellings of voiceId are accepted. If both are present, only the spelling of the document counts.
    both = config.keys() >= _VOICE_ID_NAMES
    return {
        name: value
        for name, value in config.items()
        if value is not None and not (both and name == "voice_id")
    }


def _find_wrong_fields(model: type[VoiceConfig | ClientFrame], given: Mapping[str, Any]) -> list[str]:
    try:
        model.model_validate(given)
    except ValidationError as error:
        return name_wrong_fields(error)
    return []


def _make_warning(name: str, value: Any) -> FrameWarning:
    code, allowed = _WARNINGS_BY_FIELD.get(
        name, (WarningCode.INVALID_FIELD_TYPE, _ALLOWED_BY_FIELD.get(name, ""))
    )
    return FrameWarning(code, f"{name} is ignored (got {shorten_value(value)}); allowed: {allowed}")


def _read_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _read_line(value: Any, max_characters: int, clean: SecretMasker) -> str:
    return shorten_to_line(_read_text(value) or "", max_characters, clean)


def _read_code(value: Any, clean: SecretMasker) -> str:
    return read_code(_read_line(value, MAX_CODE_CHARACTERS + 1, clean)) or ""
