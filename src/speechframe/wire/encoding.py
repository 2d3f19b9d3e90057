"""Decompression of bodies up to a limit, because a few kilobytes may decompress to gigabytes."""

import zlib

_GZIP_WBITS = zlib.MAX_WBITS | 16
# Old servers send deflate without the zlib header, which the standard requires.
_WBITS_BY_ENCODING = {
    "gzip": [_GZIP_WBITS],
    "x-gzip": [_GZIP_WBITS],
    "deflate": [zlib.MAX_WBITS, -zlib.MAX_WBITS],
}


class TooLargeError(ValueError):
    """The decompressed body is larger than the limit."""


class BadEncodingError(ValueError):
    """The body is not encoded as its header states, or the encoding was not requested."""


def decompress(body: bytes, content_encoding: str, *, max_bytes: int) -> bytes:
    """Return the decompressed body.

    Parameters
    ----------
    body
        Body as received.
    content_encoding
        Value of the Content-Encoding header. Empty and ``identity`` leave the body as it is.
    max_bytes
        Largest size of the result in bytes.

    Raises
    ------
    TooLargeError
        The result would be larger than `max_bytes`. The function stops before it uses more memory.
    BadEncodingError
        The encoding is unknown or is a list, or the body is damaged.

    Examples
    --------
    >>> decompress(zlib.compress(b"hello"), "deflate", max_bytes=100)
    b'hello'
    """
    if not content_encoding:
        return body
    name = content_encoding.strip().lower()
    if name in {"", "identity"}:
        return body
    if name not in _WBITS_BY_ENCODING:
        raise BadEncodingError("the body has a Content-Encoding that was not requested")
    for wbits in _WBITS_BY_ENCODING[name]:
        try:
            return _decompress_stream(body, wbits, max_bytes)
        except zlib.error:
            continue
    raise BadEncodingError(f"the body is not {name}, although its Content-Encoding header has this value")


def _decompress_stream(body: bytes, wbits: int, max_bytes: int) -> bytes:
    stream = zlib.decompressobj(wbits)
    data = stream.decompress(body, max_bytes + 1)
    if len(data) > max_bytes:
        raise TooLargeError(f"the answer is too large: it unpacks to more than {max_bytes:,} bytes")
    if not stream.eof:
        raise BadEncodingError("the compressed body is truncated")
    if stream.unused_data:
        raise BadEncodingError("bytes follow the compressed body")
    return data
