"""Answers with an error status as the errors of the package, and errors without secrets."""

from collections.abc import Mapping
from typing import TypeVar

from yarl import URL

from speechframe.client._hidden import Redactor
from speechframe.client.transport import Reply
from speechframe.errors import BadAnswer, ServiceError, SpeechframeError, service_error
from speechframe.wire.errors import decode_error, retry_after_s

_REDIRECT = 3

E_ = TypeVar("E_", bound=SpeechframeError)


def refusal(reply: Reply, redactor: Redactor) -> ServiceError:
    """Return the error that an answer with an error status is."""
    return refused(reply.status, reply.headers, redactor, reply.body)


def refused(status: int, headers: Mapping[str, str], redactor: Redactor, body: bytes = b"") -> ServiceError:
    """Return the error of a status, headers and body."""
    clean = redactor.clean
    # Masked before it is shortened: half a key is no longer found.
    said = decode_error(status, clean(body.decode("utf-8", "replace")).encode(), headers)
    message = said.message
    if status // 100 == _REDIRECT:
        host = _host(headers.get("Location", ""))
        message = f"the service redirects to {host}; that is not followed. Set base_url to the final address."
    return service_error(
        clean(message),
        status=status,
        code=clean(said.code) if said.code else None,
        trace_id=clean(said.trace_id) if said.trace_id else None,
        body=clean(said.text),
        retry_after_s=retry_after_s(headers),
    )


def without_secrets(error: E_, redactor: Redactor) -> E_:
    """Return an error whose words hold no key, and that does not lead to frames that do."""
    error.args = tuple(redactor.clean(arg) if isinstance(arg, str) else arg for arg in error.args)
    if isinstance(error, BadAnswer) and error.trace_id:
        error.trace_id = redactor.clean(error.trace_id)
    # The frames below, and the errors this one came from, hold whole answers and tell a caller nothing.
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _host(location: str) -> str:
    try:
        return URL(location[:2000]).host or "another path"
    except ValueError:
        return "an address that cannot be read"
