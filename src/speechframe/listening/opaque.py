"""Make names and keys that reveal nothing, from a secret in the folder of a test.

A name is a keyed hash (HMAC-SHA-256) of words, such as a listener and a trial. The same words always give the
same name, so a test can continue after a restart. Without the secret, nobody can compute a name from its
words, or the words from a name.
"""

import hmac
import secrets
from pathlib import Path

from speechframe.errors import StoreError
from speechframe.store.folder import convert_os_errors, sync_to_disk

_RANDOM_BYTES_FILE = "secret"
"""Name of the file with the secret."""

_SECRET_BYTES = 32
"""Length of the secret, which is that of a SHA-256 hash."""

_NAME_BYTES = 16
"""Length of a name before its conversion to hexadecimal. 128 bits cannot be guessed."""


class Secret:
    """The secret from which names and keys are made. The repr does not show the secret.

    Examples
    --------
    >>> secret = Secret(bytes(32))
    >>> secret.make_name("listener-01", "3/A") == secret.make_name("listener-01", "3/A")
    True
    >>> secret
    <Secret>
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return "<Secret>"

    def make_name(self, *parts: str) -> str:
        """Return an opaque name of the words, 128 bits in hexadecimal."""
        return self.make_key(*parts)[: 2 * _NAME_BYTES]

    def make_key(self, *parts: str) -> str:
        """Return a key of the words, 256 bits in hexadecimal."""
        # The length before each word makes ("ab", "c") and ("a", "bc") different.
        joined = b"".join(b"%d:%s" % (len(word), word) for word in map(str.encode, parts))
        return hmac.digest(self._secret, joined, "sha256").hex()


def read_or_make_secret(folder: Path) -> Secret:
    """Return the secret of a test's folder. The first call makes the secret.

    Raises
    ------
    StoreError
        The secret cannot be written or read, or the file is damaged.
    """
    path = folder / _RANDOM_BYTES_FILE
    with convert_os_errors(folder, "keeping the secret of a test"):
        if not path.exists():
            draft = folder / f".{secrets.token_hex(8)}.tmp"
            draft.touch(mode=0o600)
            draft.write_bytes(secrets.token_bytes(_SECRET_BYTES))
            try:
                # Unlike a rename, a hard link never replaces the secret of another process.
                path.hardlink_to(draft)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
            sync_to_disk(folder)
        secret = path.read_bytes()
    if len(secret) != _SECRET_BYTES:
        raise StoreError(
            f"{path} is damaged, so the names and links of this test are lost; restore the original file"
        )
    return Secret(secret)
