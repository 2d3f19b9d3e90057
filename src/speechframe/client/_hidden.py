"""Keys that do not show: in no repr, no traceback with locals, no message that echoes them."""

import html
import re
import sys
from typing import Any

from pydantic import SecretStr

from speechframe.errors import SettingsError

MASK = "***"

_LEAST_IN_CONTENT = 8
"""Characters. A shorter key is a word that texts and names may well hold; nobody's real key is."""

_DEEPEST = 16


class Hidden(str):
    """Text that goes onto the wire as it is and shows as ``'***'`` wherever a repr is printed.

    Headers travel through frames of other libraries, whose locals end up in
    tracebacks and crash reports. ``str()`` and formatting give the text: libraries
    write headers with them.

    Examples
    --------
    >>> {"api-key": Hidden("secret")}
    {'api-key': '***'}
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the mask."""
        return repr(MASK)


class Redactor:
    """Masks secrets in text of others, such as an error body that echoes the request.

    Found are a secret as it is, in any case, and with any of its characters escaped as JSON, URLs or HTML
    do it. Text is masked before it is shortened: half a secret is no longer found.

    Examples
    --------
    >>> Redactor("se/cret").clean("no such key: se%2Fcret")
    'no such key: ***'
    """

    __slots__ = ("_pattern", "_plain", "_secrets", "_shortest")

    def __init__(self, *secrets: str) -> None:
        # Longest first: a short secret may be a part of a long one.
        self._secrets = sorted(map(Hidden, secrets), key=len, reverse=True)
        self._pattern = _Pattern("|".join(map(_pattern, self._secrets)))
        self._plain = [Hidden(secret.casefold()) for secret in secrets]
        self._shortest = min(map(len, secrets), default=sys.maxsize)

    def for_content(self) -> "Redactor":
        """Return one for what people pay for and choose by, such as words and the names of voices.

        Secrets as short as a word are left in it: a voice that is called as the key of a test would be
        another one.

        Examples
        --------
        >>> Redactor("demo").for_content().clean("a demo of speech")
        'a demo of speech'
        """
        return Redactor(*(secret for secret in self._secrets if len(secret) >= _LEAST_IN_CONTENT))

    def clean(self, text: str) -> str:
        """Return `text` with every spelling of every secret masked."""
        # No spelling of a secret is shorter than it is.
        if len(text) < self._shortest or not self._may_hold(text):
            return text
        return self._pattern.compiled.sub(MASK, text)

    def clean_words(self, words: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
        """Return words with their times, every secret masked; of ordinary words the list itself."""
        # Words of that length are rare, and answers with hundreds of words are not.
        if all(len(word) < self._shortest for word, _, _ in words):
            return words
        return [(self.clean(word), start_ms, end_ms) for word, start_ms, end_ms in words]

    def clean_value(self, value: Any, *, deepest: int = _DEEPEST) -> Any:
        """Return a value of JSON with every secret masked in its texts and names.

        Parameters
        ----------
        value
            The value.
        deepest
            Levels of objects and arrays that are kept; None stands for what is below them, which no page of
            a service has.
        """
        if isinstance(value, str):
            return self.clean(value)
        if not isinstance(value, (list, dict)):
            return value
        if not deepest:
            return None
        if isinstance(value, list):
            return [self.clean_value(item, deepest=deepest - 1) for item in value]
        return {self.clean(name): self.clean_value(item, deepest=deepest - 1) for name, item in value.items()}

    def _may_hold(self, text: str) -> bool:
        # The pattern goes through a text at 60 ns a character; this takes a fortieth of that.
        if "\\" in text or "%" in text or "&" in text:
            return True
        folded = text.casefold()
        for plain in self._plain:  # noqa: SIM110 - any() takes as long as all the rest here
            if plain in folded:
                return True
        return False


class _Pattern:
    """A compiled pattern that does not show what it looks for."""

    __slots__ = ("compiled",)

    def __init__(self, pattern: str) -> None:
        self.compiled = re.compile(Hidden(pattern), re.IGNORECASE)


def _pattern(secret: str) -> str:
    plain = str(secret)
    return f"{re.escape(plain)}|{''.join(_character(character) for character in plain)}"


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
    # Atomic: with ways to go back to, text that is nearly the key takes time exponential in its length.
    return f"(?>{'|'.join(dict.fromkeys(spellings))})"


def hidden_key(key: str | SecretStr | None) -> SecretStr | None:
    """Return a key that no repr shows."""
    return SecretStr(Hidden(key)) if isinstance(key, str) else key


def header_text(secret: SecretStr | None, what: str) -> Hidden:
    """Return a secret as the value of a header.

    Raises
    ------
    SettingsError
        When it is empty, or cannot stand in a header; says that of `what`, and never repeats the value.
    """
    text = Hidden("" if secret is None else secret.get_secret_value().strip())
    if not text or not text.isascii() or not text.isprintable():
        raise SettingsError(f"{what} is empty or holds characters that cannot stand in a header")
    return text
