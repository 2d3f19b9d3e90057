"""Records of the ``Idempotency-Key`` header: repeats of a request are billed once within 24 hours.

A record contains hashes of key and body, the status, and the billed amount. It never contains text or audio
(zero retention). So the service synthesises a repeat again, which gives the same bytes. Errors are not
recorded, so a repeat of a failed request is a new request. If a stream was broken off, the record has the
status 206 and the billed part. A repeat is then billed only for the rest.
"""

import hmac
import sqlite3
from dataclasses import dataclass
from http import HTTPStatus

from speechframe.local.service.books.database import now
from speechframe.spec import chosen


class BodyMismatch(Exception):
    """The idempotency key belongs to a request with another body."""


@dataclass(frozen=True)
class IdempotencyMark:
    """Hashes of a request's idempotency key and of its body. A key may only be used again with this body.

    Parameters
    ----------
    key_hash
        Hash of the ``Idempotency-Key`` header.
    body_hash
        Hash of the operation, the request in canonical form, and the take (the number of the reading of the
        same text).
    """

    key_hash: bytes
    body_hash: bytes

    def check_body(self, body_hash: bytes) -> None:
        """Raise :class:`BodyMismatch` unless the key is bound to this body."""
        if not hmac.compare_digest(self.body_hash, body_hash):
            raise BodyMismatch


def is_billed(connection: sqlite3.Connection, key_hash: bytes, mark: IdempotencyMark, moment: float) -> bool:
    """Return True if this request was answered in full and billed in the 24 hours before `moment`.

    Raises
    ------
    OtherBody
        The idempotency key belongs to a request with another body.
    """
    row = connection.execute(
        "SELECT body_hash, status FROM idempotency WHERE key_hash = ? AND idempotency = ? AND made_at > ?",
        (key_hash, mark.key_hash, moment - chosen.IDEMPOTENCY_SECONDS),
    ).fetchone()
    if row is None:
        return False
    mark.check_body(row[0])
    return bool(row[1] == HTTPStatus.OK)


def find_billed_part_millis(
    connection: sqlite3.Connection, key_hash: bytes, mark: IdempotencyMark | None, moment: float
) -> int:
    """Return the amount that was billed when this request was broken off, in thousandths of a character.

    Return 0 if the request was not broken off in the 24 hours before `moment`, or has no idempotency key.
    """
    if mark is None:
        return 0
    row = connection.execute(
        "SELECT billed_millis FROM idempotency "
        "WHERE key_hash = ? AND idempotency = ? AND status = ? AND made_at > ?",
        (key_hash, mark.key_hash, HTTPStatus.PARTIAL_CONTENT, moment - chosen.IDEMPOTENCY_SECONDS),
    ).fetchone()
    return 0 if row is None else int(row[0])


def record_answer(
    connection: sqlite3.Connection,
    key_hash: bytes,
    mark: IdempotencyMark,
    billed_millis: int,
    *,
    status: HTTPStatus = HTTPStatus.OK,
) -> None:
    """Record the status of a request, and the amount that was billed for it so far.

    `status` is 200 for a complete answer, and 206 for one that was broken off.
    """
    connection.execute(
        "INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?, ?, ?, ?)",
        (key_hash, mark.key_hash, mark.body_hash, status, billed_millis, now()),
    )


def remove_old(connection: sqlite3.Connection) -> None:
    """Remove the records that are older than 24 hours."""
    connection.execute("DELETE FROM idempotency WHERE made_at <= ?", (now() - chosen.IDEMPOTENCY_SECONDS,))
