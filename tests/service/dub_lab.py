"""Requests of dubbing, as raw forms, and what receives its webhooks."""

import asyncio
import contextlib
import hashlib
import hmac
import io
import json

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer as Server
from convert_lab import clip

from speechframe.spec import chosen
from speechframe.spec.dubbing import is_ready
from speechframe.spec.endpoints import get_endpoint

MEDIUM = clip(3.0)
SCRIPT = "1\n00:00:00,300 --> 00:00:01,300\nANNA: {}\n\n2\n00:00:01,600 --> 00:00:02,800\nBEN: How are you?\n"
TWO = SCRIPT.format("Good morning.")
CAST = {"ANNA": "en-US-nora", "BEN": "en-US-miles"}
"""Voices that take no time, of all locales here."""
CREATE = get_endpoint("create_job").path
WITH_PROJECT = get_endpoint("create_job_with_project").path
PROJECTS = get_endpoint("list_projects").path
CREATE_PROJECT = get_endpoint("create_project").path


def form(medium=MEDIUM, name="talk.wav", **fields):
    """Return a multipart body; a list is a field that is repeated."""
    data = aiohttp.FormData(default_to_multipart=True)
    for field, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            data.add_field(field, value)
    if medium is not None:
        data.add_field("file", io.BytesIO(medium), filename=name, content_type="application/octet-stream")
    return data


async def create(http, medium=MEDIUM, *, path=CREATE, headers=None, key=..., **fields):
    if path == CREATE:
        fields = {"target_locales": "pt_BR", **fields}
    fields = {"script": TWO, "script_locale": "en_US", "cast": json.dumps(CAST), **fields}
    return await http.ask("POST", path, data=form(medium, **fields), headers=headers, key=key)


def told(text):
    """Return the fields of a job in which an engine of these tests does what `text` says."""
    return {
        "target_locales": "en_US",
        "script": SCRIPT.format(text),
        "cast": json.dumps({**CAST, "ANNA": "en-US-moody"}),
    }


async def status(http, job_id, key=...):
    answer = await http.get(get_endpoint("job_status").path.format(job_id=job_id), key=key)
    assert answer.status == 200, answer.body
    return answer.json


async def ready(http, job_id, limit_s=90.0, key=...):
    """Wait until nothing more happens to a job, or somebody is to review it."""
    async with asyncio.timeout(limit_s):
        while True:
            found = await status(http, job_id, key)
            if is_ready(found["status"]):
                return found
            await asyncio.sleep(0.05)


async def step(http, job_id, wanted, limit_s=90.0):
    """Wait until the first locale of a job is at a step."""
    async with asyncio.timeout(limit_s):
        while True:
            found = await status(http, job_id)
            if found["download_details"][0].get("step") == wanted:
                return
            await asyncio.sleep(0.05)


async def project(http, key=..., **fields):
    body = {"name": "Series", "dubbing_type": "QA", "target_locales": ["pt-BR"], **fields}
    answer = await http.ask("POST", get_endpoint("create_project").path, json=body, key=key)
    assert answer.status == 200, answer.body
    return answer.json["project_id"]


class Receiver:
    """Receives webhooks; each answer is the next of `statuses`, and the last one from then on."""

    def __init__(self, *statuses, location=None):
        self.statuses = list(statuses)
        self.location = location
        self.received = []

    async def receive(self, request):
        self.received.append((request.headers, await request.read()))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == "hang":
            await asyncio.sleep(60)
        headers = {"Location": self.location} if self.location else {}
        return web.Response(status=status, headers=headers)

    @property
    def ids(self):
        return [headers[chosen.WEBHOOK_ID_HEADER] for headers, _ in self.received]

    @property
    def events(self):
        return [json.loads(body) for _, body in self.received]

    def is_signed(self, secret):
        return [
            headers[chosen.WEBHOOK_SIGNATURE_HEADER]
            == hmac.new(
                secret.encode(),
                body + b"." + headers[chosen.WEBHOOK_TIMESTAMP_HEADER].encode(),
                hashlib.sha256,
            ).hexdigest()
            for headers, body in self.received
        ]


@contextlib.asynccontextmanager
async def listening(handler, path="/hook"):
    """Give the address of a server on loopback that answers with `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    server = Server(app)
    await server.start_server(shutdown_timeout=0.1)
    try:
        yield f"http://{server.host}:{server.port}{path}"
    finally:
        await server.close()
