"""Dubbing calls: what goes over the wire, files on disk, and webhooks that are taken or refused."""

import asyncio
import hashlib
import hmac
import json
import re
import time

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer as Server
from tests.peak import forget_peak, peak_kb
from tests.promises.dub_service import DubService

from speechframe import dub, receive_webhooks
from speechframe.client import Client, Dubbing, SyncClient, Timeouts
from speechframe.errors import BadAnswer, InvalidRows, TimedOut
from speechframe.spec.chosen import WEBHOOK_SIGNATURE_HEADER, WEBHOOK_TIMESTAMP_HEADER

CREATE, STATUS = "/v1/dub/jobs/create", "/v1/dub/jobs/a%2Fb/status"
JOB = {
    "job_id": "a/b", "dubbing_type": "NEW_TYPE", "file_name": "f", "priority": "NORMAL", "target_locales": ["pt_BR"],
}  # fmt: skip
SECRET = "signs-the-webhooks"


def parts(seen):
    """Name and content of each part of a form."""
    boundary = seen.headers["Content-Type"].partition("boundary=")[2].encode()
    found = seen.body.split(b"--" + boundary)[1:-1]
    return [
        (re.search(rb'name="(\w+)"', one)[1].decode(), one.partition(b"\r\n\r\n")[2][:-2].decode())
        for one in found
    ]


async def test_a_job_is_a_form_with_repeated_locales_and_the_file_last(odd, client, key, tmp_path):
    odd.script(odd.answer(200, JOB), path=CREATE)
    path = tmp_path / "film.mp4"
    path.write_bytes(b"\0\0\0\x20ftypisom and a film")
    job = await client.dubbing.create_job(
        path,
        target_locales=["pt-br", "fr_FR"],
        cast={"ANNA": "nora"},
        webhook_secret=SECRET,
        idempotency_key="k1",
    )
    assert (job.job_id, job.dubbing_type) == ("a/b", "NEW_TYPE")
    (seen,) = odd.posts()
    assert parts(seen) == [
        ("cast", '{"ANNA":"nora"}'), ("target_locales", "pt_BR"), ("target_locales", "fr_FR"),
        ("webhook_secret", SECRET), ("file", path.read_bytes().decode()),
    ]  # fmt: skip
    assert b'filename="clip.mp4"\r\nContent-Type: video/mp4' in seen.body
    assert (seen.headers["api-key"], seen.headers["Idempotency-Key"]) == (key, "k1")
    await client.dubbing.create_job("https://a.example/b.mp4", target_locales="pt-BR")
    assert parts(odd.posts()[1]) == [("file_url", "https://a.example/b.mp4"), ("target_locales", "pt_BR")]
    for wrong in ({"target_locales": ["tlh-?"]}, {"target_locales": ["pt"], "colour": 1}):
        with pytest.raises(InvalidRows):
            await client.dubbing.create_job(path, **wrong)


async def test_the_secret_shows_in_no_error(odd, client, tmp_path):
    odd.script(odd.answer(400, {"error_message": f"{SECRET} is no good secret"}), path=CREATE)
    with pytest.raises(Exception, match="no good secret") as caught:
        await client.dubbing.create_job(b"a film", target_locales=["pt"], webhook_secret=SECRET)
    assert SECRET not in str(caught.value)


async def test_a_wait_ends_with_the_job_and_not_with_a_word_that_nobody_knows(odd, client):
    words = ["QUEUED", "BEING_MADE", "PARTIALLY_COMPLETED"]
    answers = [odd.answer(200, {"job_id": "a/b", "status": word, "credits_used": "many"}) for word in words]
    odd.script(odd.answer(503, b"{}"), *answers, path=STATUS)
    told = []
    status = await client.dubbing.wait("a/b", on_status=told.append)
    assert [one.status for one in told] == words
    assert (status, status.credits_used) == (told[-1], None)
    odd.script(answers[0], path=STATUS)
    with pytest.raises(TimedOut, match=r"job a/b is QUEUED, and timeout_s=0\.1 leaves no time"):
        await client.dubbing.wait("a/b", timeout_s=0.1)


async def test_a_file_is_fetched_whole_or_not_at_all(odd, client, tmp_path):
    path = tmp_path / "dub.mp4"
    cut = odd.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
    odd.script(cut, odd.answer(200, b"all of it"), path="/files/dub.mp4")
    assert await client.dubbing.fetch("/files/dub.mp4", path) == path
    assert path.read_bytes() == b"all of it"
    assert "api-key" not in odd.gets("/files/dub.mp4")[0].headers
    for url, words in (
        ("/gone", "answered 404"),
        (f"{odd.other_url}/files/dub.mp4", "not the service's own host"),
        ("file:///etc/passwd", "is not http or https"),
    ):
        with pytest.raises(BadAnswer, match=words):
            await client.dubbing.fetch(url, tmp_path / "other")
    with pytest.raises(BadAnswer, match="too large"):
        await client.dubbing.fetch("/files/dub.mp4", tmp_path / "other", max_bytes=3)
    assert list(tmp_path.iterdir()) == [path]


async def test_a_download_that_only_drips_ends(odd, settings, tmp_path):
    odd.script(odd.dribble(), path="/files/dub.mp4")
    async with Client(settings, timeouts=Timeouts(download_s=0.4)) as client, asyncio.timeout(60):
        with pytest.raises(BadAnswer, match="less than 1 KB/s"):
            await Dubbing(client, request_timeout_s=2.0).fetch("/files/dub.mp4", tmp_path / "dub.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["circle", "endless"])
def test_a_list_of_pages_that_has_no_end_is_left(odd, settings, tmp_path, kind):
    pages = {"": "a", "a": "b", "b": "c", "c": "a"}

    async def page(request):
        place = request.query.get("next", "")
        after = pages[place] if kind == "circle" else f"{int(place or 0) + 1}"
        return web.json_response({"projects": [], "next": after})

    odd.script(page, path="/v1/dub/projects/list")
    with pytest.raises(BadAnswer, match="list of projects"):
        dub([b"a film"], project="mine", service=settings, run_dir=tmp_path / "run", progress=False)
    asked = len(odd.gets("/v1/dub/projects/list"))
    assert asked == 4 if kind == "circle" else asked <= 1000


def test_projects_and_reviews_without_await(odd, settings):
    project = {"project_id": "p1", "dubbing_type": "QA", "target_locales": ["pt_BR"]}
    odd.script(odd.answer(200, project), path="/v1/dub/projects/create")
    odd.script(odd.answer(200, {"projects": [project], "next": "more"}), path="/v1/dub/projects/list")
    odd.script(odd.answer(200, project), path="/v1/dub/projects/p1/update")
    utterances = "/v1/dub/jobs/j1/utterances"
    odd.script(odd.answer(200, {"job_id": "j1", "status": "IN_PROGRESS"}), path=utterances)
    with SyncClient(settings) as client:
        made = client.dubbing.create_project("Film", dubbing_type="QA", target_locales=["pt-BR"])
        assert client.dubbing.list_projects(limit=1, next="a b").projects == [made]
        assert client.dubbing.update_project("p1", target_locales="pt") == made
        status = client.dubbing.update_utterances("j1", "pt-br", [{"utterance_id": 2, "text": "Oi"}])
        assert status.status == "IN_PROGRESS"
        with pytest.raises(BadAnswer, match="has an unusable"):
            client.dubbing.utterances("j1", "pt-BR")
    assert odd.gets("/v1/dub/projects/list")[0].path.endswith("?limit=1&next=a+b")
    bodies = [json.loads(seen.body) for seen in odd.seen if seen.method == "PUT"]
    corrected = {"locale": "pt_BR", "utterances": [{"utterance_id": 2, "text": "Oi"}]}
    assert bodies == [{"target_locales": ["pt"]}, corrected]


@pytest.mark.slow
async def test_a_medium_of_500_mb_is_sent_in_little_memory(tmp_path):
    path, service = tmp_path / "film.mp4", DubService()
    with path.open("wb") as file:
        file.truncate(500 << 20)
    service.up()
    try:
        forget_peak()
        before_kb = peak_kb()
        async with Client(service.settings) as client:
            await client.dubbing.create_job(path, target_locales=["pt"])
        # Both ends are in this process.
        assert peak_kb() - before_kb < 100_000
        assert service.jobs["job-1"].size_bytes == 500 << 20
    finally:
        service.down()


# Webhooks.


def signed(body, secret=SECRET, age_s=0.0):
    timestamp = str(int(1000 * (time.time() - age_s)))
    mac = hmac.new(secret.encode(), body + b"." + timestamp.encode(), hashlib.sha256).hexdigest()
    return {WEBHOOK_TIMESTAMP_HEADER: timestamp, WEBHOOK_SIGNATURE_HEADER: mac}


BODY = json.dumps({"eventName": "DUB_JOB", "data": {"job_id": "j1", "status": "COMPLETED"}}).encode()


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        # Functions: when they are signed counts.
        (BODY, lambda: signed(BODY), 204),
        (BODY, lambda: signed(BODY, "another secret"), 401),
        (BODY, lambda: {**signed(BODY), WEBHOOK_TIMESTAMP_HEADER: str(int(1000 * time.time()) + 1)}, 401),
        (BODY, dict, 401),
        (BODY, lambda: {WEBHOOK_TIMESTAMP_HEADER: "x", WEBHOOK_SIGNATURE_HEADER: "\xe9"}, 401),
        (BODY, lambda: signed(BODY, age_s=400), 401),
        (b'{"eventName": "DUB_JOB"}', lambda: signed(b'{"eventName": "DUB_JOB"}'), 400),
        (b'{"eventName": "OTHER", "data": {"job_id": "j", "status": "X"}}', None, 204),
        (b'{"eventName": "OTHER", "data": {"amount": 3}}', None, 204),
    ],
)
async def test_a_webhook_is_handed_on_only_if_it_is_signed_and_new(body, headers, status):
    told = []

    async def on_status(found):
        told.append((found.job_id, found.status))

    server = Server(receive_webhooks(on_status, secret=SECRET, path="/dubbed"))
    await server.start_server()
    try:
        async with aiohttp.ClientSession() as session:
            sent = signed(body) if headers is None else headers()
            async with session.post(server.make_url("/dubbed"), data=body, headers=sent) as answer:
                assert answer.status == status, await answer.text()
    finally:
        await server.close()
    assert told == ([("j1", "COMPLETED")] if (body, status) == (BODY, 204) else [])
    with pytest.raises(ValueError, match="the secret is empty"):
        receive_webhooks(print, secret="")
