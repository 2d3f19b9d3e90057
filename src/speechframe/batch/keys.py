"""Content keys: equal calls on one service have equal keys, whichever run makes them."""

import hashlib

from speechframe.store.keys import KEY_BYTES, PERSON, call_key

__all__ = ["KeyMaker", "call_key"]


class KeyMaker:
    """Makes the keys of one operation on one service.

    Parameters
    ----------
    operation
        The run's operation.
    service
        Identity of the service: never an address or port.

    Examples
    --------
    >>> keys = KeyMaker("generate", "local/espeak-1")
    >>> keys.of(b'{"text":"a"}') == KeyMaker("generate", "api.example.com").of(b'{"text":"a"}')
    False
    """

    def __init__(self, operation: str, service: str) -> None:
        self._begun = hashlib.blake2b(digest_size=KEY_BYTES, person=PERSON)
        for part in (operation.encode(), service.encode("utf-8", "replace")):
            # The length keeps ("ab", "c") and ("a", "bc") apart.
            self._begun.update(len(part).to_bytes(8, "big") + part)

    def of(self, content: bytes) -> str:
        """Return the key of a call: 32 hex digits."""
        digest = self._begun.copy()
        digest.update(content)
        return digest.hexdigest()
