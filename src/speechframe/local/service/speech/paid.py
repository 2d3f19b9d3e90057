"""Shared steps of calls that cost credits: take, idempotency key, slot, reservation and refusals.

A take is the number of one reading of the same text. A slot is the right to have one request in flight.
"""

import asyncio
import contextlib
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from speechframe.local.service.books import quota
from speechframe.local.service.books.idempotency import BodyMismatch, IdempotencyMark
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import Refusal, make_stopping_refusal, refuse
from speechframe.local.service.http.slots import NoSlot
from speechframe.local.service.state import STATE, State
from speechframe.local.service.workers.job import Facts, WorkerJob, WorkerReply
from speechframe.local.service.workers.pool import PoolClosed, Saturated, WorkerLost, WorkerPool
from speechframe.spec import billing, chosen
from speechframe.spec.check import shorten_value
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.limits import Pool

# End of the refusal "this key has 15 ...", by pool.
_SLOT_HOLDERS = {Pool.STREAMING: "streams and contexts in flight", Pool.OTHER: "in flight"}
# End of the refusal of a call that waited for a slot.
_NONE_ENDED = ", and none ended in time"


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


async def run_job(
    pool: WorkerPool,
    job: WorkerJob,
    key: Key,
    *,
    limit_s: float,
    refused: str,
    failed: str,
    under_way: bool = False,
) -> WorkerReply:
    """Return a worker's reply to a job, like :meth:`WorkerPool.run`.

    Parameters
    ----------
    refused
        Beginning of the refusal with 400 if the caller's input is at fault.
    failed
        Beginning of the refusal with 500 if the job fails for any other reason.
    """
    reply = await pool.run(job, limit_s=limit_s, key_hash=key.key_hash, under_way=under_way)
    if reply.facts.refused is not None:
        refuse(f"{refused}: {reply.facts.refused}")
    if reply.facts.failed is not None:
        raise Refusal(HttpErrorCode.INTERNAL_ERROR, f"{failed}: {reply.facts.failed}; nothing was billed")
    return reply


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
        raise make_stopping_refusal() from None
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


@contextlib.asynccontextmanager
async def hold_slot(state: State, key: Key, pool: Pool, *, waits: bool = False) -> AsyncIterator[None]:
    """Hold a slot for the length of a block. Translate errors of the block into refusals.

    Parameters
    ----------
    waits
        Whether the call waits for a slot if all are taken.

    Raises
    ------
    Refusal
        As :func:`refuse_no_slot`. :func:`refuse_errors` raises the other refusals.
    """
    holders = None if waits else _SLOT_HOLDERS[pool]
    with refuse_no_slot(state, holders), refuse_errors():
        async with state.slots.hold_slot(key, pool, waits=waits):
            yield


@contextlib.contextmanager
def refuse_no_slot(state: State, holders: str | None = None) -> Iterator[None]:
    """Refuse if the block raises :class:`NoSlot`.

    With `holders`, the words for the calls in flight, refuse with 429. Otherwise refuse with 503. This is for
    calls that wait for a slot, because section 7.2 of the service document lists no 429 for them.
    """
    try:
        yield
    except NoSlot as full:
        code = HttpErrorCode.CONCURRENCY_LIMIT if holders else HttpErrorCode.UNAVAILABLE
        reason = f"{holders or 'in flight'}, which is its limit" + ("" if holders else _NONE_ENDED)
        raise Refusal(
            code, f"this key has {full.concurrency} {reason}", retry_after_s=state.pools.mean_s
        ) from None


@dataclass
class PaidCall:
    """A call whose price is reserved.

    Parameters
    ----------
    state
        The shared objects of the service.
    reservation
        The reservation of the price.
    clip
        Path of the audio file on the shelf. None if there is no such file.
    part_millis
        Amount to bill if the call fails, in thousandths of a character.
    """

    state: State
    reservation: quota.Reservation
    clip: Path | None
    part_millis: int = 0

    async def settle(self, facts: Facts | None = None, millis: int | None = None) -> quota.Balance:
        """Bill the call and list its audio on the shelf, in one transaction. Return the new balance.

        Parameters
        ----------
        facts
            Facts about the audio file. None if the call has no file on the shelf.
        millis
            Amount to bill, in thousandths of a character. None bills the price.
        """

        def settle(connection: sqlite3.Connection) -> quota.Balance:
            if self.clip is not None and facts is not None:
                self.state.shelf.put(connection, self.clip, facts.content_type, facts.size_bytes)
            due_millis = self.reservation.price_millis if millis is None else millis
            return quota.settle(connection, self.reservation, due_millis)

        return await self.state.database.run(settle)


@contextlib.asynccontextmanager
async def paid_call(
    state: State, reservation: quota.Reservation, price_text: str, clip: Path | None = None
) -> AsyncIterator[PaidCall]:
    """Reserve the price of a call. The block must settle the call.

    If the block fails or the client disconnects, bill `part_millis`, release the rest of the reservation, and
    remove the file of the call.

    Parameters
    ----------
    price_text
        Explanation of the price for a refusal, such as ``the text has 12 billed characters``.
    clip
        As in :class:`PaidCall`.

    Raises
    ------
    Refusal
        402 if the quota does not cover the price.
    """
    call = PaidCall(state, reservation, clip)

    def reserve(connection: sqlite3.Connection) -> None:
        try:
            quota.reserve(connection, reservation)
        except quota.QuotaExhausted:
            # A killed service process may have left reservations. Release them and retry once.
            if not state.owner.release_dead_owners(connection):
                raise
            quota.reserve(connection, reservation)

    try:
        await state.database.run(reserve)
        yield call
    except quota.QuotaExhausted as short:
        raise Refusal(
            HttpErrorCode.QUOTA_EXHAUSTED,
            f"{price_text}, and of this billing cycle's "
            f"quota {short.left_millis // billing.MILLICREDITS_PER_CREDIT:,} are left (what is in flight "
            "counts as used)",
        ) from None
    except BaseException as error:
        # A settled call is not affected, because settling has removed its reservation.
        posted = state.database.queue_write(lambda c: quota.settle(c, reservation, call.part_millis))
        if clip is not None:
            state.shelf.remove([clip.name])
        if call.part_millis and isinstance(error, Exception):
            # Bill the part before the connection is cut, so that the client then sees the new balance.
            with contextlib.suppress(sqlite3.Error):
                await asyncio.shield(asyncio.wrap_future(posted))
        raise
