"""Measure the row L1, which compares the most expensive request body with a plain body of the same size."""

import asyncio
from collections.abc import Iterator

import aiohttp

from benchmarks.changing import read_service_cpu_s
from benchmarks.child import Clock
from benchmarks.lab import Lab
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


def send_bodies(clock: Clock, to: dict[str, str], rows: int, pid: int):
    """Send each body equally often, and measure the service's processor time for one request, by body."""
    return asyncio.run(_send_bodies(clock, to, rows, pid))


async def _send_bodies(clock, to, rows, pid):
    cpu_ms, times = {}, rows // len(BODIES)
    async with aiohttp.ClientSession(to["url"], headers={"api-key": to["key"]}) as session:

        async def send(data: bytes) -> None:
            async with session.post("/v1/speech/generate", data=data) as answer:
                await answer.read()

        await send(BODIES["plain"])
        with clock:
            for name, data in BODIES.items():
                before_s = read_service_cpu_s(pid)
                for _ in range(times):
                    await send(data)
                cpu_ms[name] = 1000 * (read_service_cpu_s(pid) - before_s) / times
    return {"rows": times * len(BODIES), "cpu_ms": cpu_ms}


def measure_l1(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row L1."""
    with local_service(workers=1) as service:
        job = {"rows": lab.limit_rows(100, tiny=2) * len(BODIES), "pid": service.pid}
        found = [lab.run_child("reading.send_bodies", service, **job) for _ in range(lab.rounds)]
    ratios, names = [], []
    for ran in found:
        plain_ms = max(ran.more["cpu_ms"].pop("plain"), 0.01)
        names.append(max(ran.more["cpu_ms"], key=ran.more["cpu_ms"].__getitem__))
        ratios.append(ran.more["cpu_ms"][names[-1]] / plain_ms)
    what = f"processor time of the service for the worst body of {BODY_BYTES // 1024} KB ({names[-1]})"
    target = None if lab.tiny else at_most(3)
    reference = "a text of that size"
    yield Figure.from_rounds("L1", what, ratios, "x", target, reference, [one.service_share for one in found])


ROWS = {"L1": measure_l1}
