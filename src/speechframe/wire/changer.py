"""Bodies of the voice changer: a request as a multipart form, an answer as values (section 2.5)."""

from typing import Any

from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import MAX_TEXT_CHARACTERS
from speechframe.wire.answers import MOST_VALUES
from speechframe.wire.requests import Form, canonical, encode_form
from speechframe.wire.speech import SpokenAnswer, SpokenFields, decode_spoken

_FILE = "file"
_DELIVERY = "encode_output_as_base64"
_NOT_CONTENT = frozenset({_FILE, _DELIVERY})
_CONVERTED = SpokenFields(
    "encoded_audio", "audio_file", "audio_length_in_seconds", "remaining_character_count"
)

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


def decode_convert(body: bytes, *, clip_seconds: float | None = None) -> SpokenAnswer:
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
    said, fields = decode_spoken(body, _CONVERTED, most_values)
    said.transcription = _transcription(fields, clip_seconds, said.notes)
    return said


def _transcription(fields: dict[str, Any], clip_seconds: float | None, notes: list[str]) -> str | None:
    text: Any = fields.get("transcription")
    if not isinstance(text, str) or not text.strip():
        return None
    # It is stored with the row otherwise, whatever its length.
    if clip_seconds is None or len(text) <= _LETTERS_AT_LEAST + _LETTERS_A_SECOND * clip_seconds:
        return text
    notes.append(
        f"a transcription of {len(text):,} characters is too long for a clip of {clip_seconds:.1f} s and was "
        "left out"
    )
    return None
