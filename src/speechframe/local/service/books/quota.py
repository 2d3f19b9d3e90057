"""Balances: reserve before synthesis, settle or release after; int64 thousandths of a character inside.

A balance is what a key has used in a billing cycle (a calendar month, UTC);
what is reserved by requests in flight counts against the quota too, so that
however many run at once it is never passed. The functions are steps of one
transaction of :mod:`~speechframe.local.service.books.database`; a reservation belongs to
the service process that made it, and goes when that process is dead.

Requests that carry one idempotency key at the same time share one
reservation: the first holds it, the others hold nothing, and whoever settles
first is billed. If the holder fails, the reservation passes on to another.
"""

import datetime as dt
import secrets
import sqlite3
from dataclasses import dataclass
from http import HTTPStatus

from speechframe.local.service.books.database import now
from speechframe.local.service.books.idempotency import Mark, billed_part, find_billed, keep
from speechframe.local.service.books.keys import Key
from speechframe.spec import billing


class QuotaExhausted(Exception):
    """The key's quota does not cover the request.

    Parameters
    ----------
    left_millis
        What could still be reserved.
    """

    def __init__(self, left_millis: int) -> None:
        super().__init__(left_millis)
        self.left_millis = left_millis


@dataclass(frozen=True)
class Balance:
    """What a key has used and may use in a billing cycle, in thousandths of a character."""

    quota_millis: int
    used_millis: int

    @property
    def remaining_characters(self) -> int:
        """Whole characters left; never negative, also when a quota was lowered below what is used."""
        return max(0, self.quota_millis - self.used_millis) // billing.CREDIT

    @property
    def used_characters(self) -> int:
        """Characters used, a started one counted whole."""
        return -(-self.used_millis // billing.CREDIT)


@dataclass(frozen=True)
class Reservation:
    """What is set aside for one request.

    Parameters
    ----------
    id
        Its name in the table.
    owner
        The service process it belongs to.
    key
        Who pays.
    mark
        The request's idempotency key and body, if it has one.
    operation
        What the books call it.
    """

    id: str
    owner: str
    key: Key
    mark: Mark | None
    operation: str


def make_reservation(owner: str, key: Key, mark: Mark | None, operation: str) -> Reservation:
    """Name a reservation before it is made, so that it can be given back without knowing whether it was."""
    return Reservation(secrets.token_hex(16), owner, key, mark, operation)


def cycle_of(moment: float) -> str:
    """Return the billing cycle of a Unix time.

    Examples
    --------
    >>> cycle_of(0.0)
    '1970-01'
    """
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%Y-%m")


def balance(connection: sqlite3.Connection, key: Key, cycle: str | None = None) -> Balance:
    """Return the balance of the current cycle, or of `cycle`."""
    row = connection.execute(
        "SELECT used_millis FROM usage WHERE key_hash = ? AND cycle = ?",
        (key.key_hash, cycle or cycle_of(now())),
    ).fetchone()
    return Balance(key.quota_millis, row[0] if row else 0)


def reserve(connection: sqlite3.Connection, reservation: Reservation, millis: int) -> bool:
    """Set `millis` aside; return True when the request was billed before and this is a repeat.

    Raises
    ------
    QuotaExhausted
        When quota minus used minus reserved is less than `millis`.
    idempotency.OtherBody
        When the idempotency key came with another body.
    """
    key, mark = reservation.key, reservation.mark
    moment = now()
    repeat = mark is not None and find_billed(connection, key.key_hash, mark, moment)
    if repeat or (mark is not None and _held_by_other(connection, key, mark)):
        millis = 0
    millis = max(0, millis - billed_part(connection, key.key_hash, mark, moment))
    cycle = cycle_of(moment)
    left = _left_millis(connection, key, cycle)
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


def _left_millis(connection: sqlite3.Connection, key: Key, cycle: str) -> int:
    used, reserved = connection.execute(
        "SELECT (SELECT used_millis FROM usage WHERE key_hash = :key AND cycle = :cycle),"
        " (SELECT SUM(millis) FROM reservations WHERE key_hash = :key AND cycle = :cycle)",
        {"key": key.key_hash, "cycle": cycle},
    ).fetchone()
    return key.quota_millis - (used or 0) - (reserved or 0)


def _held_by_other(connection: sqlite3.Connection, key: Key, mark: Mark) -> bool:
    rows = connection.execute(
        "SELECT body_hash FROM reservations WHERE key_hash = ? AND idempotency = ?",
        (key.key_hash, mark.key_hash),
    ).fetchall()
    for (body_hash,) in rows:
        mark.check_body(body_hash)
    return bool(rows)


def settle(connection: sqlite3.Connection, reservation: Reservation, millis: int) -> Balance:
    """Bill `millis` unless the request was billed before; drop the reservation; return the balance after.

    Billed in the cycle it was reserved in: a request that runs over midnight
    on the last of the month belongs to the month it was sent in.
    """
    key, mark = reservation.key, reservation.mark
    row = connection.execute("SELECT cycle FROM reservations WHERE id = ?", (reservation.id,)).fetchone()
    cycle = row[0] if row else cycle_of(now())
    if mark is not None and find_billed(connection, key.key_hash, mark, now()):
        millis = 0
    elif mark is not None:
        whole, millis = millis, max(0, millis - billed_part(connection, key.key_hash, mark, now()))
        keep(connection, key.key_hash, mark, whole)
        # Others with this key in flight will find the record; what one of them holds for all is free again.
        connection.execute(
            "UPDATE reservations SET millis = 0 WHERE key_hash = ? AND idempotency = ?",
            (key.key_hash, mark.key_hash),
        )
    connection.execute("DELETE FROM reservations WHERE id = ?", (reservation.id,))
    _bill(connection, reservation, cycle, millis)
    return balance(connection, key, cycle)


def settle_part(connection: sqlite3.Connection, reservation: Reservation, millis: int) -> None:
    """Bill `millis` of a request that was broken off, and give the reservation back.

    Its idempotency key stands for that part: a repeat is billed for what is left, so that all of them
    together cost what one costs.
    """
    key, mark = reservation.key, reservation.mark
    row = connection.execute("SELECT cycle FROM reservations WHERE id = ?", (reservation.id,)).fetchone()
    if row is None:
        return
    release(connection, reservation.id)
    if mark is not None:
        if find_billed(connection, key.key_hash, mark, now()):
            return
        before = billed_part(connection, key.key_hash, mark, now())
        keep(connection, key.key_hash, mark, max(before, millis), status=HTTPStatus.PARTIAL_CONTENT)
        millis = max(0, millis - before)
        # Another with this key in flight holds it for all, and need not hold what is paid.
        connection.execute(
            "UPDATE reservations SET millis = MAX(0, millis - ?) WHERE key_hash = ? AND idempotency = ?",
            (millis, key.key_hash, mark.key_hash),
        )
    _bill(connection, reservation, row[0], millis)


def _bill(connection: sqlite3.Connection, reservation: Reservation, cycle: str, millis: int) -> None:
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
    """Give a reservation back, or pass it on to another request in flight with the same idempotency key."""
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
    """Give back everything a service process had reserved."""
    for (reservation_id,) in connection.execute(
        "SELECT id FROM reservations WHERE owner = ?", (owner,)
    ).fetchall():
        release(connection, reservation_id)
