"""Encoding of requests as JSON or as multipart forms. The caller sends the file of a form itself."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from speechframe.spec.fields._model import DocumentModel

# Do not use orjson. Keys of requests depend on these bytes, which must not depend on the installed packages.
_encoder = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class FileForm:
    """A multipart form, as the bytes before (`head`) and after (`tail`) its file.

    `content_type` is the header with the boundary. The repr omits the bytes, because a field may be a secret.
    """

    content_type: str
    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)


def encode_form(
    fields: Mapping[str, Any], content: bytes, file: tuple[str, str, str] | None = None
) -> FileForm:
    r"""Return a multipart form. Equal arguments give equal bytes.

    Parameters
    ----------
    fields
        Values by name. A list becomes a repeated field.
    content
        Bytes that identify the request, including the hash of the file. The boundary is a hash of `content`,
        so nobody can make a file that contains the boundary.
    file
        Field name, file name and media type of the file. None (the default) for a form without a file.

    Examples
    --------
    >>> form = encode_form({"pitch": 3, "to": ["fr", "pt"]}, b"content", ("file", "a.wav", "audio/wav"))
    >>> form.head.count(b"form-data"), form.tail[-4:]
    (4, b'--\r\n')
    """
    boundary = f"speechframe-{sha256(content).hexdigest()[:32]}"
    parts = [
        _encode_part(boundary, f'name="{name}"', _encode_field(value))
        for name, values in sorted(fields.items())
        for value in (values if isinstance(values, list) else [values])
    ]
    end = f"--{boundary}--\r\n".encode()
    if file is not None:
        # Put the file last, so that a service can check the fields before the file arrives.
        name, file_name, media_type = file
        opening = f'name="{name}"; filename="{file_name}"\r\nContent-Type: {media_type}'
        parts.append(_encode_part(boundary, opening, b"").removesuffix(b"\r\n"))
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
    return encode_canonical_json(get_set_fields(request))


def get_set_fields(request: DocumentModel, without: set[str] | None = None) -> dict[str, Any]:
    """Return the values of a request by wire name. Absent values and the document's defaults are left out."""
    return request.model_dump(mode="json", exclude_none=True, exclude_defaults=True, exclude=without)


def encode_canonical_json(fields: Any) -> bytes:
    """Return values as JSON bytes. Equal values give equal bytes."""
    return _encoder.encode(fields).encode()


def _encode_part(boundary: str, disposition: str, value: bytes) -> bytes:
    head = f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n"
    return head.encode() + value + b"\r\n"


def _encode_field(value: Any) -> bytes:
    # Write values as in JSON, such as 24000.0 and true. Strings have no quotes.
    return (value if isinstance(value, str) else _encoder.encode(value)).encode()
