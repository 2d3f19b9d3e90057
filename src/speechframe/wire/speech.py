"""Encode the JSON bodies of speech requests, and decode those of answers.

Sections 2.1 to 2.5 and 2.7 of the service document describe these bodies.
"""

import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic import ValidationError

from speechframe.errors import BadAnswer
from speechframe.spec.auth import AuthToken
from speechframe.spec.speech import GenerateRequest, Voice
from speechframe.wire.answers import (
    MAX_ANSWER_VALUES,
    REPAIRED_TEXT_NOTE,
    NotJsonError,
    decode_base64,
    decode_list,
    decode_object,
    describe_value,
    load_json,
    load_object,
    name_wrong_fields,
    read_amount,
    read_whole_number,
    validate_leniently,
)
from speechframe.wire.requests import encode_canonical_json, get_set_fields

DELIVERY_FIELD = "encodeAsBase64"
# Placeholder of the audio while the rest of a body is parsed. It is random, so that no service can send it.
_AUDIO_PLACEHOLDER = secrets.token_hex(16)
_COLON_PATTERN = re.compile(rb'[ \t\r\n]*:[ \t\r\n]*"')
_MAX_MS, _MAX_SECONDS = 2**31 - 1, 10**9
_GET_WORD = itemgetter(0)  # the word in a tuple of word, start and end
_MIN_ALLOWED_WORDS, _WORDS_PER_CHARACTER = 100, 4
"""Allowed number of words in an answer: a constant, and a number per character of the text."""
_MIN_ALLOWED_LETTERS, _LETTERS_PER_CHARACTER = 1000, 20
"""Allowed letters of all words in an answer: a constant, and a number per character of the text."""
_MIN_ALLOWED_VALUES, _VALUES_PER_CHARACTER = 250_000, 50
"""Allowed number of JSON values in an answer: a constant, and a number per character of the text.

A word takes five values. An answer with up to 50,000 words too many still gives its audio, without the words.
"""


class SpokenFieldNames(NamedTuple):
    """Names of the fields in an answer with audio."""

    audio: str
    url: str
    seconds: str
    balance: str


_GENERATE_FIELDS = SpokenFieldNames(
    "encodedAudio", "audioFile", "audioLengthInSeconds", "remainingCharacterCount"
)


@dataclass(slots=True)
class SpokenAnswer:
    """A decoded answer with audio (sections 2.3 and 2.5).

    Parameters
    ----------
    audio
        Decoded audio file. None if the answer has only `audio_url`.
    audio_url
        URL of the audio, or its path on the service. None if empty.
    audio_seconds
        Length of the audio in seconds in the answer. None if it is missing or not a possible length.
    remaining_characters
        Balance of the key after the call, in characters. None if it is missing or not a valid number.
    warning
        Warning of the service, or None.
    notes
        Messages about faults of the answer that do not make it unusable.
    words
        Each word with its start and end, in milliseconds from the start of the audio.
    transcription
        Transcript of the input clip, if the voice changer sent one.
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
    """Return the content of a request and its HTTP body, both as canonical JSON.

    The content identifies the speech, so that a repeat can be recognised. It does not include the choice
    between Base64 and URL.

    Parameters
    ----------
    request
        The request.
    as_base64
        Whether to request the audio as Base64, if the request does not decide.

    Examples
    --------
    >>> encode_content(GenerateRequest(text="Hi", voice_id="nora"), as_base64=True)
    (b'{"text":"Hi","voiceId":"nora"}', b'{"encodeAsBase64":true,"text":"Hi","voiceId":"nora"}')
    """
    fields = get_set_fields(request)
    delivery = fields.pop(DELIVERY_FIELD, as_base64)
    return encode_canonical_json(fields), encode_canonical_json({**fields, DELIVERY_FIELD: delivery})


def decode_generate(body: bytes, *, characters: int) -> SpokenAnswer:
    r"""Decode an answer of generate.

    The function cuts out the Base64 audio before it parses the rest, because this is much faster. If it
    cannot find the audio safely, it parses the whole body. The result is the same.

    Some faults only add a message to ``notes``: a missing or unusable length, balance or word list, single
    unusable words, words that run backwards, far too many words for the text, invalid Unicode. Unknown
    fields are ignored.

    Parameters
    ----------
    body
        Body of the answer, already decompressed.
    characters
        Number of characters of the text, which limits the number of words and of JSON values.

    Raises
    ------
    BadAnswer
        The body is not a JSON object, contains far too many values, has neither audio nor URL, or has
        invalid Base64. The error contains the balance if it was readable.

    Examples
    --------
    >>> said = decode_generate(
    ...     b'{"audioFile": "", "encodedAudio": "AAA=", "audioLengthInSeconds": 0.5,'
    ...     b' "remainingCharacterCount": 9, "wordDurations": [{"word": "Hi", "startMs": 0, "endMs": 400}]}',
    ...     characters=2,
    ... )
    >>> said.audio, said.audio_seconds, said.words
    (b'\x00\x00', 0.5, [('Hi', 0, 400)])
    """
    most_values = min(MAX_ANSWER_VALUES, _MIN_ALLOWED_VALUES + _VALUES_PER_CHARACTER * characters)
    answer, fields = decode_spoken(body, _GENERATE_FIELDS, most_values)
    answer.words = _read_words(fields.get("wordDurations"), answer.notes, characters)
    return answer


def decode_spoken(
    body: bytes, names: SpokenFieldNames, most_values: int
) -> tuple[SpokenAnswer, dict[str, Any]]:
    """Decode the fields that all answers with audio share, and return them with all fields of the answer.

    `names` has the names of these fields. `most_values` is the allowed number of JSON values. Faults are
    handled as in :func:`decode_generate`.
    """
    cut = _cut_out_audio(body, names.audio, most_values)
    fields, audio, repaired = cut or _decode_whole(body, names, most_values)
    notes = [REPAIRED_TEXT_NOTE] if repaired else []
    remaining = read_whole_number(fields, names.balance)
    url, warning = fields.get(names.url), fields.get("warning")
    if not isinstance(url, str) or not url.strip():
        url = None
    if audio is None and url is None:
        message = f"the answer has neither {names.url} nor {names.audio}"
        raise BadAnswer(message, remaining_characters=remaining)
    seconds = read_amount(fields.get(names.seconds), _MAX_SECONDS)
    if seconds is None:
        # Use the audio despite an unusable length, because it is paid for and its length can be measured.
        odd = describe_value(fields.get(names.seconds))
        notes.append(f"{names.seconds} is {odd}; the audio was measured instead")
    else:
        seconds = float(seconds)
    if remaining is None:
        notes.append(f"the answer gives no usable {names.balance}")
    warning = warning if isinstance(warning, str) and warning else None
    return SpokenAnswer(audio, url, seconds, remaining, warning, notes), fields


def _cut_out_audio(body: bytes, field: str, most_values: int) -> tuple[dict[str, Any], bytes, bool] | None:
    """Return fields, audio and whether text was repaired, or None if the audio cannot be cut out safely."""
    name = b'"%b"' % field.encode()
    key = body.find(name)
    colon = _COLON_PATTERN.match(body, key + len(name)) if key >= 0 else None
    if colon is None:
        return None
    start, end = colon.end(), body.find(b'"', colon.end())
    # A second field with this name must not exist. The value has no quotes, so search only after it.
    if end <= start or body.find(name, end) >= 0:
        return None
    audio = decode_base64(memoryview(body)[start:end])
    if audio is None and body.find(b"\\", start, end) >= 0:
        # Many JSON writers escape the slash, which is a Base64 character.
        audio = decode_base64(body[start:end].replace(b"\\/", b"/"))
    if audio is None:
        return None
    try:
        rest = b"".join((body[:start], _AUDIO_PLACEHOLDER.encode(), body[end:]))
        fields, repaired = load_json(rest, most_values=most_values)
    except NotJsonError:
        return None
    # If the field does not have the placeholder, the value belonged to another field.
    found = isinstance(fields, dict) and fields.get(field) == _AUDIO_PLACEHOLDER
    return (fields, audio, repaired) if found else None


def _decode_whole(
    body: bytes, names: SpokenFieldNames, most_values: int
) -> tuple[dict[str, Any], bytes | None, bool]:
    fields, repaired = load_object(body, most_values=most_values)
    encoded = fields.get(names.audio)
    if encoded is None or encoded == "":
        return fields, None, repaired
    audio = decode_base64(encoded.encode()) if isinstance(encoded, str) else None
    if audio is None:
        balance = read_whole_number(fields, names.balance)
        raise BadAnswer(f"{names.audio} is not Base64", remaining_characters=balance)
    return fields, audio, repaired


def decode_voices(body: bytes) -> list[Voice]:
    """Return the voices of a listing. Invalid fields, and voices without an id, are left out.

    Raises
    ------
    BadAnswer
        The body is not a JSON array.
    """
    voices = []
    for item in decode_list(body):
        with suppress(BadAnswer):
            voices.append(validate_leniently(Voice, item))
    return voices


def decode_token(body: bytes) -> AuthToken:
    """Return the token of a token answer.

    Raises
    ------
    BadAnswer
        The body is not a JSON object, or the token is not a string.
    """
    try:
        return AuthToken.model_validate(decode_object(body))
    except ValidationError as error:
        # Do not use the message of pydantic, because it could contain the token.
        names = ", ".join(name_wrong_fields(error))
        raise BadAnswer(f"the token answer has an unusable value of {names}") from None


def _read_words(value: Any, notes: list[str], characters: int) -> list[tuple[str, int, int]]:
    if not isinstance(value, list):
        notes.append("the answer gives no wordDurations")
        return []
    words: list[tuple[str, int, int]] = []
    previous_ms, first_backwards = 0, 0
    for item in value:
        try:
            word, start_ms, end_ms = item["word"], item["startMs"], item["endMs"]
        except (KeyError, TypeError):
            continue
        is_plain = type(word) is str and type(start_ms) is int and type(end_ms) is int
        if not is_plain or not previous_ms <= start_ms <= end_ms <= _MAX_MS:
            start_ms, end_ms = _read_milliseconds(start_ms), _read_milliseconds(end_ms)
            if not isinstance(word, str) or start_ms is None or end_ms is None:
                continue
            if not first_backwards and not previous_ms <= start_ms <= end_ms:
                first_backwards = len(words) + 1
        previous_ms = start_ms
        words.append((word, start_ms, end_ms))
    if len(words) < len(value):
        notes.append(
            f"{len(value) - len(words)} of {len(value)} wordDurations are unusable and were left out"
        )
    if first_backwards:
        notes.append(f"wordDurations run backwards at word {first_backwards}")
    # Words are stored with their row, so limit their number and their letters.
    max_letters = _MIN_ALLOWED_LETTERS + _LETTERS_PER_CHARACTER * characters
    is_too_long = sum(map(len, map(_GET_WORD, words))) > max_letters
    if is_too_long or len(words) > _MIN_ALLOWED_WORDS + _WORDS_PER_CHARACTER * characters:
        note = f"{len(words):,} wordDurations are too many or too long for {characters:,} characters of text"
        notes.append(f"{note} and were left out")
        return []
    return words


def _read_milliseconds(value: Any) -> int | None:
    # Accept a word that starts before the audio, because later checks of the audio report it.
    milliseconds = read_amount(value, _MAX_MS, least=-_MAX_MS)
    return None if milliseconds is None else round(milliseconds)
