"""Errors without secrets: keys are masked in what a service says, and answers become typed errors."""

import html
import re
from collections.abc import Mapping
from typing import TypeVar

from yarl import URL

from speechframe.errors import BadAnswer, ServiceError, SpeechframeError, service_error
from speechframe.settings.hidden import MASK, Hidden
from speechframe.wire.answers import MAX_MESSAGE_CHARACTERS, MAX_TRACE_CHARACTERS, one_line
from speechframe.wire.errors import decode_error, retry_after_s

E = TypeVar("E", bound=SpeechframeError)

# Characters. A shorter key may be a word that texts and names hold.
_LEAST_IN_CONTENT = 8


class Redactor:
    """Masks secrets in text of others, such as an error body that echoes the request.

    A secret is found in any case, and with any of its characters escaped as in JSON, URLs or HTML. Text has
    to be masked before it is shortened, because half a secret is not found. `content` is the redactor for
    words and names, which does not mask a secret as short as a word.
    """

    def __init__(self, *secrets: str) -> None:
        long = [secret for secret in secrets if len(secret) >= _LEAST_IN_CONTENT]
        self.content = self if len(long) == len(secrets) else Redactor(*long)
        self._folded = [Hidden(secret.casefold()) for secret in secrets]
        # Longest first: a short secret may be a part of a long one.
        patterns = map(_pattern, sorted(secrets, key=len, reverse=True))
        # Of the pattern only its method is kept, whose repr does not show what it looks for.
        self._mask = re.compile(Hidden("|".join(patterns)), re.IGNORECASE).sub

    def clean(self, text: str) -> str:
        """Return `text` with every spelling of every secret masked; usually the text itself."""
        if not self._folded:
            return text
        # Only with these characters is a spelling another text than the secret: the pattern takes forty times
        # as long as looking for them.
        if any(map(text.__contains__, "\\%&")) or any(map(text.casefold().__contains__, self._folded)):
            return self._mask(MASK, text)
        return text


def _pattern(secret: str) -> Hidden:
    spelled = ""
    for character in secret:
        code, plain = ord(character), re.escape(character)
        codes = rf"\\u{code:04x}|%{code:02x}|&#(?:x0*{code:x}|0*{code});"
        # Atomic: with backtracking, text that is nearly the key takes time exponential in its length.
        spelled += rf"(?>{codes}|{re.escape(html.escape(character))}|\\{plain}|{plain})"
    return Hidden(f"{re.escape(secret)}|{spelled}")


def refusal(status: int, headers: Mapping[str, str], body: bytes, redactor: Redactor) -> ServiceError:
    """Return the error that an answer with an error status is."""
    said = decode_error(status, body, headers, redactor.clean)
    message = said.message
    if status // 100 == 3:  # noqa: PLR2004 - a redirect
        try:
            host = URL(headers.get("Location", "")).host or "another path"
        except ValueError:
            host = "an address that cannot be read"
        host = one_line(host, MAX_MESSAGE_CHARACTERS, redactor.clean)
        message = f"the service redirects to {host}; that is not followed. Set base_url to the final address."
    return service_error(
        message,
        status=status,
        code=said.code,
        trace_id=said.trace_id,
        body=said.text,
        retry_after_s=retry_after_s(headers),
    )


def without_secrets(error: E, redactor: Redactor) -> E:
    """Return an error whose words hold no key, without the traceback and errors behind it, which may."""
    error.args = tuple(redactor.clean(arg) if isinstance(arg, str) else arg for arg in error.args)
    if isinstance(error, BadAnswer) and error.trace_id:
        error.trace_id = one_line(error.trace_id, MAX_TRACE_CHARACTERS, redactor.clean) or None
    # Dropped, for the frames of this error and of those that it came from hold whole answers.
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
