"""Figures: what the service itself costs, and what a second worker brings."""

import asyncio
import time

import psutil
import pytest


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
