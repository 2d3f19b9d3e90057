"""When a single call is tried again, how long it waits, and where it goes then."""

import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_before_delay

from speechframe.errors import BadAnswer, ConnectionFailed, ServiceError, SpeechframeError, Unavailable
from speechframe.old_client.regions import Regions

T = TypeVar("T")

_log = logging.getLogger("speechframe")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long ``Client.call`` keeps trying; both ends are capped.

    Parameters
    ----------
    attempts
        The most attempts, the first included. Moving on to another region at once is not counted.
    patience_s
        Seconds from the first attempt after which no further one is started. A service that asks to wait
        longer than that is not waited for: its error is raised at once, with ``retry_after_s``.
    first_wait_s, longest_wait_s
        Waits grow from one to the other, each drawn at random up to its bound, so that callers spread. A
        wait the service asks for is kept in full.
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
            return error.retryable
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


async def persist(send: Callable[[str], Awaitable[T]], regions: Regions, patience: Patience) -> tuple[T, int]:
    """Return what `send` returns for a region, and the number of attempts it took.

    The first attempt is made directly; only its failure brings tenacity in, whose machinery costs more than
    a good call's whole share of it.

    Parameters
    ----------
    send
        Makes one attempt at a region.
    regions
        After a 503, or a connection that failed before the request was sent, the other regions are tried at
        once, each one time; then it is waited.
    patience
        What is repeated, how often and how long.

    Raises
    ------
    SpeechframeError
        The error of the last attempt; a :class:`ServiceError` carries the number of attempts.
    """
    route = _Route(regions)
    started_s = time.monotonic()
    try:
        value = await send(route.region)
    except SpeechframeError as error:
        first = error
    else:
        regions.up(route.region)
        return value, 1
    return await _again(first, send, route, patience, started_s)


class _Route:
    """The regions of one call: each is tried once a round, before anything is waited for."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._order = list(regions.order())
        self.region = self._order.pop(0)
        self.moves = 0
        """Attempts that cost no wait."""
        self.moved = False

    def failed(self, error: BaseException) -> None:
        """Choose where the next attempt goes."""
        elsewhere = isinstance(error, Unavailable) or (isinstance(error, ConnectionFailed) and not error.sent)
        self.moved = elsewhere and bool(self._order)
        if elsewhere:
            self._regions.down(self.region, error.retry_after_s if isinstance(error, ServiceError) else None)
        if self.moved:
            self.region = self._order.pop(0)
            self.moves += 1
        elif elsewhere:
            self._order = list(self._regions.order())
            self.region = self._order.pop(0)

    def worked(self) -> None:
        self._regions.up(self.region)


async def _again(
    first: SpeechframeError,
    send: Callable[[str], Awaitable[T]],
    route: _Route,
    patience: Patience,
    started_s: float,
) -> tuple[T, int]:
    before: list[SpeechframeError] = [first]
    made = 1

    async def attempt() -> T:
        nonlocal made
        if before:
            # tenacity gets to know of the attempt that was made without it.
            raise before.pop()
        made += 1
        return await send(route.region)

    def repeat(error: BaseException) -> bool:
        if isinstance(error, ServiceError):
            error.attempts = made
        if not patience.allows(error):
            return False
        route.failed(error)
        return True

    def wait_s(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        return 0.0 if route.moved else patience.wait_s(error, made - route.moves)

    too_late = stop_before_delay(max(0.0, patience.patience_s - (time.monotonic() - started_s)))

    def stop(state: RetryCallState) -> bool:
        return made - route.moves >= patience.attempts or too_late(state)

    def log(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        _log.info(
            "attempt %d failed, again in %.2f s at %s: %s", made, state.upcoming_sleep, route.region, error
        )

    retrying = AsyncRetrying(
        retry=retry_if_exception(repeat), wait=wait_s, stop=stop, before_sleep=log, reraise=True
    )
    value: T = await retrying(attempt)
    route.worked()
    return value, made
