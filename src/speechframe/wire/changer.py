"""Bodies of the voice changer: a request as a multipart form, an answer as values (section 2.5)."""

from dataclasses import dataclass
from typing import Any

from speechframe.errors import BadAnswer
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import MAX_TEXT_CHARACTERS
from speechframe.wire.answers import answer_fields, said_seconds, whole_number
from speechframe.wire.decoding import MOST_VALUES
from speechframe.wire.forms import Form, canonical, encode_form

__all__ = ["Converted", "decode_convert", "encode_convert"]

_FILE = "file"
_DELIVERY = "encode_output_as_base64"
_NOT_CONTENT = frozenset({_FILE, _DELIVERY})
_AUDIO, _BALANCE, _SECONDS = "encoded_audio", "remaining_character_count", "audio_length_in_seconds"

_VALUES_AT_LEAST = 10_000
"""Of JSON; six are read. Commas of a transcription look like more of them."""
_LETTERS_AT_LEAST, _LETTERS_A_SECOND = MAX_TEXT_CHARACTERS, 100
"""Of a transcription: one that was handed in with a clip comes back; fast speakers say 25 a second."""


def encode_convert(
    request: ConvertRequest, clip_sha256: str, *, name: str, media_type: str, as_base64: bool
) -> tuple[bytes, Form]:
    r"""Return what a request asks for, and the form that asks for it: equal requests give equal bytes.

    Values that are absent or equal to the document's default are left out. The boundary is made of the
    content, so that no clip can hold it by design.

    Parameters
    ----------
    request
        The request; of its ``file`` only that it is there.
    clip_sha256
        Of the clip's bytes, 64 hex digits: it stands for the clip in what is asked for.
    name, media_type
        What the form says of the file.
    as_base64
        How the audio is to be delivered where the request does not say; no part of what is asked for.

    Examples
    --------
    >>> request = ConvertRequest(voice_id="nora", file=b"", pitch=3)
    >>> content, form = encode_convert(
    ...     request, "ab" * 32, name="clip.wav", media_type="audio/wav", as_base64=False
    ... )
    >>> content[:26]
    b'{"pitch":3,"voice_id":"nor'
    >>> form.head.count(b"form-data"), form.tail[-4:]
    (4, b'--\r\n')
    """
    fields = request.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude=set(_NOT_CONTENT)
    )
    content = canonical(fields) + bytes.fromhex(clip_sha256)
    asks_base64 = as_base64 if request.encode_output_as_base64 is None else request.encode_output_as_base64
    return content, encode_form({**fields, _DELIVERY: asks_base64}, content, (_FILE, name, media_type))


@dataclass(frozen=True, slots=True)
class Converted:
    """The answer of the voice changer, as the service gave it.

    Parameters
    ----------
    audio
        The decoded bytes of ``encoded_audio``; None when the audio is behind `audio_url`.
    audio_url
        ``audio_file``: a URL or a path on the service, None when empty.
    audio_seconds
        The length the answer claims, in seconds; None where that is no length.
    remaining_characters
        The balance after the call; None when the answer does not hold a whole number.
    transcription
        What was said in the clip, where the answer tells.
    warning
        The service's own warning.
    notes
        What is odd about the answer though it can be used.
    """

    audio: bytes | None
    audio_url: str | None
    audio_seconds: float | None
    remaining_characters: int | None
    transcription: str | None = None
    warning: str | None = None
    notes: tuple[str, ...] = ()


def decode_convert(body: bytes, *, clip_seconds: float | None = None) -> Converted:
    r"""Return what an answer of the voice changer holds.

    Forgiven, and named in ``notes``: a missing or unusable length or balance, a transcription far longer than
    the clip can have, text that is no valid Unicode. Unknown fields are ignored.

    Parameters
    ----------
    body
        The answer, unpacked.
    clip_seconds
        The length of the clip; without it, a transcription of any length is taken. It also bounds how many
        JSON values are read at all.

    Raises
    ------
    BadAnswer
        No JSON object, one of absurdly many values, neither audio nor its place, Base64 that is not strictly
        right. Carries the balance where it could be read.

    Examples
    --------
    >>> decode_convert(
    ...     b'{"audio_file": "/v1/audio/7", "audio_length_in_seconds": 2.5, "remaining_character_count": 9}'
    ... ).audio_url
    '/v1/audio/7'
    """
    most_values = MOST_VALUES
    if clip_seconds is not None:
        most_values = min(most_values, _VALUES_AT_LEAST + int(_LETTERS_A_SECOND * clip_seconds))
    fields, audio, notes = answer_fields(body, _AUDIO, _BALANCE, most_values=most_values)
    remaining = whole_number(fields, _BALANCE)
    place = _text(fields.get("audio_file"))
    if audio is None and place is None:
        raise BadAnswer(f"the answer holds neither audio_file nor {_AUDIO}", remaining_characters=remaining)
    seconds = said_seconds(fields, _SECONDS, notes)
    if remaining is None:
        notes.append(f"the answer gives no usable {_BALANCE}")
    return Converted(
        audio=audio,
        audio_url=place,
        audio_seconds=seconds,
        remaining_characters=remaining,
        transcription=_transcription(fields, clip_seconds, notes),
        warning=_text(fields.get("warning")),
        notes=tuple(notes),
    )


def _transcription(fields: dict[str, Any], clip_seconds: float | None, notes: list[str]) -> str | None:
    text = _text(fields.get("transcription"))
    # It is stored with the row otherwise, whatever its length.
    if text is None or clip_seconds is None:
        return text
    if len(text) <= _LETTERS_AT_LEAST + _LETTERS_A_SECOND * clip_seconds:
        return text
    notes.append(
        f"a transcription of {len(text):,} characters is too long for a clip of {clip_seconds:.1f} s and was "
        "left out"
    )
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
