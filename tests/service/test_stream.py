"""Audio that is sent while the rest is still being made: bytes, statuses, bills, and whoever goes away."""

import asyncio
import io
import json
import time
from urllib.parse import unquote

import aiohttp
import numpy as np
import pytest
import soundfile

from speechframe.audio import codec
from speechframe.audio.streams import StreamEncoder
from speechframe.engines.base import Utterance
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.spec import chosen
from speechframe.spec.speech import ChannelType, Format

PATH = "/v1/speech/stream"
WARNING = chosen.WARNING_HEADER
FALCON = "en-US-ivy"
THREE = "The boat is small. It went through the harbour! Nobody saw it."
LONG = " ".join(f"This is sentence number {number} of a text that takes its time." for number in range(70))


def body(text=THREE, **fields):
    return {"text": text, "voiceId": FALCON, **fields}


def moody(text, **fields):
    """Return a body for the voice whose text says how it behaves: each sentence for itself."""
    return {"text": text, "voiceId": "en-US-moody", "model": "gen2", "format": "PCM", **fields}


@pytest.fixture
def stream(http):
    async def ask(sent, **options):
        return await http.ask("POST", PATH, json=sent, **options)

    return ask


def opened(http, sent, key="main", headers=None):
    """Return the request of a stream, to be read piece by piece."""
    headers = {chosen.API_KEY_HEADER: key, **(headers or {})}
    return http.session.post(http.url + PATH, json=sent, headers=headers)


async def settled(http, key, used):
    """Wait until a key's balance is this much lower than `used` says it was."""
    end = time.monotonic() + 60
    while (remaining := await http.remaining(key)) != used:
        assert time.monotonic() < end, f"{remaining}, not {used}"
        await asyncio.sleep(0.02)


def own_samples(text=THREE):
    pieces = list(EspeakSpeaker().stream(Utterance(text, FALCON, "en-US")))
    return np.concatenate([piece.samples for piece in pieces]), pieces[0].sample_rate_hz


@pytest.mark.parametrize("audio_format", list(Format))
async def test_a_stream_is_one_continuous_file_of_what_the_engine_streams(stream, audio_format):
    channel_type = ChannelType.STEREO if audio_format in {Format.FLAC, Format.PCM} else ChannelType.MONO
    answer = await stream(body(format=audio_format, channelType=channel_type, sampleRate=16000))
    assert answer.status == 200
    assert answer.headers["Transfer-Encoding"] == "chunked"
    shape = codec.get_forced_shape(audio_format, channel_type, 16000)
    assert answer.headers["Content-Type"] == chosen.make_content_type(
        audio_format, shape[1], shape[0].channels
    )
    samples, rate_hz = own_samples()
    encoder = StreamEncoder(audio_format, channel_type, rate_hz, 16000)
    assert answer.body == encoder.add(samples) + encoder.finish()
    if audio_format in {Format.WAV, Format.FLAC, Format.MP3, Format.OGG}:
        audio = codec.decode(answer.body)
        rate_hz, decoded = audio.sample_rate_hz, audio.samples
        assert rate_hz == shape[1]
        assert len(decoded) / rate_hz == pytest.approx(len(samples) / 22050, abs=0.1)
        # All three sentences are there, not only what the first header speaks of.
        assert np.abs(decoded[-len(decoded) // 4 :]).max() > 0.05


@pytest.mark.rule("stream.sample-rate-default", "version.gen2-stream-deprecated")
async def test_the_model_decides_rate_catalogue_and_whether_it_is_deprecated(stream):
    falcon = await stream(body())
    assert soundfile.info(io.BytesIO(falcon.body)).samplerate == 24000
    assert chosen.DEPRECATION_HEADER not in falcon.headers
    assert falcon.warnings == []
    for spelling in ("gen2", "GEN2"):
        gen2 = await stream(body(voiceId="en-US-ruby", model=spelling))
        assert soundfile.info(io.BytesIO(gen2.body)).samplerate == 44100
        assert gen2.headers[chosen.DEPRECATION_HEADER] == "true"
        assert any("deprecated" in words for words in gen2.warnings)
    assert (await stream(body(model="FALCON"))).body == falcon.body
    # The catalogues are separate.
    assert (await stream(body(voiceId="en-US-ruby"))).status == 400
    assert (await stream(body(model="gen2"))).status == 400


@pytest.mark.slow
@pytest.mark.rule("stream.every-region", "stream.global-routes-nearest", "stream.us-east-default-model")
async def test_every_region_streams_with_its_own_model_and_cap(start, http_to, session):
    regions = ["us-east", "eu-central"]
    with start(regions=regions, workers=1) as service:
        key = service.api_key.get_secret_value()
        for address, model, cap in zip(
            service.settings.addresses().values(), ("gen2", "falcon-2"), (15, 2), strict=True
        ):
            headers = {chosen.API_KEY_HEADER: key}
            async with session.get(address + "/v1/limits", headers=headers) as answer:
                limits = await answer.json()
            assert limits["pools"]["streaming"] == cap
            assert limits["stream"]["default_model"] == model
            assert limits["stream"]["max_sockets"] == cap * chosen.SOCKETS_PER_CONCURRENCY
            voice = "en-US-ruby" if model == "gen2" else FALCON
            async with session.post(address + PATH, json=body(voiceId=voice), headers=headers) as answer:
                assert answer.status == 200
                assert (chosen.DEPRECATION_HEADER in answer.headers) is (model == "gen2")
            async with session.ws_connect(f"{address}{PATH}-input", headers=headers) as socket:
                assert (chosen.DEPRECATION_HEADER in socket._response.headers) is (model == "gen2")
                warned = any("deprecated" in words for words in socket._response.headers.getall(WARNING, []))
                assert warned is (model == "gen2")
                await socket.send_str(
                    json.dumps({"voice_config": {"voiceId": voice}, "text": "Hi.", "end": True})
                )
                assert "audio" in await socket.receive_json(timeout=30)


@pytest.mark.quiet
async def test_the_first_bytes_leave_before_the_rest_is_spoken(http):
    started = time.monotonic()
    async with opened(http, moody("Hello there. sleep 1.0 now.")) as answer:
        assert await answer.content.readany()
        first_s = time.monotonic() - started
        await answer.content.read()
    assert time.monotonic() - started > 1.0
    assert first_s < 0.7


@pytest.mark.rule("stream.statuses-71")
@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (body(sampleRate=22050), 400, "sampleRate"),
        (body(model="gen3"), 400, "model"),
        (body(voiceId="nobody"), 400, "voiceId"),
        (body("..."), 400, "speak"),
        (body("x" * 5001), 400, "5,000"),
        (moody("refuse this. Hello."), 400, "speakable"),
        (moody("raise this. Hello."), 500, "nothing was billed"),
        (moody("crash now. Hello."), 500, "nothing was billed"),
    ],
)
async def test_what_fails_before_the_first_byte_is_a_status_and_costs_nothing(
    stream, http, sent, status, words
):
    before = await http.remaining("spare")
    answer = await stream(sent, key="spare")
    assert answer.status == status
    assert words in answer.message
    assert await http.remaining("spare") == before


@pytest.mark.rule("stream.statuses-71")
async def test_keys_and_quota(stream):
    assert (await stream(body(), key=None)).status == 403
    assert (await stream(body(), key="wrong")).status == 403
    answer = await stream(body(), key="tiny-stream")
    assert (answer.status, answer.code) == (402, "QUOTA_EXHAUSTED")


@pytest.mark.rule("stream.statuses-71")
async def test_a_body_that_stalls_is_408(hasty, http_to):
    async def slow():
        yield b'{"text": '
        await asyncio.sleep(60)

    answer = await http_to(hasty).ask("POST", PATH, data=slow())
    assert answer.status == 408


async def test_a_body_that_turns_out_too_large_is_refused_while_it_is_read(http):
    async def pieces():
        for _ in range(30):
            yield b" " * 100_000

    answer = await http.ask("POST", PATH, data=pieces())
    assert (answer.status, answer.code) == (400, "PAYLOAD_TOO_LARGE")


@pytest.mark.rule("limit.stream-concurrency-429", "stream.statuses-71")
async def test_over_the_cap_is_429_and_the_other_pool_is_free(http, stream):
    # More than the connection holds: it lasts until it is left, however busy this machine is.
    held = body(LONG, sampleRate=48000, channelType="STEREO")
    async with opened(http, held, "slow"), opened(http, held, "slow"):
        answer = await stream(body(), key="slow")
        assert (answer.status, answer.code) == (429, "CONCURRENCY_LIMIT")
        assert int(answer.headers[chosen.RETRY_AFTER_HEADER]) >= 1
        assert (await http.generate(key="slow")).status == 200


async def test_a_stream_is_billed_once_and_as_the_text_says(stream, http):
    before = await http.remaining("spare")
    await stream(body("Hello. [pause 0.2s] You there."), key="spare")
    assert await http.remaining("spare") == before - len("Hello.  You there.")


async def test_a_repeat_with_its_idempotency_key_is_the_same_and_bills_nothing(stream, http):
    before = await http.remaining("spare")
    headers = {chosen.IDEMPOTENCY_HEADER: "stream-1"}
    first = await stream(body(), key="spare", headers=headers)
    again = await stream(body(), key="spare", headers=headers)
    assert first.body == again.body
    assert await http.remaining("spare") == before - len(THREE)
    other = await stream(body("Other."), key="spare", headers=headers)
    assert other.status == 400
    # What generate was asked for is another request, whatever its text.
    assert (await http.generate(THREE, key="spare", headers=headers)).status == 400


async def test_a_repeat_of_a_stream_that_was_cut_off_is_billed_for_the_rest_only(http, stream, hold):
    before = await http.remaining("spare")
    made, headers = "Hello there. ", {chosen.IDEMPOTENCY_HEADER: "cut-off-stream"}
    sent = moody(f"{made}{hold.text} long. The rest.")
    answer = await opened(http, sent, "spare", headers=headers)
    await answer.content.readany()
    answer.close()
    await settled(http, "spare", before - len(made))
    hold.let_go()
    for _ in range(2):
        assert (await stream(sent, key="spare", headers=headers)).status == 200
        assert await http.remaining("spare") == before - len(sent["text"])


async def test_a_take_is_another_reading(stream):
    sent = body(voiceId="en-US-ruby", model="gen2")
    first, second = await stream(sent), await stream(sent, headers={chosen.TAKE_HEADER: "2"})
    assert first.body != second.body


async def test_what_is_ignored_or_replaced_is_said(stream):
    answer = await stream(
        body(
            "Hello. [pause 9s] Пока, everybody out there.",
            variation=3,
            format="ULAW",
            sampleRate=16000,
            channelType="STEREO",
            multiNativeLocale="en-US",
            surprise=1,
        )
    )
    words = "; ".join(map(unquote, answer.warnings))
    for part in (
        "variation is for gen2 only",
        "MONO at 8000 Hz",
        "multiNativeLocale",
        "surprise",
        "pause",
        "П",
    ):
        assert part in words
    assert answer.headers["Content-Type"] == "audio/basic"
    assert (await stream(body(format="ULAW"))).warnings == []


async def test_a_sentence_the_voice_cannot_speak_is_left_out(stream):
    mixed, plain = (
        await stream(body("Привет. Hello there, Sir, Madam.", format="PCM")),
        await stream(body("Hello there, Sir, Madam.", format="PCM")),
    )
    assert mixed.status == 200
    assert mixed.body == plain.body
    # Said all the same, though nothing is heard where it was found.
    assert any("П" in unquote(words) for words in mixed.warnings)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verb", ["crash now", "raise it"])
async def test_a_failure_after_the_first_byte_ends_the_body_uncleanly_and_bills_what_was_made(
    http, verb, hold
):
    before = await http.remaining("spare")
    made = f"Hello there. {hold.text} long. "
    got = bytearray()
    with pytest.raises(aiohttp.ClientPayloadError):  # noqa: PT012 - the pieces before it count
        async with opened(http, moody(f"{made}{verb}. Never."), "spare") as answer:
            assert answer.status == 200
            got += await answer.content.readany()
            hold.let_go()
            async for data in answer.content.iter_any():
                got += data
    assert got
    await settled(http, "spare", before - len(made))


@pytest.mark.quiet
async def test_a_client_that_leaves_frees_its_slots_at_once_and_pays_for_what_was_spoken(
    http, service, tools, stream
):
    before = await http.remaining("slow")
    workers = set(tools.worker_pids(service.pid))
    for _ in range(2):
        answer = await opened(http, moody("Hello there. sleep 2.8 long. Never."), "slow")
        await answer.content.readany()
        answer.close()
    left = asked = time.monotonic()
    # With a slot it is answered once there is a worker again; without, at once.
    while (again := await stream(body("Free."), key="slow")).status == 429:
        await asyncio.sleep(0.02)
        asked = time.monotonic()
    assert again.status == 200
    assert asked - left < 1.0
    await settled(http, "slow", before - 2 * len("Hello there. ") - len("Free."))
    # Their jobs keep no worker busy to its end either. Workers are replaced one after the other.
    await tools.until(lambda: len(workers - set(tools.worker_pids(service.pid))) >= 2)
