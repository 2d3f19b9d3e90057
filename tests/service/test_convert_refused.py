"""What the voice changer refuses, engines of it that misbehave, and how many calls at once."""

import asyncio
import re

import pytest
from convert_lab import (
    CLIP,
    CRASH,
    GARBAGE,
    HANG,
    OURS,
    PATH,
    RAISE,
    REFUSE,
    VANISH,
    WAIT,
    clip,
    convert,
    no_uploads,
)
from socket_lab import healthy

from speechframe.local.service.config import WorkerLimits
from speechframe.spec import chosen
from speechframe.spec.endpoints import get_endpoint
from speechframe.spec.limits import PITCH, RATE, VARIATION


@pytest.fixture
def service(changing):
    return changing


# What is wrong with a request


@pytest.mark.rule("limit.changer-ranges")
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        *((name, span.high + 1, "is out of range") for name, span in (("pitch", PITCH), ("rate", RATE), ("variation", VARIATION))),
        ("pitch", "1.5", "is not a whole number"),
        ("audio_duration", "-1", "is out of range"),
        ("audio_duration", "nan", "is not a finite number"),
        ("audio_duration", "1801", "is longer than this service allows"),
        ("format", "OGG", "is not one of the allowed values"),
        ("format", "wav", "did you mean WAV?"),
        ("retain_accent", "perhaps", "is neither true nor false"),
        ("voice_id", "nobody", "is not a voice of this model"),
        ("style", "Shouting", "is not a style of en-US-moody"),
        ("multi_native_locale", "fr-FR", "is not spoken by en-US-moody"),
    ],
)  # fmt: skip
async def test_a_field_that_is_wrong_is_400_and_named_as_the_form_calls_it(
    http, service, field, value, words
):
    before = await http.remaining()
    answer = await convert(http, **{field: value})
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert re.match(rf"{field}\b", answer.message), answer.message
    assert words in answer.message
    assert await http.remaining() == before
    assert no_uploads(service)


@pytest.mark.parametrize(("fields", "file", "words"), [
    ({"file_url": "http://127.0.0.1:9/a.wav"}, CLIP, "file, file_url are both given"),
    ({}, None, "file, file_url are both missing"),
])  # fmt: skip
async def test_both_or_neither_of_file_and_file_url_is_400_naming_both(http, fields, file, words):
    answer = await convert(http, file, **fields)
    assert answer.status == 400
    assert words in answer.message


async def test_everything_that_is_wrong_is_said_at_once(http):
    answer = await convert(http, None, voice_id="", pitch=99, format="XYZ")
    for words in ("voice_id is missing", "pitch is out of range", "format is not one", "are both missing"):
        assert words in answer.message


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "the file is empty"),
        (b"hello, this is a letter. " * 50, "no audio that can be read"),
        (clip(0.0), "the file has no samples"),
        (clip(rate_hz=1000), "the sample rate 1000 Hz"),
        (CLIP[:9000], "truncated"),
        (clip(2000.0, 4000, format="FLAC"), "longer than 1800 seconds"),
    ],
)
async def test_a_clip_that_is_none_is_400_by_what_it_is_and_costs_nothing(http, service, file, words):
    before = await http.remaining()
    answer = await convert(http, file)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert answer.message.startswith("file: ")
    assert words in answer.message
    assert await http.remaining() == before
    assert no_uploads(service)


# Engines that misbehave


@pytest.mark.parametrize("pitch", [CRASH, VANISH, RAISE, *GARBAGE[:3]])
async def test_an_engine_that_fails_is_one_500_that_bills_nothing(http, service, pitch):
    await healthy(http)
    before = await http.remaining()
    shelf = sorted(path.name for path in (service.data / "audio").iterdir())
    answer = await convert(http, pitch=pitch)
    assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
    assert "nothing was billed" in answer.message
    assert "secret" not in answer.message
    assert await http.remaining() == before
    assert sorted(path.name for path in (service.data / "audio").iterdir()) == shelf
    assert no_uploads(service)
    assert (await convert(http)).status == 200
    await healthy(http)


@pytest.mark.slow
async def test_an_engine_that_hangs_is_ended_after_a_time_that_grows_with_the_clip(
    start_with, engines, http_to
):
    assert (
        WorkerLimits(base_s=1).compute_change_limit_s(0, 60, 0)
        > WorkerLimits(base_s=1).compute_change_limit_s(0, 1, 0)
        > 1
    )
    with start_with(engines, keys=["main"], workers=1, options=[*OURS, "--idle-timeout-s", "2"]) as impatient:
        http = http_to(impatient)
        before = await http.remaining()
        answer = await convert(http, clip(0.05), pitch=HANG)
        assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
        assert await http.remaining() == before
        assert no_uploads(impatient)
        await healthy(http)


async def test_what_only_the_engine_sees_is_400_in_its_words(http):
    before = await http.remaining()
    answer = await convert(http, pitch=REFUSE)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert "there is no voice in the clip" in answer.message
    assert await http.remaining() == before


async def test_a_caller_that_goes_away_leaves_nothing_behind_and_pays_nothing(http, service, tools, work):
    before = await http.remaining()
    shelf = sorted(path.name for path in (service.data / "audio").iterdir())
    asking = asyncio.ensure_future(convert(http, pitch=WAIT))
    await tools.until(work.begun)
    assert not no_uploads(service)
    asking.cancel()
    await tools.until(lambda: no_uploads(service))
    work.let_go()
    while (await http.get("/healthz")).json["workers"]["busy"]:  # noqa: ASYNC110 - the service runs elsewhere
        await asyncio.sleep(0.02)
    assert sorted(path.name for path in (service.data / "audio").iterdir()) == shelf
    assert await http.remaining() == before


# How many at once


@pytest.mark.slow
async def test_a_worker_that_would_be_long_at_what_nobody_waits_for_is_replaced(
    start_with, engines, http_to, tools, work
):
    with start_with(engines, workers=1, options=[*OURS, "--job-timeout-s", "120"]) as running:
        http = http_to(running)

        async def replaced():
            return (await http.get("/healthz", key=None)).json["workers"]["replaced"]

        await left(http, running, tools, work, pitch=WAIT)
        work.let_go()
        assert (await convert(http)).status == 200
        assert await replaced() == 0
        before = await http.remaining()
        await left(http, running, tools, work, pitch=HANG)
        async with asyncio.timeout(60):
            assert (await convert(http)).status == 200
        assert await replaced() == 1
        assert await http.remaining() == before - 15


async def left(http, service, tools, work, **fields):
    """Ask, and go away in the middle of the work."""
    work.again()
    asking = asyncio.ensure_future(convert(http, **fields))
    await tools.until(work.begun)
    asking.cancel()
    await tools.until(lambda: no_uploads(service))


async def test_what_uploads_at_once_is_no_more_than_what_may_run_and_wait(http, service, tools):
    over = asyncio.Event()

    async def stalling():
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        await over.wait()

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    stalled = [
        asyncio.ensure_future(http.ask("POST", PATH, key="one", data=stalling(), headers=headers))
        for _ in range(2)
    ]
    await tools.until(lambda: len(list((service.data / "uploads").rglob("*/*"))) == 2)
    answer = await convert(http, key="one")
    assert (answer.status, answer.code) == (503, "UNAVAILABLE")
    assert int(answer.headers[chosen.RETRY_AFTER_HEADER]) >= 1
    assert (await convert(http)).status == 200
    over.set()
    assert [answer.status for answer in await asyncio.gather(*stalled)] == [400, 400]
    assert (await convert(http, key="one")).status == 200


@pytest.mark.rule("status.changer-subset")
async def test_over_the_cap_some_wait_and_the_rest_is_503_never_429(http, work, tools):
    sends = [asyncio.ensure_future(convert(http, key="one", pitch=WAIT)) for _ in range(4)]
    await tools.until(lambda: sum(send.done() for send in sends) == 2)
    work.let_go()
    answers = await asyncio.gather(*sends)
    statuses = sorted(answer.status for answer in answers)
    # One at once, one that waits: as many wait as may run.
    assert statuses == [200, 200, 503, 503]
    for answer in answers:
        if answer.status == 503:
            assert answer.code == "UNAVAILABLE"
            assert int(answer.headers[chosen.RETRY_AFTER_HEADER]) >= 1
    assert set(statuses) <= set(get_endpoint("convert").chapter.statuses)


@pytest.mark.rule("status.changer-subset")
async def test_a_body_that_stalls_is_400_here_and_not_408(hasty, http_to):
    async def stalling():
        yield b'--b\r\nContent-Disposition: form-data; name="voice_id"\r\n\r\nmoo'
        await asyncio.sleep(60)

    http = http_to(hasty)
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await http.ask("POST", PATH, data=stalling(), headers=headers)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert "the body stalled" in answer.message
    assert answer.status in get_endpoint("convert").chapter.statuses
    assert no_uploads(hasty)


async def test_a_clip_larger_than_the_limit_is_400_that_says_so(http, service):
    answer = await convert(http, clip(70.0, 16000))
    assert (answer.status, answer.code) == (400, "PAYLOAD_TOO_LARGE")
    assert "at most 2 MB" in answer.message
    assert no_uploads(service)
