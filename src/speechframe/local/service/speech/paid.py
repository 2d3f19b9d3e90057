"""Shared steps of calls that cost credits: take, idempotency key, slot, reservation and refusals.

A take is the number of one reading of the same text. A slot is the right to have one request in flight.
"""

import contextlib
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from aiohttp import web

from speechframe.local.service.books import quota
from speechframe.local.service.books.idempotency import BodyMismatch, IdempotencyMark
from speechframe.local.service.books.keys import Key
from speechframe.local.service.books.shelf import ShelvedFile
from speechframe.local.service.http.answers import Refusal
from speechframe.local.service.http.slots import NoSlot
from speechframe.local.service.state import STATE, State
from speechframe.local.service.workers.job import WorkerReply
from speechframe.local.service.workers.pool import PoolClosed, Saturated, WorkerLost
from speechframe.spec import billing, chosen
from speechframe.spec.check import shorten_value
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.limits import Pool

_STOPPING_RETRY_S = 2.0
"""Seconds after which a client should retry when the service stops."""
# End of the refusal "this key has 15 ...", by pool.
_SLOT_HOLDERS = {Pool.STREAMING: "streams and contexts in flight", Pool.OTHER: "in flight"}


@dataclass(frozen=True)
class CallBill:
    """The price of a call and the key that pays.

    Parameters
    ----------
    key
        The key that pays.
    mark
        Hashes of the request's idempotency key and of its content. None without an idempotency key.
    millis
        The price in thousandths of a character.
    price_text
        Explanation of the price for a refusal, such as ``the text has 12 billed characters``.
    operation
        The operation's name, as in :data:`speechframe.spec.billing.PRICES`.
    """

    key: Key
    mark: IdempotencyMark | None
    millis: int
    price_text: str
    operation: str


def read_take(request: web.Request) -> int:
    """Return the take that a request's header names. Without the header, return 0 (chosen: takes).

    Raises
    ------
    Refusal
        400 if the value is not an allowed integer.
    """
    header = request.headers.get(chosen.TAKE_HEADER)
    if header is None:
        return 0
    text = header.strip()
    if (
        not (text.isascii() and text.isdecimal() and len(text) <= len(str(chosen.MAX_TAKE_NUMBER)))
        or int(text) > chosen.MAX_TAKE_NUMBER
    ):
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"{chosen.TAKE_HEADER} is not a take (got {shorten_value(header)}); "
            f"allowed: integer from 0 to {chosen.MAX_TAKE_NUMBER}",
        )
    return int(text)


def read_mark(
    request: web.Request, operation: str, content: bytes, *, take: int = 0
) -> IdempotencyMark | None:
    """Return the hashes of a request's idempotency key and of its content (chosen: idempotency).

    Without the header, return None.

    Parameters
    ----------
    operation
        Name of the endpoint or of the request's model.
    content
        The request in canonical form, without options that only concern the delivery of the answer.
    take
        The take that the request names.

    Raises
    ------
    Refusal
        400 if the idempotency key is empty or too long.
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
    return IdempotencyMark(request.app[STATE].ring.hash_secret(header), body)


def refuse_failed(reply: WorkerReply, problem: str) -> None:
    """Refuse with 500 if the worker's reply reports a failure that is not the caller's fault."""
    if reply.facts.failed is not None:
        raise Refusal(HttpErrorCode.INTERNAL_ERROR, f"{problem}: {reply.facts.failed}; nothing was billed")


@contextlib.contextmanager
def refuse_errors() -> Iterator[None]:
    """Translate internal errors into HTTP refusals."""
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
    except BodyMismatch:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"{chosen.IDEMPOTENCY_HEADER} was used for another request; "
            "allowed: the same request again, or a new key",
        ) from None


@contextlib.contextmanager
def hold_slot(state: State, key: Key, pool: Pool) -> Iterator[None]:
    """Hold a slot for the length of a block. Translate errors of the block into refusals.

    Raises
    ------
    Refusal
        429 at once if all slots of the key are taken. :func:`refuse_errors` raises the other refusals.
    """
    reason = f"{_SLOT_HOLDERS[pool]}, which is its limit"
    with (
        _refuse_no_slot(state, HttpErrorCode.CONCURRENCY_LIMIT, reason),
        state.slots.hold_slot(key, pool),
        refuse_errors(),
    ):
        yield


def refuse_slot_timeout(state: State) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that refuses with 503 if its block raises :class:`NoSlot`.

    This is for calls that wait for a slot. Section 7.2 of the service document does not
    list 429 for these calls.
    """
    reason = "in flight, which is its limit, and none ended in time"
    return _refuse_no_slot(state, HttpErrorCode.UNAVAILABLE, reason)


@contextlib.contextmanager
def _refuse_no_slot(state: State, code: HttpErrorCode, reason: str) -> Iterator[None]:
    try:
        yield
    except NoSlot as full:
        raise Refusal(
            code, f"this key has {full.concurrency} {reason}", retry_after_s=state.pools.mean_s
        ) from None


@contextlib.asynccontextmanager
async def reserve_price(
    state: State, bill: CallBill, clip: ShelvedFile | None = None
) -> AsyncIterator[quota.Reservation]:
    """Reserve the price of a call. Release the reservation if the block fails or the client disconnects.

    Parameters
    ----------
    state
        The shared objects of the service.
    bill
        The price, and the key that pays.
    clip
        The file for the audio, on the shelf. It is removed if the block fails. None if there is no such file.

    Raises
    ------
    Refusal
        402 if the quota does not cover the price.
    """
    reservation = quota.make_reservation(state.owner.name, bill.key, bill.mark, bill.operation)

    def reserve(connection: sqlite3.Connection) -> None:
        try:
            quota.reserve(connection, reservation, bill.millis)
        except quota.QuotaExhausted:
            # A killed service process may have left reservations. Release them and retry once.
            if not state.owner.release_dead_owners(connection):
                raise
            quota.reserve(connection, reservation, bill.millis)

    try:
        await state.database.run(reserve)
        yield reservation
    except quota.QuotaExhausted as short:
        raise Refusal(
            HttpErrorCode.QUOTA_EXHAUSTED,
            f"{bill.price_text}, and of this billing cycle's "
            f"quota {short.left_millis // billing.MILLICREDITS_PER_CREDIT:,} are left (what is in flight "
            "counts as used)",
        ) from None
    except BaseException:
        # A settled call is not affected, because settling has removed its reservation.
        state.database.queue_write(lambda connection: quota.release(connection, reservation.id))
        if clip is not None:
            state.shelf.remove([clip.file_name])
        raise
