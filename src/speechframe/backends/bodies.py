"""Read and change the stored bodies of requests that speak a text."""

import json
from json import JSONDecoder
from typing import Any

from speechframe.wire.requests import encode_canonical_json
from speechframe.wire.speech import DELIVERY_FIELD

_TEXT_FIELD = b'"text":'
_read_json = JSONDecoder().raw_decode


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
