"""Jobs that are really done: files, credits, reviews, two at once, a worker that dies, a service that is killed."""

import asyncio
import os
import signal
import sqlite3

import pytest
from dub_lab import WITH_PROJECT, Receiver, create, listening, project, ready, told

from speechframe.local.service.books.database import FILE_NAME
from speechframe.spec import chosen
from speechframe.spec.endpoints import get_endpoint

OPTIONS = ["--dub-key", "dub:1000", "--dub-workers", "2"]


@pytest.fixture
def http(dubbing, http_to):
    return http_to(dubbing, "work")


async def credits(http, key=...):
    return (await http.get("/v1/limits", key=key)).json["dubbing"]["remaining_credits"]


def rows(service, query):
    connection = sqlite3.connect(service.data / FILE_NAME)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.mark.rule("dubbing.webhook", "dubbing.status-words-open")
async def test_a_job_ends_with_files_a_price_and_a_signed_webhook(http, dubbing, tools):
    before, receiver = await credits(http), Receiver(200)
    async with listening(receiver.receive) as url:
        job_id = (await create(http, webhook_url=url, webhook_secret="s3cret")).json["job_id"]
        found = await ready(http, job_id)
        await tools.until(lambda: receiver.received)
    assert found["status"] == "COMPLETED"
    assert (found["credits_used"], found["credits_remaining"]) == (3, before - 3)
    assert await credits(http) == before - 3
    assert receiver.events == [{"eventName": "DUB_JOB", "data": found}]
    assert receiver.is_signed("s3cret") == [True]
    detail = found["download_details"][0]
    part = await http.get(detail["download_url"], key=None, headers={"Range": "bytes=0-3"})
    assert (part.status, part.body, part.headers["Content-Type"]) == (206, b"RIFF", "audio/wav")
    assert (await http.get(detail["download_vtt_url"], key=None)).body.startswith(b"WEBVTT")
    assert b"-->" in (await http.get(detail["download_srt_url"], key=None)).body
    # What is not asked for any more is gone: the medium, and what was made on the way.
    left = {path.name for path in (dubbing.data / "dubs" / job_id).rglob("*") if path.is_file()}
    assert left == {"outcome.json", "dub.wav", "dub.srt", "dub.vtt"}
    answer = await correct(http, job_id, {"utterance_id": 1, "text": "Oi."})
    assert (answer.status, "does not belong to a QA project" in answer.message) == (400, True)


async def correct(http, job_id, *utterances):
    path = get_endpoint("update_utterances").path.format(job_id=job_id)
    return await http.ask("PUT", path, json={"locale": "pt-BR", "utterances": list(utterances)})


async def seen(http, job_id):
    answer = await http.get(get_endpoint("utterances").path.format(job_id=job_id) + "?locale=pt_BR")
    assert answer.status == 200, answer.body
    return answer.json


async def test_a_qa_job_is_reviewed_and_corrected_for_nothing(http, tools):
    receiver = Receiver(200)
    async with listening(receiver.receive) as url:
        fields = {"project_id": await project(http), "webhook_url": url}
        job_id = (await create(http, path=WITH_PROJECT, **fields)).json["job_id"]
        assert (await ready(http, job_id))["status"] == "IN_REVIEW"
        before, first = await credits(http), await seen(http, job_id)
        assert [one["speaker"] for one in first["utterances"]] == ["ANNA", "BEN"]
        for wrong, words in (
            ({"utterance_id": 9, "text": "Oi."}, "there is no utterance 9; allowed: 1 to 2"),
            (
                {"utterance_id": 1, "voice_id": "en-US-moody"},
                "no voice 'en-US-moody' speaks pt-BR; allowed: ",
            ),
            ({"utterance_id": 1, "text": ""}, "text"),
            (
                {"utterance_id": 1, "text": "Oi. " * 50},
                "utterances: the text is too long for a medium of 3.0 seconds (got 2",
            ),
        ):
            answer = await correct(http, job_id, wrong)
            assert (answer.status, words in answer.message) == (400, True), answer.body
        # What is wanted of an utterance may come in two corrections.
        wanted = {"utterance_id": 1, "text": "Oi."}, {"utterance_id": 1, "voice_id": "lucia"}
        answer = await correct(http, job_id, *wanted)
        assert (answer.status, answer.json["status"]) == (200, "IN_PROGRESS")
        again = await correct(http, job_id, {"utterance_id": 1, "text": "Opa."})
        assert (again.status, "IN_PROGRESS" in again.message) == (400, True)
        found = await ready(http, job_id)
        await tools.until(lambda: len(receiver.received) == 2)
    second = await seen(http, job_id)
    assert (first["version"], second["version"]) == (1, 2)
    assert [one["text"] for one in second["utterances"]] == ["Oi.", first["utterances"][1]["text"]]
    assert second["utterances"][0]["voice_id"] == "es-ES-lucia"
    assert (found["credits_used"], await credits(http)) == (3, before)
    assert [event["data"]["status"] for event in receiver.events] == ["IN_REVIEW"] * 2
    assert len(set(receiver.ids)) == 2


@pytest.mark.slow
async def test_a_worker_that_dies_twice_is_a_server_error_and_costs_nothing(http, dubbing, tools):
    before = await credits(http)
    job_id = (await create(http, **told("crash now"))).json["job_id"]
    found = await ready(http, job_id)
    assert (found["status"], found["failure_code"], found["credits_used"]) == ("FAILED", "SERVER_ERROR", 0)
    assert await credits(http) == before
    await tools.until(lambda: not (dubbing.data / "dubs" / job_id).exists())
    assert rows(dubbing, "SELECT * FROM reservations") == []


@pytest.mark.slow
async def test_a_locale_at_which_the_worker_dies_takes_no_other_with_it(http):
    before = await credits(http)
    fields = {**told("crash now"), "target_locales": "en_US,pt_BR"}
    found = await ready(http, (await create(http, **fields)).json["job_id"])
    assert (found["status"], found["credits_used"]) == ("PARTIALLY_COMPLETED", 3)
    assert await credits(http) == before - 3
    crashed, made = found["download_details"]
    assert crashed["error_message"].startswith("SERVER_ERROR: the dubbing process crashed")
    assert (made["status"], "download_url" in made) == ("COMPLETED", True)


# As soon as this lies in its folder.
@pytest.mark.slow
@pytest.mark.parametrize(
    "sign",
    [
        "task.json",
        "audio",
        "heard.json",
        "en-US/lines",
        "en-US/outcome.json",
        "pt-BR/lines",
        "pt-BR/outcome.json",
    ],
)
async def test_a_service_that_is_killed_goes_on_with_each_locale_once_and_bills_once(
    start, http_to, tmp_path, tools, sign
):
    how = {"keys": ["speech"], "workers": 1, "options": OPTIONS, "data": tmp_path}
    with start(**how) as service:
        job_id = (await create(http_to(service, "dub"), target_locales="en_US,pt_BR")).json["job_id"]
        folder = tmp_path / "dubs" / job_id
        await tools.until((folder / sign).exists, every_s=0.001)
        workers = tools.worker_pids(service.pid)
        os.kill(service.pid, signal.SIGKILL)
        await tools.until(lambda: not any(map(tools.alive, workers)))
    made = {path: path.stat().st_mtime_ns for path in folder.glob("*/outcome.json")}
    with start(**how) as service:
        http = http_to(service, "dub")
        found = await ready(http, job_id)
        assert found["status"] == "COMPLETED"
        assert [detail["status"] for detail in found["download_details"]] == ["COMPLETED"] * 2
        assert (found["credits_used"], await credits(http)) == (6, 1000 - 6)
        assert rows(service, "SELECT SUM(millis) FROM billed") == [(6000,)]
        assert rows(service, "SELECT * FROM reservations") == []
    assert {path: path.stat().st_mtime_ns for path in made} == made


@pytest.mark.slow
async def test_silence_is_told_with_its_code(http):
    script = "WEBVTT\n\n00:10.000 --> 00:11.000\nToo late.\n"
    found = await ready(http, (await create(http, script=script)).json["job_id"])
    assert (found["status"], found["failure_code"]) == ("FAILED", "SPEECH_NOT_PRESENT")


@pytest.mark.slow
async def test_the_higher_priority_starts_first_and_all_are_done(start, http_to, tools, hold):
    options = ["--dub-key", "dub:1000", "--dub-workers", "1"]
    with start(keys=["speech"], workers=1, options=options) as service:
        http = http_to(service, "dub")
        await create(http, **told(hold.text))
        await tools.until(hold.begun)
        asked = ["LOW", "NORMAL", "HIGH", "LOW", "NORMAL", *["HIGH"] * 4]
        jobs = [(await create(http, priority=each)).json["job_id"] for each in asked]
        hold.let_go()
        for job_id in jobs:
            assert (await ready(http, job_id, limit_s=300))["status"] == "COMPLETED"
        ended = rows(service, "SELECT priority FROM dubs ORDER BY json_extract(job, '$.ended_at')")
        # The first was there alone; then each lower class had its turn at the fifth start.
        assert [word for (word,) in ended[1:]] == ["HIGH"] * 4 + ["NORMAL", "LOW", "HIGH", "NORMAL", "LOW"]


@pytest.mark.slow
async def test_a_job_of_another_key_is_next_however_many_one_key_has(start, http_to, tools, hold):
    options = ["--dub-key", "many:1000", "--dub-key", "few:1000", "--dub-workers", "1"]
    with start(keys=["speech"], workers=1, options=options) as service:
        http = http_to(service, "many")
        jobs = [(await create(http, **told(hold.text))).json["job_id"]]
        await tools.until(hold.begun)
        jobs += [(await create(http, priority="HIGH")).json["job_id"] for _ in range(3)]
        jobs += [(await create(http)).json["job_id"] for _ in range(3)]
        other = (await create(http, key="few")).json["job_id"]
        hold.let_go()
        assert (await ready(http, other, limit_s=300, key="few"))["status"] == "COMPLETED"
        for job_id in jobs:
            assert (await ready(http, job_id, limit_s=300))["status"] == "COMPLETED"
        ended = rows(service, "SELECT job_id FROM dubs ORDER BY json_extract(job, '$.ended_at')")
        # The priority comes first, and then the key that had no turn yet.
        assert [job_id for (job_id,) in ended] == [*jobs[:4], other, *jobs[4:]]


@pytest.mark.slow
async def test_twenty_jobs_at_once_are_done(start, http_to):
    with start(keys=["main"], workers=1, options=["--dub-workers", "2"]) as service:
        http = http_to(service)
        answers = await asyncio.gather(*(create(http) for _ in range(20)))
        assert len({answer.json["job_id"] for answer in answers}) == 20
        found = await asyncio.gather(*(ready(http, answer.json["job_id"], limit_s=400) for answer in answers))
        assert {each["status"] for each in found} == {"COMPLETED"}
        assert min(each["credits_remaining"] for each in found) == chosen.DEFAULT_DUB_CREDITS - 60
