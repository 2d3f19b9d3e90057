"""Call the same service without speechframe, as jobs that speechframe is compared with."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

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
    clock: Clock, to: dict[str, str], rows: int, characters: int, workers: int, format: str, warm: int = 0
):
    """Request speech with `workers` workers that share an iterator of texts. They decode the audio and drop it."""
    return asyncio.run(_run_bare_loop(clock, to, rows, characters, workers, format, warm))


async def _run_bare_loop(clock, to, rows, characters, workers, format, warm):
    audio_bytes = words = answered = 0

    async def request_texts(session: aiohttp.ClientSession, texts: Iterator[str]) -> None:
        nonlocal audio_bytes, words, answered
        for text in texts:
            audio, found = await post(session, to, text, format)
            audio_bytes, words, answered = audio_bytes + len(audio), words + len(found), answered + 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=workers)) as session:
        early = make_lines(warm, characters, first=rows)
        await asyncio.gather(*(request_texts(session, early) for _ in range(workers)))
        audio_bytes = words = answered = 0
        todo = make_lines(rows, characters)
        with clock:
            await asyncio.gather(*(request_texts(session, todo) for _ in range(workers)))
    return {"rows": answered, "audio_bytes": audio_bytes, "words": words}


def run_tenacity_alone(
    clock: Clock, to: dict[str, str], rows: int, characters: int, workers: int, format: str
):
    """Request speech with workers that ignore the cap, and repeat refused calls with exponential backoff."""
    return asyncio.run(_run_tenacity_alone(clock, to, rows, characters, workers, format))


async def _run_tenacity_alone(clock, to, rows, characters, workers, format):
    persistent = retry(
        wait=wait_random_exponential(multiplier=1, max=60),
        retry=retry_if_exception_type(aiohttp.ClientResponseError),
    )(post)
    answered = 0

    async def request_texts(session: aiohttp.ClientSession, texts: Iterator[str]) -> None:
        nonlocal answered
        for text in texts:
            await persistent(session, to, text, format)
            answered += 1

    todo = make_lines(rows, characters)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=workers)) as session:
        with clock:
            await asyncio.gather(*(request_texts(session, todo) for _ in range(workers)))
    return {"rows": answered}


def read_raw_keys(clock: Clock, path: str):
    """Read the keys and statuses of every file of a run with pyarrow. A scan by speechframe cannot read less."""
    import pyarrow.parquet as pq

    def read(part: Path) -> int:
        return pq.ParquetFile(part).read(columns=["request_key", "status"], use_threads=False).num_rows

    parts = sorted(Path(path, "parts").glob("*.parquet"))
    read(parts[0])
    with clock:
        rows = sum(map(read, parts))
    return {"rows": rows}
