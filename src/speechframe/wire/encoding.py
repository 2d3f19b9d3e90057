"""Packed bodies, unpacked within a bound: a few kilobytes can stand for gigabytes."""

import zlib

_GZIP = zlib.MAX_WBITS | 16
# Old servers send deflate without the zlib header that the standard asks for.
_KINDS = {"gzip": [_GZIP], "x-gzip": [_GZIP], "deflate": [zlib.MAX_WBITS, -zlib.MAX_WBITS]}


class TooLargeError(ValueError):
    """The body passes the bound when unpacked."""


class BadEncodingError(ValueError):
    """The body is not what its Content-Encoding says, or in an encoding nobody asked for."""


def unpack(body: bytes, content_encoding: str, *, max_bytes: int) -> bytes:
    """Return `body` without its Content-Encoding.

    Parameters
    ----------
    body
        The bytes as they came.
    content_encoding
        The header's value; empty and ``identity`` leave the body as it is.
    max_bytes
        The most that may come out.

    Raises
    ------
    TooLargeError
        More than `max_bytes` would come out; no more than that is ever in memory.
    BadEncodingError
        Unknown, doubled or broken encoding.

    Examples
    --------
    >>> unpack(zlib.compress(b"hello"), "deflate", max_bytes=100)
    b'hello'
    """
    if not content_encoding:
        return body
    name = content_encoding.strip().lower()
    if name in {"", "identity"}:
        return body
    if name not in _KINDS:
        raise BadEncodingError("the body has a Content-Encoding that was not asked for")
    for wbits in _KINDS[name]:
        try:
            return _inflated(body, wbits, max_bytes)
        except zlib.error:
            continue
    raise BadEncodingError(f"the body is not {name}, as its Content-Encoding says")


def _inflated(body: bytes, wbits: int, max_bytes: int) -> bytes:
    stream = zlib.decompressobj(wbits)
    data = stream.decompress(body, max_bytes + 1)
    if len(data) > max_bytes:
        raise TooLargeError(f"the answer is too large: it unpacks to more than {max_bytes:,} bytes")
    if not stream.eof:
        raise BadEncodingError("the compressed body is truncated")
    if stream.unused_data:
        raise BadEncodingError("bytes follow the compressed body")
    return data
