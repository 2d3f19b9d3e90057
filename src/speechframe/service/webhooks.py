"""Webhooks: delivered at least once, each with an id, signed, to where ``file_url`` may lead, too.

What is to be delivered is a row until it is answered with a 2xx status or was tried often enough. A row is
claimed by moving the moment it is due, so that one whose service dies is due again.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import secrets
import sqlite3
from dataclasses import dataclass, field

import aiohttp

from speechframe.service.config import ServiceConfig
from speechframe.service.database import Database, now
from speechframe.service.guard import Forbidden, allowed_addresses, parsed, session_to
from speechframe.settings.hidden import Hidden
from speechframe.spec import chosen

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


def signed(secret: str, body: bytes, timestamp: str) -> str:
    """Return the signature of a body at a time (``spec.chosen``: webhook).

    Examples
    --------
    >>> signed("secret", b"{}", "1700000000000")[:16]
    '73d57f048467f1f5'
    """
    return hmac.new(secret.encode(), body + b"." + timestamp.encode(), hashlib.sha256).hexdigest()


def pause_s(tries: int, seconds: float) -> float:
    """Return how long to wait after so many tries, each time twice as long; all of it takes `seconds`.

    Examples
    --------
    >>> [pause_s(tries, 600) for tries in (1, 2, 3, 4)]
    [40.0, 80.0, 160.0, 320.0]
    """
    return seconds * 2.0 ** (tries - 1) / (2.0 ** (chosen.WEBHOOK_TRIES - 1) - 1)


class Webhooks:
    """Delivers what is due.

    Parameters
    ----------
    config
        Holds ``webhook_seconds`` and ``allow_private_urls``.
    database
        Where it stands.
    """

    def __init__(self, config: ServiceConfig, database: Database) -> None:
        self._config = config
        self._answer_s = min(_ANSWER_S, config.webhook_seconds / chosen.WEBHOOK_TRIES)
        self._database = database
        self._added = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Say that there may be something to deliver."""
        self._added.set()

    async def run(self) -> None:
        """Deliver for ever; cancelled, what is under way is due again later."""
        try:
            while True:
                self._added.clear()
                try:
                    due, next_s = await self._database.run(self._claim)
                except sqlite3.Error:
                    log.exception("webhooks cannot be read; this is tried again")
                    due, next_s = [], _LOOK_S
                for webhook in due:
                    task = asyncio.create_task(self._deliver(webhook))
                    self._under_way.add(task)
                    task.add_done_callback(self._done)
                # Not wait_for, which before Python 3.12 can overlook that it is cancelled.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(next_s):
                        await self._added.wait()
        finally:
            for task in self._under_way:
                task.cancel()

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a webhook could not be looked after and is due again later: %s", error)

    def _claim(self, connection: sqlite3.Connection) -> tuple[list[_Webhook], float]:
        """Return what is due, and the seconds until the next look."""
        moment, room = now(), _AT_ONCE - len(self._under_way)
        rows = connection.execute(
            "UPDATE webhooks SET tries = tries + 1, due_at = ? WHERE id IN "
            "(SELECT id FROM webhooks WHERE due_at <= ? ORDER BY due_at LIMIT ?) "
            "RETURNING id, url, secret, body, tries",
            (moment + 2 * self._answer_s, moment, room),
        ).fetchall()
        due_at = connection.execute("SELECT MIN(due_at) FROM webhooks").fetchone()[0]
        # Without room the next look is when one of those under way is done.
        next_s = _LOOK_S if due_at is None or len(rows) == room else due_at - moment
        return [_Webhook(*row) for row in rows], min(max(0.0, next_s), _LOOK_S)

    async def _deliver(self, webhook: _Webhook) -> None:
        problem = await self._problem(webhook)
        if problem is None or webhook.tries >= chosen.WEBHOOK_TRIES:
            if problem is not None:
                log.warning("webhook %s is given up: %s", webhook.id, problem)
            await self._database.run(lambda c: c.execute("DELETE FROM webhooks WHERE id = ?", (webhook.id,)))
            return
        log.info("webhook %s, try %d: %s", webhook.id, webhook.tries, problem)
        due_at = now() + pause_s(webhook.tries, self._config.webhook_seconds)
        await self._database.run(
            lambda c: c.execute("UPDATE webhooks SET due_at = ? WHERE id = ?", (due_at, webhook.id))
        )

    async def _problem(self, webhook: _Webhook) -> str | None:
        """Send it; return why it was not taken."""
        try:
            async with asyncio.timeout(self._answer_s):
                url = parsed(webhook.url)
                addresses = await allowed_addresses(url, allow_private=self._config.allow_private_urls)
                async with (
                    session_to(addresses, _headers(webhook)) as session,
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
        headers[chosen.WEBHOOK_SIGNATURE_HEADER] = signed(Hidden(webhook.secret), webhook.body, timestamp)
    return headers
