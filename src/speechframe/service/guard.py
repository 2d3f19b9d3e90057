"""Where this service goes because somebody asked for it, and no further.

- http and https, no credentials in the address
- public addresses only, unless the operator allows others: every address of the name is looked at, and the
  connection goes to one of those, whatever the name resolves to by then
- no proxy, no cookies, no key of ours
"""

import asyncio
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from speechframe._addresses import is_public
from speechframe._version import __version__

__all__ = ["Forbidden", "Unresolved", "addresses_of", "allowed_addresses", "checked", "parsed", "session_to"]

_LONGEST_URL = 8192
_CONNECT_S = 10.0

Address = IPv4Address | IPv6Address


class Forbidden(Exception):
    """An address that is not visited; the words say why, as the end of a sentence."""


class Unresolved(Exception):
    """A name that has no address."""


class _Pinned(AbstractResolver):
    """Knows one host and the addresses it was seen to have."""

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


def parsed(words: str) -> URL:
    """Return the address that somebody wrote.

    Raises
    ------
    Forbidden
        For what is none, or has credentials in it.
    """
    if len(words) > _LONGEST_URL:
        raise Forbidden(f"it has more than {_LONGEST_URL:,} characters")
    try:
        # Taken as it is where it can be: a signed address that is quoted anew is another one.
        plain = words.isascii() and words.isprintable() and " " not in words
        return checked(URL(words, encoded=plain))
    except (ValueError, TypeError):
        raise Forbidden("it is no address") from None


def checked(url: URL) -> URL:
    """Return an address without its fragment, or raise :class:`Forbidden`."""
    if url.scheme not in {"http", "https"} or not url.raw_host:
        raise Forbidden("it is no http or https address")
    if url.raw_user is not None or url.raw_password is not None:
        raise Forbidden("it holds a user name or password")
    if url.port is None or url.port < 1:
        raise Forbidden("its port is none")
    return url.with_fragment(None)


async def addresses_of(host: str, port: int) -> tuple[Address, ...]:
    """Return every address of a name, or the one that a literal stands for, however it is written.

    Raises
    ------
    Unresolved
        When there is none.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unresolved from None
    # A scope ("%eth0") says where a link-local address lies, not what it is.
    addresses = tuple(dict.fromkeys(ip_address(str(there[4][0]).partition("%")[0]) for there in found))
    if not addresses:
        raise Unresolved
    return addresses


async def allowed_addresses(url: URL, *, allow_private: bool) -> tuple[Address, ...]:
    """Return the addresses that a connection may go to.

    Raises
    ------
    Forbidden
        When there is none, or one of them is not on the public Internet.
    """
    assert url.raw_host is not None  # noqa: S101 - checked
    assert url.port is not None  # noqa: S101 - same
    try:
        addresses = await addresses_of(url.raw_host, url.port)
    except Unresolved:
        raise Forbidden("its host cannot be found") from None
    if not allow_private:
        if not all(map(is_public, addresses)):
            raise Forbidden(
                "its host is not on the public Internet (the operator can allow that: --allow-private-urls)"
            )
        if _is_number(url.raw_host) and not _is_canonical(url.raw_host):
            # aiohttp hands a number over as it is, without asking for its address.
            raise Forbidden("its host is an address in an unusual spelling")
    return addresses


def _is_number(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _is_canonical(host: str) -> bool:
    try:
        return ip_address(host) is not None
    except ValueError:
        return False


def session_to(addresses: tuple[Address, ...], headers: Mapping[str, str]) -> aiohttp.ClientSession:
    """Return a session that connects to these addresses alone; to be closed by the caller."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=_Pinned(addresses), use_dns_cache=False, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        headers={"User-Agent": f"speechframe/{__version__}", **headers},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )
