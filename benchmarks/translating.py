"""Measure the row T1, which compares translation through the service with the engine alone."""

import asyncio
import statistics
from collections.abc import Iterator
from functools import partial

import aiohttp

from benchmarks.child import Clock
from benchmarks.lab import Lab, compute_ratios
from benchmarks.report import Figure, at_least
from speechframe.local.start import local_service

API_PATH = "/v1/text/translate"
CALL_TEXTS = 200
"""Number of texts in a call."""

_LINES = (
    "Your order {n} has been shipped and will arrive on Monday.",
    "The meeting in room {n} starts at ten in the morning.",
    "Click the button below to reset your password, then enter {n}.",
    "Thank you for calling, you are number {n} in the queue.",
    "We need {n} more days to finish this project, please be patient.",
)


def measure_t1(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row T1."""
    rows = lab.limit_rows(1000)
    # The service has one worker, because the engine alone uses one thread.
    with local_service(workers=1, quota=10**9) as service:
        alone, ours = lab.run_in_turns(
            partial(lab.run_child, "translating.translate_directly", rows=rows),
            partial(lab.run_child, "translating.translate_through_service", service, rows=rows),
        )
    pace = statistics.median(one.rows / one.wall_s for one in alone)
    what, reference = f"texts a second, calls of {CALL_TEXTS}", f"the engine alone, {pace:.0f} texts/s"
    yield Figure(what, compute_ratios(alone, ours, "wall_s"), "x", at_least(0.8), reference)


def make_texts(rows: int) -> list[str]:
    """Return `rows` different lines of usual length."""
    return [_LINES[n % len(_LINES)].format(n=n) for n in range(rows)]


def translate_directly(clock: Clock, rows: int):
    """Translate lines with the engine in this process, in one thread as a worker of the service does."""
    from speechframe.local.engines.translation.firefox import FirefoxTranslator

    engine = FirefoxTranslator()
    pair = next(pair for pair in engine.pairs() if (pair.source, pair.target) == ("en", "pt-BR"))
    engine.translate(["The model is there."], pair)
    with clock:
        done = engine.translate(make_texts(rows), pair)
    return {"rows": len(done)}


def translate_through_service(clock: Clock, to: dict[str, str], rows: int):
    """Translate lines through the service, :data:`CALL_TEXTS` lines in a call, one call after the other.

    The service also detects the source language.
    """
    return asyncio.run(_translate_through_service(clock, to, rows))


async def _translate_through_service(clock, to, rows):
    async def call(session: aiohttp.ClientSession, texts: list[str]) -> list[str]:
        body = {"targetLanguage": "pt-BR", "texts": texts}
        async with session.post(to["url"] + API_PATH, json=body, headers={"api-key": to["key"]}) as answer:
            answer.raise_for_status()
            return [entry["translated_text"] for entry in (await answer.json())["translations"]]

    async with aiohttp.ClientSession() as session:
        await call(session, ["The model is there."])
        texts, done = make_texts(rows), []
        with clock:
            for first in range(0, rows, CALL_TEXTS):
                done += await call(session, texts[first : first + CALL_TEXTS])
    return {"rows": len(done)}
