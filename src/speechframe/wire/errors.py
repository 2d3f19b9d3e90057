"""Reading of the message, code and waiting time of error answers with different shapes."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from yarl import URL

from speechframe.errors import ServiceError, make_service_error
from speechframe.spec.chosen import TRACE_HEADER
from speechframe.spec.codes import Status
from speechframe.wire.answers import (
    MAX_MESSAGE_CHARACTERS,
    MAX_READ_CHARACTERS,
    MAX_TRACE_CHARACTERS,
    NotJsonError,
    SecretMasker,
    load_json,
    shorten_to_line,
)

MAX_BODY_CHARACTERS = 2000
"""Largest number of kept characters of the body of an error answer."""
MAX_CODE_CHARACTERS = 64
"""Largest number of characters of an error code. A longer text is not a code."""
NO_REASON_MESSAGE = "the service gave no reason"
"""Message about an error answer without a message and with an unknown status."""

_REDIRECT_STATUSES = range(300, 400)
_MESSAGE_FIELDS = ("error_message", "message", "errorMessage", "error", "detail", "title")
_CODE_FIELDS = ("error_code", "errorCode", "code")
_TRACE_FIELDS = ("trace_id", "traceId")
_NUMBER_PATTERN = re.compile(r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}", re.ASCII)
_CODE_PATTERN = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MAX_CODE_CHARACTERS}}}")
# A script without an end tag matches up to the end of the text. Otherwise each `<script` would start a search
# to the end.
_TAG_PATTERN = re.compile(
    r"<(?:script|style)\b.*?(?:</(?:script|style)\s*+>|\Z)|<[^<>]{0,500}>", re.IGNORECASE | re.DOTALL
)


def decode_error(
    status: int, body: bytes, headers: Mapping[str, str], clean: SecretMasker = str
) -> ServiceError:
    """Return the error of an answer with a status outside 200 to 299. The function never raises an exception.

    The document leaves the shape of the body open. The function reads ``error_message``, ``message``,
    ``errorMessage``, ``error`` (text, or an object with a message and a code), ``error_code``, ``errorCode``,
    ``code``, plain text, and a page of HTML. Without a message, the message is the meaning of the status. A
    code has at most 64 letters, digits and ``_-.:``. Texts are on one line and shortened.

    Parameters
    ----------
    status, body, headers
        Status, body and headers of the answer.
    clean
        Function that masks secrets.

    Examples
    --------
    >>> decode_error(400, b'{"error_message": "no such voice", "error_code": "INVALID_REQUEST"}', {}).message
    'no such voice'
    """
    text = clean(body[:MAX_READ_CHARACTERS].decode("utf-8", "replace"))[: 4 * MAX_BODY_CHARACTERS]
    fields = _read_fields(body)
    # Prefer the header, because a proxy may have replaced the body.
    header = _find_first_text(headers, (TRACE_HEADER,), MAX_TRACE_CHARACTERS, clean)
    trace_id = header or _find_first_text(fields, _TRACE_FIELDS, MAX_TRACE_CHARACTERS, clean)
    message = _find_first_text(fields, _MESSAGE_FIELDS, MAX_MESSAGE_CHARACTERS, clean)
    if status in _REDIRECT_STATUSES:
        message = _make_redirect_message(headers, clean)
    return make_service_error(
        message or _make_message(text, status),
        status=status,
        code=_find_code(fields, clean),
        trace_id=trace_id,
        body=shorten_to_line(text, MAX_BODY_CHARACTERS),
        retry_after_s=read_retry_after_s(headers),
    )


def read_retry_after_s(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return the waiting time that an answer requests in seconds, or None without a valid time.

    ``retry-after-ms`` overrides ``Retry-After``, which contains seconds (also fractions) or an HTTP date.
    The function subtracts the ``Date`` header of the answer from an HTTP date, so that a wrong clock does not
    matter. Without this header, the date counts from `now` (default: the current time). A past date gives 0.
    Invalid and negative values give None. A huge value is returned unchanged, because the caller limits it.

    Examples
    --------
    >>> read_retry_after_s({"Retry-After": "1.5"}), read_retry_after_s({"Retry-After": "-1"})
    (1.5, None)
    """
    milliseconds_text = headers.get("Retry-After-Ms")
    milliseconds = None if milliseconds_text is None else _read_number(milliseconds_text)
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("Retry-After")
    if value is None:
        return None
    seconds = _read_number(value)
    if seconds is not None:
        return seconds
    then = _read_date(value)
    if then is None:
        return None
    start = _read_date(headers.get("Date") or "") or now or datetime.now(UTC)
    return max(0.0, (then - start).total_seconds())


def _read_number(value: str) -> float | None:
    stripped = value.strip()
    return float(stripped) if _NUMBER_PATTERN.fullmatch(stripped) else None


def _read_date(value: str) -> datetime | None:
    try:
        then = parsedate_to_datetime(value[:64])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return then if then.tzinfo is not None else then.replace(tzinfo=UTC)


def _read_fields(body: bytes) -> dict[str, Any]:
    try:
        value, _ = load_json(body)
    except NotJsonError:
        return {}
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return {"message": value} if isinstance(value, str) else {}
    inner = value.get("error")
    # `error` may be an object with the same names. Its fields must not replace the outer fields.
    return {**inner, **value, "error": inner.get("message")} if isinstance(inner, dict) else value


def _find_first_text(
    fields: Mapping[str, Any], names: tuple[str, ...], max_characters: int, clean: SecretMasker
) -> str | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            line = shorten_to_line(str(value), max_characters, clean)
            if line:
                return line
    return None


def _find_code(fields: Mapping[str, Any], clean: SecretMasker) -> str | None:
    # Accept only short codes, because codes are stored in the ledger, which must not contain texts of users.
    codes = (
        read_code(_find_first_text(fields, (name,), MAX_CODE_CHARACTERS + 1, clean)) for name in _CODE_FIELDS
    )
    return next((code for code in codes if code is not None), None)


def read_code(value: str | None) -> str | None:
    """Return `value` if it has 1 to 64 letters, digits and ``_-.:``, else None."""
    return value if value is not None and _CODE_PATTERN.fullmatch(value) else None


def _make_redirect_message(headers: Mapping[str, str], clean: SecretMasker) -> str:
    try:
        host = URL(headers.get("Location", "")).host or "another path"
    except ValueError:
        host = "an address that cannot be read"
    host = shorten_to_line(host, MAX_MESSAGE_CHARACTERS, clean)
    return f"the service redirects to {host}; that is not followed. Set base_url to the final address."


def _make_message(text: str, status: int) -> str:
    message = shorten_to_line(_TAG_PATTERN.sub(" ", text) if "<" in text else text, MAX_MESSAGE_CHARACTERS)
    known = Status.from_number(status)
    return message or (known.meaning if known is not None else NO_REASON_MESSAGE)
