"""The loop of the service belongs to everybody: nobody waits while the worst that may be sent is read."""

import asyncio
import contextlib
import time

import aiohttp
import pytest

from speechframe.spec.chosen import MAX_BODY_BYTES, MAX_FRAME_BYTES, MAX_JSON_VALUES

ASKING = 20
PLAIN_MS = 250
MULTIPART = "multipart/form-data; boundary=x"


def filled(unit, size, start=b"", end=b""):
    return start + unit * ((size - len(start) - len(end)) // len(unit)) + end


def names(count):
    return b"{" + b",".join(b'"%x":0' % number for number in range(count)) + b',"a":0,"a":0}'


def entries(count, entry):
    words = b",".join(b'"w%d":%b' % (number, entry) for number in range(count))
    return b'{"text":"a","voiceId":"b","pronunciationDictionary":{%b}}' % words


def heads(unit):
    disposition = filled(unit, 8000, b'Content-Disposition: form-data; name="a"')
    return (b"--x\r\n" + disposition + b"\r\n\r\n1\r\n") * 30 + b"--x--\r\n"


BODIES = {
    "names": names(25_000),
    "names that are read": names(MAX_JSON_VALUES - 10),
    "lists": filled(b"[],", MAX_BODY_BYTES, b'{"a":[', b"0]}"),
    "quotes": filled(b'\\"', MAX_BODY_BYTES, b'{"text":"', b'"}'),
    "entries": entries(MAX_JSON_VALUES // 4, b"{}"),
    "long style": filled(b"x", MAX_BODY_BYTES, b'{"text":"a","voiceId":"en-US-moody","style":"', b'"}'),
    "markup": filled(b"=", 5000, b'{"voiceId":"nobody","text":"<p ', b'"}'),
}
FORMS = {"semicolons": heads(b";"), "quoted": heads(b'; b="'), "escapes": heads(b'\\";')}
FRAMES = {
    "quotes": filled(b'\\"', 1 << 20, b'"'),
    "quotes that are read": filled(b'\\"', MAX_FRAME_BYTES, b'{"text":"', b'"'),
    "stops": filled(b".", MAX_FRAME_BYTES, b'{"text":"', b'"}'),
    "pauses": filled(b"[pause 1s]a", MAX_FRAME_BYTES, b'{"text":"', b'"}'),
    "initials": filled(b"a. ", MAX_FRAME_BYTES, b'{"text":"', b'"}'),
}


async def health_ms(session, url, done):
    """Ask for the health of the service until it is done, and return how long the longest answer took."""
    longest_s = 0.0
    while not done.is_set():
        started = time.perf_counter()
        async with session.get(f"{url}/healthz") as answer:
            # 503 while the only worker is replaced, because nobody waits any more for what it is at.
            assert answer.status in {200, 503}
            await answer.read()
        longest_s = max(longest_s, time.perf_counter() - started)
        await asyncio.sleep(0.005)
    return longest_s * 1000


async def post(session, url, path, data, kind):
    headers = {"api-key": "main", "Content-Type": kind}
    with contextlib.suppress(aiohttp.ClientConnectionError):
        async with session.post(f"{url}{path}", data=data, headers=headers) as answer:
            assert answer.status in {400, 429, 503}
            await answer.read()


async def send_frame(session, url, frame):
    async with session.ws_connect(f"{url}/v1/speech/stream-input?api-key=main") as socket:
        await socket.send_str(frame.decode())
        await socket.send_str("no json")
        async for message in socket:
            if "INVALID_JSON" in message.data:
                return


CASES = {
    **{f"body of {name}": ("/v1/speech/generate", data, "application/json") for name, data in BODIES.items()},
    **{f"form of {name}": ("/v1/voice-changer/convert", data, MULTIPART) for name, data in FORMS.items()},
    "type of semicolons": ("/v1/voice-changer/convert", b"", f"multipart/form-data; boundary=x{';' * 7000}"),
    **{f"frame of {name}": (None, data, None) for name, data in FRAMES.items()},
}


@pytest.fixture(scope="module")
def busy(start):
    with start(keys=["main:100000000:15"], workers=1) as running:
        yield running


@pytest.mark.quiet
@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES)
async def test_the_health_page_answers_while_twenty_of_the_worst_are_read(busy, session, case):
    path, data, kind = CASES[case]
    done = asyncio.Event()
    looking = asyncio.create_task(health_ms(session, busy.url, done))
    # As many again behind them, while the first are read.
    for _ in range(2):
        if path is None:
            await asyncio.gather(*[send_frame(session, busy.url, data) for _ in range(ASKING)])
        else:
            await asyncio.gather(*[post(session, busy.url, path, data, kind) for _ in range(ASKING)])
    done.set()
    assert await looking <= PLAIN_MS
