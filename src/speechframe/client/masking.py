"""Errors without secrets: keys are masked in what a service says, and answers become typed errors."""

import html
import re
import sys
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from multidict import CIMultiDict
from yarl import URL

from speechframe.errors import BadAnswer, ServiceError, SpeechframeError, service_error
from speechframe.settings.hidden import MASK, Hidden
from speechframe.wire.errors import MAX_TRACE_CHARACTERS, decode_error, one_line, retry_after_s

__all__ = ["Redactor", "refusal", "without_secrets"]

E = TypeVar("E", bound=SpeechframeError)

_LEAST_IN_CONTENT = 8
"""Characters. A shorter key may be a word that texts and names hold."""
_DEEPEST = 16
_MAX_LOCATION_CHARACTERS = 2000
_MAX_HOST_CHARACTERS = 253


class Redactor:
    """Masks secrets in text of others, such as an error body that echoes the request.

    A secret is found in any case, and with any of its characters escaped as in JSON, URLs or HTML. Text has
    to be masked before it is shortened, because half a secret is not found.

    Examples
    --------
    >>> Redactor("se/cret").clean("no such key: se%2Fcret")
    'no such key: ***'
    """

    __slots__ = ("_content", "_pattern", "_plain", "_secrets", "_shortest")

    def __init__(self, *secrets: str) -> None:
        # Longest first: a short secret may be a part of a long one.
        self._secrets = sorted(map(Hidden, secrets), key=len, reverse=True)
        self._pattern = _Pattern(Hidden("|".join(map(_pattern, self._secrets))))
        self._plain = [Hidden(secret.casefold()) for secret in secrets]
        self._shortest = min(map(len, secrets), default=sys.maxsize)
        self._content: Redactor | None = None

    def for_content(self) -> "Redactor":
        """Return one for content such as words and names: a secret as short as a word is left in."""
        if self._content is None:
            # Kept: compiling the pattern takes longer than reading an answer.
            self._content = Redactor(*(one for one in self._secrets if len(one) >= _LEAST_IN_CONTENT))
        return self._content

    def clean(self, text: str) -> str:
        """Return `text` with every spelling of every secret masked."""
        # No spelling of a secret is shorter than the secret itself.
        if len(text) < self._shortest or not self._may_hold(text):
            return text
        return self._pattern.compiled.sub(MASK, text)

    def clean_words(self, words: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
        """Return words with their times, every secret masked; usually the list itself."""
        if all(len(word) < self._shortest for word, _, _ in words):
            return words
        return [(self.clean(word), start_ms, end_ms) for word, start_ms, end_ms in words]

    def clean_bytes(self, body: bytes) -> bytes:
        """Return UTF-8 text with every secret masked."""
        text = body.decode("utf-8", "surrogateescape")
        cleaned = self.clean(text)
        return body if cleaned is text else cleaned.encode("utf-8", "surrogateescape")

    def clean_headers(self, headers: Mapping[str, str]) -> CIMultiDict[str]:
        """Return headers with every secret masked, also where it is percent-encoded once more."""
        return CIMultiDict([(name, self._clean_header(value)) for name, value in headers.items()])

    def _clean_header(self, value: str) -> str:
        value = self.clean(value)
        if "%" not in value:
            return value
        plain = unquote(value)
        cleaned = self.clean(plain)
        return value if cleaned == plain else quote(cleaned)

    def clean_value(self, value: Any, deepest: int = _DEEPEST) -> Any:
        """Return a JSON value with secrets masked in its texts and names; what is nested deeper is None."""
        if isinstance(value, str):
            return self.clean(value)
        if not isinstance(value, (list, dict)):
            return value
        if not deepest:
            return None
        if isinstance(value, list):
            return [self.clean_value(item, deepest - 1) for item in value]
        return {self.clean(name): self.clean_value(item, deepest - 1) for name, item in value.items()}

    def _may_hold(self, text: str) -> bool:
        # The pattern takes 60 ns a character; this takes a fortieth of that.
        if "\\" in text or "%" in text or "&" in text:
            return True
        folded = text.casefold()
        return any(plain in folded for plain in self._plain)


class _Pattern:
    """A compiled pattern that does not show what it looks for."""

    __slots__ = ("compiled",)

    def __init__(self, pattern: Hidden) -> None:
        self.compiled = re.compile(pattern, re.IGNORECASE)


def _pattern(secret: Hidden) -> str:
    return f"{re.escape(secret)}|{''.join(_character(character) for character in secret)}"


def _character(character: str) -> str:
    code = ord(character)
    spellings = [
        rf"\\u{code:04x}",
        f"%{code:02x}",
        f"&#(?:x0*{code:x}|0*{code});",
        re.escape(html.escape(character)),
        rf"\\{re.escape(character)}",
        re.escape(character),
    ]
    # Atomic: with backtracking, text that is nearly the key takes time exponential in its length.
    return f"(?>{'|'.join(dict.fromkeys(spellings))})"


def refusal(status: int, headers: Mapping[str, str], body: bytes, redactor: Redactor) -> ServiceError:
    """Return the error that an answer with an error status is."""
    said = decode_error(status, body, headers, redactor.clean)
    message = said.message
    if status // 100 == 3:  # noqa: PLR2004 - a redirect
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


def without_secrets(error: E, redactor: Redactor) -> E:
    """Return an error whose words hold no key, and that leads to no frames that do."""
    error.args = tuple(redactor.clean(arg) if isinstance(arg, str) else arg for arg in error.args)
    if isinstance(error, BadAnswer) and error.trace_id:
        error.trace_id = one_line(error.trace_id, MAX_TRACE_CHARACTERS, redactor.clean) or None
    # The frames below hold whole answers, and so do errors that this one came from.
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _host(location: str) -> str:
    try:
        host = URL(location[:_MAX_LOCATION_CHARACTERS]).host or "another path"
    except ValueError:
        host = ""
    return host if 0 < len(host) <= _MAX_HOST_CHARACTERS else "an address that cannot be read"
