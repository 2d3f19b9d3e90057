"""Measure the row V1, the processor time for a second of audio whose voice is changed."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import aiohttp

from benchmarks.child import Clock
from benchmarks.lab import Lab
from benchmarks.report import Figure, at_most
from speechframe.client import SyncClient
from speechframe.local.start import local_service

API_PATH = "/v1/voice-changer/convert"
TARGET_VOICES = ("nora", "hank", "ruby", "oscar")
"""Names of the voices to which clips are changed."""

CLIP_TEXT = "The meeting in room {n} starts at ten in the morning, and everybody should bring the report."


def measure_v1(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row V1."""
    rows = lab.limit_rows(40, tiny=2)
    with local_service(workers=1, quota=10**9) as service, lab.make_folder() as folder:
        job = {"clips": _make_clips(service, Path(folder)), "rows": rows}
        (found,) = lab.run_in_turns(partial(lab.run_child, "changing.change_voices", service, **job))
    costs_s = [(one.cpu_s + one.service_cpu_s) / one.more["audio_s"] for one in found]
    what = "CPU-seconds of caller, service and worker for a second of changed audio, clips of 5 s"
    yield Figure(what, costs_s, "s", at_most(0.15), "a second of audio")


def _make_clips(service, folder: Path) -> list[str]:
    """Make two clips of voices that are not targets, and return the paths of their files."""
    found = []
    with SyncClient(service.settings) as client:
        for number, voice in enumerate(("en-US-miles", "en-US-joe")):
            path = folder / f"{number}.wav"
            path.write_bytes(client.generate(CLIP_TEXT.format(n=number), voice=voice).audio)
            found.append(str(path))
    return found


def change_voices(clock: Clock, to: dict[str, str], clips: list[str], rows: int):
    """Change the voice of clips through the service, one clip after the other, in turn to each target voice."""
    return asyncio.run(_change_voices(clock, to, [Path(clip).read_bytes() for clip in clips], rows))


async def _change_voices(clock, to, contents, rows):
    async with aiohttp.ClientSession(headers={"api-key": to["key"]}) as session:

        async def change(number: int) -> float:
            form = aiohttp.FormData({"voice_id": TARGET_VOICES[number % len(TARGET_VOICES)]})
            form.add_field("file", contents[number % len(contents)], filename="clip.wav")
            async with session.post(to["url"] + API_PATH, data=form) as answer:
                answer.raise_for_status()
                return (await answer.json())["audio_length_in_seconds"]

        # The service analyses a target voice at its first use, so each voice is used before the clock starts.
        for number in range(len(TARGET_VOICES)):
            await change(number)
        with clock:
            seconds = [await change(number) for number in range(rows)]
    return {"rows": len(seconds), "audio_s": sum(seconds)}
