"""What a client's streams need of it: where, with which key, for how long."""

import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from yarl import URL

from speechframe.old_client._hidden import Redactor
from speechframe.old_client.calls import Call
from speechframe.old_client.limits import Bounds, Timeouts
from speechframe.old_client.regions import Regions
from speechframe.old_client.retry import Patience
from speechframe.old_client.transport import Transport

__all__ = ["Closable", "Reach"]


class Closable(Protocol):
    """What a client closes before itself."""

    async def close(self) -> None:
        """Close it; doing it again is nothing."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A client, as its streams and sessions see it.

    Parameters
    ----------
    transport, regions, patience, timeouts, bounds, redactor
        The client's own.
    url
        Region and endpoint to address.
    headers
        A call, and headers that go before ours, to those that are sent.
    key_header
        The key.
    limits
        Asks for the page of limits.
    open
        Streams and sessions that are closed with the client.
    """

    transport: Transport
    regions: Regions
    patience: Patience
    timeouts: Timeouts
    bounds: Bounds
    redactor: Redactor = field(repr=False)
    url: Callable[[str, str], URL]
    headers: Callable[[Call[Any], Mapping[str, str] | None], dict[str, str]]
    key_header: Mapping[str, str] = field(repr=False)
    limits: Callable[[], Awaitable[dict[str, Any] | None]]
    open: "weakref.WeakSet[Closable]" = field(default_factory=weakref.WeakSet, repr=False)
