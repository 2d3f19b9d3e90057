"""Keys of calls: 32 hex digits, one for each take of a call."""

import hashlib

KEY_BYTES = 16
PERSON = b"speechframe-call"


def call_key(base_key: str, take: int) -> str:
    """Return the key of a take of a call; take 0 has the call's own key."""
    if not take:
        return base_key
    digest = hashlib.blake2b(f"{base_key} take {take}".encode(), digest_size=KEY_BYTES, person=PERSON)
    return digest.hexdigest()
