"""Encode the bodies of dubbing calls, and decode those of their answers.

Sections 2.8 to 2.11 of the service document describe these bodies.
"""

import hashlib
import hmac
from typing import Any

from speechframe.spec.dubbing import JobCreateRequest, JobCreateWithProjectRequest
from speechframe.wire.answers import (
    MAX_MESSAGE_CHARACTERS,
    M,
    decode_list,
    decode_object,
    shorten_to_line,
    validate_leniently,
)
from speechframe.wire.requests import FileForm, encode_canonical_json, encode_form, get_set_fields

_FILE_FIELD = "file"
_TEXT_FIELDS = frozenset(
    {"status", "step", "error_message", "failure_reason", "failure_code", "warning", "warnings"}
)
"""Fields with texts for people, which are put on one line. All other fields stay unchanged."""


def encode_job(
    request: JobCreateRequest | JobCreateWithProjectRequest,
    medium_sha256: str = "",
    *,
    name: str = "",
    media_type: str = "",
) -> FileForm:
    """Return the form that creates a job. Equal requests give equal bytes.

    The media file itself is sent later. Its SHA-256 hash is used for the boundary of the form. Its name and
    media type are part of the form. Without a hash the form has no file. ``request.file`` is ignored.

    Examples
    --------
    >>> form = encode_job(JobCreateRequest(target_locales=["fr-FR", "pt-BR"], file_url="https://a.example/b"))
    >>> form.head.count(b'name="target_locales"')
    2
    """
    fields = get_set_fields(request, without={_FILE_FIELD})
    content = encode_canonical_json(fields) + bytes.fromhex(medium_sha256)
    return encode_form(fields, content, (_FILE_FIELD, name, media_type) if medium_sha256 else None)


def decode_model(model: type[M], body: bytes) -> M:
    """Return an answer as its model, by the rules of :func:`validate_value`.

    Examples
    --------
    >>> from speechframe.spec.dubbing import DubJobStatus
    >>> decode_model(DubJobStatus, b'{"job_id": "j1", "status": "REVIEWING"}').status
    'REVIEWING'
    """
    return validate_value(model, decode_object(body))


def decode_models(model: type[M], body: bytes) -> list[M]:
    """Return a JSON array as models. Raise BadAnswer if it is not an array, or if an item is unusable."""
    return [validate_value(model, item) for item in decode_list(body)]


def validate_value(model: type[M], value: object) -> M:
    """Return a JSON value as a model by the rules of :func:`validate_leniently`, with texts on one line."""
    return validate_leniently(model, _clean_texts(value))


def _clean_texts(value: Any, name: str = "") -> Any:
    """Return a JSON value in which all texts for people, at any depth, are on one line and shortened."""
    if isinstance(value, str):
        return shorten_to_line(value, MAX_MESSAGE_CHARACTERS) if name in _TEXT_FIELDS else value
    if isinstance(value, list):
        return [_clean_texts(item, name) for item in value]
    if isinstance(value, dict):
        return {field: _clean_texts(held, field) for field, held in value.items()}
    return value


def compute_webhook_signature(secret: str, body: bytes, timestamp: bytes) -> str:
    """Return the hex signature of a webhook from its body and timestamp (chosen: webhook).

    Examples
    --------
    >>> compute_webhook_signature("secret", b"{}", b"1700000000000")[:16]
    '73d57f048467f1f5'
    """
    return hmac.new(secret.encode(), b"%b.%b" % (body, timestamp), hashlib.sha256).hexdigest()
