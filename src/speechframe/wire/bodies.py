"""JSON bodies of speech calls: requests to bytes, answers to values (sections 2.1, 2.3, 2.4 and 2.7)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from pydantic import ValidationError

from speechframe.errors import BadAnswer
from speechframe.spec.auth import AuthToken
from speechframe.spec.speech import GenerateRequest, Voice
from speechframe.wire.answers import (
    answer_fields,
    balance_in,
    decode_object,
    kind_of,
    loaded,
    said_seconds,
    whole_number,
)
from speechframe.wire.decoding import MOST_VALUES
from speechframe.wire.errors import ErrorBody, decode_error, retry_after_s, warnings_of

__all__ = [
    "ErrorBody",
    "Generated",
    "answer_fields",
    "balance_in",
    "decode_error",
    "decode_generate",
    "decode_object",
    "decode_token",
    "decode_voices",
    "encode_content",
    "encode_generate",
    "retry_after_s",
    "said_seconds",
    "warnings_of",
    "whole_number",
]

_AUDIO_FIELD = "encodedAudio"
_BALANCE_FIELD = "remainingCharacterCount"
_DELIVERY = "encodeAsBase64"
_MAX_MS = 2**31 - 1
_WORD = itemgetter(0)  # of a word with its times
_WORDS_AT_LEAST, _WORDS_A_CHARACTER = 100, 4
_LETTERS_AT_LEAST, _LETTERS_A_CHARACTER = 1000, 20
_VALUES_AT_LEAST, _VALUES_A_CHARACTER = 250_000, 50
"""Of JSON: a word is five of them. Ten thousands of words too many cost a row its words, not its audio."""


@dataclass(frozen=True, slots=True)
class Generated:
    """The answer to a generate call, as the service gave it (section 2.3).

    Parameters
    ----------
    audio
        The decoded bytes of ``encodedAudio``; None when the audio is behind `audio_url`.
    audio_url
        ``audioFile``, None when empty.
    audio_seconds
        The length the answer claims, in seconds; None where that is no length.
    remaining_characters
        The balance after the call; None when the answer does not hold a whole number.
    words
        Word, start and end in milliseconds from the start of the audio.
    warning
        The service's own warning.
    notes
        What is odd about the answer though it can be used.
    """

    audio: bytes | None
    audio_url: str | None
    audio_seconds: float | None
    remaining_characters: int | None
    words: list[tuple[str, int, int]]
    warning: str | None
    notes: tuple[str, ...] = ()


def encode_generate(request: GenerateRequest) -> bytes:
    r"""Return the canonical JSON of a request: equal requests give equal bytes, here and in later versions.

    Names are sorted, values that are absent or equal to the document's default are left out, text is UTF-8.

    Examples
    --------
    >>> encode_generate(GenerateRequest(text="Grüße", voice_id="greta", variation=1, sample_rate=8000))
    b'{"sampleRate":8000.0,"text":"Gr\xc3\xbc\xc3\x9fe","voiceId":"greta"}'
    """
    return _canonical(_given(request))


def encode_content(request: GenerateRequest, *, as_base64: bool) -> tuple[bytes, bytes]:
    """Return what a request asks for, and the body that asks for it, both as canonical JSON.

    Parameters
    ----------
    request
        The request.
    as_base64
        How the audio is to be delivered where the request does not say: that is in the body, and no part of
        what is asked for.

    Examples
    --------
    >>> encode_content(GenerateRequest(text="Hi", voice_id="nora"), as_base64=True)
    (b'{"text":"Hi","voiceId":"nora"}', b'{"encodeAsBase64":true,"text":"Hi","voiceId":"nora"}')
    """
    fields = _given(request)
    delivery = fields.pop(_DELIVERY, as_base64)
    return _canonical(fields), _canonical({**fields, _DELIVERY: delivery})


# Never the fast writer: these bytes enter request keys, which must not depend on what is installed.
_encoder = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _given(request: GenerateRequest) -> dict[str, Any]:
    return request.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


def _canonical(fields: dict[str, Any]) -> bytes:
    return _encoder.encode(fields).encode()


def decode_generate(body: bytes, *, characters: int | None = None) -> Generated:
    r"""Return what a generate answer holds.

    The Base64 value is cut out before the rest is parsed, which is most of the speed; a body where that is
    not plainly possible is parsed as a whole, with the same result.

    Forgiven, and named in ``notes``: a missing or unusable length, balance or word list, single unusable
    words, words that run backwards, far more words than the text can have, text that is no valid Unicode.
    Unknown fields are ignored.

    Parameters
    ----------
    body
        The answer, unpacked.
    characters
        The length of the text that was spoken; without it, any number of words is taken. It also bounds how
        many JSON values are read at all.

    Raises
    ------
    BadAnswer
        No JSON object, one of absurdly many values, neither audio nor URL, Base64 that is not strictly right.
        Carries the balance where it could be read.

    Examples
    --------
    >>> decode_generate(
    ...     b'{"audioFile": "", "encodedAudio": "AAA=", "audioLengthInSeconds": 0.5,'
    ...     b' "remainingCharacterCount": 9, "wordDurations": [{"word": "Hi", "startMs": 0, "endMs": 400}]}'
    ... )
    ... # doctest: +NORMALIZE_WHITESPACE
    Generated(audio=b'\x00\x00', audio_url=None, audio_seconds=0.5, remaining_characters=9,
              words=[('Hi', 0, 400)], warning=None, notes=())
    """
    most_values = MOST_VALUES
    if characters is not None:
        most_values = min(most_values, _VALUES_AT_LEAST + _VALUES_A_CHARACTER * characters)
    fields, audio, notes = answer_fields(body, _AUDIO_FIELD, _BALANCE_FIELD, most_values=most_values)
    return _generated(fields, audio, notes, characters)


def decode_voices(body: bytes) -> list[Voice]:
    """Return the voices of a listing, whatever single fields look like.

    A field that is not as the document says is left out, and so is a voice without an id.

    Raises
    ------
    BadAnswer
        The body is no JSON array.
    """
    value = loaded(body)
    if not isinstance(value, list):
        raise BadAnswer(f"the voice listing is no array but {kind_of(value)}")
    found = (_lenient(Voice, item) for item in value if isinstance(item, dict))
    return [voice for voice in found if voice is not None]


def decode_token(body: bytes) -> AuthToken:
    """Return the token of a token answer.

    Raises
    ------
    BadAnswer
        The body is no JSON object, or the token is no text.
    """
    fields = decode_object(body)
    try:
        return AuthToken.model_validate(fields)
    except ValidationError as error:
        # The words of pydantic would show the token.
        names = ", ".join(str(e["loc"][0]) for e in error.errors(include_input=False))
        raise BadAnswer(f"the token answer holds an unusable value of {names}") from None


def _generated(
    fields: Mapping[str, Any], audio: bytes | None, notes: list[str], characters: int | None
) -> Generated:
    remaining = whole_number(fields, _BALANCE_FIELD)
    url = fields.get("audioFile")
    if not isinstance(url, str) or not url.strip():
        url = None
    if audio is None and url is None:
        raise BadAnswer("the answer holds neither audioFile nor encodedAudio", remaining_characters=remaining)
    seconds = said_seconds(fields, "audioLengthInSeconds", notes)
    if remaining is None:
        notes.append("the answer gives no usable remainingCharacterCount")
    warning = fields.get("warning")
    return Generated(
        audio=audio,
        audio_url=url,
        audio_seconds=seconds,
        remaining_characters=remaining,
        words=_words(fields.get("wordDurations"), notes, characters),
        warning=warning if isinstance(warning, str) and warning else None,
        notes=tuple(notes),
    )


def _words(value: Any, notes: list[str], characters: int | None) -> list[tuple[str, int, int]]:
    if not isinstance(value, list):
        notes.append("the answer gives no wordDurations")
        return []
    words = _plain_words(value)
    if words is None:
        words = _odd_words(value, notes)
    # A text of one line with a million words, or one of a megabyte, is stored with the row otherwise.
    if characters is not None and (
        len(words) > _WORDS_AT_LEAST + _WORDS_A_CHARACTER * characters
        or sum(map(len, map(_WORD, words))) > _LETTERS_AT_LEAST + _LETTERS_A_CHARACTER * characters
    ):
        note = f"{len(words):,} wordDurations are too many or too long for {characters:,} characters of text"
        notes.append(f"{note} and were left out")
        return []
    return words


def _odd_words(value: list[Any], notes: list[str]) -> list[tuple[str, int, int]]:
    words = [word for item in value if (word := _word(item)) is not None]
    if len(words) < len(value):
        notes.append(
            f"{len(value) - len(words)} of {len(value)} wordDurations are unusable and were left out"
        )
    previous_ms = 0
    for number, (_, start_ms, end_ms) in enumerate(words, start=1):
        if start_ms < previous_ms or end_ms < start_ms:
            notes.append(f"wordDurations run backwards at word {number}")
            break
        previous_ms = start_ms
    return words


def _plain_words(value: list[Any]) -> list[tuple[str, int, int]] | None:
    # As the document has them and in order, which is nearly always: no function call a word.
    words = []
    previous_ms = 0
    try:
        for item in value:
            word, start_ms, end_ms = item["word"], item["startMs"], item["endMs"]
            if type(word) is not str or type(start_ms) is not int or type(end_ms) is not int:
                return None
            if not previous_ms <= start_ms <= end_ms <= _MAX_MS:
                return None
            previous_ms = start_ms
            words.append((word, start_ms, end_ms))
    except (KeyError, TypeError):
        return None
    return words


def _word(item: Any) -> tuple[str, int, int] | None:
    if not isinstance(item, dict):
        return None
    word = item.get("word")
    start_ms, end_ms = _milliseconds(item.get("startMs")), _milliseconds(item.get("endMs"))
    if not isinstance(word, str) or start_ms is None or end_ms is None:
        return None
    return word, start_ms, end_ms


def _milliseconds(value: Any) -> int | None:
    if type(value) is int:
        return value if -_MAX_MS <= value <= _MAX_MS else None
    if type(value) is float and -_MAX_MS <= value <= _MAX_MS:
        return round(value)
    return None


def _lenient(model: type[Voice], fields: dict[str, Any]) -> Voice | None:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        wrong = {e["loc"][0] for e in error.errors(include_url=False, include_input=False)}
    try:
        return model.model_validate({name: value for name, value in fields.items() if name not in wrong})
    except ValidationError:
        return None
