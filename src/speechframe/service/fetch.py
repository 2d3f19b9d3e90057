"""``file_url``: a medium fetched for somebody, from where that somebody may go too.

- where :mod:`~speechframe.service.guard` lets it go
- at most five redirects, each looked at in the same way
- size, pauses and time on the whole are bounded, of what is unpacked as of what is sent
- what goes wrong is told by its kind, never by what was found there
"""

import contextlib
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn

import aiohttp
from yarl import URL

from speechframe.service.answers import Refusal
from speechframe.service.config import MEBI, ServiceConfig
from speechframe.service.guard import Forbidden, checked, parsed, session_to
from speechframe.service.uploads import NotKept, Pace, Receiver, TooLarge, TooSlow, Upload
from speechframe.spec.chosen import MAX_REDIRECTS
from speechframe.spec.codes import HttpErrorCode, Status

__all__ = ["fetched"]

_FIELD = "file_url"
_BLOCK_BYTES = 1 << 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "Accept": "audio/*, video/*;q=0.9, */*;q=0.5",
    # What is unpacked here is unpacked in bounded pieces; it is better not packed.
    "Accept-Encoding": "identity",
}
# zlib's way to say: gzip or zlib, look which.
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


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
    with _refusals(config), contextlib.closing(Receiver(path, config.max_upload_bytes)) as receiver:
        url = parsed(url_words)
        for _ in range(MAX_REDIRECTS + 1):
            pace = Pace(config.body_timeout_s)
            async with pace.kept():
                session = await session_to(url, _HEADERS, allow_private=config.allow_private_urls)
            onward = await _visited(url, session, receiver, pace)
            if onward is None:
                return await receiver.finish()
            url = _redirected(url, onward)
    raise _refusal(f"it is redirected more than {MAX_REDIRECTS} times")


def _redirected(url: URL, location: str) -> URL:
    try:
        return checked(url.join(URL(location, encoded=True)))
    except (ValueError, TypeError):
        _refuse("it is redirected to what is no address")


async def _visited(url: URL, session: aiohttp.ClientSession, receiver: Receiver, pace: Pace) -> str | None:
    """Receive what is at an address; return where it is redirected to, if it is."""
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
    except Forbidden as problem:
        _refuse(str(problem))
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
