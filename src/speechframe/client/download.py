"""Audio that came as a URL: where it may be fetched from, and the fetching.

The rule, for the URL and for every redirect on the way:

- the key never goes along, to no host;
- https may go anywhere but to this machine, unless the service itself is on this machine;
- plain http may go only to the service's own host (any port), and only where the service itself is spoken
  to in
  plain http, so that https is never undone;
- nothing but http(s), no user name in the address, at most 5 redirects.

``localhost``, ``127.0.0.1`` and ``::1`` are one host; ``127.0.0.2`` is another.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping

from yarl import URL

from speechframe.client.limits import Bounds
from speechframe.client.transport import Reply, Transport
from speechframe.errors import BadAnswer, ConnectionFailed
from speechframe.settings import is_loopback
from speechframe.spec.codes import Status

MAX_REDIRECTS = 5
TRIES = 3
FIRST_WAIT_S = 0.2
MAX_URL_CHARACTERS = 8000

_ONE_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS: Mapping[str, str] = {"Accept": "*/*", "Accept-Encoding": "identity"}


class Downloader:
    """Fetches audio of one service.

    Parameters
    ----------
    transport
        What exchanges the bytes.
    addresses
        The service's own addresses.
    bounds
        The largest audio, in bytes.
    """

    def __init__(self, transport: Transport, addresses: Iterable[str], bounds: Bounds) -> None:
        self._transport = transport
        self._bounds = bounds
        own = [URL(address) for address in addresses]
        self._plain_hosts = frozenset(_machine(url.host) for url in own if url.scheme == "http")
        self._on_this_machine = any(is_loopback(url.host) for url in own)

    def checked(self, address: str, base: URL) -> URL:
        """Return the URL to fetch, spelled exactly as it was given: a signature covers the spelling.

        Parameters
        ----------
        address
            The ``audioFile`` of an answer, or the ``Location`` of a redirect; may be a path.
        base
            Where it came from.

        Raises
        ------
        BadAnswer
            When the rule of this module forbids it.
        """
        stripped = address.strip()
        if len(stripped) > MAX_URL_CHARACTERS or not stripped.isprintable() or " " in stripped:
            raise BadAnswer("the audio's address is no URL")
        try:
            # Letters outside ASCII cannot go onto the wire as they are, so such a URL cannot be signed as
            # it is.
            url = URL(stripped, encoded=stripped.isascii())
            url = url if url.scheme or url.host else base.join(url)
            self._refuse_foreign(url)
        except ValueError:
            raise BadAnswer("the audio's address is no URL") from None
        return url

    async def fetch(self, address: str, base: URL, *, timeout_s: float) -> bytes:
        """Return the bytes behind an address.

        A dropped connection and a 5xx are tried again, since fetching costs nothing and the call was paid
        for.

        Raises
        ------
        BadAnswer
            A forbidden address, too many redirects, an error status, nothing within `timeout_s`, too many
            bytes.
        """
        deadline_s = time.monotonic() + timeout_s
        url = self.checked(address, base)
        problem = ""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(FIRST_WAIT_S * 2 ** (number - 1))
            if time.monotonic() >= deadline_s:
                break
            try:
                reply = await self._followed(url, deadline_s)
            except ConnectionFailed as error:
                problem = str(error)
                continue
            if reply.ok:
                return reply.body
            problem = f"{url.host} answered {reply.status}"
            known = Status.of(reply.status)
            if known is None or not known.retryable:
                break
        expired = " (the link may have expired)" if problem.endswith(("403", "404", "410")) else ""
        raise BadAnswer(f"the audio could not be fetched: {problem}{expired}")

    async def _followed(self, url: URL, deadline_s: float) -> Reply:
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._transport.exchange(
                "GET",
                url,
                headers=_HEADERS,
                timeout_s=max(0.001, deadline_s - time.monotonic()),
                max_bytes=self._bounds.download_bytes,
                max_error_bytes=self._bounds.error_bytes,
            )
            target = reply.headers.get("Location")
            if reply.status not in _REDIRECTS or not target:
                return reply
            url = self.checked(target, url)
        raise BadAnswer(f"the audio could not be fetched: more than {MAX_REDIRECTS} redirects")

    def _refuse_foreign(self, url: URL) -> None:
        host = url.host
        if url.scheme not in {"http", "https"} or not host:
            raise BadAnswer("the audio's address is neither http nor https")
        if url.user is not None or url.password is not None:
            raise BadAnswer(f"the audio's address at {host} holds a user name")
        if url.scheme == "http" and _machine(host) not in self._plain_hosts:
            raise BadAnswer(
                f"the audio lies at {host} behind plain http, and that is not the service's own host"
            )
        if is_loopback(host) and not self._on_this_machine:
            raise BadAnswer("the audio's address points to this machine, and the service is elsewhere")


def _machine(host: str | None) -> str:
    return "localhost" if host in _ONE_MACHINE else (host or "").lower()
