"""The base of backends that speak texts: the request of a text, its stored body, and its call."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from json import JSONDecoder, JSONEncoder
from types import MappingProxyType
from typing import Any

from speechframe.backends import alignment
from speechframe.backends.judging import SPOKEN_SIGNS
from speechframe.backends.service import SpokenBackend
from speechframe.backends.spoken_text import read_object
from speechframe.batch.backend import Opened, Request
from speechframe.client import PreparedCall
from speechframe.settings import Settings
from speechframe.spec.billing import PRICES
from speechframe.spec.check import FieldProblem, shorten_value
from speechframe.spec.limits import Pool, get_default_sample_rate_hz
from speechframe.spec.speech import GenerateRequest, Model, StreamRequest
from speechframe.spec.texts import count_billed_characters, find_text_fault, strip_pauses
from speechframe.wire.requests import encode_canonical_json, encode_request
from speechframe.wire.speech import DELIVERY_FIELD, encode_content

_GENERATE_WIRES, _STREAM_WIRES = GenerateRequest.get_wire_names(), StreamRequest.get_wire_names()

# Only streams have the field `model`.
WIRE_OF_ARGUMENT: Mapping[str, str] = MappingProxyType(
    {"voice" if name == "voice_id" else name: wire for name, wire in _GENERATE_WIRES.items()}
    | {"model": _STREAM_WIRES["model"]}
)
"""Maps each argument of a request to the wire name of the field that it fills."""

PRICE_A_CHARACTER = PRICES["generate"].millicredits
"""Thousandths of a credit for a billed character."""
NOTHING_TO_SPEAK = "has nothing to speak", "letters, digits or signs"
"""The fault of a text without words, and what is allowed."""
_DICTIONARY_EXAMPLE = '{"SQL": {"type": "SAY_AS", "pronunciation": "sequel"}}'
_STREAM_VARIATION = StreamRequest.model_fields["variation"].get_default()  # streams ignore other values
_MAX_CACHED_TEMPLATES = 1024  # cached sets of options
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")

# Encode the text like the whole request, because request keys are made from these bytes.
_write_json = JSONEncoder(ensure_ascii=False).encode
_read_json = JSONDecoder().raw_decode
_TEXT_FIELD = b'"text":'

# The parts that requests share if they differ only in their text. These are the bytes before and after the
# text in `Request.content`, the same two in `Request.body`, and the fields `facts` and `varies`.
Template = tuple[bytes, bytes, bytes, bytes, dict[str, Any], bool]


class SpeechBackend(SpokenBackend):
    """Makes calls that speak a text. The model gen2 has plain calls, and falcon-2 has streams."""

    wire_names = WIRE_OF_ARGUMENT

    def __init__(self, settings: Settings, constants: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(settings)
        self.model, self._words = find_model(constants.get("model")), constants.get("words")
        self._is_stream = self.model is Model.FALCON_2
        self._request_type: type[GenerateRequest | StreamRequest] = (
            StreamRequest if self._is_stream else GenerateRequest
        )
        self.has_word_times = not self._is_stream
        self._templates: dict[str, Template] = {}
        self._parse = lru_cache(_MAX_CACHED_TEMPLATES)(self._request_type.model_validate_json)
        self._aligner: Any = None  # the recogniser that finds word times, if words="align"
        if self._is_stream:
            self.pool = Pool.STREAMING  # the service has a separate cap on concurrent streams
            facts = "no word durations, no balance, billed characters are computed"
            self.remark = f"{self.model.value} is streamed; {facts}"

    async def open(self) -> Opened:
        """Open the client. If ``words="align"``, also load the recogniser, or raise SettingsError."""
        if self._words is not None:
            self._aligner = await alignment.load_aligner(self._words)
            remark = f"words are aligned with the audio by {self._aligner.name}"
            self.remark = f"{self.remark}; {remark}" if self.remark else remark
        return await super().open()

    def make_request(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the request of prepared arguments, or all problems of the row."""
        options = dict(values)
        options.pop("row_id", None)
        text: Any = options.pop("text", None)
        # Check and encode each set of options once, because most rows of a table have the same options. Use
        # their `repr` as the key, because 1, 1.0 and True are equal but make different requests.
        key = repr(options)
        template = self._templates.get(key)
        if template is None or not (type(text) is str and find_text_fault(text) is None and has_words(text)):
            checked = self._make_template(values)
            if isinstance(checked, list):
                return checked
            if len(self._templates) >= _MAX_CACHED_TEMPLATES:
                self._templates.clear()
            template = self._templates[key] = checked
        before, after, body_before, body_after, facts, varies = template
        json_text, characters = _write_json(text).encode(), count_billed_characters(text)
        content, body = before + json_text + after, body_before + json_text + body_after
        return Request(content, body, characters * PRICE_A_CHARACTER, characters, facts, varies)

    def _make_template(self, values: Mapping[str, Any]) -> Template | list[FieldProblem]:
        """Return the parts of a row's request without its text, or all problems of the row."""
        dictionary = values.get("pronunciation_dictionary")
        if isinstance(dictionary, str):
            dictionary = read_object("pronunciation_dictionary", dictionary, _DICTIONARY_EXAMPLE)
            if isinstance(dictionary, FieldProblem):
                return [dictionary]
            values = {**values, "pronunciation_dictionary": dictionary}
        wire_names = self._request_type.get_wire_names().values()
        given = {
            name: value for name, value in values.items() if name in WIRE_OF_ARGUMENT and name != "model"
        }
        problems: list[FieldProblem] = []
        if self._is_stream:
            message, allowed = f"does not exist for {self.model.value}", f"use model={Model.GEN2.value!r}"
            problems += [
                FieldProblem(name, message, shorten_value(given[name]), f"leave it out, or {allowed}")
                for name in sorted(given)
                if WIRE_OF_ARGUMENT[name] not in wire_names
            ]
        elif str(model := values.get("model", Model.GEN2)).lower() != Model.GEN2:
            allowed = f"{Model.GEN2.value}, or {Model.FALCON_2.value} for the whole table"
            problems.append(
                FieldProblem("model", "is not the model of this table", shorten_value(model), allowed)
            )
        fields = {
            wire: value for name, value in given.items() if (wire := WIRE_OF_ARGUMENT[name]) in wire_names
        }
        request, facts, found = self.prepare_request(self._request_type, fields, values)
        problems += found
        text = values.get("text")
        if isinstance(text, str) and find_text_fault(text) is None and not has_words(text):
            fault, allowed = NOTHING_TO_SPEAK
            problems.append(FieldProblem("text", fault, shorten_value(text), allowed))
        if problems or request is None:
            return problems
        if isinstance(request, StreamRequest):
            # Send model and sample rate, because their defaults differ between regions. Set the ignored field
            # `variation` to its default, so that rows that differ only in it share a call.
            rate_hz = request.sample_rate or float(get_default_sample_rate_hz(Model.FALCON_2))
            named = {"model": Model.FALCON_2, "sample_rate": rate_hz, "variation": _STREAM_VARIATION}
            content = body = encode_request(request.model_copy(update=named))
        else:
            # Request Base64 by default. Base64 saves a download, and the service keeps no copy of the audio.
            content, body = encode_content(request, as_base64=True)
        varies = not self._is_stream and request.variation != 0
        before, _, after = split_at_text(content)
        body_before, _, body_after = split_at_text(body)
        return before, after, body_before, body_after, facts, varies

    def call(self, request: Request, **call_options: Any) -> PreparedCall[Any]:
        """Return the call that a stored body describes."""
        # Parse requests that differ only in their text once, with "-" as the text. `check` has checked each
        # text.
        before, text, after = split_at_text(request.body)
        parsed = self._parse(before + b'"-"' + after).model_copy(update={"text": text})
        return PreparedCall("stream" if self._is_stream else "generate", parsed, request.body, **call_options)

    async def after(self, run: Any, is_stopped: Callable[[], bool]) -> None:
        """After all calls, find the words of rows without words in their audio, if ``words="align"``."""
        if self._aligner is not None and not is_stopped():
            await alignment.align(run, self._aligner, is_stopped)


def has_words(text: str) -> bool:
    """Return whether a voice speaks any part of a text. False for "..." and "[pause 1s] -"."""
    plain = strip_pauses(text) if "[" in text else text
    return bool(_LETTER_OR_DIGIT.search(plain)) or any(
        character in SPOKEN_SIGNS or unicodedata.category(character)[0] == "S" for character in plain
    )


def find_model(name: Any) -> Model:
    """Return the model of this name, or gen2 for an unknown name. `check` then refuses the rows."""
    return next((model for model in Model if isinstance(name, str) and model == name), Model.GEN2)


def change_fields(body: bytes, **changes: Any) -> tuple[bytes, bytes]:
    """Return the content and the body of a request with changed fields. None removes a field."""
    fields = {**json.loads(body), **changes}
    fields = {name: value for name, value in fields.items() if value is not None}
    content = {name: value for name, value in fields.items() if name != DELIVERY_FIELD}
    return encode_canonical_json(content), encode_canonical_json(fields)


def split_options(body: bytes) -> tuple[bytes, str]:
    """Return the options of a request without its text and its length, as bytes, and its text."""
    options, _ = change_fields(body, text=None, audioDuration=None)
    return options, read_text(body)


def read_text(body: bytes) -> str:
    """Return the text in the body of a request."""
    return split_at_text(body)[1]


def split_at_text(request: bytes) -> tuple[bytes, str, bytes]:
    """Return the bytes before the text of a request in JSON, the text, and the bytes after the text."""
    # JSON escapes quotes inside values, so only a name can match. The pronunciation dictionary may have the
    # word "text", too, but it comes before the field, because names are sorted. So search from the end.
    before, name, rest = request.rpartition(_TEXT_FIELD)
    written = rest.decode()
    text, end = _read_json(written)
    return before + name, text, written[end:].encode()
