"""The calls of dubbing (section 4.5) but for creating jobs: languages, status, files, a review, projects."""

import secrets
import sqlite3

from aiohttp import web
from pydantic import RootModel

from speechframe.dubbing.folder import Outcome
from speechframe.service import dub_jobs
from speechframe.service.answers import json_response, refuse
from speechframe.service.audio import base_url
from speechframe.service.auth import require_dub_key
from speechframe.service.body import checked, read_body_in_time, unknown_warning
from speechframe.service.dub_jobs import FILES_PATH, Job
from speechframe.service.keys import Key
from speechframe.service.state import STATE, State
from speechframe.spec import chosen
from speechframe.spec.check import shown
from speechframe.spec.dubbing import (
    MEDIA_TYPES,
    DubUtterances,
    JobStatusValue,
    Project,
    ProjectCreateRequest,
    ProjectListQuery,
    ProjectPage,
    ProjectUpdateRequest,
    UtteranceCorrection,
    UtterancesQuery,
    UtterancesUpdateRequest,
)
from speechframe.spec.locales import dubbing_spelling, normalise

_TEXT_TYPES = {".srt": "application/x-subrip", ".vtt": "text/vtt"}

PATH = FILES_PATH + "/{link:[^/]+}/{name:[^/]+}"


async def list_destination_languages(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/list-destination-languages``."""
    require_dub_key(request)
    return json_response(RootModel(request.app[STATE].languages.listed_targets))


async def list_source_languages(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/list-source-languages``."""
    require_dub_key(request)
    return json_response(RootModel(request.app[STATE].languages.listed_sources))


async def job_status(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/jobs/{job_id}/status``."""
    return await _status(request, require_dub_key(request))


async def _status(request: web.Request, key: Key, warning: str | None = None) -> web.Response:
    state, url = request.app[STATE], base_url(request)
    job = await _job(request, state, key)
    told = await state.database.run(lambda c: dub_jobs.status_of(c, job, url))
    return json_response(told, [warning])


async def utterances(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/jobs/{job_id}/utterances``."""
    state = request.app[STATE]
    job = await _job(request, state, require_dub_key(request))
    wanted, _ = checked(UtterancesQuery, {name: value for name, value in request.query.items() if value})
    locale, outcome = await _outcome(state, job, wanted.locale)
    told = {**dict(outcome), "job_id": job.job_id, "locale": dubbing_spelling(locale)}
    return json_response(DubUtterances.model_validate(told))


async def update_utterances(request: web.Request) -> web.Response:
    """Answer ``PUT /v1/dub/jobs/{job_id}/utterances``: what is to be said instead, or by whom."""
    state = request.app[STATE]
    key = require_dub_key(request)
    wanted, result = checked(UtterancesUpdateRequest, await read_body_in_time(request, state.config))
    job = await _job(request, state, key)
    if not job.is_reviewed:
        refuse("the job is not of a QA project: it is made once, and not corrected")
    locale, outcome = await _outcome(state, job, wanted.locale)
    _check_ids(wanted, outcome)
    corrections = [_with_voice_id(state, locale, one) for one in wanted.utterances]
    status = await state.database.run(lambda c: dub_jobs.correct(c, job, locale, corrections))
    if status is not JobStatusValue.IN_REVIEW:
        refuse(f"the job is {status}; it is corrected while it is {JobStatusValue.IN_REVIEW}")
    state.dubs.wake()
    return await _status(request, key, unknown_warning(result.unknown))


async def _job(request: web.Request, state: State, key: Key) -> Job:
    job_id = request.match_info["job_id"]
    job = await state.database.run(lambda c: dub_jobs.find(c, key.key_hash, job_id))
    if job is None:
        refuse(f"there is no such job of this key (got {shown(job_id)})")
    return job


async def _outcome(state: State, job: Job, asked: str) -> tuple[str, Outcome]:
    """Return a target locale of a job, with hyphens, and what became of it."""
    locale = normalise(asked)
    if locale not in job.task.targets:
        known = ", ".join(map(dubbing_spelling, job.task.targets))
        refuse(f"locale is none of the job's (got {shown(asked)}); allowed: {known}")
    outcome = await state.dubs.outcome(job, locale)
    if outcome is None:
        refuse(f"there is nothing to see of {asked} yet, or no longer: the job is {job.status}")
    if not outcome.media and outcome.failure is not None:
        refuse(f"the dub into {asked} failed: {outcome.failure.reason}")
    return locale, outcome


def _check_ids(wanted: UtterancesUpdateRequest, outcome: Outcome) -> None:
    known = {utterance.utterance_id for utterance in outcome.utterances}
    unknown = [one.utterance_id for one in wanted.utterances if one.utterance_id not in known]
    if unknown:
        refuse(
            f"utterances: there is no utterance {', '.join(map(str, unknown))}; "
            f"allowed: {min(known, default=0)} to {max(known, default=0)}"
        )


def _with_voice_id(state: State, locale: str, correction: UtteranceCorrection) -> UtteranceCorrection:
    """Return a correction with the full id of its voice, which must speak the locale."""
    if correction.voice_id is None:
        return correction
    voices = state.languages.voices
    speaking = [voice_id for voice_id, voice in voices.items() if locale in voice.supported_locales]
    voice_id = state.languages.voice_id(correction.voice_id)
    if voice_id not in speaking:
        refuse(
            f"utterances: no voice {shown(correction.voice_id)} speaks {locale}; "
            f"allowed: {', '.join(speaking)}"
        )
    return correction.model_copy(update={"voice_id": voice_id})


async def file(request: web.Request) -> web.StreamResponse:
    """Answer with a file of a dub, or a part of it (``Range``)."""
    state = request.app[STATE]
    link, name = request.match_info["link"], request.match_info["name"]
    found = await state.database.run(lambda c: dub_jobs.find_file(c, link, name))
    path = state.dubs.folder / (found or "-")
    if not path.is_file():
        refuse("there is no such file, or its 72 hours are over")
    content_type = MEDIA_TYPES.get(path.suffix) or _TEXT_TYPES[path.suffix]
    # A corrected dub has the address of the one before.
    return web.FileResponse(
        path, headers={"Content-Type": content_type, "Cache-Control": "private, no-cache"}
    )


# Projects


def find_project(connection: sqlite3.Connection, key_hash: bytes, project_id: str) -> Project | None:
    """Return a project of a key."""
    row = connection.execute(
        "SELECT project FROM dub_projects WHERE project_id = ? AND key_hash = ?", (project_id, key_hash)
    ).fetchone()
    return Project.model_validate_json(row[0]) if row else None


async def create_project(request: web.Request) -> web.Response:
    """Answer ``POST /v1/dub/projects/create``."""
    state = request.app[STATE]
    key = require_dub_key(request)
    wanted, result = checked(ProjectCreateRequest, await read_body_in_time(request, state.config))
    state.languages.check_installed()
    source = state.languages.checked_source("source_locale", wanted.source_locale)
    project = Project(
        project_id=secrets.token_hex(16),
        dubbing_type=wanted.dubbing_type,
        target_locales=_targets(state, wanted),
        name=wanted.name,
        description=wanted.description,
        source_locale=source and dubbing_spelling(source),
    )
    await state.database.run(
        lambda c: c.execute(
            "INSERT INTO dub_projects (project_id, key_hash, project) VALUES (?, ?, ?)",
            (project.project_id, key.key_hash, project.model_dump_json()),
        )
    )
    return json_response(project, [unknown_warning(result.unknown)])


async def update_project(request: web.Request) -> web.Response:
    """Answer ``PUT /v1/dub/projects/{project_id}/update``: the locales of jobs to come."""
    state = request.app[STATE]
    key = require_dub_key(request)
    wanted, result = checked(ProjectUpdateRequest, await read_body_in_time(request, state.config))
    state.languages.check_installed()
    targets = _targets(state, wanted)
    project_id = request.match_info["project_id"]

    def update(connection: sqlite3.Connection) -> Project | None:
        known = find_project(connection, key.key_hash, project_id)
        if known is None:
            return None
        project = known.model_copy(update={"target_locales": targets})
        connection.execute(
            "UPDATE dub_projects SET project = ? WHERE project_id = ?",
            (project.model_dump_json(), project_id),
        )
        return project

    project = await state.database.run(update)
    if project is None:
        refuse(f"there is no such project of this key (got {shown(project_id)})")
    return json_response(project, [unknown_warning(result.unknown)])


async def list_projects(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/projects/list``, in the order they were made in.

    `next` is the id of the last one that was shown: what appears meanwhile comes at the end.
    """
    state = request.app[STATE]
    key = require_dub_key(request)
    wanted, _ = checked(ProjectListQuery, {name: value for name, value in request.query.items() if value})

    def read(connection: sqlite3.Connection) -> ProjectPage:
        if wanted.next is not None and find_project(connection, key.key_hash, wanted.next) is None:
            refuse(
                f"next is no place in this list (got {shown(wanted.next)}); "
                "allowed: the next of the page before"
            )
        rows = connection.execute(
            "SELECT project FROM dub_projects WHERE key_hash = ? AND number > IFNULL("
            "(SELECT number FROM dub_projects WHERE project_id = ?), 0) ORDER BY number LIMIT ?",
            (key.key_hash, wanted.next, wanted.limit + 1),
        )
        page: list[Project] = []
        size_bytes = 0
        for (project,) in rows:
            size_bytes += len(project.encode())
            if page and (len(page) == wanted.limit or size_bytes > chosen.MAX_PROJECT_PAGE_BYTES):
                return ProjectPage(projects=page, next=page[-1].project_id)
            page.append(Project.model_validate_json(project))
        return ProjectPage(projects=page)

    return json_response(await state.database.run(read))


def _targets(state: State, wanted: ProjectCreateRequest | ProjectUpdateRequest) -> list[str]:
    return [*map(dubbing_spelling, state.languages.checked_targets(wanted.target_locales))]
