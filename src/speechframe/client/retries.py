"""When a single call is sent again, how long it waits before that, and to which region it goes."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from speechframe.errors import BadAnswer, ConnectionFailed, ServiceError, SpeechframeError, Unavailable
from speechframe.spec.codes import Status

__all__ = ["Patience", "Regions", "persist"]

T = TypeVar("T")

# How long a region that could not serve is not the first choice.
COOL_S = 30.0

_log = logging.getLogger("speechframe")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long ``Client.call`` keeps trying; attempts and time are both capped.

    Parameters
    ----------
    attempts
        The most attempts, the first included. Moving on to another region at once is not counted.
    patience_s
        Seconds from the first attempt after which no further one is started. A service that asks for a longer
        wait is not waited for: its error is raised at once, with ``retry_after_s``.
    first_wait_s, longest_wait_s
        Waits grow from one to the other, each drawn at random up to its bound, so that callers spread. A
        wait that the service asks for is kept in full.
    repeat_unknown
        Also repeat what may have been billed: a request that was sent and not answered, an answer that
        cannot be used. Right for calls with an idempotency key that the service honours, and for calls that
        cost nothing.
    """

    attempts: int = 5
    patience_s: float = 120.0
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    repeat_unknown: bool = False

    def allows(self, error: BaseException) -> bool:
        """Return whether the same request may be sent again after `error`."""
        if isinstance(error, ServiceError):
            # A gateway may have lost an answer that the service was paid for.
            return error.retryable or (self.repeat_unknown and Status.is_gateways(error.status))
        if isinstance(error, ConnectionFailed):
            return self.repeat_unknown or not error.sent
        return self.repeat_unknown and isinstance(error, BadAnswer)

    def wait_s(self, error: BaseException | None, attempt: int) -> float:
        """Return the seconds to wait after the `attempt`-th attempt failed with `error`."""
        bound_s = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(attempt - 1, 30))
        drawn_s = random.uniform(0.0, bound_s)  # noqa: S311 - spreads callers, keeps no secret
        asked_s = error.retry_after_s if isinstance(error, ServiceError) else None
        # All who were refused together were told the same number: the part drawn keeps them apart.
        return drawn_s if asked_s is None else asked_s + min(drawn_s, self.first_wait_s)


class Regions:
    """The addresses of a service by the names of regions, in order of preference, and which lately failed."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses, self.names = dict(addresses), tuple(addresses)
        self._down_until_s: dict[str, float] = {}

    def order(self) -> list[str]:
        """Return the names to try: by preference, those that are down last, the soonest back first."""
        now_s = time.monotonic()
        self._down_until_s = {name: until for name, until in self._down_until_s.items() if until > now_s}
        return sorted(self.names, key=lambda name: self._down_until_s.get(name, 0.0))

    def down(self, name: str, error: SpeechframeError) -> None:
        """Note that a region cannot serve, for the time it asked for or 30 s, whichever is shorter."""
        asked_s = getattr(error, "retry_after_s", None)
        self._down_until_s[name] = time.monotonic() + min(COOL_S, COOL_S if asked_s is None else asked_s)

    def up(self, name: str) -> None:
        """Note that a region served."""
        self._down_until_s.pop(name, None)


async def persist(send: Callable[[str], Awaitable[T]], regions: Regions, patience: Patience) -> tuple[T, int]:
    """Return what `send` returns for a region, and the number of attempts that took.

    After a 503, or a connection that failed before the request was sent, each other region is tried once
    without a wait; then all begin anew, after a wait. The error of the last attempt is raised.
    """
    began_s, order, made, rounds = time.monotonic(), regions.order(), 0, 0
    while True:
        region, made = order[0], made + 1
        try:
            value = await send(region)
        except SpeechframeError as error:
            if isinstance(error, ServiceError):
                error.attempts = made
            if not patience.allows(error):
                raise
            wait_s, words = 0.0, str(error)
            if elsewhere := isinstance(error, Unavailable) or not getattr(error, "sent", True):
                regions.down(region, error)
                order = order[1:]
            if not elsewhere or not order:
                rounds += 1
                order = order or regions.order()
                wait_s = patience.wait_s(error, rounds)
            if rounds >= patience.attempts or time.monotonic() + wait_s >= began_s + patience.patience_s:
                raise
        else:
            regions.up(region)
            return value, made
        _log.info("attempt %d failed, again in %.2f s at %s: %s", made, wait_s, order[0], words)
        await asyncio.sleep(wait_s)
