"""Make the answers to billed calls for speech and translations, with the fault of each call."""

import base64
import json
import re
from collections.abc import Mapping
from urllib.parse import quote

from speechframe.spec.chosen import WARNING_HEADER, make_content_type
from speechframe.testing import answers
from speechframe.testing.audio import Shape, encode_clip_base64, make_shape, make_streamed_clip
from speechframe.testing.audio_urls import EXPIRED_PATH, make_clip_path
from speechframe.testing.plan import Fault
from speechframe.testing.wanted import ParsedSpeechRequest, ParsedTranslationRequest

_WORD_PATTERN = re.compile(r"\b[^\W\d_]+\b")
"""A word that a translation reverses. Words with digits are numbers or tokens for placeholders."""
_INVALID_AUDIO = base64.b64encode(b"no audio at all")
"""Base64 of bytes that are not audio. A stream sends this text itself, which is not audio either."""
_FAULTS_WITHOUT_AUDIO = frozenset({Fault.NO_AUDIO, Fault.BROKEN_JSON, Fault.BROKEN_BASE64, Fault.EXPIRED_URL})
"""Billed faults whose answer contains no usable audio. Streams send `_INVALID_AUDIO` for each of these."""


def answer_generate(
    wanted: ParsedSpeechRequest,
    fault: Fault | None,
    *,
    audio_bytes: int | None,
    trace: str,
    url: str,
    remaining: int,
    used: int,
) -> bytes:
    """Return the answer to a generate call, with its fault.

    `audio_bytes` is the approximate size of the audio, or None for a length by the text. `trace` is the trace
    id, and `url` the address of the region. `remaining` and `used` count characters of the key.
    """
    shape = _choose_shape(wanted, audio_bytes)
    audio_url = ""
    encoded: tuple[bytes | memoryview, ...] = ()
    if fault is Fault.EXPIRED_URL:
        audio_url = f"{url}{EXPIRED_PATH}/{wanted.tag:016x}"
    elif fault is Fault.NO_AUDIO:
        encoded = (_INVALID_AUDIO,)
    elif wanted.as_base64 or fault is Fault.BROKEN_BASE64:
        encoded = encode_clip_base64(shape, wanted.tag, wanted.take)
    else:
        audio_url = url + make_clip_path(shape, wanted.tag, wanted.take)
    if fault is Fault.BROKEN_BASE64:
        encoded = (b"*" + bytes(encoded[0][1:]), *encoded[1:])
    if encoded:
        encoded = (b'"encodedAudio":"', *encoded, b'",')
    warning = "" if wanted.warning is None else f',"warning":{json.dumps(wanted.warning)}'
    # A body that ends with "]" instead of "}" is not JSON.
    end = "]" if fault is Fault.BROKEN_JSON else "}"
    rest = (
        f'"audioFile":"{audio_url}","audioLengthInSeconds":{shape.seconds!r},'
        f'"remainingCharacterCount":{remaining},"consumedCharacterCount":{used},'
        f'"wordDurations":{answers.make_word_durations(wanted.text, shape.seconds)}{warning}{end}'
    )
    return answers.make_http_answer(200, [b"{", *encoded, rest.encode()], trace=trace)


def answer_stream(
    wanted: ParsedSpeechRequest, fault: Fault | None, *, audio_bytes: int | None, trace: str
) -> bytes:
    """Return the answer to a stream call, with its fault. `audio_bytes` is as in `answer_generate`."""
    audio = make_streamed_clip(_choose_shape(wanted, audio_bytes), wanted.tag, wanted.take)
    if fault in _FAULTS_WITHOUT_AUDIO:
        audio = _INVALID_AUDIO
    warning = "" if wanted.warning is None else f"{WARNING_HEADER}: {quote(wanted.warning)}\r\n"
    kind = make_content_type(wanted.format, wanted.rate_hz, wanted.channels)
    return answers.make_chunked_answer(audio, trace=trace, content_type=kind, headers=warning)


def answer_translate(
    wanted: ParsedTranslationRequest,
    fault: Fault | None,
    odd: Mapping[str, Mapping[str, str]],
    billed_times: float,
    *,
    trace: str,
) -> bytes:
    """Return the answer to a translation call, with its fault. Words with digits are not reversed.

    `odd` maps a text to its changes, as in `change_answer`. `billed_times` is the factor on the price.
    """
    used = float(sum(round(n * billed_times) for n in wanted.characters_of.values()))
    entries = []
    for text in () if fault in _FAULTS_WITHOUT_AUDIO - {Fault.BROKEN_JSON} else wanted.texts:
        reversed_text = _WORD_PATTERN.sub(lambda word: word[0][::-1], text)
        fields = {"source_text": text, "translated_text": f"{reversed_text} ({wanted.target})"}
        whole = _make_replaced_answer(odd.get(text, {}), trace)
        if whole is not None:
            return whole
        entries.append(_encode_changed(fields, odd.get(text, {})))
    metadata = json.dumps({"target_language": wanted.target, "credits_used": used})
    end = "]" if fault is Fault.BROKEN_JSON else "}"
    body = f'{{"translations":[{",".join(entries)}],"metadata":{metadata}{end}'
    return answers.make_http_answer(200, [body.encode()], trace=trace)


def change_answer(answer: bytes, odd: Mapping[str, str], *, trace: str) -> bytes:
    r"""Return a good answer with some fields replaced, or with another body.

    `odd` maps the name of a field to its JSON, or a content type to a whole body.

    Examples
    --------
    >>> answer = answers.make_http_answer(200, [b'{"audioLengthInSeconds":1.0}'], trace="7")
    >>> change_answer(answer, {"audioLengthInSeconds": "NaN"}, trace="7").partition(b"\r\n\r\n")[2]
    b'{"audioLengthInSeconds":NaN}'
    """
    if (whole := _make_replaced_answer(odd, trace)) is not None:
        return whole
    fields = json.loads(answer.partition(b"\r\n\r\n")[2])
    return answers.make_http_answer(200, [_encode_changed(fields, odd).encode()], trace=trace)


def _make_replaced_answer(odd: Mapping[str, str], trace: str) -> bytes | None:
    for kind, body in odd.items():
        if "/" in kind:
            return answers.make_http_answer(200, [body.encode()], trace=trace, content_type=kind)
    return None


def _encode_changed(fields: Mapping[str, object], odd: Mapping[str, str]) -> str:
    encoded_fields = {name: json.dumps(value) for name, value in fields.items()} | dict(odd)
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in encoded_fields.items()) + "}"


def _choose_shape(wanted: ParsedSpeechRequest, audio_bytes: int | None) -> Shape:
    return make_shape(
        wanted.format,
        wanted.rate_hz,
        wanted.channels,
        characters=wanted.characters,
        audio_bytes=audio_bytes,
        variant=wanted.tag + wanted.take,
    )
