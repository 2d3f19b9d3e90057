"""How long and how much: time limits that grow with the text, and sizes no answer may pass."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds.

    Parameters
    ----------
    connect_s
        TCP and TLS together; name lookup and waiting for a free connection count into the attempt alone.
    base_s, per_character_s
        An attempt may take ``base_s + per_character_s * characters``: speech takes about 0.07 s a
        character, so a service that synthesises as slowly as it speaks still gets through.
    download_s
        One try at fetching audio that came as a URL; counted apart, since the call was billed by then.

    Examples
    --------
    >>> round(Timeouts().attempt_s(5000))
    380
    """

    connect_s: float = 10.0
    base_s: float = 30.0
    per_character_s: float = 0.07
    download_s: float = 60.0

    def attempt_s(self, characters: int) -> float:
        """Return how long an attempt for a text of `characters` may take, without a download."""
        return self.base_s + self.per_character_s * characters


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest answers in bytes; a longer one is cut off and refused, compressed or not.

    Parameters
    ----------
    answer_bytes
        The body of a generate answer, Base64 audio included.
    listing_bytes
        Any other body with status 200.
    error_bytes
        The body of an error answer; a longer one is read no further, and its status counts.
    download_bytes
        Audio fetched from a URL.
    """

    answer_bytes: int = 256 * MIB
    listing_bytes: int = 16 * MIB
    error_bytes: int = 64 * KIB
    download_bytes: int = 512 * MIB
