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

__all__ = ["Forbidden", "checked", "parsed", "session_to"]

_LONGEST_URL = 8192
_CONNECT_S = 10.0

Address = IPv4Address | IPv6Address


class Forbidden(Exception):
    """An address that is not visited; the words say why, as the end of a sentence."""


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


async def session_to(url: URL, headers: Mapping[str, str], *, allow_private: bool) -> aiohttp.ClientSession:
    """Return a session that connects to the addresses that a URL's host has now; to be closed by the caller.

    Raises
    ------
    Forbidden
        When the host has no address, or one that is not on the public Internet.
    """
    host = url.raw_host or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, url.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Forbidden("its host cannot be found") from None
    # A scope ("%eth0") says where a link-local address lies, not what it is.
    addresses = tuple(dict.fromkeys(ip_address(str(there[4][0]).partition("%")[0]) for there in found))
    if not allow_private:
        if not all(map(is_public, addresses)):
            raise Forbidden(
                "its host is not on the public Internet (the operator can allow that: --allow-private-urls)"
            )
        if _is_unusual(host):
            # aiohttp hands a number over as it is, without asking for its address.
            raise Forbidden("its host is an address in an unusual spelling")
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=_Pinned(addresses), use_dns_cache=False, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        headers={"User-Agent": f"speechframe/{__version__}", **headers},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


def _is_unusual(host: str) -> bool:
    """Return whether a host is a number that is no address as it is usually written."""
    if ":" not in host and not host.replace(".", "").isdigit():
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False
