"""What is sent: a request, and how its head is written."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from speechframe._version import __version__
from speechframe.old_client.upload import Body

_USER_AGENT = f"speechframe/{__version__}"
_FRAMING = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "expect"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(slots=True)
class Request:
    """What is sent."""

    method: str
    url: URL
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | Body | None = field(repr=False)
    is_proxied: bool = False
    """Whether it is written to a proxy; on the way to https that is a tunnel, and the proxy sees nothing."""


def head_of(request: Request, target: aiohttp.ClientRequest) -> bytes:
    """Return the request line and headers.

    Raises
    ------
    ValueError
        A header that would be more than one, or that says where the request ends.
    """
    url = request.url
    path, further = url.raw_path_qs, ""
    if request.is_proxied and url.scheme == "http":
        path = str(url.with_fragment(None))
        password = target.headers.get("Proxy-Authorization")
        further = f"Proxy-Authorization: {password}\r\n" if password else ""
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise ValueError("the path of a request holds characters that cannot stand in a request line")
    headers, body, length = request.headers, request.body, ""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    # All at once first: a batch sends the same names with every row.
    if not _are_ours(tuple(headers)) or _holds_more_lines(lines, len(headers)):
        for name, value in headers.items():
            if not _are_ours((name,)) or _holds_more_lines(value, 0):
                raise ValueError(
                    f"the header {name!r} cannot be sent: it frames the message, or breaks its lines"
                )
    if body is not None:
        length = f"Content-Length: {body.size_bytes if isinstance(body, Body) else len(body)}\r\n"
    return (
        f"{request.method} {path} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        f"User-Agent: {_USER_AGENT}\r\n{further}{lines}{length}\r\n"
    ).encode()


@functools.lru_cache(256)
def _are_ours(names: tuple[str, ...]) -> bool:
    return all(_TOKEN.fullmatch(name) is not None and name.lower() not in _FRAMING for name in names)


def _holds_more_lines(text: str, expected: int) -> bool:
    return text.count("\n") != expected or text.count("\r") != expected or "\0" in text
