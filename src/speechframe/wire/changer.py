"""Encode the form of a voice changer request, and decode the JSON of its answer (section 2.5)."""

from typing import Any

from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import MAX_TEXT_CHARACTERS
from speechframe.wire.answers import MAX_ANSWER_VALUES
from speechframe.wire.requests import FileForm, encode_canonical_json, encode_form, get_set_fields
from speechframe.wire.speech import SpokenAnswer, SpokenFieldNames, decode_spoken

_FILE_FIELD = "file"
_DELIVERY_FIELD = "encode_output_as_base64"
_CONVERT_FIELDS = SpokenFieldNames(
    "encoded_audio", "audio_file", "audio_length_in_seconds", "remaining_character_count"
)

_MIN_ALLOWED_VALUES = 10_000
"""Allowed number of JSON values of an answer. Six are used, but commas in a transcription count too."""
_MIN_ALLOWED_LETTERS, _ALLOWED_LETTERS_PER_S = MAX_TEXT_CHARACTERS, 100
"""Allowed letters of a transcription, in any case and per second. Fast speech has 25 letters a second."""


def encode_convert(
    request: ConvertRequest, clip_sha256: str, *, name: str, media_type: str, as_base64: bool
) -> tuple[bytes, FileForm]:
    r"""Return the content of a request, and the multipart form. Equal requests give equal bytes.

    The content identifies the request, so that a repeat can be recognised. Absent values and the document's
    defaults are left out. The boundary of the form is a hash of the content, so nobody can make a clip that
    contains it.

    Parameters
    ----------
    request
        The request. Its ``file`` must be present but is not used.
    clip_sha256
        Hash of the clip's bytes, as 64 hex digits. It replaces the clip in the content.
    name, media_type
        File name and media type of the clip in the form.
    as_base64
        Whether to request Base64 if the request does not decide. The content does not depend on this choice.

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
    fields = get_set_fields(request, without={_FILE_FIELD, _DELIVERY_FIELD})
    content = encode_canonical_json(fields) + bytes.fromhex(clip_sha256)
    asks_base64 = as_base64 if request.encode_output_as_base64 is None else request.encode_output_as_base64
    return content, encode_form(
        {**fields, _DELIVERY_FIELD: asks_base64}, content, (_FILE_FIELD, name, media_type)
    )


def decode_convert(body: bytes, *, clip_seconds: float) -> SpokenAnswer:
    r"""Decode an answer of the voice changer.

    Some faults only add a message to ``notes``: a missing or unusable length or balance, a transcription that
    is far too long for the clip, and invalid Unicode. Unknown fields are ignored.

    Parameters
    ----------
    body
        Body of the answer, already decompressed.
    clip_seconds
        Length of the clip in seconds. It limits the transcription and the number of JSON values.

    Raises
    ------
    BadAnswer
        If the body is not a JSON object, contains far too many values, has neither audio nor URL, or has
        invalid Base64. The error contains the balance if it was readable.

    Examples
    --------
    >>> decode_convert(
    ...     b'{"audio_file": "/v1/audio/7", "audio_length_in_seconds": 2.5, "remaining_character_count": 9}',
    ...     clip_seconds=2.5,
    ... ).audio_url
    '/v1/audio/7'
    """
    most_values = min(MAX_ANSWER_VALUES, _MIN_ALLOWED_VALUES + int(_ALLOWED_LETTERS_PER_S * clip_seconds))
    answer, fields = decode_spoken(body, _CONVERT_FIELDS, most_values)
    answer.transcription = _read_transcription(fields, clip_seconds, answer.notes)
    return answer


def _read_transcription(fields: dict[str, Any], clip_seconds: float, notes: list[str]) -> str | None:
    text: Any = fields.get("transcription")
    if not isinstance(text, str) or not text.strip():
        return None
    # A transcription is stored with its row, so limit its length.
    if len(text) <= _MIN_ALLOWED_LETTERS + _ALLOWED_LETTERS_PER_S * clip_seconds:
        return text
    notes.append(
        f"a transcription of {len(text):,} characters is too long for a clip of {clip_seconds:.1f} s and was "
        "left out"
    )
    return None
