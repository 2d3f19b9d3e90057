import base64
import binascii
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from speechframe.wire import answers
from speechframe.wire.answers import decode_base64

LETTERS = (string.ascii_letters + string.digits + "+/").encode()


@pytest.fixture(params=["pybase64", "pydantic"], autouse=True, scope="module")
def way(request):
    """Each test runs with the extra and without it."""
    pybase64 = answers.pybase64
    assert pybase64 is not None
    if request.param == "pydantic":
        answers.pybase64 = None
    yield request.param
    answers.pybase64 = pybase64


@given(st.binary(max_size=30).map(base64.b64encode) | st.text('AQg/+=-_ \n\\"', max_size=12).map(str.encode))
@example(b"QUFB=")
@example(b"QUE=")
@example(b"aGl=")
@example(b"aG-_")
@example(b"AQ\\/gQ==")
def test_what_the_standard_library_takes_strictly_is_taken_and_nothing_else(text):
    try:
        strict = binascii.a2b_base64(text, strict_mode=True) if len(text) % 4 == 0 else None
    except binascii.Error:
        strict = None
    assert decode_base64(text) == strict
    assert decode_base64(memoryview(text)) == strict


# Around the sizes of groups, and of blocks a decoder may work in.
@pytest.mark.parametrize("letters", [4096, 65536])
def test_bytes_come_back_whatever_their_number(letters):
    for size in range(letters * 3 // 4 - 14, letters * 3 // 4 + 14):
        data = bytes(i * i * 7 % 256 for i in range(251)) * (size // 251 + 1)
        data = data[:size]
        assert decode_base64(base64.b64encode(data)) == data


@given(st.data())
def test_one_wrong_character_anywhere_spoils_it(data):
    text = bytearray(LETTERS * 2000)
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.sampled_from(sorted(set(range(256)) - set(LETTERS))))
    assume_padding = text[at] == ord("=") and at == len(text) - 1
    assert (decode_base64(bytes(text)) is None) is not assume_padding
    assert decode_base64(bytes(text[:-1])) is None
