"""Requests as bytes: JSON, and forms around a file, which itself is sent piece by piece."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from speechframe.spec.fields._model import DocumentModel

# Never the fast writer: these bytes enter request keys, which must not depend on what is installed.
_encoder = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Form:
    """A form around one file: what goes before its bytes and after them; `content_type` names the boundary.

    A secret may be among the fields, so no repr shows them.
    """

    content_type: str
    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)


def encode_form(fields: Mapping[str, Any], content: bytes, file: tuple[str, str, str] | None = None) -> Form:
    r"""Return a form: equal fields and files give equal bytes.

    Parameters
    ----------
    fields
        Name to value; a list is a repeated field.
    content
        What is asked for, the hash of the file included: the boundary is made of it, so that no file can
        hold it by design.
    file
        The file's field, its name and its media type; None for a form without one.

    Examples
    --------
    >>> form = encode_form({"pitch": 3, "to": ["fr", "pt"]}, b"content", ("file", "a.wav", "audio/wav"))
    >>> form.head.count(b"form-data"), form.tail[-4:]
    (4, b'--\r\n')
    """
    boundary = f"speechframe-{sha256(content).hexdigest()[:32]}"
    parts = [
        _part(boundary, f'name="{name}"', _written(value))
        for name, values in sorted(fields.items())
        for value in (values if isinstance(values, list) else [values])
    ]
    end = f"--{boundary}--\r\n".encode()
    if file is not None:
        # The file last: a service knows the fields by then and may refuse them without it.
        name, file_name, media_type = file
        opening = f'name="{name}"; filename="{file_name}"\r\nContent-Type: {media_type}'
        parts.append(_part(boundary, opening, b"").removesuffix(b"\r\n"))
        end = b"\r\n" + end
    return Form(f"multipart/form-data; boundary={boundary}", b"".join(parts), end)


def encode_request(request: DocumentModel) -> bytes:
    r"""Return the canonical JSON of a request: equal requests give equal bytes, here and in later versions.

    Names are sorted, values that are absent or equal to the document's default are left out, text is UTF-8.

    Examples
    --------
    >>> from speechframe.spec.speech import GenerateRequest
    >>> encode_request(GenerateRequest(text="Grüße", voice_id="greta", variation=1, sample_rate=8000))
    b'{"sampleRate":8000.0,"text":"Gr\xc3\xbc\xc3\x9fe","voiceId":"greta"}'
    """
    return canonical(fields_of(request))


def fields_of(request: DocumentModel) -> dict[str, Any]:
    """Return the fields of a request that are sent, by their names on the wire."""
    return request.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


def canonical(fields: Any) -> bytes:
    """Return values as JSON that is the same for equal values."""
    return _encoder.encode(fields).encode()


def _part(boundary: str, disposition: str, value: bytes) -> bytes:
    head = f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n"
    return head.encode() + value + b"\r\n"


def _written(value: Any) -> bytes:
    # As JSON writes it: 24000.0, true, and an object as text; a text stands for itself.
    return (value if isinstance(value, str) else _encoder.encode(value)).encode()
