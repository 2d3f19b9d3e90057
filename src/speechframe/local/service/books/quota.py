"""Reserve the price before synthesis, and settle or release the reservation afterwards.

Amounts are whole numbers of thousandths of a character ("millis"). A balance is the amount that a key has
used in a billing cycle (a calendar month, UTC). Reservations of requests in flight also count against the
quota, so requests at the same time never exceed it. Each function is a step of a transaction of
:mod:`~speechframe.local.service.books.database`. A reservation belongs to the service process that made it.
It is released when this process is found dead.

Requests in flight with the same idempotency key share one reservation. The first request holds the amount,
and the others hold 0. The request that settles first is billed. If the holder fails, the amount passes to
another request.
"""

import datetime as dt
import secrets
import sqlite3
from dataclasses import dataclass
from http import HTTPStatus

from speechframe.local.service.books.database import now
from speechframe.local.service.books.idempotency import (
    IdempotencyMark,
    find_billed_part_millis,
    is_billed,
    record_answer,
)
from speechframe.local.service.books.keys import Key
from speechframe.spec import billing


class QuotaExhausted(Exception):
    """The key's quota does not cover the request.

    Parameters
    ----------
    left_millis
        The amount that could still be reserved, in thousandths of a character.
    """

    def __init__(self, left_millis: int) -> None:
        super().__init__(left_millis)
        self.left_millis = left_millis


@dataclass(frozen=True)
class Balance:
    """The quota and the used amount of a key in a billing cycle, in thousandths of a character."""

    quota_millis: int
    used_millis: int

    @property
    def remaining_characters(self) -> int:
        """Whole characters left. 0 if the quota was lowered below the used amount."""
        return max(0, self.quota_millis - self.used_millis) // billing.MILLICREDITS_PER_CREDIT

    @property
    def used_characters(self) -> int:
        """Characters used, rounded up."""
        return -(-self.used_millis // billing.MILLICREDITS_PER_CREDIT)


@dataclass(frozen=True)
class Reservation:
    """The reservation of one request. The amount is in the database.

    Parameters
    ----------
    id
        Id of the row in the table ``reservations``.
    owner
        Name of the service process that made the reservation.
    key
        The key that pays.
    mark
        Hashes of the request's idempotency key and body. None for a request without an idempotency key.
    operation
        Name of the operation in the table ``billed``, such as "dub".
    """

    id: str
    owner: str
    key: Key
    mark: IdempotencyMark | None
    operation: str


def make_reservation(owner: str, key: Key, mark: IdempotencyMark | None, operation: str) -> Reservation:
    """Return a reservation with a new id, without writing to the database.

    The id exists before the amount is reserved. So the caller can release the reservation even if it does not
    know whether :func:`reserve` succeeded.
    """
    return Reservation(secrets.token_hex(16), owner, key, mark, operation)


def format_cycle(moment: float) -> str:
    """Return the billing cycle of a Unix time.

    Examples
    --------
    >>> format_cycle(0.0)
    '1970-01'
    """
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%Y-%m")


def read_balance(connection: sqlite3.Connection, key: Key, cycle: str | None = None) -> Balance:
    """Return the balance of a key in `cycle`, by default the current billing cycle."""
    row = connection.execute(
        "SELECT used_millis FROM usage WHERE key_hash = ? AND cycle = ?",
        (key.key_hash, cycle or format_cycle(now())),
    ).fetchone()
    return Balance(key.quota_millis, row[0] if row else 0)


def reserve(connection: sqlite3.Connection, reservation: Reservation, millis: int) -> bool:
    """Reserve `millis` for a request. Return True if the request repeats a request that was billed.

    Nothing is reserved for such a repeat, or if another request in flight holds the amount for the same
    idempotency key. A part that was billed before is subtracted from `millis`.

    Raises
    ------
    QuotaExhausted
        The amount to reserve is larger than quota minus used minus reserved.
    idempotency.OtherBody
        The idempotency key belongs to a request with another body.
    """
    key, mark = reservation.key, reservation.mark
    moment = now()
    repeat = mark is not None and is_billed(connection, key.key_hash, mark, moment)
    if repeat or (mark is not None and _is_held_by_other(connection, key, mark)):
        millis = 0
    millis = max(0, millis - find_billed_part_millis(connection, key.key_hash, mark, moment))
    cycle = format_cycle(moment)
    left = _compute_left_millis(connection, key, cycle)
    if millis and millis > left:
        raise QuotaExhausted(max(0, left))
    connection.execute(
        "INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            reservation.id,
            reservation.owner,
            key.key_hash,
            cycle,
            millis,
            mark.key_hash if mark else None,
            mark.body_hash if mark else None,
            moment,
        ),
    )
    return repeat


def _compute_left_millis(connection: sqlite3.Connection, key: Key, cycle: str) -> int:
    used, reserved = connection.execute(
        "SELECT (SELECT used_millis FROM usage WHERE key_hash = :key AND cycle = :cycle),"
        " (SELECT SUM(millis) FROM reservations WHERE key_hash = :key AND cycle = :cycle)",
        {"key": key.key_hash, "cycle": cycle},
    ).fetchone()
    return key.quota_millis - (used or 0) - (reserved or 0)


def _is_held_by_other(connection: sqlite3.Connection, key: Key, mark: IdempotencyMark) -> bool:
    rows = connection.execute(
        "SELECT body_hash FROM reservations WHERE key_hash = ? AND idempotency = ?",
        (key.key_hash, mark.key_hash),
    ).fetchall()
    for (body_hash,) in rows:
        mark.check_body(body_hash)
    return bool(rows)


def settle(connection: sqlite3.Connection, reservation: Reservation, millis: int) -> Balance:
    """Bill `millis`, less what was billed before. Remove the reservation and return the new balance.

    The amount counts in the billing cycle of the reservation. So a request that runs past the end of a month
    belongs to the month in which it was sent.
    """
    key, mark = reservation.key, reservation.mark
    row = connection.execute("SELECT cycle FROM reservations WHERE id = ?", (reservation.id,)).fetchone()
    cycle = row[0] if row else format_cycle(now())
    if mark is not None and is_billed(connection, key.key_hash, mark, now()):
        millis = 0
    elif mark is not None:
        total_millis, millis = (
            millis,
            max(0, millis - find_billed_part_millis(connection, key.key_hash, mark, now())),
        )
        record_answer(connection, key.key_hash, mark, total_millis)
        # Other requests in flight with this idempotency key will find the record and cost nothing. So the
        # amount that one of them may hold is released.
        connection.execute(
            "UPDATE reservations SET millis = 0 WHERE key_hash = ? AND idempotency = ?",
            (key.key_hash, mark.key_hash),
        )
    connection.execute("DELETE FROM reservations WHERE id = ?", (reservation.id,))
    _record_bill(connection, reservation, cycle, millis)
    return read_balance(connection, key, cycle)


def settle_part(connection: sqlite3.Connection, reservation: Reservation, millis: int) -> None:
    """Bill `millis` of a request that was broken off, and release its reservation.

    The billed part is recorded for the idempotency key. A repeat is billed only for the rest, so all repeats
    together cost as much as one complete request. Nothing happens if the reservation no longer exists.
    """
    key, mark = reservation.key, reservation.mark
    row = connection.execute("SELECT cycle FROM reservations WHERE id = ?", (reservation.id,)).fetchone()
    if row is None:
        return
    release(connection, reservation.id)
    if mark is not None:
        if is_billed(connection, key.key_hash, mark, now()):
            return
        before = find_billed_part_millis(connection, key.key_hash, mark, now())
        record_answer(connection, key.key_hash, mark, max(before, millis), status=HTTPStatus.PARTIAL_CONTENT)
        millis = max(0, millis - before)
        # `release` may have passed the amount to another request with this idempotency key. That request no
        # longer needs to hold the part that is billed now.
        connection.execute(
            "UPDATE reservations SET millis = MAX(0, millis - ?) WHERE key_hash = ? AND idempotency = ?",
            (millis, key.key_hash, mark.key_hash),
        )
    _record_bill(connection, reservation, row[0], millis)


def _record_bill(connection: sqlite3.Connection, reservation: Reservation, cycle: str, millis: int) -> None:
    key_hash = reservation.key.key_hash
    connection.execute(
        "INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT (key_hash, cycle) "
        "DO UPDATE SET used_millis = used_millis + excluded.used_millis",
        (key_hash, cycle, millis),
    )
    day = dt.datetime.fromtimestamp(now(), dt.UTC).strftime("%Y-%m-%d")
    connection.execute(
        "INSERT INTO billed VALUES (?, ?, ?, ?) ON CONFLICT (key_hash, day, operation) "
        "DO UPDATE SET millis = millis + excluded.millis",
        (key_hash, day, reservation.operation, millis),
    )


def release(connection: sqlite3.Connection, reservation_id: str) -> None:
    """Release a reservation, or pass its amount to another request in flight with its idempotency key."""
    row = connection.execute(
        "DELETE FROM reservations WHERE id = ? RETURNING key_hash, idempotency, millis", (reservation_id,)
    ).fetchone()
    if row is None or row[1] is None or row[2] == 0:
        return
    key_hash, idempotency, millis = row
    connection.execute(
        "UPDATE reservations SET millis = ? WHERE id = "
        "(SELECT id FROM reservations WHERE key_hash = ? AND idempotency = ? LIMIT 1)",
        (millis, key_hash, idempotency),
    )


def release_owner(connection: sqlite3.Connection, owner: str) -> None:
    """Release all reservations of a service process."""
    for (reservation_id,) in connection.execute(
        "SELECT id FROM reservations WHERE owner = ?", (owner,)
    ).fetchall():
        release(connection, reservation_id)
