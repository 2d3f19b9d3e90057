"""JSON bodies of speech calls: requests to bytes, answers to values (sections 2.1 to 2.5 and 2.7)."""

import re
import secrets
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic import ValidationError

from speechframe.errors import BadAnswer
from speechframe.spec.auth import AuthToken
from speechframe.spec.speech import GenerateRequest, Voice
from speechframe.wire.answers import (
    MOST_VALUES,
    REPAIRED,
    NotJsonError,
    TooManyValuesError,
    amount,
    balance_in,
    decode_base64,
    decode_object,
    kind_of,
    loaded,
    loads,
    shown_value,
    whole_number,
)
from speechframe.wire.requests import canonical, fields_of

_DELIVERY = "encodeAsBase64"
# Stands for the audio while the rest is parsed. Random, so that no body can hold it by design.
_PLACE = secrets.token_hex(16)
_COLON = re.compile(rb'[ \t\r\n]*:[ \t\r\n]*"')
_MAX_MS, _MAX_SECONDS = 2**31 - 1, 10**9
_WORD = itemgetter(0)  # of a word with its times
_WORDS_AT_LEAST, _WORDS_A_CHARACTER = 100, 4
_LETTERS_AT_LEAST, _LETTERS_A_CHARACTER = 1000, 20
_VALUES_AT_LEAST, _VALUES_A_CHARACTER = 250_000, 50
"""Of JSON: a word is five of them. Ten thousands of words too many cost a row its words, not its audio."""


class SpokenFields(NamedTuple):
    """What an answer with audio calls its fields."""

    audio: str
    url: str
    seconds: str
    balance: str


_GENERATED = SpokenFields("encodedAudio", "audioFile", "audioLengthInSeconds", "remainingCharacterCount")


@dataclass(slots=True)
class SpokenAnswer:
    """An answer with audio, as the service gave it (sections 2.3 and 2.5).

    Parameters
    ----------
    audio
        The decoded bytes; None when the audio is behind `audio_url`.
    audio_url
        A URL, or a path on the service; None when empty.
    audio_seconds
        The length the answer claims, in seconds; None where that is no length.
    remaining_characters
        The balance after the call; None when the answer does not hold a whole number.
    warning
        The service's own warning.
    notes
        What is odd about the answer though it can be used.
    words
        Word, start and end in milliseconds from the start of the audio.
    transcription
        What was said in the clip, where the voice changer tells.
    """

    audio: bytes | None
    audio_url: str | None = None
    audio_seconds: float | None = None
    remaining_characters: int | None = None
    warning: str | None = None
    notes: list[str] = field(default_factory=list)
    words: list[tuple[str, int, int]] = field(default_factory=list)
    transcription: str | None = None


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
    fields = fields_of(request)
    delivery = fields.pop(_DELIVERY, as_base64)
    return canonical(fields), canonical({**fields, _DELIVERY: delivery})


def decode_generate(body: bytes, *, characters: int | None = None) -> SpokenAnswer:
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
    >>> said = decode_generate(
    ...     b'{"audioFile": "", "encodedAudio": "AAA=", "audioLengthInSeconds": 0.5,'
    ...     b' "remainingCharacterCount": 9, "wordDurations": [{"word": "Hi", "startMs": 0, "endMs": 400}]}'
    ... )
    >>> said.audio, said.audio_seconds, said.words
    (b'\x00\x00', 0.5, [('Hi', 0, 400)])
    """
    most_values = MOST_VALUES
    if characters is not None:
        most_values = min(most_values, _VALUES_AT_LEAST + _VALUES_A_CHARACTER * characters)
    said, fields = decode_spoken(body, _GENERATED, most_values)
    said.words = _words(fields.get("wordDurations"), said.notes, characters)
    return said


def decode_spoken(body: bytes, names: SpokenFields, most_values: int) -> tuple[SpokenAnswer, dict[str, Any]]:
    """Return what every answer with audio holds, and all of its fields; see :func:`decode_generate`.

    `most_values` is how many JSON values the answer may hold: beside the audio there are only words.
    """
    try:
        cut = _without_audio(body, names.audio, most_values)
        fields, audio, repaired = cut or _whole(body, names, most_values)
    except TooManyValuesError as error:
        raise BadAnswer(
            f"the answer holds {error} of JSON, far more than words beside the audio can be",
            remaining_characters=balance_in(body),
        ) from None
    notes = [REPAIRED] if repaired else []
    remaining = whole_number(fields, names.balance)
    url, warning = fields.get(names.url), fields.get("warning")
    if not isinstance(url, str) or not url.strip():
        url = None
    if audio is None and url is None:
        words = f"the answer holds neither {names.url} nor {names.audio}"
        raise BadAnswer(words, remaining_characters=remaining)
    seconds = amount(fields.get(names.seconds), _MAX_SECONDS)
    if seconds is None:
        # The audio is paid for and can be measured: an odd length does not make it useless.
        odd = shown_value(fields.get(names.seconds))
        notes.append(f"{names.seconds} is {odd}; the audio was measured instead")
    else:
        seconds = float(seconds)
    if remaining is None:
        notes.append(f"the answer gives no usable {names.balance}")
    warning = warning if isinstance(warning, str) and warning else None
    return SpokenAnswer(audio, url, seconds, remaining, warning, notes), fields


def _without_audio(body: bytes, field: str, most_values: int) -> tuple[dict[str, Any], bytes, bool] | None:
    """Return fields, audio and whether text was repaired; None unless it is plain where the audio stands."""
    name = b'"%b"' % field.encode()
    key = body.find(name)
    colon = _COLON.match(body, key + len(name)) if key >= 0 else None
    if colon is None:
        return None
    start, end = colon.end(), body.find(b'"', colon.end())
    # The value itself need not be searched for a second key: it holds no quote.
    if end <= start or body.find(name, end) >= 0:
        return None
    audio = decode_base64(memoryview(body)[start:end])
    if audio is None and body.find(b"\\", start, end) >= 0:
        # Many JSON writers escape the slash, which is a letter of Base64.
        audio = decode_base64(body[start:end].replace(b"\\/", b"/"))
    if audio is None:
        return None
    try:
        rest = b"".join((body[:start], _PLACE.encode(), body[end:]))
        fields, repaired = loads(rest, most_values=most_values)
    except TooManyValuesError:
        raise
    except NotJsonError:
        return None
    # Unless the placeholder is what a parser finds there, the value belonged to something else.
    found = isinstance(fields, dict) and fields.get(field) == _PLACE
    return (fields, audio, repaired) if found else None


def _whole(body: bytes, names: SpokenFields, most_values: int) -> tuple[dict[str, Any], bytes | None, bool]:
    try:
        fields, repaired = loads(body, most_values=most_values)
    except TooManyValuesError:
        raise
    except NotJsonError as error:
        raise BadAnswer(f"the answer is no JSON: {error}", remaining_characters=balance_in(body)) from None
    if not isinstance(fields, dict):
        raise BadAnswer(f"the answer is no JSON object but {kind_of(fields)}")
    encoded = fields.get(names.audio)
    if encoded is None or encoded == "":
        return fields, None, repaired
    audio = decode_base64(encoded.encode()) if isinstance(encoded, str) else None
    if audio is None:
        balance = whole_number(fields, names.balance)
        raise BadAnswer(f"{names.audio} is no Base64", remaining_characters=balance)
    return fields, audio, repaired


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
    return [
        voice for item in value if isinstance(item, dict) and (voice := _lenient(Voice, item)) is not None
    ]


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


def _words(value: Any, notes: list[str], characters: int | None) -> list[tuple[str, int, int]]:
    if not isinstance(value, list):
        notes.append("the answer gives no wordDurations")
        return []
    words: list[tuple[str, int, int]] = []
    previous_ms, is_plain = 0, True
    try:
        # As the document has them and in order, which is nearly always: no function call a word.
        for item in value:
            word, start_ms, end_ms = item["word"], item["startMs"], item["endMs"]
            is_plain = type(word) is str and type(start_ms) is int and type(end_ms) is int
            if not is_plain or not previous_ms <= start_ms <= end_ms <= _MAX_MS:
                is_plain = False
                break
            previous_ms = start_ms
            words.append((word, start_ms, end_ms))
    except (KeyError, TypeError):
        is_plain = False
    if not is_plain:
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


def _word(item: Any) -> tuple[str, int, int] | None:
    if not isinstance(item, dict):
        return None
    word = item.get("word")
    start_ms, end_ms = _milliseconds(item.get("startMs")), _milliseconds(item.get("endMs"))
    if not isinstance(word, str) or start_ms is None or end_ms is None:
        return None
    return word, start_ms, end_ms


def _milliseconds(value: Any) -> int | None:
    # A word before the audio is kept: the truth checks find it.
    milliseconds = amount(value, _MAX_MS, least=-_MAX_MS)
    return None if milliseconds is None else round(milliseconds)


def _lenient(model: type[Voice], fields: dict[str, Any]) -> Voice | None:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        wrong = {e["loc"][0] for e in error.errors(include_url=False, include_input=False)}
    try:
        return model.model_validate({name: value for name, value in fields.items() if name not in wrong})
    except ValidationError:
        return None
