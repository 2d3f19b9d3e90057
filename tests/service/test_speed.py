"""Figures: what the service itself costs, and what a second worker brings."""

import asyncio
import time

import psutil
import pytest
from convert_lab import clip
from dub_lab import create, status, step


async def rate(http, texts, parallel, **fields):
    """Return requests a second with so many in flight."""
    waiting = iter(texts)

    async def lane():
        for text in waiting:
            assert (await http.generate(text, **fields)).status == 200

    started = time.perf_counter()
    await asyncio.gather(*[lane() for _ in range(parallel)])
    return len(texts) / (time.perf_counter() - started)


async def overhead_ms(http, service, requests):
    """Return the CPU time of the service's own process, without its workers, for a request."""

    def cpu_s():
        times = psutil.Process(service.pid).cpu_times()
        return times.user + times.system

    texts = [f"This is a short line of a dialogue, number {n}." for n in range(requests)]
    await rate(http, texts[:20], 10)
    before = cpu_s()
    await rate(http, texts, 10, encodeAsBase64=True, format="FLAC")
    return (cpu_s() - before) / requests * 1000


@pytest.mark.slow
async def test_two_workers_do_twice_the_work_of_one(start, http_to):
    """Without noise: jobs that only take time show that nothing else makes them wait."""
    rates = []
    for workers in (1, 2):
        with start(workers=workers) as service:
            rates.append(await rate(http_to(service), ["sleep 0.2"] * 8, 8))
    assert rates[1] >= 1.5 * rates[0]


@pytest.mark.quiet
async def test_the_service_itself_costs_little(http, service):
    # CPU time, which a busy machine stretches: on a quiet one it is below 3 ms.
    assert await overhead_ms(http, service, 150) < 6


async def p95_ms(call, calls):
    """Return the time within which 19 of 20 calls are answered."""
    took_s = []
    for _ in range(calls):
        started = time.perf_counter()
        await call()
        took_s.append(time.perf_counter() - started)
    return sorted(took_s)[calls * 19 // 20] * 1000


@pytest.mark.slow
@pytest.mark.quiet
async def test_calls_are_quick_while_two_media_are_dubbed(start, http_to):
    lines = [
        f"{second // 60:02d}:{second % 60:02d}.000 --> {second // 60:02d}:{second % 60:02d}.900\n"
        f"<v ANNA>This is line number {second} of the film.\n"
        for second in range(600)
    ]
    script, medium = "\n".join(["WEBVTT\n", *lines]), clip(600.0, rate_hz=8000)
    with start(keys=["main"], workers=1, options=["--dub-workers", "2"]) as service:
        http = http_to(service)

        async def generated():
            assert (await http.generate("A short line of a dialogue.", voiceId="ruby")).status == 200

        await p95_ms(generated, 20)
        alone_ms = await p95_ms(generated, 60)
        jobs = [(await create(http, medium, script=script)).json["job_id"] for _ in range(2)]
        for job_id in jobs:
            await step(http, job_id, "speak")
        assert await p95_ms(lambda: status(http, jobs[0]), 100) <= 50
        assert await p95_ms(generated, 60) <= 1.5 * alone_ms + 20
        assert {(await status(http, job_id))["status"] for job_id in jobs} == {"IN_PROGRESS"}
