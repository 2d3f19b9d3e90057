"""Requests as bytes: JSON, and forms for a file. The file itself is sent in pieces."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from speechframe.spec.fields._model import DocumentModel

# Do not use the faster writer, because request keys contain these bytes and must not depend on installed
# extras.
_encoder = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class FileForm:
    """A form for one file: the bytes before and after the file. `content_type` contains the boundary.

    A field may be a secret, so a repr does not show the fields.
    """

    content_type: str
    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)


def encode_form(
    fields: Mapping[str, Any], content: bytes, file: tuple[str, str, str] | None = None
) -> FileForm:
    r"""Return a form. Equal fields and files give equal bytes.

    Parameters
    ----------
    fields
        Names with their values. A list becomes a repeated field.
    content
        Content of the request with the hash of the file. The boundary is a hash of it, so a file cannot
        contain the boundary by intention.
    file
        Field, file name and media type of the file. None for a form without a file.

    Examples
    --------
    >>> form = encode_form({"pitch": 3, "to": ["fr", "pt"]}, b"content", ("file", "a.wav", "audio/wav"))
    >>> form.head.count(b"form-data"), form.tail[-4:]
    (4, b'--\r\n')
    """
    boundary = f"speechframe-{sha256(content).hexdigest()[:32]}"
    parts = [
        _part(boundary, f'name="{name}"', _field_bytes(value))
        for name, values in sorted(fields.items())
        for value in (values if isinstance(values, list) else [values])
    ]
    end = f"--{boundary}--\r\n".encode()
    if file is not None:
        # Put the file last, so that a service can check the fields before the file arrives.
        name, file_name, media_type = file
        opening = f'name="{name}"; filename="{file_name}"\r\nContent-Type: {media_type}'
        parts.append(_part(boundary, opening, b"").removesuffix(b"\r\n"))
        end = b"\r\n" + end
    return FileForm(f"multipart/form-data; boundary={boundary}", b"".join(parts), end)


def encode_request(request: DocumentModel) -> bytes:
    r"""Return the canonical JSON of a request. Equal requests give equal bytes, also in later versions.

    Names are sorted and text is UTF-8. Absent values and the document's defaults are left out.

    Examples
    --------
    >>> from speechframe.spec.speech import GenerateRequest
    >>> encode_request(GenerateRequest(text="Grüße", voice_id="greta", variation=1, sample_rate=8000))
    b'{"sampleRate":8000.0,"text":"Gr\xc3\xbc\xc3\x9fe","voiceId":"greta"}'
    """
    return canonical(fields_of(request))


def fields_of(request: DocumentModel) -> dict[str, Any]:
    """Return the fields of a request to send, by their names on the wire."""
    return request.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


def canonical(fields: Any) -> bytes:
    """Return values as JSON. Equal values give equal JSON."""
    return _encoder.encode(fields).encode()


def _part(boundary: str, disposition: str, value: bytes) -> bytes:
    head = f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n"
    return head.encode() + value + b"\r\n"


def _field_bytes(value: Any) -> bytes:
    # Write values as JSON does: 24000.0, true, and an object as text. Text stays as it is.
    return (value if isinstance(value, str) else _encoder.encode(value)).encode()
