"""Deliver webhooks at least once, signed and with an id, to addresses that :class:`Guard` allows.

A webhook is stored as a row until a receiver answers with a 2xx status, or until all attempts have failed.
Before a service process sends a webhook, it moves the due time of the row into the future, so no other
process sends it meanwhile. If the process dies, the row is due again at that time.

Keys take turns. Each key has a bounded number of deliveries at the same time. So receivers that never answer
delay only the webhooks of their own key.
"""

import asyncio
import json
import logging
import secrets
import sqlite3
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field

import aiohttp

from speechframe.local.service.background import Background
from speechframe.local.service.books.database import Database, now
from speechframe.local.service.books.unreadable import SkippedRecords, UnreadableRecord
from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.http.guard import ForbiddenAddress, Guard, parse_url
from speechframe.local.service.http.threads import NoFreeThread
from speechframe.settings.hidden import Hidden
from speechframe.spec import chosen
from speechframe.wire.dubbing import compute_webhook_signature

log = logging.getLogger("speechframe.service")

_MAX_ANSWER_S = 10.0
"""Longest time in seconds that a receiver may take for its answer."""
_MAX_DELIVERIES = 16 * chosen.WEBHOOKS_PER_KEY
"""Largest number of deliveries of all keys at the same time."""
_SEARCH_INTERVAL_S = 5.0
"""Seconds between two searches for due webhooks."""
_OK_STATUSES = range(200, 300)
"""Statuses with which a receiver confirms a webhook."""


@dataclass(frozen=True)
class _Webhook:
    id: str
    key_hash: bytes
    url: str
    secret: str | None = field(repr=False)
    body: bytes = field(repr=False)
    tries: int


def add_webhook(
    connection: sqlite3.Connection, key_hash: bytes, url: str, secret: str | None, body: bytes
) -> None:
    """Add a webhook of a key, due now, as a step of a transaction. None as secret sends it unsigned."""
    connection.execute(
        "INSERT INTO webhooks (id, key_hash, url, secret, body, tries, due_at) VALUES (?, ?, ?, ?, ?, 0, ?)",
        (secrets.token_hex(16), key_hash, url, secret, body, now()),
    )


def compute_pause_s(tries: int, seconds: float) -> float:
    """Return the pause in seconds after the attempt number `tries`. The first attempt is number 1.

    Each pause is twice the one before. The sum of all pauses is `seconds`.

    Examples
    --------
    >>> [compute_pause_s(tries, 600) for tries in (1, 2, 3, 4)]
    [40.0, 80.0, 160.0, 320.0]
    """
    return seconds * 2.0 ** (tries - 1) / (2.0 ** (chosen.MAX_WEBHOOK_TRIES - 1) - 1)


class Webhooks(Background):
    """Delivers the webhooks that are due.

    Parameters
    ----------
    config
        Contains ``webhook_s`` and ``allow_private_urls``.
    database
        Contains the webhooks.
    """

    def __init__(self, config: ServiceConfig, database: Database) -> None:
        super().__init__(_MAX_DELIVERIES, _SEARCH_INTERVAL_S)
        self._skipped = SkippedRecords()
        self._config = config
        self._answer_s = min(_MAX_ANSWER_S, config.webhook_s / chosen.MAX_WEBHOOK_TRIES)
        self._database = database
        # A separate guard has separate look-up threads, so slow look-ups for media files delay no webhook.
        self._guard = Guard(allow_private=config.allow_private_urls)
        self._of_keys: Counter[bytes] = Counter()

    async def find_work(self) -> Coroutine[None, None, None] | None:
        """Return a coroutine that delivers the next webhook, or None if none may be delivered now."""
        # Search by a read first, because mostly nothing is due, and a read does not wait for writers.
        if await self._database.read(self._find_next_key) is None:
            return None
        webhook = await self._database.run(self._claim_webhook)
        if webhook is None:
            return None
        self._of_keys[webhook.key_hash] += 1
        return self._deliver_counted(webhook)

    def _find_next_key(self, connection: sqlite3.Connection) -> bytes | None:
        """Return the hash of the key with due webhooks that has the fewest deliveries under way.

        Among equals, return the key whose webhook was due first. Return None if no webhook is due, or all of
        these keys have as many deliveries as they may.
        """
        rows = connection.execute(
            "SELECT key_hash, MIN(due_at) FROM webhooks WHERE due_at <= ? "
            "AND id NOT IN (SELECT value FROM json_each(?)) GROUP BY key_hash",
            (now(), json.dumps(self._skipped.names)),
        )
        turns = [(self._of_keys[bytes(key_hash)], due_at, bytes(key_hash)) for key_hash, due_at in rows]
        fewest, _, key_hash = min(turns, default=(chosen.WEBHOOKS_PER_KEY, 0.0, b""))
        return key_hash if fewest < chosen.WEBHOOKS_PER_KEY else None

    def _claim_webhook(self, connection: sqlite3.Connection) -> _Webhook | None:
        key_hash = self._find_next_key(connection)
        row = connection.execute(
            "UPDATE webhooks SET tries = tries + 1, due_at = ?1 + ?2 WHERE id = "
            "(SELECT id FROM webhooks WHERE key_hash = ?3 AND due_at <= ?1 "
            "AND id NOT IN (SELECT value FROM json_each(?4)) ORDER BY due_at LIMIT 1) "
            "RETURNING id, key_hash, url, secret, body, tries",
            (now(), 2 * self._answer_s, key_hash, json.dumps(self._skipped.names)),
        ).fetchone()
        return _Webhook(*row) if row else None

    async def _deliver_counted(self, webhook: _Webhook) -> None:
        try:
            await self._deliver(webhook)
        finally:
            self._of_keys[webhook.key_hash] -= 1
            self._of_keys += Counter()

    async def _deliver(self, webhook: _Webhook) -> None:
        try:
            problem = await self._send(webhook)
        except (TypeError, AttributeError, LookupError) as error:
            self._skipped.add(UnreadableRecord("webhook", webhook.id, type(error).__name__))
            return
        if problem is None or webhook.tries >= chosen.MAX_WEBHOOK_TRIES:
            if problem is not None:
                log.warning("webhook %s is given up: %s", webhook.id, problem)
            await self._database.run(lambda c: c.execute("DELETE FROM webhooks WHERE id = ?", (webhook.id,)))
            return
        log.info("webhook %s, try %d: %s", webhook.id, webhook.tries, problem)
        wait_s = compute_pause_s(webhook.tries, self._config.webhook_s)
        await self._database.run(
            lambda c: c.execute("UPDATE webhooks SET due_at = ? WHERE id = ?", (now() + wait_s, webhook.id))
        )
        asyncio.get_running_loop().call_later(wait_s, self.wake)

    async def _send(self, webhook: _Webhook) -> str | None:
        """Send a webhook. Return None if the receiver confirmed it, otherwise the reason why not."""
        try:
            async with asyncio.timeout(self._answer_s):
                url = parse_url(webhook.url)
                async with (
                    await self._guard.open_session(webhook.key_hash, url, _build_headers(webhook)) as session,
                    session.post(url, data=webhook.body, allow_redirects=False) as answer,
                ):
                    status = answer.status
        except ForbiddenAddress as forbidden:
            return str(forbidden)
        except NoFreeThread:
            return "too many host names of its key are being looked up"
        except (TimeoutError, OSError, aiohttp.ClientError, ValueError) as error:
            return type(error).__name__
        return None if status in _OK_STATUSES else f"status {status}"


def _build_headers(webhook: _Webhook) -> dict[str, str]:
    headers = {"Content-Type": "application/json", chosen.WEBHOOK_ID_HEADER: webhook.id}
    if webhook.secret is not None:
        timestamp = str(int(now() * 1000))
        headers[chosen.WEBHOOK_TIMESTAMP_HEADER] = timestamp
        headers[chosen.WEBHOOK_SIGNATURE_HEADER] = compute_webhook_signature(
            Hidden(webhook.secret), webhook.body, timestamp.encode()
        )
    return headers
