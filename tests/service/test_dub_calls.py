"""Dubbing calls as they come over the wire: keys, forms, media that are none, projects page by page."""

import asyncio
import json
import struct
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiohttp import web
from convert_lab import clip, convert, install
from dub_lab import (
    CREATE,
    MEDIUM,
    PROJECTS,
    TWO,
    WITH_PROJECT,
    create,
    form,
    listening,
    project,
    ready,
    status,
)
from tests.dubbing.films import film, shifted

from speechframe.audio.lengths import measure_media_seconds
from speechframe.local.service.app import HANDLERS
from speechframe.local.service.dubbing.create import _choose_file_name
from speechframe.local.service.http.uploads import ReceivedFile
from speechframe.spec import chosen
from speechframe.spec.billing import compute_dub_millicredits, convert_to_credits
from speechframe.spec.dubbing import JobCreateRequest
from speechframe.spec.endpoints import get_endpoint

DUB_STATUSES = {200, 400, 403, 500, 503}


@pytest.fixture
def http(dubbing, http_to):
    return http_to(dubbing, "dub")


def uploads(service):
    return [path for path in (service.data / "uploads").rglob("*") if path.is_file()]


async def test_without_their_engines_dubbing_and_transcriptions_are_refused_with_what_to_install(
    start_with, tmp_path, http_to
):
    # Nothing but a speech engine and a voice changer is installed here.
    with start_with(install(tmp_path, "changer", alone=True), keys=["main"], workers=1) as bare:
        http = http_to(bare, "main")
        # Nor is there a dubbing key: a speech key does for both, with two balances.
        told = (await http.get("/v1/limits")).json
        before = told["remaining_characters"]
        assert (told["quota_characters"], told["dubbing"]["quota_credits"]) == (
            chosen.DEFAULT_QUOTA_CHARACTERS,
            chosen.DEFAULT_DUB_CREDITS,
        )
        for name in ("list_destination_languages", "list_source_languages"):
            answer = await http.get(get_endpoint(name).path)
            assert (answer.status, answer.json) == (200, [])
        answer = await create(http)
        assert (answer.status, "speechframe[dub]" in answer.message) == (503, True)
        for fields in ({"return_transcription": "true"}, {"retain_accent": "false"}):
            answer = await convert(http, voice_id="nora", **fields)
            assert answer.status == 400
            assert next(iter(fields)) in answer.message
            assert "pip install 'speechframe[asr]'" in answer.message
        assert await http.remaining() == before
        given = await convert(http, voice_id="nora", return_transcription="true", transcription="Hi")
        assert given.json["transcription"] == "Hi"


async def test_languages_are_listed_with_underscores_and_names(http):
    targets = (await http.get(get_endpoint("list_destination_languages").path)).json
    sources = (await http.get(get_endpoint("list_source_languages").path)).json
    brazil = next(entry for entry in targets if entry["locale"] == "pt_BR")
    assert brazil == {
        "locale": "pt_BR",
        "language": "Portuguese (Brazil)",
        "supports": ["AUTOMATED", "QA"],
    }
    assert any(entry["locale"].startswith("en") and "English" in entry["language"] for entry in sources)


@pytest.mark.rule("auth.dubbing-key-required", "auth.403-never-401", "status.dubbing-subset")
@pytest.mark.parametrize("name", [name for name in HANDLERS if get_endpoint(name).chapter.name == "dubbing"])
async def test_each_call_needs_a_dubbing_key(http, name):
    endpoint = get_endpoint(name)
    path = endpoint.path.format(job_id="x", project_id="x")
    assert set(endpoint.chapter.statuses) == DUB_STATUSES
    for key, words in ((None, "missing"), ("nonsense", "invalid"), ("speech", "needs a dubbing key")):
        answer = await http.ask(endpoint.method, path, key=key)
        assert (answer.status, words in answer.message) == (403, True), answer.message
    # With a right one, nothing, or something that is not there, is asked for.
    assert (await http.ask(endpoint.method, path)).status in {200, 400}


async def test_a_dubbing_key_is_none_for_speech_and_each_key_is_told_its_own_balance(http):
    answer = await http.generate()
    assert (answer.status, "needs a speech key" in answer.message) == (403, True)
    told = {key: (await http.get("/v1/limits", key=key)).json for key in ("dub", "speech")}
    assert told["dub"]["dubbing"]["quota_credits"] == 0
    assert told["dub"]["remaining_characters"] == 0
    assert told["speech"]["dubbing"]["quota_credits"] is None
    assert told["speech"]["remaining_characters"] > 0


# Forms


@pytest.mark.parametrize(
    "targets",
    [["pt_BR", "en-GB"], ["pt_BR, en_GB", "pt-BR"]],
    ids=["repeated", "comma"],
)
async def test_targets_come_repeated_or_with_commas_in_either_spelling(http, targets):
    body = form(target_locales=targets, source_locale="en-US")
    answer = await http.ask("POST", CREATE + "?origin=web&x=1", data=body)
    assert answer.status == 200, answer.body
    assert answer.json["target_locales"] == ["pt_BR", "en_GB"]
    assert answer.json["source_locale"] == "en_US"
    assert (answer.json["dubbing_type"], answer.json["priority"]) == ("AUTOMATED", "NORMAL")
    assert answer.json["file_name"] == "talk.wav"


async def test_an_address_alone_may_come_urlencoded_and_names_the_medium(http):
    async def medium(request):
        del request
        return web.Response(body=MEDIUM)

    async with listening(medium, "/media/my%20talk.wav") as url:
        body = urlencode({"file_url": url, "target_locales": "pt_BR", "unknown": "1"})
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await http.ask("POST", CREATE, data=body, headers=headers)
    assert answer.status == 200, answer.body
    assert (answer.json["file_name"], answer.json["file_url"]) == ("my talk.wav", url)
    assert "unknown" in answer.json["warning"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("C:\\Users\\ann\\talk.wav", "talk.wav"),
        ("../a/talk.wav", "talk.wav"),
        *((given, "medium") for given in ("..", "a/..\0", "/", "  ")),
    ],
)
def test_a_medium_is_called_by_a_name_without_folders(given, name):
    wanted = JobCreateRequest(file=b"", target_locales=["pt-BR"])
    assert _choose_file_name(wanted, ReceivedFile(Path(), 1, b"", given)) == name


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"target_locales": "tlh"}, "target_locales is not a target of dubs here (got 'tlh'); allowed: "),
        ({"target_locales": ""}, "target_locales is missing"),
        ({"source_locale": "ja_JP"}, "source_locale is not a source of dubs here"),
        (
            {"script_locale": "ja_JP"},
            "script_locale is neither a source nor a target of dubs here (got 'ja_JP'); allowed: ",
        ),
        (
            {"webhook_url": "https://me:secret@example.com"},
            "webhook_url is not an address that can be called (got 'https://…@example.com')",
        ),
        ({"script": "Hello, this is no script."}, "script is neither SRT nor WebVTT"),
        (
            {"script": TWO + f"\n3\n00:00:02,900 --> 00:09:00,000\n{'many words ' * 20}\n"},
            "the text is too long for a medium of 3.0 seconds (got 244 characters); allowed: at most 200",
        ),
        (
            {"script": "WEBVTT\n" + "\n00:00.000 --> 00:03.000\nYes!\n" * 14},
            "script: its cues overlap too much: together they last 42 seconds; allowed: at most 8 times",
        ),
        ({"max_credits": "-1"}, "max_credits is out of range"),
        ({"cast": '{"ANNA": "nobody-at-all"}'}, "cast: the voice of 'ANNA' is not a voice of this service"),
    ],
)
async def test_a_field_that_is_wrong_is_400_and_leaves_nothing(http, dubbing, fields, words):
    answer = await create(http, **fields)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST"), answer.body
    assert words in answer.message
    assert not uploads(dubbing)


async def test_a_medium_is_asked_for_and_no_larger_than_may_be(http):
    answer = await create(http, None)
    assert (answer.status, "file" in answer.message) == (400, True)
    answer = await create(http, b"x" * (2 << 20))
    assert (answer.status, "too large" in answer.message) == (400, True)


def bad_media():
    header = clip(3.0)
    # Of a WAV: the length of its samples, said to be ten hours.
    lying = header[:40] + struct.pack("<I", 10 * 3600 * 32_000) + header[44:]
    return {
        "text": b"This is a text, and its name says mp4.\n" * 20,
        "empty": b"",
        "truncated": lying,
        "no audio": b"RIFF" + struct.pack("<I", 36) + header[8:44],
    }


@pytest.mark.parametrize("name", bad_media())
async def test_what_is_no_medium_is_refused_at_once_and_leaves_nothing(http, dubbing, name):
    before = set((dubbing.data / "dubs").iterdir())
    started = time.monotonic()
    answer = await http.ask("POST", CREATE, data=form(bad_media()[name], "talk.mp4", target_locales="pt_BR"))
    assert answer.status == 400, answer.body
    assert "cannot be dubbed" in answer.message
    assert time.monotonic() - started < 5
    assert set((dubbing.data / "dubs").iterdir()) <= before
    assert not uploads(dubbing)


# Jobs


async def test_a_job_of_somebody_else_and_one_that_is_none_are_400(http):
    job_id = (await create(http)).json["job_id"]
    for asked, key in ((job_id, "second"), ("none", "dub")):
        for path in ("job_status", "utterances"):
            answer = await http.get(get_endpoint(path).path.format(job_id=asked) + "?locale=pt_BR", key=key)
            assert (answer.status, "no such job" in answer.message) == (400, True)
    answer = await http.get(f"/v1/dub/files/{'0' * 32}/talk.wav", key=None)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")


async def test_a_job_without_credits_fails_says_so_and_is_no_answer_to_a_repeat(http):
    headers = {chosen.IDEMPOTENCY_HEADER: "of a job that fails"}
    first = (await create(http, headers=headers)).json["job_id"]
    found = await ready(http, first)
    assert (found["status"], found["failure_code"]) == ("FAILED", "INSUFFICIENT_CREDITS")
    assert (found["credits_used"], found["credits_remaining"]) == (0, 0)
    assert found["download_details"][0]["error_message"].startswith("INSUFFICIENT_CREDITS: ")
    assert (await create(http, headers=headers)).json["job_id"] != first


@pytest.mark.parametrize("late_s", [0.0, 1867.0])
async def test_a_job_above_what_its_caller_allows_is_refused_by_the_measure_of_the_plan(
    http, tmp_path, late_s
):
    medium = film(tmp_path / "film.mp4")
    if late_s:
        medium = shifted(medium, tmp_path / "late.mp4", late_s)
    planned = convert_to_credits(compute_dub_millicredits(measure_media_seconds(medium), 2))
    assert planned == pytest.approx(6.0, abs=0.2)
    assert (await http.get("/v1/limits")).json["dubbing"]["max_credits"] is True
    order = {"target_locales": ["pt_BR", "en_GB"], "key": "rich"}
    headers = {chosen.IDEMPOTENCY_HEADER: f"not above {late_s}"}
    answer = await create(
        http, medium.read_bytes(), headers=headers, **order, max_credits=str(planned - 0.001)
    )
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST"), answer.body
    assert f"the job costs {planned:.10g} credits" in answer.message
    assert "Nothing was billed" in answer.message
    answer = await create(http, medium.read_bytes(), headers=headers, **order, max_credits=str(planned))
    assert answer.status == 200, answer.body
    # The order is the same, whatever its caller allows: a repeat is the same job.
    again = await create(http, medium.read_bytes(), headers=headers, **order, max_credits="1")
    assert again.json == answer.json


# Projects


@pytest.mark.rule("dubbing.paging")
async def test_pages_neither_lose_nor_repeat_projects_that_appear_in_between(http):
    made = [await project(http, "second", name=f"P{number}") for number in range(5)]
    seen, path = [], f"{PROJECTS}?limit=2"
    answer = await http.get(path, key="second")
    while True:
        seen += [entry["project_id"] for entry in answer.json["projects"]]
        if "next" not in answer.json:
            break
        if len(made) < 7:
            made.append(await project(http, "second"))
        answer = await http.get(f"{path}&next={answer.json['next']}", key="second")
    assert seen == made


async def test_a_next_that_nobody_gave_is_400(http):
    for _ in range(2):
        await project(http)
    given = (await http.get(f"{PROJECTS}?limit=1")).json["next"]
    assert (await http.get(f"{PROJECTS}?next={given}")).status == 200
    for wrong in ("abc", "%00", given[:-2] + "AA", "x" * 5000):
        answer = await http.get(f"{PROJECTS}?next={wrong}")
        assert (answer.status, "next" in answer.message) == (400, True), wrong
    # Nor is it one of somebody else.
    assert (await http.get(f"{PROJECTS}?next={given}", key="second")).status == 400
    for limit in ("0", "101", "x"):
        assert (await http.get(f"{PROJECTS}?limit={limit}")).status == 400


async def test_a_project_gives_its_jobs_their_locales_and_an_update_is_for_jobs_to_come(http):
    project_id = await project(
        http, target_locales=["pt_BR", "en-GB"], source_locale="en_US", description="d"
    )
    first = (await create(http, path=WITH_PROJECT, project_id=project_id)).json
    assert (first["dubbing_type"], first["target_locales"]) == ("QA", ["pt_BR", "en_GB"])
    path = get_endpoint("update_project").path
    answer = await http.ask("PUT", path.format(project_id=project_id), json={"target_locales": "pt-PT"})
    assert (answer.status, answer.json["target_locales"]) == (200, ["pt_PT"])
    found = await status(http, first["job_id"])
    assert [detail["locale"] for detail in found["download_details"]] == ["pt_BR", "en_GB"]
    assert found["project_id"] == project_id
    second = (await create(http, path=WITH_PROJECT, project_id=project_id)).json
    assert second["target_locales"] == ["pt_PT"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"target_locales": ["tlh"]}, "target_locales is not a target of dubs here"),
        ({}, "target_locales is missing"),
        (None, "the body is empty"),
    ],
)
async def test_a_project_is_not_changed_by_what_is_wrong(http, body, words):
    path = get_endpoint("update_project").path
    project_id = await project(http)
    data = None if body is None else json.dumps(body)
    answer = await http.ask("PUT", path.format(project_id=project_id), data=data)
    assert (answer.status, words in answer.message) == (400, True), answer.message
    answer = await http.ask("PUT", path.format(project_id="none"), json={"target_locales": ["pt_BR"]})
    assert (answer.status, "no such project" in answer.message) == (400, True)


# The last test: its jobs have credits and keep a worker busy, for one that failed is no answer to a repeat.


@pytest.mark.parametrize("path", [CREATE, WITH_PROJECT])
async def test_a_repeated_creation_is_the_same_job_and_another_with_its_key_is_refused(http, path):
    fields = {"target_locales": "pt_BR"} if path == CREATE else {"project_id": await project(http, "rich")}
    headers = {chosen.IDEMPOTENCY_HEADER: f"again {path}"}
    answers = await asyncio.gather(
        *(create(http, path=path, headers=headers, key="rich", **fields) for _ in range(3))
    )
    assert [answer.status for answer in answers] == [200] * 3
    assert len({answer.json["job_id"] for answer in answers}) == 1
    for medium, more in ((clip(2.0), {}), (MEDIUM, {"priority": "HIGH"})):
        answer = await create(http, medium, path=path, headers=headers, key="rich", **fields, **more)
        assert (answer.status, chosen.IDEMPOTENCY_HEADER in answer.message) == (400, True)
    # Of another key it is another word.
    if path == CREATE:
        other = await create(http, path=path, headers=headers, key="second", **fields)
        assert other.json["job_id"] != answers[0].json["job_id"]
