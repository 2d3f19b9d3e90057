"""Webhooks: delivered at least once, each with an id, signed, to where ``file_url`` may lead, too.

What is to be delivered is a row until it is answered with a 2xx status or was tried often enough. A row is
claimed by moving the moment it is due, so that one whose service dies is due again.
"""

import asyncio
import json
import logging
import secrets
import sqlite3
from collections.abc import Coroutine
from dataclasses import dataclass, field

import aiohttp

from speechframe.service.background import Background
from speechframe.service.config import ServiceConfig
from speechframe.service.database import Database, now
from speechframe.service.guard import Forbidden, parsed, session_to
from speechframe.service.unreadable import Skipped, Unreadable
from speechframe.settings.hidden import Hidden
from speechframe.spec import chosen
from speechframe.wire.dubbing import webhook_signature

log = logging.getLogger("speechframe.service")

_ANSWER_S = 10.0
"""The longest a receiver may take."""
_AT_ONCE = 8
_LOOK_S = 5.0
_OK = range(200, 300)


@dataclass(frozen=True)
class _Webhook:
    id: str
    url: str
    secret: str | None = field(repr=False)
    body: bytes = field(repr=False)
    tries: int


def add(connection: sqlite3.Connection, url: str, secret: str | None, body: bytes) -> None:
    """Have something delivered; a step of a transaction."""
    connection.execute(
        "INSERT INTO webhooks VALUES (?, ?, ?, ?, 0, ?)", (secrets.token_hex(16), url, secret, body, now())
    )


def pause_s(tries: int, seconds: float) -> float:
    """Return how long to wait after so many tries, each time twice as long; all of it takes `seconds`.

    Examples
    --------
    >>> [pause_s(tries, 600) for tries in (1, 2, 3, 4)]
    [40.0, 80.0, 160.0, 320.0]
    """
    return seconds * 2.0 ** (tries - 1) / (2.0 ** (chosen.WEBHOOK_TRIES - 1) - 1)


class Webhooks(Background):
    """Delivers what is due.

    Parameters
    ----------
    config
        Holds ``webhook_seconds`` and ``allow_private_urls``.
    database
        Where it stands.
    """

    def __init__(self, config: ServiceConfig, database: Database) -> None:
        super().__init__(_AT_ONCE, _LOOK_S)
        self._skipped = Skipped()
        self._config = config
        self._answer_s = min(_ANSWER_S, config.webhook_seconds / chosen.WEBHOOK_TRIES)
        self._database = database

    async def take(self) -> Coroutine[None, None, None] | None:
        """Return the delivery of one that is due."""
        webhook = await self._database.run(self._claim)
        return self._deliver(webhook) if webhook is not None else None

    def _claim(self, connection: sqlite3.Connection) -> _Webhook | None:
        row = connection.execute(
            "UPDATE webhooks SET tries = tries + 1, due_at = ?1 + ?2 WHERE id = "
            "(SELECT id FROM webhooks WHERE due_at <= ?1 AND id NOT IN (SELECT value FROM json_each(?3)) "
            "ORDER BY due_at LIMIT 1) RETURNING id, url, secret, body, tries",
            (now(), 2 * self._answer_s, json.dumps(self._skipped.names)),
        ).fetchone()
        return _Webhook(*row) if row else None

    async def _deliver(self, webhook: _Webhook) -> None:
        try:
            problem = await self._problem(webhook)
        except (TypeError, AttributeError, LookupError) as error:
            self._skipped.add(Unreadable("webhook", webhook.id, type(error).__name__))
            return
        if problem is None or webhook.tries >= chosen.WEBHOOK_TRIES:
            if problem is not None:
                log.warning("webhook %s is given up: %s", webhook.id, problem)
            await self._database.run(lambda c: c.execute("DELETE FROM webhooks WHERE id = ?", (webhook.id,)))
            return
        log.info("webhook %s, try %d: %s", webhook.id, webhook.tries, problem)
        wait_s = pause_s(webhook.tries, self._config.webhook_seconds)
        await self._database.run(
            lambda c: c.execute("UPDATE webhooks SET due_at = ? WHERE id = ?", (now() + wait_s, webhook.id))
        )
        asyncio.get_running_loop().call_later(wait_s, self.wake)

    async def _problem(self, webhook: _Webhook) -> str | None:
        """Send it; return why it was not taken."""
        try:
            async with asyncio.timeout(self._answer_s):
                url, is_free = parsed(webhook.url), self._config.allow_private_urls
                async with (
                    await session_to(url, _headers(webhook), allow_private=is_free) as session,
                    session.post(url, data=webhook.body, allow_redirects=False) as answer,
                ):
                    status = answer.status
        except Forbidden as forbidden:
            return str(forbidden)
        except (TimeoutError, OSError, aiohttp.ClientError, ValueError) as error:
            return type(error).__name__
        return None if status in _OK else f"status {status}"


def _headers(webhook: _Webhook) -> dict[str, str]:
    headers = {"Content-Type": "application/json", chosen.WEBHOOK_ID_HEADER: webhook.id}
    if webhook.secret is not None:
        timestamp = str(int(now() * 1000))
        headers[chosen.WEBHOOK_TIMESTAMP_HEADER] = timestamp
        headers[chosen.WEBHOOK_SIGNATURE_HEADER] = webhook_signature(
            Hidden(webhook.secret), webhook.body, timestamp.encode()
        )
    return headers
