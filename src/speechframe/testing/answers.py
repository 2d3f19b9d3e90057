"""Make the bytes of HTTP answers (sections 2.3, 2.4 and 7.1 of the service document)."""

import functools
import json
from collections.abc import Sequence
from http.client import responses

from pydantic import TypeAdapter

from speechframe.spec.chosen import TRACE_HEADER
from speechframe.spec.codes import HttpErrorCode, Status
from speechframe.spec.speech import Gender, Model, StyleDetails, Voice
from speechframe.spec.texts import strip_pauses

JSON_TYPE = "application/json"

BodyPiece = bytes | memoryview

_CODE_BY_STATUS = {code.status: code for code in HttpErrorCode}
_VOICES = {
    Model.GEN2: (
        ("en-US-nora", "Nora", Gender.FEMALE, {"en-US": "English (US)", "de-DE": "German"}),
        ("en-GB-finley", "Finley", Gender.MALE, {"en-GB": "English (UK)", "fr-FR": "French"}),
        ("de-DE-greta", "Greta", Gender.FEMALE, {"de-DE": "German", "en-US": "English (US)"}),
    ),
    Model.FALCON_2: (
        ("en-US-nora", "Nora", Gender.FEMALE, {"en-US": "English (US)", "es-ES": "Spanish"}),
        ("fr-FR-luc", "Luc", Gender.MALE, {"fr-FR": "French"}),
    ),
}
_CHUNK_BYTES = 16 * 1024
"""Size of each chunk of a streamed answer except the last."""
_STYLES = ["Conversational", "Narration"]


def make_http_answer(
    status: int, body: Sequence[BodyPiece], *, trace: str, content_type: str = JSON_TYPE, headers: str = ""
) -> bytes:
    r"""Return an HTTP answer as bytes.

    `trace` is the trace id. `headers` contains further header lines, each with its line break.

    Examples
    --------
    >>> make_http_answer(200, [b"{}"], trace="7").split(b"\r\n")[0]
    b'HTTP/1.1 200 OK'
    """
    headers += f"Content-Length: {sum(map(len, body))}\r\n"
    return b"".join((_make_head(status, trace, content_type, headers), *body))


def make_chunked_answer(body: bytes, *, trace: str, content_type: str, headers: str = "") -> bytes:
    r"""Return an answer with status 200 in chunked transfer encoding, as streams send it.

    `trace` is the trace id. `headers` contains further header lines, each with its line break. The last five
    bytes mark the end of the body.

    Examples
    --------
    >>> make_chunked_answer(b"abc", trace="7", content_type="audio/wav").partition(b"\r\n\r\n")[2]
    b'3\r\nabc\r\n0\r\n\r\n'
    """
    pieces = (body[start : start + _CHUNK_BYTES] for start in range(0, len(body), _CHUNK_BYTES))
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    head = _make_head(200, trace, content_type, headers + "Transfer-Encoding: chunked\r\n")
    return b"".join((head, *chunks, b"0\r\n\r\n"))


def _make_head(status: int, trace: str, content_type: str, headers: str) -> bytes:
    return (
        f"HTTP/1.1 {status} {responses.get(status, 'Unknown')}\r\nContent-Type: {content_type}\r\n"
        f"{TRACE_HEADER}: {trace}\r\n{headers}\r\n"
    ).encode("latin-1")


def make_error_answer(status: int, message: str, *, trace: str, headers: str = "") -> bytes:
    """Return an error answer. Its JSON body has the fields of our service (chosen: http-error-body)."""
    known = Status.from_number(status)
    code = _CODE_BY_STATUS.get(known, HttpErrorCode.INTERNAL_ERROR) if known is not None else "SCRIPTED"
    fields = {"error_message": message, "error_code": str(code), "trace_id": trace}
    return make_http_answer(status, [json.dumps(fields).encode()], trace=trace, headers=headers)


def make_word_durations(text: str, audio_seconds: float) -> str:
    """Return the JSON of ``wordDurations``. The duration of a word is proportional to its length in letters.

    Examples
    --------
    >>> make_word_durations("Oh no!", 1.0)
    '[{"word":"Oh","startMs":0,"endMs":400},{"word":"no!","startMs":400,"endMs":1000}]'
    """
    words = strip_pauses(text).split()
    total_ms, characters = int(audio_seconds * 1000), sum(map(len, words)) or 1
    found, done_characters, start_ms = [], 0, 0
    for word in words:
        done_characters += len(word)
        end_ms = total_ms * done_characters // characters
        found.append(f'{{"word":{json.dumps(word)},"startMs":{start_ms},"endMs":{end_ms}}}')
        start_ms = end_ms
    return f"[{','.join(found)}]"


@functools.cache
def make_voice_listing(model: Model) -> bytes:
    """Return the JSON list of the voices of a model (section 2.4). Most voices have several locales."""
    voices = [
        Voice.model_validate(
            {
                "voice_id": voice_id,
                "display_name": name,
                "description": f"A canned voice called {name}.",
                "gender": gender,
                "locale": next(iter(supported)),
                "supported_locales": {
                    locale: StyleDetails(available_styles=_STYLES, detail=detail)
                    for locale, detail in supported.items()
                },
            }
        )
        for voice_id, name, gender, supported in _VOICES[model]
    ]
    return TypeAdapter(list[Voice]).dump_json(voices, by_alias=True, exclude_none=True)
