"""Answers with an error status as the errors of the package, and errors without secrets."""

from collections.abc import Mapping
from typing import TypeVar

from yarl import URL

from speechframe.errors import BadAnswer, ServiceError, SpeechframeError, service_error
from speechframe.old_client._addresses import MAX_HOST_CHARACTERS
from speechframe.old_client._hidden import Redactor
from speechframe.old_client.transport import Reply
from speechframe.wire.errors import MAX_TRACE_CHARACTERS, decode_error, one_line, retry_after_s

_REDIRECT = 3
_MAX_LOCATION_CHARACTERS = 2000

E_ = TypeVar("E_", bound=SpeechframeError)


def refusal(reply: Reply, redactor: Redactor) -> ServiceError:
    """Return the error that an answer with an error status is."""
    return refused(reply.status, reply.headers, redactor, reply.body)


def refused(status: int, headers: Mapping[str, str], redactor: Redactor, body: bytes = b"") -> ServiceError:
    """Return the error of a status, headers and body."""
    said = decode_error(status, body, headers, redactor.clean)
    message = said.message
    if status // 100 == _REDIRECT:
        host = redactor.clean(_host(headers.get("Location", "")))
        message = f"the service redirects to {host}; that is not followed. Set base_url to the final address."
    return service_error(
        message,
        status=status,
        code=said.code,
        trace_id=said.trace_id,
        body=said.text,
        retry_after_s=retry_after_s(headers),
    )


def without_secrets(error: E_, redactor: Redactor) -> E_:
    """Return an error whose words hold no key, and that does not lead to frames that do."""
    error.args = tuple(redactor.clean(arg) if isinstance(arg, str) else arg for arg in error.args)
    if isinstance(error, BadAnswer) and error.trace_id:
        error.trace_id = one_line(error.trace_id, MAX_TRACE_CHARACTERS, redactor.clean) or None
    # The frames below, and the errors this one came from, hold whole answers and tell a caller nothing.
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _host(location: str) -> str:
    try:
        host = URL(location[:_MAX_LOCATION_CHARACTERS]).host or "another path"
    except ValueError:
        host = ""
    return host if 0 < len(host) <= MAX_HOST_CHARACTERS else "an address that cannot be read"
