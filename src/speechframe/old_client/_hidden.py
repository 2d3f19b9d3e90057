"""Keys that do not show in what others say, such as a message that echoes them."""

import html
import re
import sys
from typing import Any

from speechframe.settings.hidden import MASK, Hidden

__all__ = ["Redactor"]

_LEAST_IN_CONTENT = 8
"""Characters. A shorter key is a word that texts and names may well hold; nobody's real key is."""

_DEEPEST = 16


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
        self._pattern = _Pattern(Hidden("|".join(map(_pattern, self._secrets))))
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
    # Atomic: with ways to go back to, text that is nearly the key takes time exponential in its length.
    return f"(?>{'|'.join(dict.fromkeys(spellings))})"
