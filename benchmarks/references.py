"""Call the same service without speechframe, as jobs that speechframe is compared with."""

import asyncio
import base64
import json
from collections.abc import Iterator

import aiohttp
from tenacity import retry, retry_if_exception_type, wait_random_exponential

from benchmarks.child import Clock
from benchmarks.texts import SAMPLE_RATE, VOICE, make_lines

API_PATH = "/v1/speech/generate"


def _make_body(text: str, format: str) -> dict[str, object]:
    return {
        "text": text,
        "voiceId": VOICE,
        "format": format,
        "sampleRate": SAMPLE_RATE,
        "encodeAsBase64": True,
    }


async def post(
    session: aiohttp.ClientSession, to: dict[str, str], text: str, format: str
) -> tuple[bytes, list]:
    """Request speech for one text, and return its audio and words, decoded with json and base64."""
    async with session.post(
        to["url"] + API_PATH, json=_make_body(text, format), headers={"api-key": to["key"]}
    ) as answer:
        answer.raise_for_status()
        content = json.loads(await answer.read())
    return base64.b64decode(content["encodedAudio"]), content["wordDurations"]


def run_bare_loop(
    clock: Clock,
    to: dict[str, str],
    rows: int,
    characters: int,
    workers: int,
    format: str = "WAV",
    warm: int = 0,
):
    """Request speech with `workers` workers that share an iterator of texts. They decode the audio and drop it."""
    return asyncio.run(_run_workers(post, clock, to, rows, characters, workers, format, warm))


def run_tenacity_alone(clock: Clock, to: dict[str, str], rows: int, characters: int, workers: int):
    """Request speech with workers that ignore the cap, and repeat refused calls with exponential backoff."""
    wait, kind = wait_random_exponential(multiplier=1, max=60), aiohttp.ClientResponseError
    persistent = retry(wait=wait, retry=retry_if_exception_type(kind))(post)
    return asyncio.run(_run_workers(persistent, clock, to, rows, characters, workers, "WAV", warm=0))


async def _run_workers(post_text, clock, to, rows, characters, workers, format, warm):
    answered = 0

    async def request_texts(session: aiohttp.ClientSession, texts: Iterator[str]) -> None:
        nonlocal answered
        for text in texts:
            await post_text(session, to, text, format)
            answered += 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=workers)) as session:
        early = make_lines(warm, characters, first=rows)
        await asyncio.gather(*(request_texts(session, early) for _ in range(workers)))
        answered, todo = 0, make_lines(rows, characters)
        with clock:
            await asyncio.gather(*(request_texts(session, todo) for _ in range(workers)))
    return {"rows": answered}
