"""A service with the dubbing calls of the document alone, which does at once, or not at all, what a test says."""

import asyncio
import io
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import soundfile as sf
from aiohttp import web
from pydantic import SecretStr

from served import Served
from speechframe.settings import Settings

KEY, DUB_KEY = "speech-key-0123456789", "dubbing-key-0123456789"
SECONDS = 2.0


def sound(seconds):
    """Return a WAV file of silence."""
    file = io.BytesIO()
    sf.write(file, np.zeros(int(seconds * 8000)), 8000, format="WAV", subtype="PCM_16")
    return file.getvalue()


DUB = sound(SECONDS)
"""How every dub begins; its address follows."""
SUBTITLES = "1\n00:00:00,200 --> 00:00:01,000\nBom dia.\n"


@dataclass
class Job:
    locales: list
    size_bytes: int
    fields: list
    asked: int = 0


@dataclass
class DubService(Served):
    """Answers with each of `statuses` once, then with the last; `held` names calls that get no answer.

    Parameters
    ----------
    is_ours
        Whether it has a page of limits, which promises that a repeated creation is the same job.
    failed
        Locale to what its error message is.
    limits_price
        Whether its page of limits announces that it refuses jobs above their ``max_credits``.
    files
        Ending to the status and body of files that end so.
    said
        What its page of utterances says.
    """

    port: int = 0
    is_ours: bool = False
    statuses: list = field(default_factory=lambda: ["IN_PROGRESS", "COMPLETED"])
    failed: dict = field(default_factory=dict)
    failure_code: str | None = None
    held: set = field(default_factory=set)
    jobs: dict = field(default_factory=dict)
    by_key: dict = field(default_factory=dict)
    projects: dict = field(default_factory=dict)
    seen: list = field(default_factory=list)
    refused: str = ""
    credits_used: object = None
    limits_price: bool = False
    files: dict = field(default_factory=dict)
    said: dict = field(default_factory=dict)

    @property
    def settings(self):
        url = f"http://127.0.0.1:{self.port}"
        return Settings(base_url=url, api_key=SecretStr(KEY), dub_api_key=SecretStr(DUB_KEY))

    def routes(self):
        return [
            ("GET", "/v1/limits", self.limits),
            ("GET", "/v1/dub/list-destination-languages", self.languages),
            ("POST", "/v1/dub/jobs/create", self.create),
            ("POST", "/v1/dub/jobs/create-with-project-id", self.create),
            ("GET", "/v1/dub/jobs/{job}/status", self.status),
            ("GET", "/v1/dub/projects/list", self.list_projects),
            ("POST", "/v1/dub/projects/create", self.create_project),
            ("GET", "/v1/dub/jobs/{job}/utterances", self.utterances),
            ("GET", "/files/{name:.*}", self.file),
        ]

    async def _reached(self, name, request):
        self.seen.append((name, request.headers.get("api-key")))
        if name in self.held:
            await asyncio.sleep(60)

    async def limits(self, request):
        if not self.is_ours:
            return web.Response(status=404)
        return web.json_response(
            {
                "service": "speechframe",
                "idempotency": True,
                "idempotency_seconds": 86400,
                "dubbing": {"max_credits": True} if self.limits_price else {},
            }
        )

    async def languages(self, request):
        known = ["pt_BR", "fr_FR", "en_US"]
        return web.json_response(
            [{"locale": one, "language": one, "supports": ["AUTOMATED", "QA"]} for one in known]
        )

    async def create(self, request):
        fields, size = [], 0
        async for part in await request.multipart():
            if part.name == "file":
                while piece := await part.read_chunk(1 << 16):
                    size += len(piece)
            else:
                fields.append((part.name, (await part.read()).decode()))
        if self.refused:
            return web.json_response({"error_message": self.refused}, status=400)
        key = request.headers.get("Idempotency-Key")
        known = self.by_key.get(key) if self.is_ours and key else None
        job_id = known or f"job-{len(self.jobs) + 1}"
        locales = [value for name, value in fields if name == "target_locales"]
        project = dict(fields).get("project_id")
        if project is not None:
            locales = self.projects[project]["target_locales"]
        if known is None:
            self.jobs[job_id] = Job(locales, size, fields)
            self.by_key[key] = job_id
        await self._reached("create", request)
        answer = {"job_id": job_id, "dubbing_type": "AUTOMATED", "file_name": "f", "priority": "NORMAL"}
        return web.json_response(answer | {"target_locales": locales, "warning": "the moon is full"})

    async def status(self, request):
        await self._reached("status", request)
        job_id = request.match_info["job"]
        job = self.jobs[job_id]
        word = self.statuses[min(job.asked, len(self.statuses) - 1)]
        job.asked += 1
        details = []
        for locale in job.locales:
            detail = {"locale": locale, "status": word}
            if word in {"COMPLETED", "PARTIALLY_COMPLETED", "IN_REVIEW"}:
                base = f"/files/{job_id}/{locale}"
                good = {
                    "status": "COMPLETED",
                    "download_url": f"{base}.mp4",
                    "download_srt_url": f"{base}.srt",
                }
                bad = {"status": "FAILED", "error_message": self.failed.get(locale)}
                detail |= bad if locale in self.failed else good
            details.append(detail)
        found = {
            "job_id": job_id,
            "status": word,
            "download_details": details,
            "failure_code": self.failure_code,
        }
        return web.json_response(found | {"credits_used": self.credits_used})

    async def list_projects(self, request):
        # A page each: the cursor is the number of the next.
        found, place = list(self.projects.values()), int(request.query.get("next", 0))
        more = {"next": str(place + 1)} if place + 1 < len(found) else {}
        return web.json_response({"projects": found[place : place + 1], **more})

    async def create_project(self, request):
        body = json.loads(await request.read())
        project_id = f"project-{len(self.projects) + 1}"
        self.projects[project_id] = {"project_id": project_id, **body}
        return web.json_response(self.projects[project_id])

    async def file(self, request):
        name = request.match_info["name"]
        await self._reached("file", request)
        status, body = self.files.get(Path(name).suffix, (200, None))
        if body is None:
            body = SUBTITLES.encode() if name.endswith((".srt", ".vtt")) else DUB + name.encode()
        return web.Response(status=status, body=body)

    async def utterances(self, request):
        if not self.said:
            return web.Response(status=404)
        return web.json_response({"job_id": request.match_info["job"], **request.query, **self.said})
