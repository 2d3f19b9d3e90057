"""Error bodies, Retry-After and warnings, in every form that services are known to send."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from speechframe.wire.answers import collect_warnings
from speechframe.wire.errors import decode_error, read_retry_after_s

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LATER = format_datetime(NOW + timedelta(seconds=90), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "5"}, 5.0),
        ({"retry-after": " 5 "}, 5.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "99999999999"}, 99999999999.0),
        ({"Retry-After": LATER}, 90.0),
        ({"Retry-After": "Sunday, 01-Mar-26 12:01:30 GMT"}, 90.0),
        ({"Retry-After": "Sun Mar  1 12:01:30 2026"}, 90.0),
        ({"Retry-After": format_datetime(NOW - timedelta(days=1), usegmt=True)}, 0.0),
        ({"Retry-After": LATER, "Date": format_datetime(NOW + timedelta(seconds=30), usegmt=True)}, 60.0),
        ({"Retry-After": LATER, "Date": "junk"}, 90.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Retry-After-Ms": "250.5", "Retry-After": "60"}, 0.2505),
        ({"retry-after-ms": "junk", "Retry-After": "60"}, 60.0),
        *(
            ({"Retry-After": junk}, None)
            for junk in (
                "", "-1", "nan", "inf", "1e3", "5 s", "٣", "9" * 400, "Sun, 99 Mar 2026 12:00:00 GMT",
            )
        ),
    ],
)  # fmt: skip
def test_retry_after(headers, seconds):
    assert read_retry_after_s(CIMultiDict(headers), now=NOW) == seconds


@given(st.text(max_size=80))
def test_retry_after_never_raises(value):
    seconds = read_retry_after_s({"Retry-After": value, "Date": value, "Retry-After-Ms": value})
    assert seconds is None or 0 <= seconds < float("inf")


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"error_message": "no voice", "error_code": "INVALID_REQUEST"}, "no voice", "INVALID_REQUEST"),
        ({"message": "no voice", "code": 17}, "no voice", "17"),
        ({"error": {"message": "no voice", "code": "X"}}, "no voice", "X"),
        ({"error": {"message": "inner", "code": "inner"}, "message": "outer"}, "outer", "inner"),
        ({"detail": "no voice"}, "no voice", None),
        ([{"message": "no voice"}], "no voice", None),
        ({"error_message": "", "message": "no voice"}, "no voice", None),
        ({"error_message": None, "error_code": None}, '{"error_message": null, "error_code": null}', None),
        ({"message": "two\n lines\t and \x1b[31m"}, "two lines and \ufffd[31m", None),
        ({"message": True, "error": 5}, "5", None),
        ({"message": "no", "error_code": "A line of a diary."}, "no", None),
        ({"message": "no", "error_code": "x" * 65}, "no", None),
        ({"message": "no", "error_code": "A line.", "code": "voice.not-found:1"}, "no", "voice.not-found:1"),
    ],
)
def test_error_bodies(body, message, code):
    said = decode_error(400, json.dumps(body).encode(), {})
    assert (said.message, said.code) == (message, code)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"plain  words\r\n", "plain words"),
        (b"", "Service Unavailable"),
        (
            b"<html><head><style>b{}</style><title>503 Busy</title></head><h1>Come back</h1>",
            "503 Busy Come back",
        ),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'{"message": "cut sho', '{"message": "cut sho'),
        (b"[" * 100_000, "["),
    ],
)
def test_other_error_bodies(body, message):
    said = decode_error(503, body, {})
    assert said.message.startswith(message)
    assert len(said.message) <= 500


def test_error_text_is_bounded():
    long = json.dumps({"message": "m" * 10_000, "code": "c" * 10_000, "trace_id": "t" * 10_000}).encode()
    said = decode_error(400, long, {"X-Trace-Id": "h" * 10_000})
    assert [len(part) for part in (said.message, said.trace_id, said.body)] == [
        500,
        128,
        2000,
    ]
    assert said.code is None
    assert said.message.endswith("m…")


def test_the_trace_id_of_the_header_wins():
    assert decode_error(400, b'{"trace_id": "body"}', {"X-Trace-Id": "head"}).trace_id == "head"
    assert decode_error(400, b'{"trace_id": "body"}', {"X-Trace-Id": ""}).trace_id == "body"
    assert decode_error(400, b"", {}).trace_id is None


@given(st.integers(100, 999), st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_an_error_body_never_raises(status, body):
    said = decode_error(status, body, {})
    assert said.message
    assert said.message.isprintable()


def test_warnings_come_from_body_and_every_header_once():
    headers = CIMultiDict(
        [("X-Speech-Warning", "a"), ("x-speech-warning", "b"), ("X-Speech-Warning", "a"), ("Y", "z")]
    )
    assert collect_warnings(headers, "body", None, "", "b") == ("body", "b", "a")


def test_warnings_are_bounded():
    headers = CIMultiDict(("X-Speech-Warning", f"{n} " + "w" * 1000) for n in range(100))
    got = collect_warnings(headers, "first")
    assert len(got) == 20
    assert got[0] == "first"
    assert max(map(len, got)) == 500


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ("rate is odd; style is odd", ["rate is odd", "style is odd"], ("rate is odd", "style is odd")),
        ("rate is odd, and more", ["rate is odd"], ("rate is odd, and more", "rate is odd")),
        ("caf\u00e9", ["caf%C3%A9"], ("caf\u00e9",)),
        (None, ["a%25b"], ("a%b",)),
    ],
)
def test_warnings_are_decoded_and_said_once(body, headers, expected):
    found = collect_warnings(CIMultiDict([("X-Speech-Warning", value) for value in headers]), body)
    assert found == expected
