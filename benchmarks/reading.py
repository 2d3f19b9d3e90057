"""Measure the row L1, which compares the most expensive request body with a plain body of the same size."""

import asyncio
import statistics
from collections.abc import Iterator
from functools import partial

import aiohttp

from benchmarks.child import Clock
from benchmarks.lab import Lab, compute_ratios
from benchmarks.report import Figure, at_most
from speechframe.local.start import local_service
from speechframe.spec import chosen

BODY_BYTES = chosen.MAX_BODY_BYTES
"""Length of all bodies in bytes, the largest that the service accepts."""

_BODY_START, _BODY_END = b'{"voiceId":"nobody","text":"a","more":', b"}"


def _make_body(unit: bytes, end: bytes, begin: bytes, most: int = BODY_BYTES) -> bytes:
    """Return a body of :data:`BODY_BYTES` bytes. It repeats `unit` at most `most` times, and ends with blanks."""
    room = BODY_BYTES - len(_BODY_START) - len(_BODY_END) - len(begin) - len(end)
    data = _BODY_START + begin + unit * min(most, room // len(unit)) + end + _BODY_END
    return data + b" " * (BODY_BYTES - len(data))


_MAX_VALUES = chosen.MAX_JSON_VALUES - 10
"""Number of values in the bodies with as many values as the service accepts. Ten are left for the other fields."""

BODIES = {
    "plain": _make_body(b"x", b'"', b'"'),
    "lists": _make_body(b"[],", b"0]", b"["),
    "lists, as many as may be": _make_body(b"[],", b"0]", b"[", _MAX_VALUES // 2),
    "numbers, as many as may be": _make_body(b"1e9,", b"0]", b"[", _MAX_VALUES),
    "objects, as many as may be": _make_body(b'{"a":0},', b"0]", b"[", _MAX_VALUES // 2),
    "quotes": _make_body(b'\\"', b'"', b'"'),
    "backslashes": _make_body(b"\\\\", b'"', b'"'),
    "names": b"{" + b",".join(b'"%06x":0' % n for n in range((BODY_BYTES - 2) // 11)) + b"}",
    "names, as many as may be": b"{" + b",".join(b'"%06x":0' % n for n in range(_MAX_VALUES)) + b"}",
}


def measure_l1(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row L1."""
    rows = lab.limit_rows(100, tiny=2)
    with local_service(workers=1) as service:
        runs = [partial(lab.run_child, "reading.send_body", service, body=name, rows=rows) for name in BODIES]
        plain, *others = lab.run_in_turns(*runs)
    ratios = [compute_ratios(found, plain, "service_cpu_s") for found in others]
    worst = max(range(len(ratios)), key=lambda number: statistics.median(ratios[number]))
    name = list(BODIES)[1 + worst]
    what = f"processor time of the service for the worst body of {BODY_BYTES // 1024} KB ({name})"
    yield Figure(what, ratios[worst], "x", at_most(3), "a text of that size")


def send_body(clock: Clock, to: dict[str, str], body: str, rows: int):
    """Send the same body many times."""
    return asyncio.run(_send_body(clock, to, BODIES[body], rows))


async def _send_body(clock, to, data, rows):
    async with aiohttp.ClientSession(to["url"], headers={"api-key": to["key"]}) as session:

        async def send() -> None:
            async with session.post("/v1/speech/generate", data=data) as answer:
                await answer.read()

        await send()
        with clock:
            for _ in range(rows):
                await send()
    return {"rows": rows}
