"""Whatever a service answers, it is used or is an error of its own, and the next call has its own answer."""

import base64
import gzip
import json

import pytest

from speechframe import errors
from speechframe.client import Bounds, Client, PreparedCall
from speechframe.spec.speech import ChannelType, Format, GenerateRequest

OK = b"HTTP/1.1 200 OK\r\n"


def http(body, *lines, status=200):
    head = [f"HTTP/1.1 {status} X", *lines, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def beside(body, more):
    """A good answer with another field."""
    return body[:-1] + b", " + more + b"}"


USED = {
    "a byte order mark": lambda body: (b"\xef\xbb\xbf" + body, {}),
    "a wrong charset": lambda body: (body, {"Content-Type": "text/html; charset=utf-16"}),
    "packed by gzip": lambda body: (gzip.compress(body), {"Content-Encoding": "gzip"}),
    "cookies and hints": lambda body: (body, {"Set-Cookie": "a=b", "Alt-Svc": 'h2=":1"', "Refresh": "0"}),
    "text that is no UTF-8": lambda body: (beside(body, b'"warning": "\xff\xfe"'), {}),
    "words that are none": lambda body: (beside(body, b'"wordDurations": [null, 5, {}, {"word": null}]'), {}),
    "a lone surrogate": lambda body: (
        beside(body, b'"wordDurations": [{"word": "\\ud83d", "startMs": 0, "endMs": 1}]'), {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", USED)
async def test_good_audio_is_used_whatever_is_odd_beside_it(odd, client, call, kind):
    body, headers = USED[kind](json.dumps(odd.fields()).encode())
    odd.script(odd.answer(200, body, headers), odd.spoken())
    for _ in range(2):
        assert (await client.send_once(call)).audio == odd.audio
    assert "Cookie" not in odd.seen[1].headers


UNUSABLE = {
    "nothing": (lambda _: http(b""), "is empty"),
    "a page": (lambda _: http(b"<html>Welcome</html>"), "<html>Welcome"),
    "countless values": (lambda body: http(beside(body, b'"more": [' + b"[]," * 200_000 + b"0]")), "values"),
    "no audio": (lambda _: http(b'{"audioFile": "", "encodedAudio": ""}'), "neither"),
    "audio cut short": (lambda body: http(body.replace(b'"encodedAudio": "', b'"encodedAudio": "AAA*')), "Base64"),
    "an answer cut short": (lambda body: http(body)[:-40], "truncated"),
    "packed and cut short": (
        lambda body: http(gzip.compress(body)[:-20], "Content-Encoding: gzip"), "truncated"),
    "an encoding nobody asked for": (lambda body: http(body, "Content-Encoding: br"), "Content-Encoding"),
    "a bomb": (lambda _: http(gzip.compress(bytes(64 << 20)), "Content-Encoding: gzip"), "too large"),
}  # fmt: skip
LOST = {
    "nothing at all": lambda _: b"",
    "no HTTP": lambda _: b"SSH-2.0-OpenSSH_9.6\r\n",
    "a header of 100 KB": lambda body: http(body, "X: " + "x" * 100_000),
    "two lengths": lambda body: OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + body,
    "interim answers alone": lambda _: b"HTTP/1.1 103 Hint\r\n\r\n" * 5000,
}


@pytest.mark.parametrize("kind", [*UNUSABLE, *LOST])
async def test_an_answer_that_is_none_is_one_error_and_leaves_no_connection(odd, client, call, kind):
    make, words = UNUSABLE.get(kind) or (LOST[kind], "")
    data = make(json.dumps(odd.fields()).encode())
    odd.script(odd.raw(data), odd.spoken(remainingCharacterCount=7))
    with pytest.raises(
        errors.BadAnswer if kind in UNUSABLE else errors.ConnectionFailed, match=words or None
    ) as caught:
        await client.send_once(call)
    assert len(str(caught.value)) < 1500
    if kind in LOST:
        assert caught.value.sent
    assert (await client.send_once(call)).remaining_characters == 7
    assert odd.seen[0].peer != odd.seen[1].peer


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "BadRequest"), (402, "PaymentRequired"), (403, "PermissionDenied"), (429, "RateLimited"), (599, "ServiceError")],
)  # fmt: skip
async def test_a_status_becomes_its_error(odd, client, call, status, kind):
    body = {"error_message": "no such thing", "error_code": "CODE", "trace_id": "t-9"}
    odd.script(odd.answer(status, body, {"Retry-After": "7"}), odd.spoken())
    with pytest.raises(errors.ServiceError) as caught:
        await client.send_once(call)
    error = caught.value
    assert type(error).__name__ == kind
    assert (error.status, error.message, error.code, error.trace_id) == (
        status,
        "no such thing",
        "CODE",
        "t-9",
    )
    assert (error.retry_after_s, error.retryable) == (7.0, status in {408, 429, 500, 503})
    assert (await client.send_once(call)).audio == odd.audio


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["endless", "bomb", "dribble"])
async def test_an_error_without_end_still_has_its_status(odd, client, call, kind):
    odd.script(
        {"endless": odd.endless(503), "bomb": odd.bomb(503), "dribble": odd.dribble(503, b"busy ")}[kind]
    )
    with pytest.raises(errors.Unavailable) as caught:
        await client.send_once(call, timeout_s=60)
    assert len(caught.value.message) <= 500


@pytest.mark.parametrize("step", ["endless", "hang", "dribble"])
async def test_an_attempt_ends_by_size_or_time(odd, settings, call, step):
    odd.script({"endless": odd.endless(), "hang": odd.hang(), "dribble": odd.dribble()}[step], odd.spoken())
    async with Client(settings, bounds=Bounds(answer_bytes=1 << 20)) as client:
        with pytest.raises(errors.BadAnswer if step == "endless" else errors.TimedOut):
            await client.send_once(call, timeout_s=30 if step == "endless" else 0.3)
        assert (await client.send_once(call)).audio == odd.audio


async def test_an_answer_is_never_the_next_call_s(odd, client, call):
    late, stray = (json.dumps(odd.fields(remainingCharacterCount=n)).encode() for n in (1, 2))
    odd.script(odd.raw(http(late) + http(stray), then="open"), odd.spoken())
    assert (await client.send_once(call)).remaining_characters == 1
    assert (await client.send_once(call)).remaining_characters == 990


async def test_what_differs_from_the_request_is_said(odd, client):
    asked = GenerateRequest(
        text="Hello", voice_id="nora", format=Format.FLAC, channel_type=ChannelType.STEREO, sample_rate=24000
    )
    spoken = await client.send_once(PreparedCall.from_request(asked))
    assert (spoken.format, spoken.channels, spoken.words) == (Format.WAV, 1, [("Hello", 0, 400)])
    assert set(spoken.warnings) == {
        "requested FLAC, got WAV", "requested 24000 Hz, got 44100 Hz", "requested STEREO, got 1 channel"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "data", "rate_hz", "channels"),
    [({"format": Format.PCM, "sample_rate": 8000, "channel_type": ChannelType.STEREO}, bytes(16000), 8000, 2),
     ({"format": Format.ALAW}, b"\xd5" * 4000, 8000, 1)],
)  # fmt: skip
async def test_raw_audio_is_read_as_it_was_asked_for(odd, client, asked, data, rate_hz, channels):
    odd.script(odd.spoken(encodedAudio=base64.b64encode(data).decode(), audioLengthInSeconds=0.5))
    spoken = await client.send_once(
        PreparedCall.from_request(GenerateRequest(text="Hello", voice_id="nora", **asked))
    )
    assert (spoken.audio_seconds, spoken.sample_rate_hz, spoken.channels) == (0.5, rate_hz, channels)
    assert (spoken.format, spoken.warnings) == (asked["format"], ())


async def test_warnings_are_bounded_in_number_and_length(odd, client, call):
    lines = [f"X-Speech-Warning: {i} {'w' * 2000}" for i in range(100)]
    odd.script(odd.raw(http(json.dumps(odd.fields()).encode(), *lines), then="open"))
    spoken = await client.send_once(call)
    assert (len(spoken.warnings), max(map(len, spoken.warnings))) == (20, 500)
