"""Content keys: equal calls on one service have equal keys, whichever run makes them."""

import hashlib

KEY_BYTES = 16
_PERSON = b"speechframe-call"


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
        self._begun = hashlib.blake2b(digest_size=KEY_BYTES, person=_PERSON)
        for part in (operation.encode(), service.encode("utf-8", "replace")):
            # The length keeps ("ab", "c") and ("a", "bc") apart.
            self._begun.update(len(part).to_bytes(8, "big") + part)

    def of(self, content: bytes) -> str:
        """Return the key of a call: 32 hex digits."""
        digest = self._begun.copy()
        digest.update(content)
        return digest.hexdigest()


def call_key(base_key: str, take: int) -> str:
    """Return the key of a take of a call; take 0 has the call's own key.

    Examples
    --------
    >>> call_key("00" * 16, 0) == "00" * 16
    True
    """
    if not take:
        return base_key
    digest = hashlib.blake2b(f"{base_key} take {take}".encode(), digest_size=KEY_BYTES, person=_PERSON)
    return digest.hexdigest()
