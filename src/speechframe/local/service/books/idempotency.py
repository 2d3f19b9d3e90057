"""Records of the ``Idempotency-Key`` header: repeats of a request are billed once within 24 hours.

A record contains hashes of key and body, and the amount billed so far. A repeat owes its price less this
amount: nothing after a complete answer, and the rest after a stream that was broken off. Errors are not
recorded, so a repeat of a failed request owes the whole price.

A record never contains text or audio (zero retention). So the service synthesises a repeat again, which gives
the same bytes.
"""

import hmac
import sqlite3
from dataclasses import dataclass
from http import HTTPStatus

from speechframe.local.service.books.database import now
from speechframe.spec import chosen

# Status in every record. Services of an earlier layout read it. With 206 they bill a repeat as this one does.
_STATUS = HTTPStatus.PARTIAL_CONTENT


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


def find_billed_millis(connection: sqlite3.Connection, key_hash: bytes, mark: IdempotencyMark | None) -> int:
    """Return the amount that was billed for this request in the last 24 hours, in thousandths of a character.

    Return 0 for a request without an idempotency key.

    Raises
    ------
    BodyMismatch
        The idempotency key belongs to a request with another body.
    """
    if mark is None:
        return 0
    row = connection.execute(
        "SELECT body_hash, billed_millis FROM idempotency "
        "WHERE key_hash = ? AND idempotency = ? AND made_at > ?",
        (key_hash, mark.key_hash, now() - chosen.IDEMPOTENCY_SECONDS),
    ).fetchone()
    if row is None:
        return 0
    mark.check_body(row[0])
    return int(row[1])


def record_billed(
    connection: sqlite3.Connection, key_hash: bytes, mark: IdempotencyMark, billed_millis: int
) -> None:
    """Record the amount that was billed for a request so far."""
    connection.execute(
        "INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?, ?, ?, ?)",
        (key_hash, mark.key_hash, mark.body_hash, _STATUS, billed_millis, now()),
    )


def remove_old(connection: sqlite3.Connection) -> None:
    """Remove the records that are older than 24 hours."""
    connection.execute("DELETE FROM idempotency WHERE made_at <= ?", (now() - chosen.IDEMPOTENCY_SECONDS,))
