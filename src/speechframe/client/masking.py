"""Mask keys in all texts that come from a service."""

import html
import re
from typing import TypeVar

from speechframe.errors import BadAnswer, SpeechframeError
from speechframe.settings.hidden import KEY_MASK, Hidden
from speechframe.wire.answers import MAX_TRACE_CHARACTERS, shorten_to_line

E = TypeVar("E", bound=SpeechframeError)

# Shortest secret that `Redactor.for_content` masks, in characters. A shorter secret may also be a usual word.
_MIN_CONTENT_KEY_CHARACTERS = 8


class Redactor:
    """Mask secrets in texts from outside, such as an error body that echoes the request.

    A secret is found in upper and lower case, and with any of its characters escaped as in JSON, URLs or
    HTML. Mask a text before you shorten it, because a secret that is cut short is not found. `for_content` is
    a redactor for spoken words and for names. It does not mask secrets below 8 characters, which may be usual
    words.
    """

    def __init__(self, *secrets: str) -> None:
        long = [secret for secret in secrets if len(secret) >= _MIN_CONTENT_KEY_CHARACTERS]
        self.for_content = self if len(long) == len(secrets) else Redactor(*long)
        self._folded = [Hidden(secret.casefold()) for secret in secrets]
        # Try the longest first, because a short secret may be a part of a long one.
        patterns = map(_make_pattern, sorted(secrets, key=len, reverse=True))
        # Keep only the method, because the repr of a pattern shows the secret.
        self._mask = re.compile(Hidden("|".join(patterns)), re.IGNORECASE).sub

    def clean(self, text: str) -> str:
        """Return `text` with all spellings of all secrets masked, or `text` itself if it has no secret."""
        if not self._folded:
            return text
        # Each escape contains one of these characters. Searching for them is forty times faster than the
        # pattern.
        if any(map(text.__contains__, "\\%&")) or any(map(text.casefold().__contains__, self._folded)):
            return self._mask(KEY_MASK, text)
        return text


def _make_pattern(secret: str) -> Hidden:
    """Return the pattern of a secret, plain or with escaped characters."""
    spelled = ""
    for character in secret:
        code, plain = ord(character), re.escape(character)
        codes = rf"\\u{code:04x}|%{code:02x}|&#(?:x0*{code:x}|0*{code});"
        # Use an atomic group. With backtracking, a text that nearly equals the key takes exponential time.
        spelled += rf"(?>{codes}|{re.escape(html.escape(character))}|\\{plain}|{plain})"
    return Hidden(f"{re.escape(secret)}|{spelled}")


def remove_secrets(error: E, redactor: Redactor) -> E:
    """Mask keys in an error, remove its traceback and causes, which may contain keys, and return the error.

    The error is changed in place.
    """
    error.args = tuple(redactor.clean(arg) if isinstance(arg, str) else arg for arg in error.args)
    if isinstance(error, BadAnswer) and error.trace_id:
        error.trace_id = shorten_to_line(error.trace_id, MAX_TRACE_CHARACTERS, redactor.clean) or None
    # The frames of these errors contain whole answers.
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
