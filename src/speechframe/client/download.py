"""Download audio and media that an answer gives as a URL, into memory or into a file.

The same rules apply to the URL and to each redirect:

- The key is not sent.
- The service's own host is allowed. Plain http is allowed only if the service itself uses plain http.
- Any other host needs https, and must not be on this machine or in a private network.
- The scheme is http or https, the address has no user name, and there are at most 5 redirects.

``localhost``, ``127.0.0.1`` and ``::1`` count as the same host. ``127.0.0.2`` counts as another host.
"""

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

from yarl import URL

from speechframe.client.calls import KIB
from speechframe.client.exchange import Admit, CutOffError, Exchange, HttpReply
from speechframe.errors import BadAnswer, ConnectionFailed
from speechframe.network.addresses import is_public
from speechframe.spec.codes import Status
from speechframe.store.folder import sync_to_disk

T = TypeVar("T")

MAX_REDIRECTS = 5
# Seconds to wait before each attempt. A dubbed file gets more attempts, because the paid dub must not be lost
# by a short failure.
WAITS_S = (0.0, 0.2, 0.4)
_FILE_WAITS_S = (*WAITS_S, 2.0, 10.0)
_MAX_URL_CHARACTERS = 8000
_MAX_HOST_CHARACTERS = 253  # the limit of DNS
# Largest part of an error's body that is read.
_MAX_ERROR_BYTES = 64 * KIB

# Statuses of an answer with the whole file. 203 is a 200 that a proxy changed. 206 contains a part of the
# file. 202, 204 and 205 contain no file.
_COMPLETE_STATUSES = frozenset({200, 203})
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_REQUEST_HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity"}
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_NUMBER_PATTERN = r"(?:0x[0-9a-f]*|[0-9]+)"
# Matches a host that is made of numbers. The C library also reads 2130706433, 0x7f.1 and 0177.1 as 127.0.0.1.
_NUMERIC_HOST = re.compile(rf"{_NUMBER_PATTERN}(?:\.{_NUMBER_PATTERN}){{0,3}}")


@dataclass(frozen=True, slots=True)
class DownloadSource:
    """An address in an answer from the URL `base`, with the limits of its download.

    `service_addresses` contains the service's own addresses, and `subject` is the word for the file in
    messages.
    """

    exchange: Exchange
    service_addresses: Collection[str]
    address: str
    base: URL
    subject: str = "audio"
    answer_start_timeout_s: float = math.inf  # longest wait in seconds for the beginning of an answer
    waits_s: tuple[float, ...] = WAITS_S  # wait in seconds before each attempt


async def fetch_audio(
    source: DownloadSource, *, timeout_s: float, max_bytes: int, admit: Admit | None = None
) -> bytes:
    """Return the bytes at an address, or raise BadAnswer with the reason.

    `admit` is awaited with a number of bytes before these bytes are read into memory. A lost connection, a
    truncated body, a 5xx, a 408 and a 429 lead to another attempt within `timeout_s`, because downloads are
    free and the call is paid.
    """

    async def get_body(reply: HttpReply) -> bytes:
        return reply.body

    return await _request_with_retries(source, get_body, timeout_s, max_bytes=max_bytes, admit=admit)


async def save_file(
    source: DownloadSource,
    path: Path,
    *,
    timeout_s: float,
    window_s: float,
    min_bytes_per_s: float,
    max_bytes: int,
) -> None:
    """Download from an address into a file, with the attempts of :func:`fetch_audio`.

    A file at `path` is replaced only by a complete one. The new file is written piece by piece, and synced to
    the disk at the end. The whole download may take `timeout_s`. In each `window_s`, the mean speed must be
    at least `min_bytes_per_s`. A slower download fails and is tried again. Errors are those of
    :func:`fetch_audio`, and OSError if the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")

    async def write(reply: HttpReply) -> None:
        if reply.headers.get("Content-Encoding", "identity") != "identity":
            raise BadAnswer("the file could not be fetched because it is compressed")
        size, window_bytes, window_ends_s = 0, 0, time.monotonic() + window_s
        with temporary.open("wb") as file:
            while piece := await asyncio.wait_for(reply.read(), window_s):
                size += len(piece)
                window_bytes += len(piece)
                if (now_s := time.monotonic()) >= window_ends_s:
                    if window_bytes < min_bytes_per_s * window_s:
                        speed = f"less than {min_bytes_per_s / KIB:,.3g} KB/s came over {window_s:g} s"
                        raise ConnectionFailed(speed, sent=True)
                    window_bytes, window_ends_s = 0, now_s + window_s
                if size > max_bytes:
                    raise BadAnswer(f"the file is too large: more than {max_bytes / 1e6:,.0f} MB")
                await asyncio.to_thread(file.write, piece)
        await asyncio.to_thread(sync_to_disk, temporary)

    try:
        source = replace(source, subject="file", answer_start_timeout_s=window_s, waits_s=_FILE_WAITS_S)
        await _request_with_retries(source, write, timeout_s, max_bytes=None)
        temporary.replace(path)
        await asyncio.to_thread(sync_to_disk, path.parent)
    finally:
        temporary.unlink(missing_ok=True)


async def _request_with_retries(
    source: DownloadSource,
    read_reply: Callable[[HttpReply], Awaitable[T]],
    timeout_s: float,
    **exchange_options: Any,
) -> T:
    """Return the result of `read_reply` for an answer with the whole file. Retry failures that may pass."""
    deadline_s = time.monotonic() + timeout_s
    problem = f"no time was left of {timeout_s:g} s"

    async def follow(url: URL) -> HttpReply:
        for _ in range(MAX_REDIRECTS + 1):
            reply = await source.exchange.ask(
                "GET",
                url,
                headers=_REQUEST_HEADERS,
                timeout_s=max(0.001, min(source.answer_start_timeout_s, deadline_s - time.monotonic())),
                max_error_bytes=_MAX_ERROR_BYTES,
                **exchange_options,
            )
            target = reply.headers.get("Location")
            if reply.status not in _REDIRECT_STATUSES or not target:
                return reply
            url = _resolve_url(target, url, source)
        raise BadAnswer(f"the {source.subject} could not be fetched: more than {MAX_REDIRECTS} redirects")

    url = _resolve_url(source.address, source.base, source)
    for wait_s in source.waits_s:
        await asyncio.sleep(min(wait_s, max(0.0, deadline_s - time.monotonic())))
        if time.monotonic() >= deadline_s:
            break
        try:
            reply = await follow(url)
            if reply.status in _COMPLETE_STATUSES:
                try:
                    return await asyncio.wait_for(read_reply(reply), deadline_s - time.monotonic())
                finally:
                    reply.close()
        except (ConnectionFailed, CutOffError) as error:
            problem = str(error)
            continue
        except TimeoutError:
            problem = "no whole answer came in time"
            continue
        reply.close()
        problem = f"{url.host} answered {reply.status}"
        known = Status.from_number(reply.status)
        if not (known.retryable if known is not None else Status.is_from_gateway(reply.status)):
            break
    expired = " (the link may have expired)" if problem.endswith(("403", "404", "410")) else ""
    raise BadAnswer(f"the {source.subject} could not be fetched: {problem}{expired}")


def _resolve_url(address: str, base: URL, source: DownloadSource) -> URL:
    """Return the absolute URL of an address, or raise BadAnswer if the URL is forbidden.

    The spelling stays unchanged, because the URL may contain a signature of its spelling.
    """
    stripped = address.strip()
    if len(stripped) > _MAX_URL_CHARACTERS or not stripped.isprintable() or " " in stripped:
        raise BadAnswer(f"the {source.subject}'s address is not a URL")
    try:
        # Letters outside ASCII must be encoded, so a signature cannot cover their spelling.
        url = URL(stripped, encoded=stripped.isascii())
        url = url if url.scheme else base.join(url)
        problem = _find_fault(url, source.service_addresses)
    except ValueError:
        problem = " is not a URL"
    if problem:
        raise BadAnswer(f"the {source.subject}'s address{problem}")
    return url


def _find_fault(url: URL, service_addresses: Collection[str]) -> str | None:
    """Return the reason why a URL is forbidden, as the end of a sentence, or None for an allowed URL."""
    host = _get_host(url)
    if url.scheme not in {"http", "https"} or not 0 < len(host) <= _MAX_HOST_CHARACTERS:
        return f" is not http or https with a host of 1 to {_MAX_HOST_CHARACTERS} characters"
    if url.user is not None or url.password is not None:
        return f" at {host} contains a user name"
    try:
        is_inside = not is_public(ip_address(host.partition("%")[0]))
    except ValueError:
        if _NUMERIC_HOST.fullmatch(host):
            return f" {host} is a number, not a host"
        is_inside = host == "localhost" or host.endswith(".localhost")
    own_hosts = {
        _get_host(each) for each in map(URL, service_addresses) if url.scheme in {"https", each.scheme}
    }
    if host not in (own_hosts if own_hosts.isdisjoint(_LOOPBACK_HOSTS) else own_hosts | _LOOPBACK_HOSTS):
        if url.scheme == "http":
            return f" is at {host} behind plain http, and that is not the service's own host"
        if is_inside:
            return f" {host} is on this machine or in a private network, and is not the service's own host"
    return None if url.port else " is not a URL"


def _get_host(url: URL) -> str:
    """Return the host of a URL in lower case without a final dot, encoded as in a request."""
    # Use the encoded host, because encoding may turn letters of other scripts into digits.
    return (url.raw_host or "").lower().rstrip(".")
