"""What an ``Idempotency-Key`` header is worth: one bill for any number of repeats, for 24 hours.

Kept are hashes of key and body, the status and what was billed; never text,
never audio (zero retention). A repeat is therefore synthesised again, which
gives the same bytes. Errors are not kept: a repeat of a request that failed is
a new request. Of a stream that was broken off the part that was billed is kept
(206), and a repeat is billed for the rest.
"""

import hmac
import sqlite3
from dataclasses import dataclass
from http import HTTPStatus

from speechframe.local.service.books.database import now
from speechframe.spec import chosen


class OtherBody(Exception):
    """The idempotency key was used for another request."""


@dataclass(frozen=True)
class Mark:
    """A request's idempotency key and what it is bound to, as hashes.

    Parameters
    ----------
    key_hash
        Hash of the header.
    body_hash
        Hash of operation, canonical request and take.
    """

    key_hash: bytes
    body_hash: bytes

    def check_body(self, body_hash: bytes) -> None:
        """Raise :class:`OtherBody` unless the key is bound to this body."""
        if not hmac.compare_digest(self.body_hash, body_hash):
            raise OtherBody


def find_billed(connection: sqlite3.Connection, key_hash: bytes, mark: Mark, moment: float) -> bool:
    """Whether this request was answered and billed within the last 24 hours.

    Raises
    ------
    OtherBody
        When the key stands for another request.
    """
    row = connection.execute(
        "SELECT body_hash, status FROM idempotency WHERE key_hash = ? AND idempotency = ? AND made_at > ?",
        (key_hash, mark.key_hash, moment - chosen.IDEMPOTENCY_SECONDS),
    ).fetchone()
    if row is None:
        return False
    mark.check_body(row[0])
    return bool(row[1] == HTTPStatus.OK)


def billed_part(connection: sqlite3.Connection, key_hash: bytes, mark: Mark | None, moment: float) -> int:
    """Return what was billed of this request when it was broken off, in thousandths of a character."""
    if mark is None:
        return 0
    row = connection.execute(
        "SELECT billed_millis FROM idempotency "
        "WHERE key_hash = ? AND idempotency = ? AND status = ? AND made_at > ?",
        (key_hash, mark.key_hash, HTTPStatus.PARTIAL_CONTENT, moment - chosen.IDEMPOTENCY_SECONDS),
    ).fetchone()
    return 0 if row is None else int(row[0])


def keep(
    connection: sqlite3.Connection,
    key_hash: bytes,
    mark: Mark,
    billed_millis: int,
    *,
    status: HTTPStatus = HTTPStatus.OK,
) -> None:
    """Record that this request was answered, or broken off, and what was billed of it in all."""
    connection.execute(
        "INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?, ?, ?, ?)",
        (key_hash, mark.key_hash, mark.body_hash, status, billed_millis, now()),
    )


def drop_old(connection: sqlite3.Connection) -> None:
    """Forget what is older than 24 hours."""
    connection.execute("DELETE FROM idempotency WHERE made_at <= ?", (now() - chosen.IDEMPOTENCY_SECONDS,))
