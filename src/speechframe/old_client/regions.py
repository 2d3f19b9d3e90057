"""Where a call goes: regions in order of preference, and which of them lately said they were down."""

import time
from collections.abc import Mapping

COOL_S = 30.0
"""How long a region that could not serve is not the first choice."""


class Regions:
    """The addresses of a service and what is known of their health.

    Parameters
    ----------
    addresses
        Region name to address, in order of preference; the global address usually stands last.

    Examples
    --------
    >>> regions = Regions({"us-east": "https://a.example", "global": "https://b.example"})
    >>> regions.down("us-east", 10)
    >>> regions.order()
    ('global', 'us-east')
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = dict(addresses)
        self._names = tuple(addresses)
        self._down_until_s: dict[str, float] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order of preference."""
        return self._names

    def address(self, name: str) -> str:
        """Return the address of a region.

        Raises
        ------
        KeyError
            When it has none.
        """
        return self._addresses[name]

    def order(self) -> tuple[str, ...]:
        """Return the names to try: by preference, those that are down last, the soonest back first."""
        now_s = time.monotonic()
        self._down_until_s = {name: until for name, until in self._down_until_s.items() if until > now_s}
        return tuple(sorted(self._addresses, key=lambda name: self._down_until_s.get(name, 0.0)))

    def down(self, name: str, wait_s: float | None = None) -> None:
        """Note that a region cannot serve, for the time it asked for or 30 s, whichever is shorter."""
        self._down_until_s[name] = time.monotonic() + min(COOL_S, COOL_S if wait_s is None else wait_s)

    def up(self, name: str) -> None:
        """Note that a region served."""
        self._down_until_s.pop(name, None)
