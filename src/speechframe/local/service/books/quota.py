"""Reserve the price before synthesis, and settle or release the reservation afterwards.

Amounts are whole numbers of thousandths of a character ("millis"). A balance is the amount that a key has
used in a billing cycle (a calendar month, UTC). Reservations of requests in flight also count against the
quota, so requests at the same time never exceed it. Each function is a step of a transaction of
:mod:`~speechframe.local.service.books.database`. A reservation belongs to the service process that made it.
It is released when this process is found dead.

A request owes its price, less what was billed under its idempotency key. Requests in flight with the same
idempotency key are billed once. So together they reserve what one of them owes.
"""

import datetime as dt
import secrets
import sqlite3
from dataclasses import dataclass, field

from speechframe.local.service.books.database import now
from speechframe.local.service.books.idempotency import (
    IdempotencyMark,
    find_billed_millis,
    record_billed,
)
from speechframe.local.service.books.keys import Key
from speechframe.spec import billing, chosen


@dataclass(eq=False)
class QuotaExhausted(Exception):
    """The key's quota does not cover the request. At most `left_millis` could still be reserved."""

    left_millis: int


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
    """The reservation of one request.

    The id exists before the amount is reserved. So the caller can release the reservation even if it does not
    know whether :func:`reserve` succeeded.

    Parameters
    ----------
    owner
        Name of the service process that makes the reservation.
    key
        The key that pays.
    mark
        Hashes of the request's idempotency key and body. None for a request without an idempotency key.
    operation
        Name of the operation, as in :data:`speechframe.spec.billing.PRICES`.
    price_millis
        The price in thousandths of a character.
    id
        Id of the row in the table ``reservations``.
    """

    owner: str
    key: Key
    mark: IdempotencyMark | None
    operation: str
    price_millis: int
    id: str = field(default_factory=lambda: secrets.token_hex(16))


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


def reserve(connection: sqlite3.Connection, reservation: Reservation) -> None:
    """Reserve what a request owes.

    Raises
    ------
    QuotaExhausted
        The request owes more than quota minus used minus reserved.
    BodyMismatch
        The idempotency key belongs to a request with another body.
    """
    key, mark = reservation.key, reservation.mark
    owed_millis = max(0, reservation.price_millis - find_billed_millis(connection, key.key_hash, mark))
    if mark is not None and _is_in_flight(connection, key, mark):
        owed_millis = 0
    cycle = format_cycle(now())
    left_millis = max(0, compute_left_millis(connection, key, cycle))
    if owed_millis > left_millis:
        raise QuotaExhausted(left_millis)
    connection.execute(
        "INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            reservation.id,
            reservation.owner,
            key.key_hash,
            cycle,
            reservation.price_millis,
            mark.key_hash if mark else None,
            mark.body_hash if mark else None,
            now(),
        ),
    )


def compute_left_millis(connection: sqlite3.Connection, key: Key, cycle: str) -> int:
    """Return the part of a quota that is neither used nor reserved. Negative if the quota was lowered."""
    # MAX with one argument is the largest price of a group, and with two arguments the larger of two numbers.
    (reserved_millis,) = connection.execute(
        "SELECT IFNULL(SUM(owed), 0) FROM (SELECT MAX(0, MAX(millis) - IFNULL(billed_millis, 0)) AS owed "
        "FROM reservations LEFT JOIN (SELECT * FROM idempotency WHERE key_hash = :key AND made_at > :since) "
        "USING (idempotency) WHERE reservations.key_hash = :key AND cycle = :cycle "
        "GROUP BY IFNULL(idempotency, id))",
        {"key": key.key_hash, "cycle": cycle, "since": now() - chosen.IDEMPOTENCY_SECONDS},
    ).fetchone()
    return key.quota_millis - read_balance(connection, key, cycle).used_millis - int(reserved_millis)


def _is_in_flight(connection: sqlite3.Connection, key: Key, mark: IdempotencyMark) -> bool:
    rows = connection.execute(
        "SELECT body_hash FROM reservations WHERE key_hash = ? AND idempotency = ?",
        (key.key_hash, mark.key_hash),
    ).fetchall()
    for (body_hash,) in rows:
        mark.check_body(body_hash)
    return bool(rows)


def settle(connection: sqlite3.Connection, reservation: Reservation, millis: int) -> Balance:
    """Bill what a request owes of `millis`. Remove the reservation and return the new balance.

    `millis` is less than the price if a stream was broken off, and 0 if the request failed. Nothing is billed
    if the reservation no longer exists. The amount counts in the billing cycle of the reservation. So a
    request that runs past the end of a month belongs to the month in which it was sent.
    """
    key, mark = reservation.key, reservation.mark
    row = connection.execute(
        "DELETE FROM reservations WHERE id = ? RETURNING cycle", (reservation.id,)
    ).fetchone()
    if row is not None and millis:
        billed_millis = find_billed_millis(connection, key.key_hash, mark)
        # A repeat of a request that was billed in full does not extend the 24 hours.
        if mark is not None and billed_millis < reservation.price_millis:
            record_billed(connection, key.key_hash, mark, max(millis, billed_millis))
        _record_bill(connection, reservation, row[0], max(0, millis - billed_millis))
    return read_balance(connection, key, row and row[0])


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


def release_owner(connection: sqlite3.Connection, owner: str) -> None:
    """Release all reservations of a service process."""
    connection.execute("DELETE FROM reservations WHERE owner = ?", (owner,))
