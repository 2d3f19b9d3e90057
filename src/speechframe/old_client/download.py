"""Audio that came as a URL: where it may be fetched from, and the fetching.

The rule, for the URL and for every redirect on the way:

- the key never goes along, to no host;
- https may go anywhere but to this machine, unless the service itself is on this machine;
- plain http may go only to the service's own host, and only where the service itself is spoken to in plain
  http, so that https is never undone;
- an address of a private network may be asked only where the service itself has such an address, and one of
  the link (where cloud machines ask for their own secrets) never;
- none of the ports that browsers refuse: behind them are programs that take orders, no web servers;
- nothing but http(s), no user name in the address, at most 5 redirects.

``localhost``, ``127.0.0.1`` and ``::1`` are one host; ``127.0.0.2`` is another.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping

from yarl import URL

from speechframe.errors import BadAnswer, ConnectionFailed
from speechframe.old_client._addresses import (
    MAX_HOST_CHARACTERS,
    REFUSED_PORTS,
    bare,
    is_disguised,
    is_link_local,
    is_private,
    is_this_machine,
    machine,
)
from speechframe.old_client.transport import Reply, Transport
from speechframe.spec.codes import Status

MAX_REDIRECTS = 5
TRIES = 3
FIRST_WAIT_S = 0.2
MAX_URL_CHARACTERS = 8000

# 203 is a 200 that a proxy has touched; 206 is a part, and 202, 204, 205 are none of the audio.
_WHOLE = frozenset({200, 203})
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
    max_error_bytes
        What is read of an error answer.
    """

    def __init__(self, transport: Transport, addresses: Iterable[str], max_error_bytes: int) -> None:
        self._transport = transport
        self._max_error_bytes = max_error_bytes
        own = [URL(address) for address in addresses]
        hosts = [bare(url.raw_host) for url in own]
        self._plain_hosts = frozenset(machine(url.raw_host) for url in own if url.scheme == "http")
        self._on_this_machine = any(map(is_this_machine, hosts))
        self._in_private = any(is_private(host) and not is_this_machine(host) for host in hosts)

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
            # Without a scheme, with a host or not, it is relative to where it came from.
            url = url if url.scheme else base.join(url)
            self._refuse_foreign(url)
        except ValueError:
            raise BadAnswer("the audio's address is no URL") from None
        return url

    async def fetch(self, address: str, base: URL, *, timeout_s: float, max_bytes: int) -> bytes:
        """Return the bytes behind an address.

        A dropped connection, a 5xx, a 408 and a 429 are tried again, since fetching costs nothing and the
        call was paid for.

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
                reply = await self._followed(url, deadline_s, max_bytes)
            except ConnectionFailed as error:
                problem = str(error)
                continue
            if reply.status in _WHOLE:
                return reply.body
            problem = f"{url.host} answered {reply.status}"
            if not _may_pass(reply.status):
                break
        expired = " (the link may have expired)" if problem.endswith(("403", "404", "410")) else ""
        raise BadAnswer(f"the audio could not be fetched: {problem}{expired}")

    async def _followed(self, url: URL, deadline_s: float, max_bytes: int) -> Reply:
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._transport.exchange(
                "GET",
                url,
                headers=_HEADERS,
                timeout_s=max(0.001, deadline_s - time.monotonic()),
                max_bytes=max_bytes,
                max_error_bytes=self._max_error_bytes,
            )
            target = reply.headers.get("Location")
            if reply.status not in _REDIRECTS or not target:
                return reply
            url = self.checked(target, url)
        raise BadAnswer(f"the audio could not be fetched: more than {MAX_REDIRECTS} redirects")

    def _refuse_foreign(self, url: URL) -> None:
        # As it goes onto the wire: letters of other scripts may become digits on the way.
        host = bare(url.raw_host)
        if url.scheme not in {"http", "https"} or not host:
            raise BadAnswer("the audio's address is neither http nor https")
        if len(host) > MAX_HOST_CHARACTERS:
            raise BadAnswer("the audio's address has a host with a name that is too long")
        if url.user is not None or url.password is not None:
            raise BadAnswer(f"the audio's address at {host} holds a user name")
        if is_disguised(host):
            raise BadAnswer(f"the audio's address {host} is a number and no host")
        if url.scheme == "http" and machine(host) not in self._plain_hosts:
            raise BadAnswer(
                f"the audio lies at {host} behind plain http, and that is not the service's own host"
            )
        if is_this_machine(host) and not self._on_this_machine:
            raise BadAnswer("the audio's address points to this machine, and the service is elsewhere")
        if is_private(host) and not is_this_machine(host) and not self._is_in_reach(host):
            raise BadAnswer(f"the audio's address {host} is in a private network, and the service is not")
        if url.port is None or url.port in REFUSED_PORTS:
            raise BadAnswer(f"the audio's address at {host} has port {url.port}, which is no web server's")

    def _is_in_reach(self, host: str) -> bool:
        return machine(host) in self._plain_hosts or (self._in_private and not is_link_local(host))


def _may_pass(status: int) -> bool:
    """Return whether it makes sense to ask again: gateways answer with statuses that the document lacks."""
    known = Status.of(status)
    return known.retryable if known is not None else Status.is_gateways(status)
