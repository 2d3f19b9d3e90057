"""Audio that came as a URL: where it may be fetched from, and the fetching.

The rule, for the URL and for every redirect on the way:

- the key never goes along, to no host;
- https may go anywhere but to this machine, unless the service itself is on this machine;
- plain http may go only to the service's own host, and only where the service itself is spoken to in plain
  http, so that https is never undone;
- an address of a private network may be asked only where the service itself has such an address, and one of
  the link (where cloud machines ask for their own secrets) never;
- nothing but http(s), no user name in the address, at most 5 redirects.

``localhost``, ``127.0.0.1`` and ``::1`` are one host; ``127.0.0.2`` is another.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address

from yarl import URL

from speechframe._addresses import is_public, written_inside
from speechframe.client.exchange import Exchange, Reply
from speechframe.client.reading import Admit, CutOffError
from speechframe.errors import BadAnswer, ConnectionFailed
from speechframe.spec.codes import Status

__all__ = ["Downloader"]

MAX_REDIRECTS = 5
TRIES = 3
FIRST_WAIT_S = 0.2
_MAX_URL_CHARACTERS = 8000
_MAX_HOST_CHARACTERS = 253

# 203 is a 200 that a proxy has touched; 206 is a part, and 202, 204, 205 are none of the audio.
_WHOLE = frozenset({200, 203})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS: Mapping[str, str] = {"Accept": "*/*", "Accept-Encoding": "identity"}
_ONE_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_NUMBER = r"(?:0x[0-9a-f]*|[0-9]+)"
# The C library reads 2130706433, 0x7f.1 and 0177.1 as addresses too.
_DISGUISED = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}")


class Downloader:
    """Fetches audio of one service.

    Parameters
    ----------
    exchange
        What exchanges the bytes.
    addresses
        The service's own addresses.
    max_error_bytes
        What is read of an error answer.
    """

    def __init__(self, exchange: Exchange, addresses: Iterable[str], max_error_bytes: int) -> None:
        self._exchange = exchange
        self._max_error_bytes = max_error_bytes
        own = [URL(address) for address in addresses]
        hosts = [_bare(url.raw_host) for url in own]
        self._plain_hosts = frozenset(_machine(url.raw_host) for url in own if url.scheme == "http")
        self._on_this_machine = any(map(_is_this_machine, hosts))
        self._in_private = any(_is_private(host) and not _is_this_machine(host) for host in hosts)

    def checked(self, address: str, base: URL) -> URL:
        """Return the URL to fetch, spelled exactly as it was given: a signature covers the spelling.

        Parameters
        ----------
        address
            The URL in an answer, or the ``Location`` of a redirect; may be a path.
        base
            Where it came from.

        Raises
        ------
        BadAnswer
            When the rule of this module forbids it.
        """
        stripped = address.strip()
        if len(stripped) > _MAX_URL_CHARACTERS or not stripped.isprintable() or " " in stripped:
            raise BadAnswer("the audio's address is no URL")
        try:
            # Letters outside ASCII cannot go onto the wire as they are, so such a URL is not signed as it is.
            url = URL(stripped, encoded=stripped.isascii())
            url = url if url.scheme else base.join(url)
            self._refuse_foreign(url)
        except ValueError:
            raise BadAnswer("the audio's address is no URL") from None
        return url

    async def fetch(
        self, address: str, base: URL, *, timeout_s: float, max_bytes: int, admit: Admit | None = None
    ) -> bytes:
        """Return the bytes behind an address.

        A dropped connection, a truncated body, a 5xx, a 408 and a 429 are tried again by themselves, since
        fetching costs nothing and the call was paid for.

        Raises
        ------
        BadAnswer
            A forbidden address, too many redirects, an error status, nothing within `timeout_s`, too many
            bytes.
        """
        deadline_s = time.monotonic() + timeout_s
        url = self.checked(address, base)
        problem = f"no time was left of {timeout_s:g} s"
        for number in range(TRIES):
            if number:
                await asyncio.sleep(
                    min(FIRST_WAIT_S * 2 ** (number - 1), max(0.0, deadline_s - time.monotonic()))
                )
            if time.monotonic() >= deadline_s:
                break
            try:
                reply = await self._followed(url, deadline_s, max_bytes, admit)
            except (ConnectionFailed, CutOffError) as error:
                problem = str(error)
                continue
            if reply.status in _WHOLE:
                return reply.body
            problem = f"{url.host} answered {reply.status}"
            known = Status.of(reply.status)
            if not (known.retryable if known is not None else Status.is_gateways(reply.status)):
                break
        expired = " (the link may have expired)" if problem.endswith(("403", "404", "410")) else ""
        raise BadAnswer(f"the audio could not be fetched: {problem}{expired}")

    async def _followed(self, url: URL, deadline_s: float, max_bytes: int, admit: Admit | None) -> Reply:
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._exchange.ask(
                "GET",
                url,
                headers=_HEADERS,
                timeout_s=max(0.001, deadline_s - time.monotonic()),
                max_bytes=max_bytes,
                max_error_bytes=self._max_error_bytes,
                admit=admit,
            )
            target = reply.headers.get("Location")
            if reply.status not in _REDIRECTS or not target:
                return reply
            url = self.checked(target, url)
        raise BadAnswer(f"the audio could not be fetched: more than {MAX_REDIRECTS} redirects")

    def _refuse_foreign(self, url: URL) -> None:
        # As it goes onto the wire: letters of other scripts may become digits on the way.
        host = _bare(url.raw_host)
        if url.scheme not in {"http", "https"} or not host:
            raise BadAnswer("the audio's address is neither http nor https")
        if len(host) > _MAX_HOST_CHARACTERS:
            raise BadAnswer("the audio's address has a host with a name that is too long")
        if url.user is not None or url.password is not None:
            raise BadAnswer(f"the audio's address at {host} holds a user name")
        if _DISGUISED.fullmatch(host) and _address_of(host) is None:
            raise BadAnswer(f"the audio's address {host} is a number and no host")
        if url.scheme == "http" and _machine(host) not in self._plain_hosts:
            raise BadAnswer(
                f"the audio lies at {host} behind plain http, and that is not the service's own host"
            )
        if _is_this_machine(host) and not self._on_this_machine:
            raise BadAnswer("the audio's address points to this machine, and the service is elsewhere")
        if _is_private(host) and not _is_this_machine(host) and not self._is_in_reach(host):
            raise BadAnswer(f"the audio's address {host} is in a private network, and the service is not")
        if not url.port:
            raise BadAnswer("the audio's address is no URL")

    def _is_in_reach(self, host: str) -> bool:
        address = _address_of(host)
        is_link_local = address is not None and address.is_link_local
        return _machine(host) in self._plain_hosts or (self._in_private and not is_link_local)


def _bare(host: str | None) -> str:
    """Return a host in the spelling that is compared: lower case, without a final dot."""
    return (host or "").lower().rstrip(".")


def _machine(host: str | None) -> str:
    name = _bare(host)
    return "localhost" if name in _ONE_MACHINE else name


def _is_this_machine(host: str) -> bool:
    address = _address_of(host)
    if address is not None:
        return address.is_loopback or address.is_unspecified
    return host == "localhost" or host.endswith(".localhost")


def _is_private(host: str) -> bool:
    address = _address_of(host)
    return address is not None and not is_public(address)


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is, the inner one where IPv6 wraps IPv4; None for a name."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return written_inside(address) or address
