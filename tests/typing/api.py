"""Uses the public names the way people do; checked by mypy in `make lint`, never run."""

import asyncio
from pathlib import Path

import pandas as pd

import speechframe as spf
from speechframe.testing import FaultyService


def dataset(frame: pd.DataFrame) -> pd.DataFrame:
    """Table in, dataset out."""
    run: spf.Run = spf.generate(
        frame, text="line", voice=spf.col("voice"), rate=[1, 2], run_dir=Path("runs/a")
    )
    for batch in run.batches(["audio", "status"]):
        print(batch.num_rows)
    estimate: spf.Estimate = spf.generate(frame, voice="nora", dry_run=True).estimate or spf.Estimate(
        0, 0, 0, 0, 0, 0
    )
    print(estimate.credits)
    changed: spf.Run = spf.change_voice(run, audio="audio", voice="hank", retain_accent=False)
    heard: spf.Run = spf.transcribe(run, reference="text", max_concurrency=1)
    spf.generate(
        heard, text="transcript", voice=spf.balanced({"en": ["nora", "joe"]}, by="language"), dry_run=True
    )
    print(changed.path)
    found: spf.Changes = spf.changes(run, frame)
    print(found.credits, found.to_pandas())
    again: spf.Run = spf.resume("runs/a", table=frame, max_credits=10.5, on_error="column")
    return again.to_pandas(audio=True)


def localised(frame: pd.DataFrame) -> spf.Run:
    """Table in, dataset in several languages out."""
    run: spf.Run = spf.translate(
        frame, text="line", targets=["fr-FR", "pt-BR"], source_locale="en", glossary={"file": "fichier"}
    )
    return spf.generate(run, text="translated_text", locale=spf.col("locale"), voice=spf.col("voice"))


def line() -> float:
    """Say one line."""
    clip: spf.Clip = spf.say("Hello", voice="nora", rate=5)
    clip.save("a.wav")
    voices: pd.DataFrame = spf.voices(locale="de-DE")
    print(voices)
    return clip.audio_seconds


def odd() -> None:
    """Make a faulty service."""
    with FaultyService(odd={"Hello": {"wordDurations": "[]"}}) as service:
        print(service.url)


def heard(tokens: list[str]) -> float:
    """Hear a text while it is made, and while it is written."""
    with spf.stream("Hello", voice="ivy", format="PCM") as stream:
        for chunk in stream:
            print(len(chunk), stream.first_byte_ms)
    spoken: spf.SyncStream = spf.stream(tokens, voice="ivy")
    spoken.save(Path("a.wav"))
    with spf.SyncClient() as client, client.stream_session(voice="ivy") as session:
        session.speak(tokens).read()
    return spoken.summary.audio_seconds


async def conversation(tokens: list[str]) -> bytes:
    """Speak turns over a socket."""
    async with spf.Client() as client, client.stream_session(voice="ivy") as session:
        async with await session.open(rate=3) as context:
            await context.send("Hello.")
        async for event in context:
            print(event.turn)
        stream: spf.Stream = session.speak(tokens)
        return await stream.read()


async def program() -> str:
    """Use the async face."""
    with spf.local_service(quota=1000) as service:
        run = await spf.aio.generate(["a"], voice="nora", service=service, wait=False)
        run.stop(drain=True)
        return (await run).status


async def client() -> int | None:
    """Call a service by hand."""
    async with spf.Client(base_url="https://speech.example", api_key="k") as service:
        answer = await service.generate("Hello", voice="nora")
        changed = await service.change_voice(Path("a.wav"), voice="nora", retain_prosody=False)
        print(changed.transcription)
        translated = await service.translate(["Hello"], target="fr-FR", source="en")
        print(translated.translations, translated.routes)
        return answer.remaining_characters


def errors() -> None:
    """Catch what is raised."""
    try:
        asyncio.run(program())
    except spf.InvalidRows as error:
        print(pd.DataFrame(error.problems))
    except spf.ServiceError as error:
        print(error.status, error.code, error.trace_id, error.retryable)
    except spf.SpeechframeError as error:
        print(error)
