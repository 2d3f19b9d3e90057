"""Names that tell nothing, and seals, made from a secret of the test's folder.

The same words give the same name for as long as the folder lives, so that a test goes on where it was;
without the secret nobody can say what a name stands for, nor whether two names stand for the same.
"""

import hmac
import secrets
from pathlib import Path

from speechframe.errors import StoreError
from speechframe.store.folder import storing, sync

__all__ = ["Secret", "secret_of"]

_FILE = "secret"
_SECRET_BYTES = 32
_NAME_BYTES = 16


class Secret:
    """What names and seals are made from; it shows itself to nobody.

    Examples
    --------
    >>> secret = Secret(bytes(32))
    >>> secret.name("listener-01", "3/A") == secret.name("listener-01", "3/A")
    True
    >>> secret
    <Secret>
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return "<Secret>"

    def name(self, *words: str) -> str:
        """Return 128 bits in hexadecimal: the same for the same words, and guessed by nobody."""
        return self.key(*words)[: 2 * _NAME_BYTES]

    def key(self, *words: str) -> str:
        """Return a key in hexadecimal for what the words name."""
        # Lengths keep ("ab", "c") and ("a", "bc") apart.
        said = b"".join(b"%d:%s" % (len(word), word) for word in map(str.encode, words))
        return hmac.digest(self._secret, said, "sha256").hex()


def secret_of(folder: Path) -> Secret:
    """Return the secret of a test's folder; it is drawn when it is first asked for.

    Raises
    ------
    StoreError
        When it cannot be kept or read.
    """
    path = folder / _FILE
    with storing(folder, "keeping the secret of a test"):
        if not path.exists():
            draft = folder / f".{secrets.token_hex(8)}.tmp"
            draft.touch(mode=0o600)
            draft.write_bytes(secrets.token_bytes(_SECRET_BYTES))
            try:
                # Unlike a rename it never replaces what another process drew meanwhile.
                path.hardlink_to(draft)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
            sync(folder)
        secret = path.read_bytes()
    if len(secret) != _SECRET_BYTES:
        raise StoreError(f"{path} is damaged: the names and seals of this test cannot be made again")
    return Secret(secret)
