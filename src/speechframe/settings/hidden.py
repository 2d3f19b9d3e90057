"""Hide API keys in reprs, in tracebacks that show locals, and from pickles.

Crash reports contain the local variables of all frames. So each key is wrapped right after it is read, before
any code can raise an error. Functions then pass on the wrapped key.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Never, Self

from pydantic import SecretStr

from speechframe.errors import SettingsError

KEY_MASK = "***"
"""Text that is shown in place of a key."""
KEY_VARIABLE = "SPEECHFRAME_API_KEY"
DUB_KEY_VARIABLE = "SPEECHFRAME_DUB_API_KEY"
SECRET_VARIABLE = "SPEECHFRAME_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable, not a secret

_KEY_VARIABLES = frozenset({KEY_VARIABLE, DUB_KEY_VARIABLE, SECRET_VARIABLE})
"""Environment variables that contain keys."""
_SECRET_NAME = re.compile("key|secret", re.IGNORECASE)
"""Pattern in the names of settings whose values are keys."""

# Mask all text before the last @, including slashes, because a password may contain a slash.
_USER_PATTERN = re.compile(r"^([a-z][a-z0-9+.-]*://)?.*@", re.IGNORECASE | re.DOTALL)
_QUERY_PATTERN = re.compile(r"[?#].*", re.DOTALL)


class Hidden(str):
    """A str with a key, whose repr is ``'***'``.

    Other libraries have headers in their local variables, and tracebacks and crash reports show the reprs of
    locals. ``str()`` and formatting return the real text, because libraries use them to write headers.
    Pickling raises TypeError, because the pickle would be a file with a key.

    Examples
    --------
    >>> {"api-key": Hidden("secret")}
    {'api-key': '***'}
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the mask."""
        return repr(KEY_MASK)

    def __copy__(self) -> Self:
        """Return the same object, because text does not change."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same object, because text does not change."""
        return self

    def __reduce_ex__(self, protocol: object) -> Never:
        """Raise TypeError, so that the key cannot be pickled."""
        raise TypeError(f"a key cannot be pickled. Let the other process read {KEY_VARIABLE} itself.")


def wrap_key(key: str | SecretStr | None) -> SecretStr | None:
    """Return a key as a SecretStr of :class:`Hidden` text, or None for None.

    A value of another type is wrapped, too. A later check refuses such a value.
    """
    if key is None:
        return None
    text: Any = key.get_secret_value() if isinstance(key, SecretStr) else key
    return SecretStr(Hidden(text) if isinstance(text, str) else text)


def mask_address(address: Any) -> Any:
    """Return an address in which the user with password, the query and the fragment are masked.

    Values other than texts are returned unchanged.

    Examples
    --------
    >>> mask_address("https://me:secret@api.example.com?key=secret")
    'https://***@api.example.com?***'
    """
    if not isinstance(address, str):
        return address
    return _QUERY_PATTERN.sub(f"?{KEY_MASK}", _USER_PATTERN.sub(rf"\1{KEY_MASK}@", address))


def hide_keys(values: dict[str, Any]) -> dict[str, Any]:
    """Hide the keys in settings, also the keys in addresses. Change `values` in place and return it.

    Examples
    --------
    >>> hide_keys({"api_key": "secret", "base_url": "https://me:secret@api.example.com"})
    {'api_key': SecretStr('**********'), 'base_url': 'https://***@api.example.com'}
    """
    for name, value in values.items():
        # Misspelt names match, too, because the error that refuses an unknown name shows its value.
        if _SECRET_NAME.search(name):
            values[name] = wrap_key(value)
        elif name == "base_url":
            values[name] = mask_address(value)
        elif name == "region_urls" and isinstance(value, Mapping):
            values[name] = {region: mask_address(url) for region, url in value.items()}
    return values


def copy_environment_without_keys() -> dict[str, str]:
    """Return the environment of this process without the keys of speechframe, for another program."""
    return {name: value for name, value in os.environ.items() if name not in _KEY_VARIABLES}


def make_header_text(secret: SecretStr | None, what: str) -> Hidden:
    """Return a secret as the value of an HTTP header, without spaces around it.

    Raises
    ------
    SettingsError
        If the secret is empty, or has characters that a header cannot contain. The message names `what` and
        never contains the value.
    """
    text = Hidden("" if secret is None else secret.get_secret_value().strip())
    if not text or not text.isascii() or not text.isprintable():
        raise SettingsError(
            f"{what} is empty or has characters that a header cannot contain. Allowed: printable ASCII."
        )
    return text
