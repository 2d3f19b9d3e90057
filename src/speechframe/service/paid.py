"""What calls that cost something have in common: take, idempotency key, reservation, refusals."""

import contextlib
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from aiohttp import web

from speechframe.service import quota
from speechframe.service.answers import Refusal
from speechframe.service.idempotency import Mark, OtherBody
from speechframe.service.job import Reply
from speechframe.service.keys import Key
from speechframe.service.shelf import Clip
from speechframe.service.slots import NoSlot
from speechframe.service.state import STATE, State
from speechframe.service.workers import PoolClosed, Saturated, WorkerLost
from speechframe.spec import billing, chosen
from speechframe.spec.check import shown
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.limits import Pool

_STOPPING_RETRY_S = 2.0
_WHAT_HOLDS_SLOTS = {Pool.STREAMING: "streams and contexts in flight", Pool.OTHER: "in flight"}


@dataclass(frozen=True)
class Bill:
    """What a call costs and who pays.

    Parameters
    ----------
    key
        Who pays.
    mark
        The request's idempotency key and what it is bound to, if it has one.
    millis
        Thousandths of a character.
    words
        What costs that, for a refusal: ``the text has 12 billed characters``.
    operation
        What the books call it, as :data:`speechframe.spec.billing.PRICES` does.
    """

    key: Key
    mark: Mark | None
    millis: int
    words: str
    operation: str


def take_of(request: web.Request) -> int:
    """Return the take a request asks for; 0 without the header (chosen: takes).

    Raises
    ------
    Refusal
        400 for a header that is no take.
    """
    header = request.headers.get(chosen.TAKE_HEADER)
    if header is None:
        return 0
    words = header.strip()
    if (
        not (words.isascii() and words.isdecimal() and len(words) <= len(str(chosen.MAX_TAKE)))
        or int(words) > chosen.MAX_TAKE
    ):
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"{chosen.TAKE_HEADER} is no take (got {shown(header)}); "
            f"allowed: integer from 0 to {chosen.MAX_TAKE}",
        )
    return int(words)


def mark_of(request: web.Request, operation: str, content: bytes, *, take: int = 0) -> Mark | None:
    """Return what a request's idempotency key is bound to; None without the header (chosen: idempotency).

    Parameters
    ----------
    operation
        The endpoint's name.
    content
        What is asked for, canonically; how the answer is delivered is no part of it.
    take
        The take that is asked for.

    Raises
    ------
    Refusal
        400 for a key that is empty or too long.
    """
    header = request.headers.get(chosen.IDEMPOTENCY_HEADER)
    if header is None:
        return None
    if not header or len(header) > chosen.MAX_IDEMPOTENCY_CHARACTERS:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"{chosen.IDEMPOTENCY_HEADER} has {len(header)} characters; "
            f"allowed: 1 to {chosen.MAX_IDEMPOTENCY_CHARACTERS} characters",
        )
    body = hashlib.blake2b(operation.encode() + b"\0%d\0" % take + content, digest_size=32).digest()
    return Mark(request.app[STATE].ring.hashed(header), body)


def check_done(reply: Reply, problem: str) -> None:
    """Refuse with 500 where a worker could not do its job, and the request is not to blame."""
    if reply.facts.failed is not None:
        raise Refusal(HttpErrorCode.INTERNAL_ERROR, f"{problem}: {reply.facts.failed}; nothing was billed")


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn what can go wrong on the way into the answer it gets."""
    try:
        yield
    except Saturated as full:
        raise Refusal(
            HttpErrorCode.UNAVAILABLE, "the service is saturated", retry_after_s=full.wait_s
        ) from None
    except PoolClosed:
        raise Refusal(
            HttpErrorCode.UNAVAILABLE, "the service is stopping", retry_after_s=_STOPPING_RETRY_S, close=True
        ) from None
    except WorkerLost:
        raise Refusal(
            HttpErrorCode.INTERNAL_ERROR, "the engine crashed or took too long; nothing was billed"
        ) from None
    except OtherBody:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"{chosen.IDEMPOTENCY_HEADER} was used for another request; "
            "allowed: the same request again, or a new key",
        ) from None


@contextlib.contextmanager
def slot(state: State, key: Key, pool: Pool) -> Iterator[None]:
    """Hold a slot for a call that waits for none, and turn what can go wrong into the answer it gets.

    Raises
    ------
    Refusal
        429 when the key's cap is reached; see :func:`refusals` for the others.
    """
    words = f"{_WHAT_HOLDS_SLOTS[pool]}, which is its limit"
    with (
        _none_left(state, HttpErrorCode.CONCURRENCY_LIMIT, words),
        state.slots.taken(key, pool),
        refusals(),
    ):
        yield


def slot_in_time(state: State) -> contextlib.AbstractContextManager[None]:
    """Turn it into an answer that a call which waits for its slot got none: section 7.2 has no 429 for it.

    Raises
    ------
    Refusal
        503 when the block meets :class:`NoSlot`.
    """
    words = "in flight, which is its limit, and none ended in time"
    return _none_left(state, HttpErrorCode.UNAVAILABLE, words)


@contextlib.contextmanager
def _none_left(state: State, code: HttpErrorCode, words: str) -> Iterator[None]:
    try:
        yield
    except NoSlot as full:
        raise Refusal(
            code, f"this key has {full.concurrency} {words}", retry_after_s=state.pools.mean_s
        ) from None


@contextlib.asynccontextmanager
async def reserved(state: State, bill: Bill, clip: Clip | None = None) -> AsyncIterator[quota.Reservation]:
    """Hold what a call costs; given back unless the block settles it (an error, a client that went away).

    Parameters
    ----------
    state
        The service.
    bill
        What is held.
    clip
        The file the audio goes to; removed when the call fails.

    Raises
    ------
    Refusal
        402 when the quota does not cover it.
    """
    reservation = quota.make_reservation(state.owner.name, bill.key, bill.mark, bill.operation)

    def reserve(connection: sqlite3.Connection) -> None:
        try:
            quota.reserve(connection, reservation, bill.millis)
        except quota.QuotaExhausted:
            # What is missing may be what a service that was killed had reserved.
            if not state.owner.reap(connection):
                raise
            quota.reserve(connection, reservation, bill.millis)

    try:
        await state.database.run(reserve)
        yield reservation
    except quota.QuotaExhausted as short:
        raise Refusal(
            HttpErrorCode.QUOTA_EXHAUSTED,
            f"{bill.words}, and of this billing cycle's "
            f"quota {short.left_millis // billing.CREDIT:,} are left (what is in flight counts as used)",
        ) from None
    except BaseException:
        # After a settle that did happen this changes nothing: the reservation is gone by then.
        state.database.post(lambda connection: quota.release(connection, reservation.id))
        if clip is not None:
            state.shelf.remove([clip.file_name])
        raise
