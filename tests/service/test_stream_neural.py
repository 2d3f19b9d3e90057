"""The packaged neural voice through both ways of streaming: sentence by sentence, heard before it is all made."""

import asyncio
import base64
import time

import pytest
from socket_lab import talking

from speechframe.audio import codec
from speechframe.spec import chosen
from speechframe.spec.speech import Format

PATH = "/v1/speech/stream"
JOE = "en-US-joe"
SENTENCES = [f"This is sentence number {number} of a story that somebody reads." for number in range(6)]
TEXT = " ".join(SENTENCES)


@pytest.fixture(scope="module")
def neural(start):
    with start(keys=["main", "left"], workers=1) as running:
        yield running


@pytest.fixture
def client(neural, http_to):
    return http_to(neural, "main")


@pytest.fixture
async def joe(client):
    """Give a way to open streams of a voice that is loaded already."""

    def opened(text=TEXT, key="main", **fields):
        body = {"text": text, "voiceId": JOE, "model": "gen2", "sampleRate": 24000, **fields}
        return client.session.post(client.url + PATH, json=body, headers={chosen.API_KEY_HEADER: key})

    async with opened("Hello.") as answer:
        assert len(await answer.read()) > 10_000
    return opened


@pytest.mark.quiet
@pytest.mark.slow
async def test_the_first_bytes_leave_before_the_end_and_all_of_it_plays(joe):
    started = time.monotonic()
    async with joe(format="WAV") as answer:
        assert answer.status == 200
        data = bytearray(await answer.content.readany())
        first_s = time.monotonic() - started
        async for more in answer.content.iter_any():
            data += more
    assert first_s < (time.monotonic() - started) / 2
    audio = codec.decode(codec.with_length(bytes(data)))
    assert audio.sample_rate_hz == 24000
    assert 2.0 * len(SENTENCES) < audio.audio_seconds < 6.0 * len(SENTENCES)
    # A stream has no words beside it: not in the body, which is one file, and not in a header.
    assert bytes(data).count(b"RIFF") == 1
    assert not [name for name in answer.headers if "word" in name.lower()]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("audio_format", [Format.MP3, Format.FLAC, Format.OGG])
async def test_every_container_of_it_plays(joe, audio_format):
    async with joe(SENTENCES[0], format=audio_format) as answer:
        audio = codec.decode(codec.with_length(await answer.read()))
    assert audio.audio_seconds > 2.0


async def test_who_leaves_at_the_first_bytes_pays_for_the_sentences_that_were_spoken(client, joe):
    before = await client.remaining("left")
    # More than the connection holds: it is not all spoken, however late it is left.
    sentences = SENTENCES * 10
    answer = await joe(" ".join(sentences), key="left", sampleRate=48000, channelType="STEREO", format="WAV")
    await answer.content.readany()
    answer.close()
    async with asyncio.timeout(60):
        while not (spent := before - await client.remaining("left")):  # noqa: ASYNC110 - the service runs elsewhere
            await asyncio.sleep(0.02)
    # Behind each but the last there is a space.
    assert spent in {sum(len(one) + 1 for one in sentences[:count]) for count in range(1, len(sentences))}


@pytest.mark.quiet
@pytest.mark.slow
async def test_a_context_hears_it_sentence_by_sentence_and_has_no_words(client, joe):
    del joe
    async with talking(client, "format=WAV&sample_rate=24000&model=gen2") as talk:
        await talk.send(context_id="a", voice_config={"voiceId": "joe"}, min_buffer_size=0)
        started = time.monotonic()
        await talk.send(context_id="a", text=TEXT, end=True)
        await talk.frame()
        first_s = time.monotonic() - started
        await talk.finals(1)
        assert first_s < (time.monotonic() - started) / 2
    *audio, final = talk.frames
    assert final["final"] is True
    assert {frozenset(one) for one in audio} == {frozenset({"audio", "context_id", "trace_id"})}
    assert [base64.b64decode(one["audio"])[:4] == b"RIFF" for one in audio] == [True] + [False] * (
        len(audio) - 1
    )
    assert len(audio) >= len(SENTENCES)
    assert codec.decode(codec.with_length(talk.audio("a"))).audio_seconds > 2.0 * len(SENTENCES)
