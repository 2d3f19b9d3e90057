"""Call the same service as a naive notebook does: gather over all rows, tenacity, a DataFrame and to_parquet."""

import asyncio

import aiohttp
import pandas as pd
import pyarrow as pa  # noqa: F401 - to_parquet would import it while the clock runs
import pyarrow.parquet as pq  # noqa: F401 - as for pyarrow
from tenacity import retry, stop_after_attempt, wait_exponential

from benchmarks.child import Clock
from benchmarks.references import post
from benchmarks.texts import make_lines


def run_naive_notebook(
    clock: Clock, to: dict[str, str], rows: int, characters: int, workers: int, format: str, warm: int
):
    """Start a task for each row, keep all audio in memory, and write one file at the end."""
    return asyncio.run(_run_naive_notebook(clock, to, rows, characters, workers, format, warm))


async def _run_naive_notebook(clock, to, rows, characters, workers, format, warm):
    places = asyncio.Semaphore(workers)
    async with aiohttp.ClientSession() as session:

        @retry(wait=wait_exponential(), stop=stop_after_attempt(5))
        async def request_row(text: str) -> dict[str, object]:
            async with places:
                audio, words = await post(session, to, text, format)
            return {"text": text, "audio": audio, "words": words}

        async def write_rows(first: int, count: int, path: str) -> int:
            frame = pd.DataFrame(
                await asyncio.gather(*map(request_row, make_lines(count, characters, first)))
            )
            frame.to_parquet(path)
            return len(frame)

        await write_rows(rows, warm, "warm.parquet")
        with clock:
            answered = await write_rows(0, rows, "naive.parquet")
    return {"rows": answered}
