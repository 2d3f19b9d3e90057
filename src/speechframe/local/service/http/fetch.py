"""Fetch media files from a ``file_url``.

- :mod:`~speechframe.local.service.http.guard` checks the address.
- The service follows at most five redirects, and checks each address in the same way.
- Size, pauses and total time are bounded. The size limit holds for the unpacked bytes, too.
- A refusal contains the kind of failure, but nothing that the address returned, except the HTTP status.
"""

import contextlib
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn

import aiohttp
from yarl import URL

from speechframe.local.service.config import MEBIBYTE, ServiceConfig
from speechframe.local.service.http.answers import Refusal
from speechframe.local.service.http.guard import ForbiddenAddress, check_url, parse_url
from speechframe.local.service.http.threads import NoFreeThread
from speechframe.local.service.http.uploads import (
    FileNotWritten,
    ReceivedFile,
    Receiver,
    TooLarge,
    TooSlow,
    UploadPace,
)
from speechframe.local.service.state import State
from speechframe.spec.chosen import MAX_LOOKUP_SECONDS, MAX_REDIRECTS
from speechframe.spec.codes import HttpErrorCode, Status

_URL_FIELD = "file_url"
"""Name of the form field, for messages."""
_BLOCK_BYTES = 1 << 16
"""Largest number of bytes that are unpacked at once."""
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
"""HTTP statuses of redirects."""
# Headers of the request for a file.
_REQUEST_HEADERS = {
    "Accept": "audio/*, video/*;q=0.9, */*;q=0.5",
    # Compressed answers are accepted, too, but plain ones cost less.
    "Accept-Encoding": "identity",
}
# Window size of zlib, with the flag that makes zlib detect gzip and zlib headers.
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


async def fetch_file(url_words: str, state: State, key_hash: bytes, path: Path) -> ReceivedFile:
    """Fetch a media file and write it to `path`.

    Parameters
    ----------
    url_words
        The value of ``file_url``.
    state
        Its configuration contains ``max_upload_bytes``, and ``body_timeout_s`` for the longest pause.
    key_hash
        Hash of the key that sent the address. Threads of this key write the file.
    path
        A path from :meth:`~speechframe.local.service.http.uploads.Uploads.lend_path`.

    Raises
    ------
    Refusal
        400 if the address is forbidden, or the file cannot be fetched or is too large. 500 if the file cannot
        be written, for example because the disk is full. 503 if too many host names of the key are being
        looked up.
    """
    config, threads = state.config, state.threads.get_threads(key_hash)
    with (
        _refuse_errors(config),
        contextlib.closing(Receiver(path, config.max_upload_bytes, threads)) as receiver,
    ):
        url = parse_url(url_words)
        for _ in range(MAX_REDIRECTS + 1):
            session = await state.guard.open_session(key_hash, url, _REQUEST_HEADERS)
            pace = UploadPace(config.body_timeout_s)
            onward = await _receive_file(url, session, receiver, pace)
            if onward is None:
                return await receiver.finish()
            url = _resolve_redirect(url, onward)
    raise _make_refusal(f"it is redirected more than {MAX_REDIRECTS} times")


def _resolve_redirect(url: URL, location: str) -> URL:
    try:
        return check_url(url.join(URL(location, encoded=True)))
    except (ValueError, TypeError):
        _refuse("it redirects to a text that is not an address")


async def _receive_file(
    url: URL, session: aiohttp.ClientSession, receiver: Receiver, pace: UploadPace
) -> str | None:
    """Receive the file at an address and return None. If the answer is a redirect, return its address."""
    async with session, contextlib.AsyncExitStack() as stack:
        async with pace.limit_time():
            answer = await stack.enter_async_context(session.get(url, allow_redirects=False))
        if answer.status in _REDIRECT_STATUSES and "Location" in answer.headers:
            return answer.headers["Location"]
        if answer.status != Status.OK:
            _refuse(f"its host answered with status {answer.status}")
        receiver.check(answer.content_length or 0)
        async for data in _read_unpacked(answer, pace):
            await receiver.write(data)
    return None


async def _read_unpacked(answer: aiohttp.ClientResponse, pace: UploadPace) -> AsyncIterator[bytes]:
    encoding = answer.headers.get("Content-Encoding", "identity").strip().casefold()
    if encoding in {"", "identity"}:
        async for data in pace.read_pieces(answer.content):
            yield data
    elif encoding in {"gzip", "x-gzip", "deflate"}:
        unpacker = _Unpacker()
        async for data in pace.read_pieces(answer.content):
            for block in unpacker.decompress(data):
                yield block
        if not unpacker.is_at_end:
            _refuse("its content is compressed and cut off")
    else:
        _refuse("its content is compressed in another way than gzip or deflate")


class _Unpacker:
    """Decompress gzip or zlib data in pieces. A gzip file may have several members and end with zeros."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_OR_ZLIB)

    @property
    def is_at_end(self) -> bool:
        """Whether the data so far ends with the end of a member."""
        return self._member.eof

    def decompress(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed data in blocks. Raise zlib.error if the data is damaged."""
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._member = zlib.decompressobj(_GZIP_OR_ZLIB)
            yield self._member.decompress(data, _BLOCK_BYTES)
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail


@contextlib.contextmanager
def _refuse_errors(config: ServiceConfig) -> Iterator[None]:
    try:
        yield
    except ForbiddenAddress as problem:
        _refuse(str(problem))
    except NoFreeThread as busy:
        raise Refusal(
            HttpErrorCode.UNAVAILABLE,
            f"{_URL_FIELD} cannot be fetched now: {busy.at_once} host names of this key are being looked up, "
            f"which is its limit, and no look-up ended within {MAX_LOOKUP_SECONDS:g} s; try again later",
            retry_after_s=MAX_LOOKUP_SECONDS,
        ) from None
    except TooLarge:
        raise Refusal(
            HttpErrorCode.PAYLOAD_TOO_LARGE,
            f"{_URL_FIELD}: the file is too large; allowed: at most "
            f"{config.max_upload_bytes / MEBIBYTE:,g} MB",
        ) from None
    except FileNotWritten as error:
        raise Refusal(
            HttpErrorCode.INTERNAL_ERROR,
            f"{_URL_FIELD}: the service cannot write the file: {error.reason}; nothing was billed",
        ) from None
    except TooSlow:
        _refuse(f"its host stalled: it sent nothing for {config.body_timeout_s:g} s, or sends too slowly")
    except (ssl.SSLError, aiohttp.ClientSSLError):
        _refuse("the secure connection to its host failed")
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL):
        _refuse("the connection to its host failed")
    except (aiohttp.ClientError, ConnectionError, zlib.error, ValueError):
        _refuse("its host's answer cannot be read")


def _refuse(problem: str) -> NoReturn:
    raise _make_refusal(problem) from None


def _make_refusal(problem: str) -> Refusal:
    return Refusal(HttpErrorCode.INVALID_REQUEST, f"{_URL_FIELD} cannot be fetched: {problem}")
