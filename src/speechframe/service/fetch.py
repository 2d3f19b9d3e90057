"""``file_url``: a medium fetched for somebody, from where that somebody may go too.

- http and https, no credentials in the address
- public addresses only, unless the operator allows others: every address of the name is looked at, and the
  connection goes to one of those, whatever the name resolves to by then
- at most five redirects, each looked at in the same way
- size, pauses and time on the whole are bounded, of what is unpacked as of what is sent
- no proxy, no cookies, no key of ours; what goes wrong is told by its kind, never by what was found there
"""

import asyncio
import contextlib
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NoReturn

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from speechframe._addresses import is_public
from speechframe._version import __version__
from speechframe.service.answers import Refusal
from speechframe.service.config import MEBI, ServiceConfig
from speechframe.service.uploads import NotKept, Pace, Receiver, TooLarge, TooSlow, Upload
from speechframe.spec.chosen import MAX_REDIRECTS
from speechframe.spec.codes import HttpErrorCode, Status

__all__ = ["Unresolved", "addresses_of", "fetched"]

_FIELD = "file_url"
_LONGEST_URL = 8192
_CONNECT_S = 10.0
_BLOCK_BYTES = 1 << 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "Accept": "audio/*, video/*;q=0.9, */*;q=0.5",
    # What is unpacked here is unpacked in bounded pieces; it is better not packed.
    "Accept-Encoding": "identity",
    "User-Agent": f"speechframe/{__version__}",
}
# zlib's way to say: gzip or zlib, look which.
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


Address = IPv4Address | IPv6Address


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


async def fetched(url_words: str, config: ServiceConfig, path: Path) -> Upload:
    """Fetch a medium into a file.

    Parameters
    ----------
    url_words
        The value of ``file_url``.
    config
        Holds ``max_upload_bytes``, ``body_timeout_s`` (the longest pause) and ``allow_private_urls``.
    path
        A name that :meth:`~speechframe.service.uploads.Uploads.lent` lent.

    Raises
    ------
    Refusal
        400 for an address that may not be visited, or that nothing can be fetched from: the kind of failure;
        500 where what is there cannot be kept, on a full disk for instance.
    """
    url = _parsed(url_words)
    with _refusals(config), contextlib.closing(Receiver(path, config.max_upload_bytes)) as receiver:
        for _ in range(MAX_REDIRECTS + 1):
            pace = Pace(config.body_timeout_s)
            async with pace.kept():
                addresses = await _allowed_addresses(url, config)
            onward = await _visited(url, addresses, receiver, pace)
            if onward is None:
                return await receiver.finish()
            url = _redirected(url, onward)
    raise _refusal(f"it is redirected more than {MAX_REDIRECTS} times")


def _parsed(words: str) -> URL:
    if len(words) > _LONGEST_URL:
        _refuse(f"it has more than {_LONGEST_URL:,} characters")
    try:
        # Taken as it is where it can be: a signed address that is quoted anew is another one.
        plain = words.isascii() and words.isprintable() and " " not in words
        return _checked(URL(words, encoded=plain))
    except (ValueError, TypeError):
        _refuse("it is no address")


def _redirected(url: URL, location: str) -> URL:
    try:
        return _checked(url.join(URL(location, encoded=True)))
    except (ValueError, TypeError):
        _refuse("it is redirected to what is no address")


def _checked(url: URL) -> URL:
    if url.scheme not in {"http", "https"} or not url.raw_host:
        _refuse("it is no http or https address")
    if url.raw_user is not None or url.raw_password is not None:
        _refuse("it holds a user name or password")
    if url.port is None or url.port < 1:
        _refuse("its port is none")
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


async def _allowed_addresses(url: URL, config: ServiceConfig) -> tuple[Address, ...]:
    assert url.raw_host is not None  # noqa: S101 - checked
    assert url.port is not None  # noqa: S101 - same
    try:
        addresses = await addresses_of(url.raw_host, url.port)
    except Unresolved:
        _refuse("its host cannot be found")
    if not config.allow_private_urls:
        if not all(map(is_public, addresses)):
            _refuse(
                "its host is not on the public Internet (the operator can allow that: --allow-private-urls)"
            )
        if _is_number(url.raw_host) and not _is_canonical(url.raw_host):
            # aiohttp hands a number over as it is, without asking for its address.
            _refuse("its host is an address in an unusual spelling")
    return addresses


def _is_number(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _is_canonical(host: str) -> bool:
    try:
        return ip_address(host) is not None
    except ValueError:
        return False


async def _visited(url: URL, addresses: tuple[Address, ...], receiver: Receiver, pace: Pace) -> str | None:
    """Receive what is at an address; return where it is redirected to, if it is."""
    connector = aiohttp.TCPConnector(resolver=_Pinned(addresses), use_dns_cache=False, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
    session = aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        headers=_HEADERS,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )
    async with session, contextlib.AsyncExitStack() as stack:
        async with pace.kept():
            answer = await stack.enter_async_context(session.get(url, allow_redirects=False))
        if answer.status in _REDIRECTS and "Location" in answer.headers:
            return answer.headers["Location"]
        if answer.status != Status.OK:
            _refuse(f"its host answered with status {answer.status}")
        receiver.check(answer.content_length or 0)
        async for data in _unpacked(answer, pace):
            await receiver.write(data)
    return None


async def _unpacked(answer: aiohttp.ClientResponse, pace: Pace) -> AsyncIterator[bytes]:
    encoding = answer.headers.get("Content-Encoding", "identity").strip().casefold()
    if encoding in {"", "identity"}:
        async for data in _pieces(answer, pace):
            yield data
    elif encoding in {"gzip", "x-gzip", "deflate"}:
        unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
        async for data in _pieces(answer, pace):
            for block in _inflated(unpacker, data):
                yield block
        yield unpacker.flush()
        if not unpacker.eof:
            _refuse("what is there is packed, and cut off")
    else:
        _refuse("what is there is packed in a way that was not asked for")


def _inflated(unpacker: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    while data and not unpacker.eof:
        yield unpacker.decompress(data, _BLOCK_BYTES)
        data = unpacker.unconsumed_tail


async def _pieces(answer: aiohttp.ClientResponse, pace: Pace) -> AsyncIterator[bytes]:
    while True:
        async with pace.kept():
            data = await answer.content.readany()
        if not data:
            return
        pace.count(len(data))
        yield data


@contextlib.contextmanager
def _refusals(config: ServiceConfig) -> Iterator[None]:
    try:
        yield
    except TooLarge:
        raise Refusal(
            HttpErrorCode.PAYLOAD_TOO_LARGE,
            f"{_FIELD}: what is there is too large; allowed: at most {config.max_upload_bytes / MEBI:,g} MB",
        ) from None
    except NotKept as error:
        raise Refusal(
            HttpErrorCode.INTERNAL_ERROR,
            f"{_FIELD}: what is there cannot be kept here: {error.why}; nothing was billed",
        ) from None
    except TooSlow:
        _refuse(f"its host stalled: nothing came for {config.body_timeout_s:g} s, or too slowly")
    except (ssl.SSLError, aiohttp.ClientSSLError):
        _refuse("no secure connection to its host")
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL):
        _refuse("no connection to its host")
    except (aiohttp.ClientError, ConnectionError, zlib.error, ValueError):
        _refuse("its host's answer cannot be read")


def _refuse(problem: str) -> NoReturn:
    raise _refusal(problem) from None


def _refusal(problem: str) -> Refusal:
    return Refusal(HttpErrorCode.INVALID_REQUEST, f"{_FIELD} cannot be fetched: {problem}")
