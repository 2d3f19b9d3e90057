"""How much a call of dubbing may name, and that lists nobody reads take no memory."""

import asyncio
import contextlib
import json
import secrets
import socket
import sqlite3

import psutil
import pytest
from dub_lab import CREATE, PROJECTS, create, form

from speechframe.spec import chosen
from speechframe.spec.endpoints import get_endpoint

NEW = get_endpoint("create_project").path
UPDATE = get_endpoint("update_project").path.format(project_id="x")
CORRECT = get_endpoint("update_utterances").path.format(job_id="x")
PROJECT = {"name": "Series", "dubbing_type": "QA", "target_locales": ["pt-BR"]}


@pytest.fixture
def http(dubbing, http_to):
    return http_to(dubbing, "second")


def too_many(count):
    return [f"a{number}" for number in range(count + 1)]


@pytest.mark.parametrize(
    ("method", "path", "body", "bound"),
    [
        ("POST", NEW, {"target_locales": ["pt-BR"] * 201}, chosen.MAX_TARGET_LOCALES),
        ("POST", NEW, {"target_locales": ",".join(["pt-BR"] * 40_000)}, chosen.MAX_TARGET_LOCALES),
        ("PUT", UPDATE, {"target_locales": ["pt-BR"] * 201}, chosen.MAX_TARGET_LOCALES),
        ("POST", NEW, {"name": "n" * 201}, chosen.MAX_PROJECT_NAME_CHARACTERS),
        ("POST", NEW, {"description": "d" * 2001}, chosen.MAX_PROJECT_DESCRIPTION_CHARACTERS),
        ("PUT", CORRECT, {"locale": "pt-BR", "utterances": [{"utterance_id": 1}] * 1001}, chosen.MAX_CORRECTIONS_PER_CALL),
    ],
    ids=["locales", "locales with commas", "new locales", "name", "description", "corrections"],
)  # fmt: skip
async def test_more_than_a_call_may_name_is_refused_with_the_bound(http, method, path, body, bound):
    answer = await http.ask(method, path, json={**PROJECT, **body})
    assert (answer.status, f"{bound:,}" in answer.message) == (400, True), answer.message


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({"target_locales": ",".join(["pt-BR"] * 201)}, chosen.MAX_TARGET_LOCALES),
        ({"target_locales": ["pt-BR"] * 250}, chosen.MAX_FORM_PARTS),
        (
            {"cast": json.dumps(dict.fromkeys(too_many(chosen.MAX_CAST_SPEAKERS), "en-US-nora"))},
            chosen.MAX_CAST_SPEAKERS,
        ),
    ],
)
async def test_more_than_a_form_may_name_is_refused_with_the_bound(http, fields, bound):
    answer = await create(http, **fields)
    assert (answer.status, f"{bound:,}" in answer.message) == (400, True), answer.message


@pytest.mark.parametrize("tag", ["en-" + "x-abcdefg-" * 20_000 + "a", "en-x-" + "a" * 60])
async def test_a_locale_is_short(http, tag):
    answer = await http.ask("POST", CREATE, data=form(target_locales=tag))
    assert (answer.status, "is not a locale" in answer.message) == (400, True)


async def test_a_dictionary_of_pronunciations_is_bounded(service, http_to):
    said = {"type": "SAY_AS", "pronunciation": "b"}
    for words, bound in (
        (too_many(chosen.MAX_PRONUNCIATIONS), chosen.MAX_PRONUNCIATIONS),
        (["w" * 201], chosen.MAX_PRONUNCIATION_CHARACTERS),
    ):
        answer = await http_to(service, "main").generate(pronunciationDictionary=dict.fromkeys(words, said))
        assert (answer.status, f"{bound:,}" in answer.message) == (400, True), answer.message


def older_projects(service, count):
    """Write projects as an earlier version took them; return the hash of the key."""
    with contextlib.closing(sqlite3.connect(service.data / "service.sqlite3", timeout=30)) as opened, opened:
        (key_hash,) = opened.execute("SELECT key_hash FROM dub_projects ORDER BY number DESC").fetchone()
        for _ in range(count):
            project = {**PROJECT, "project_id": secrets.token_hex(16), "description": "d" * 240_000}
            opened.execute(
                "INSERT INTO dub_projects (project_id, key_hash, project) VALUES (?, ?, ?)",
                (project["project_id"], key_hash, json.dumps(project)),
            )


async def test_long_projects_are_read_page_by_page_and_unread_lists_take_no_memory(dubbing, http, tools):
    assert (await http.ask("POST", NEW, json={**PROJECT, "name": "n" * 200})).status == 200
    await asyncio.to_thread(older_projects, dubbing, 100)
    seen, page = [], {}
    while not seen or "next" in page:
        query = {"limit": "100", **({"next": page["next"]} if page else {})}
        answer = await http.get(PROJECTS, params=query)
        assert len(answer.body) < 2 * chosen.MAX_PROJECT_PAGE_BYTES
        page = answer.json
        seen += [project["project_id"] for project in page["projects"]]
    assert len(seen) == len(set(seen)) >= 101

    process = psutil.Process(dubbing.pid)
    before_mb = process.memory_info().rss >> 20
    host, _, port = dubbing.url.removeprefix("http://").partition(":")
    head = f"GET {PROJECTS}?limit=100 HTTP/1.1\r\nHost: x\r\napi-key: second\r\n\r\n".encode()
    unread = [socket.create_connection((host, int(port))) for _ in range(40)]
    for each in unread:
        each.sendall(head)
    for each in unread:
        # The answer has begun, so it is whole in the memory of the service.
        assert await asyncio.to_thread(each.recv, 1) == b"H"
    assert (process.memory_info().rss >> 20) - before_mb < 200
    for each in unread:
        each.close()
    await tools.until(lambda: (process.memory_info().rss >> 20) - before_mb < 100)
