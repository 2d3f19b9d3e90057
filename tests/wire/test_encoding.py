"""Packed bodies."""

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.wire.encoding import BadEncodingError, TooLargeError, decompress


def _bare_deflate(data):
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


PACKERS = {
    "gzip": gzip.compress,
    "X-GZIP": gzip.compress,
    "deflate": zlib.compress,
    " Deflate ": _bare_deflate,
}


@given(st.sampled_from(sorted(PACKERS)), st.binary(max_size=300))
def test_what_was_packed_comes_out(encoding, data):
    assert decompress(PACKERS[encoding](data), encoding, max_bytes=300) == data


@pytest.mark.parametrize("encoding", ["", " Identity "])
def test_what_was_not_packed_stays(encoding):
    assert decompress(b"data", encoding, max_bytes=1) == b"data"


@pytest.mark.parametrize("encoding", PACKERS)
def test_the_bound_is_exact(encoding):
    packed = PACKERS[encoding](b"x" * 1000)
    assert len(decompress(packed, encoding, max_bytes=1000)) == 1000
    with pytest.raises(TooLargeError):
        decompress(packed, encoding, max_bytes=999)


def test_a_bomb_never_is_in_memory():
    packed = gzip.compress(bytes(50 << 20), 1)
    tracemalloc.start()
    with pytest.raises(TooLargeError):
        decompress(packed, "gzip", max_bytes=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip"])
def test_what_was_not_asked_for_is_refused(encoding):
    with pytest.raises(BadEncodingError, match="not requested"):
        decompress(b"data", encoding, max_bytes=100)


@pytest.mark.parametrize("encoding", PACKERS)
def test_what_is_no_such_thing_is_refused(encoding):
    packed = PACKERS[encoding](b"some words " * 20)
    with pytest.raises(BadEncodingError, match="truncated"):
        decompress(packed[:-9], encoding, max_bytes=1000)
    with pytest.raises(BadEncodingError):
        decompress(b'{"audioFile": ""}', encoding, max_bytes=1000)
    with pytest.raises(BadEncodingError, match="follow"):
        decompress(packed + b"HTTP/1.1 200 OK", encoding, max_bytes=1000)
