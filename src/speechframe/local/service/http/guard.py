"""Check and open connections to addresses that callers name, for a ``file_url`` or a webhook.

- The scheme is http or https, and the address contains no user name or password.
- The host is on the public Internet, unless the operator allows other hosts. Every IP address of the host is
  checked. The connection uses a checked IP address, even if the host name has changed its address since.
- A host name is resolved in a thread of the key that named the host, within a time limit.
- The connection uses no proxy and sends no cookies and no key of the service.
"""

import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from speechframe._version import __version__
from speechframe.local.service.http.threads import FairThreads
from speechframe.network.addresses import is_public
from speechframe.spec import chosen

_MAX_URL_CHARACTERS = 8192
"""Characters of the longest accepted address. Most web servers refuse longer ones."""
_CONNECT_TIMEOUT_S = 10.0
"""Seconds in which a connection must open."""
_PRIVATE_HOST_REASON = (
    "its host is not on the public Internet (the operator can allow that: --allow-private-urls)"
)
"""Reason for which a host outside the public Internet is refused."""

Address = IPv4Address | IPv6Address


class ForbiddenAddress(Exception):
    """The service refuses to connect to an address. The message is the reason, as the end of a sentence."""


class HostNotFound(ForbiddenAddress):
    """The host name was not resolved, or not in time. A later attempt may succeed."""


class _PinnedResolver(AbstractResolver):
    """A resolver for aiohttp that returns IP addresses that were checked before."""

    def __init__(self, addresses: tuple[Address, ...]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        del family
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        pass


def parse_url(text: str) -> URL:
    """Return an address that a caller gave as text, without its fragment.

    Raises
    ------
    Forbidden
        The text is too long, or :func:`check_url` refuses it.
    """
    if len(text) > _MAX_URL_CHARACTERS:
        raise ForbiddenAddress(f"it has more than {_MAX_URL_CHARACTERS:,} characters")
    try:
        # Keep the caller's quoting if possible, because new quoting breaks a signed address.
        plain = text.isascii() and text.isprintable() and " " not in text
        return check_url(URL(text, encoded=plain))
    except (ValueError, TypeError):
        raise ForbiddenAddress("it is not an address") from None


def check_url(url: URL) -> URL:
    """Return an address without its fragment.

    Raises
    ------
    Forbidden
        The address is not http or https, has no valid port, or contains a user name or password.
    """
    if url.scheme not in {"http", "https"} or not url.raw_host:
        raise ForbiddenAddress("it is not an http or https address")
    if url.raw_user is not None or url.raw_password is not None:
        raise ForbiddenAddress("it contains a user name or password")
    if url.port is None or url.port < 1:
        raise ForbiddenAddress("its port must be 1 to 65535")
    return url.with_fragment(None)


class Guard:
    """Opens connections to addresses that callers name, if the rules of this module allow them.

    Parameters
    ----------
    allow_private
        Whether connections to hosts outside the public Internet are allowed.
    lookup_s
        Seconds that the look-up of a host name may take, after it has waited at most as long for other
        look-ups of the key.
    """

    def __init__(self, *, allow_private: bool, lookup_s: float = chosen.MAX_LOOKUP_SECONDS) -> None:
        self._allow_private, self._lookup_s = allow_private, lookup_s
        # A name server that does not answer may block a thread for minutes. The process may end meanwhile.
        self._lookups = FairThreads(chosen.LOOKUPS_PER_KEY, lookup_s, is_left_at_end=True)

    async def resolve_addresses(self, key_hash: bytes, url: URL) -> tuple[Address, ...]:
        """Return the current IP addresses of a URL's host, if the service may connect to them.

        Parameters
        ----------
        key_hash
            Hash of the key that named the URL.
        url
            The URL, as :func:`parse_url` returns it.

        Raises
        ------
        NotFound
            The host name was not resolved, or not in time.
        Forbidden
            The host is not on the public Internet, or is an IP address in an unusual spelling.
        NoTurn
            Too many host names of this key are being looked up.
        """
        host = url.raw_host or ""
        found = _parse_literal(host) or await self._look_up(key_hash, host, url.port)
        if not self._allow_private:
            if not all(map(is_public, found)):
                raise ForbiddenAddress(_PRIVATE_HOST_REASON)
            if _is_unusual_spelling(host):
                # aiohttp resolves such a host itself, so it would not use the checked IP addresses.
                raise ForbiddenAddress("its host is an address in an unusual spelling")
        return found

    async def _look_up(self, key_hash: bytes, host: str, port: int | None) -> tuple[Address, ...]:
        threads = self._lookups.get_threads(key_hash)
        try:
            answers = await threads.run(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise HostNotFound(f"its host was not found within {self._lookup_s:g} s") from None
        except (OSError, UnicodeError):
            raise HostNotFound("its host cannot be found") from None
        return tuple(dict.fromkeys(_parse_address(str(answer[4][0])) for answer in answers))

    async def open_session(
        self, key_hash: bytes, url: URL, headers: Mapping[str, str]
    ) -> aiohttp.ClientSession:
        """Return a session that connects to the checked addresses of a URL's host. The caller must close it.

        Raises
        ------
        NotFound, Forbidden, NoTurn
            The same errors as :meth:`resolve_addresses`.
        """
        addresses = await self.resolve_addresses(key_hash, url)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=_PinnedResolver(addresses), use_dns_cache=False, force_close=True
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
            headers={"User-Agent": f"speechframe/{__version__}", **headers},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )


def _parse_address(text: str) -> Address:
    # Drop a scope such as "%eth0". It names a network interface, and does not change the kind of address.
    return ip_address(text.partition("%")[0])


def _parse_literal(host: str) -> tuple[Address, ...]:
    """Return the IP address that a host is written as, in a tuple. Return an empty tuple for a host name."""
    try:
        return (_parse_address(host),)
    except ValueError:
        return ()


def _is_unusual_spelling(host: str) -> bool:
    """Return True if a host looks like an IP address but is not in its usual spelling, such as 127.1."""
    if ":" not in host and not host.replace(".", "").isdigit():
        return False
    return not _parse_literal(host)
