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
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address

from yarl import URL

from speechframe._addresses import is_public, written_inside
from speechframe.client.exchange import Admit, CutOffError, Exchange, Reply
from speechframe.errors import BadAnswer, ConnectionFailed
from speechframe.spec.codes import Status

__all__ = ["fetch"]

MAX_REDIRECTS = 5
# Before each time that it is asked for.
WAITS_S = (0.0, 0.2, 0.4)
_MAX_URL_CHARACTERS = 8000
_MAX_HOST_CHARACTERS = 253
_MAX_ERROR_BYTES = 64 * 1024

# 203 is a 200 that a proxy has touched; 206 is a part, and 202, 204, 205 are none of the audio.
_WHOLE = frozenset({200, 203})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity"}
_HERE, _LINK, _PRIVATE, _PUBLIC = "here", "link", "private", "public"
_ONE_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_NUMBER = r"(?:0x[0-9a-f]*|[0-9]+)"
# The C library reads 2130706433, 0x7f.1 and 0177.1 as addresses too.
_DISGUISED = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}")


async def fetch(
    exchange: Exchange,
    service: Collection[str],
    address: str,
    base: URL,
    *,
    timeout_s: float,
    max_bytes: int,
    admit: Admit | None = None,
) -> bytes:
    """Return the bytes behind an address that an answer from `base` named; `service` are its own addresses.

    A dropped connection, a truncated body, a 5xx, a 408 and a 429 are tried again by themselves, since
    fetching costs nothing and the call was paid for. BadAnswer says why they cannot be fetched.
    """
    deadline_s = time.monotonic() + timeout_s
    problem = f"no time was left of {timeout_s:g} s"

    async def followed(url: URL) -> Reply:
        for _ in range(MAX_REDIRECTS + 1):
            reply = await exchange.ask(
                "GET",
                url,
                headers=_HEADERS,
                timeout_s=max(0.001, deadline_s - time.monotonic()),
                max_bytes=max_bytes,
                max_error_bytes=_MAX_ERROR_BYTES,
                admit=admit,
            )
            target = reply.headers.get("Location")
            if reply.status not in _REDIRECTS or not target:
                return reply
            url = _checked(target, url, service)
        raise BadAnswer(f"the audio could not be fetched: more than {MAX_REDIRECTS} redirects")

    url = _checked(address, base, service)
    for wait_s in WAITS_S:
        await asyncio.sleep(min(wait_s, max(0.0, deadline_s - time.monotonic())))
        if time.monotonic() >= deadline_s:
            break
        try:
            reply = await followed(url)
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


def _checked(address: str, base: URL, service: Collection[str]) -> URL:
    """Return the URL to fetch, spelled exactly as it was given: a signature covers the spelling."""
    stripped = address.strip()
    if len(stripped) > _MAX_URL_CHARACTERS or not stripped.isprintable() or " " in stripped:
        raise BadAnswer("the audio's address is no URL")
    try:
        # Letters outside ASCII cannot go onto the wire as they are, so such a URL is not signed as it is.
        url = URL(stripped, encoded=stripped.isascii())
        url = url if url.scheme else base.join(url)
        problem = _forbidden(url, service)
    except ValueError:
        problem = " is no URL"
    if problem:
        raise BadAnswer(f"the audio's address{problem}")
    return url


def _forbidden(url: URL, service: Collection[str]) -> str | None:
    """Return what is wrong with a URL; None where it may be fetched."""
    host, own = _bare(url), [URL(address) for address in service]
    if url.scheme not in {"http", "https"} or not host:
        return " is neither http nor https"
    if len(host) > _MAX_HOST_CHARACTERS:
        return " has a host with a name that is too long"
    if url.user is not None or url.password is not None:
        return f" at {host} holds a user name"
    if _DISGUISED.fullmatch(host) and _address_of(host) is None:
        return f" {host} is a number and no host"
    plain = {_bare(each) for each in own if each.scheme == "http"}
    is_plain_host = host in (plain if plain.isdisjoint(_ONE_MACHINE) else plain | _ONE_MACHINE)
    if url.scheme == "http" and not is_plain_host:
        return f" is at {host} behind plain http, and that is not the service's own host"
    place, own_places = _place(host), {_place(_bare(each)) for each in own}
    if place == _HERE and _HERE not in own_places:
        return " points to this machine, and the service is elsewhere"
    is_near = place == _PRIVATE and not own_places.isdisjoint({_PRIVATE, _LINK})
    if place in {_PRIVATE, _LINK} and not is_plain_host and not is_near:
        return f" {host} is in a private network, and the service is not"
    return None if url.port else " is no URL"


def _bare(url: URL) -> str:
    """Return a host as it goes onto the wire, in lower case and without a final dot."""
    # Letters of other scripts may become digits on the way.
    return (url.raw_host or "").lower().rstrip(".")


def _place(host: str) -> str:
    """Return where a host is; of a name other than localhost that is not known."""
    address = _address_of(host)
    if address is None:
        return _HERE if host == "localhost" or host.endswith(".localhost") else _PUBLIC
    if address.is_loopback or address.is_unspecified:
        return _HERE
    if is_public(address):
        return _PUBLIC
    return _LINK if address.is_link_local else _PRIVATE


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is, the inner one where IPv6 wraps IPv4; None for a name."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return written_inside(address) or address
