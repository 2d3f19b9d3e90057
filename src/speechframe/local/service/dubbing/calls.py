"""Dubbing calls for languages, jobs, files, reviews and projects (section 4.5 of the service document)."""

import itertools
import secrets
import sqlite3

from aiohttp import web
from pydantic import RootModel

from speechframe.local.dubbing import script
from speechframe.local.dubbing.folder import LocaleOutcome
from speechframe.local.service.books.database import now
from speechframe.local.service.books.keys import Key
from speechframe.local.service.books.unreadable import SkippedRecords, UnreadableRecord, parse_record
from speechframe.local.service.dubbing import jobs as dub_jobs
from speechframe.local.service.dubbing.jobs import FILES_PATH, JobRow
from speechframe.local.service.http.answers import build_json_response, refuse
from speechframe.local.service.http.auth import require_dub_key
from speechframe.local.service.http.body import check_fields, describe_unknown_fields, read_body
from speechframe.local.service.speech.audio import build_base_url
from speechframe.local.service.state import STATE, State
from speechframe.spec import chosen
from speechframe.spec.check import shorten_value
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
from speechframe.spec.locales import convert_to_dubbing_spelling, normalise

_TEXT_TYPES = {".srt": "application/x-subrip", ".vtt": "text/vtt"}
"""Media types of subtitle files, by suffix."""

FILE_ROUTE = FILES_PATH + "/{link:[^/]+}/{name:[^/]+}"
"""Route of the files of dubs."""


async def list_destination_languages(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/list-destination-languages``."""
    require_dub_key(request)
    return build_json_response(RootModel(request.app[STATE].languages.listed_targets))


async def list_source_languages(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/list-source-languages``."""
    require_dub_key(request)
    return build_json_response(RootModel(request.app[STATE].languages.listed_sources))


async def show_job_status(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/jobs/{job_id}/status``."""
    return await _answer_status(request, require_dub_key(request))


async def _answer_status(request: web.Request, key: Key, warning: str | None = None) -> web.Response:
    state, url = request.app[STATE], build_base_url(request)
    job = await _find_job(request, state, key)
    status = await state.database.read(lambda c: dub_jobs.describe_status(c, job, url))
    return build_json_response(status, [warning])


async def list_utterances(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/jobs/{job_id}/utterances``."""
    state = request.app[STATE]
    job = await _find_job(request, state, require_dub_key(request))
    query, _ = check_fields(UtterancesQuery, {name: value for name, value in request.query.items() if value})
    locale, outcome = await _find_outcome(state, job, query.locale)
    fields = {**dict(outcome), "job_id": job.job_id, "locale": convert_to_dubbing_spelling(locale)}
    return build_json_response(DubUtterances.model_validate(fields))


async def update_utterances(request: web.Request) -> web.Response:
    """Answer ``PUT /v1/dub/jobs/{job_id}/utterances``, which corrects texts and voices."""
    state = request.app[STATE]
    key = require_dub_key(request)
    wanted, result = check_fields(UtterancesUpdateRequest, await read_body(request))
    job = await _find_job(request, state, key)
    if not job.is_reviewed:
        refuse("the job does not belong to a QA project; allowed: corrections of jobs of QA projects")
    locale, outcome = await _find_outcome(state, job, wanted.locale)
    _check_ids(wanted, outcome)
    corrections = [_resolve_voice_id(state, locale, one) for one in wanted.utterances]
    try:
        script.apply_corrections(outcome.utterances, corrections, job.media_s)
    except ValueError as error:
        refuse(f"utterances: {error}")
    status = await state.dubs.correct(job, locale, corrections)
    if status is not JobStatusValue.IN_REVIEW:
        refuse(f"the job is {status}; it can only be corrected while it is {JobStatusValue.IN_REVIEW}")
    return await _answer_status(request, key, describe_unknown_fields(result.unknown))


async def _find_job(request: web.Request, state: State, key: Key) -> JobRow:
    job_id = request.match_info["job_id"]
    job = await state.database.read(lambda c: dub_jobs.find_job(c, key.key_hash, job_id))
    if job is None:
        refuse(f"there is no such job of this key (got {shorten_value(job_id)})")
    return job


async def _find_outcome(state: State, job: JobRow, asked: str) -> tuple[str, LocaleOutcome]:
    """Return a target locale of a job, with hyphens, and the outcome of its dub.

    Raises
    ------
    Refusal
        400 if the job has no such locale, or the locale has no outcome or no dub.
    """
    locale = normalise(asked)
    if locale not in job.task.targets:
        known = ", ".join(map(convert_to_dubbing_spelling, job.task.targets))
        refuse(f"locale is not a locale of this job (got {shorten_value(asked)}); allowed: {known}")
    outcome = await state.dubs.read_outcome(job, locale)
    if outcome is None:
        refuse(f"there are no utterances of {asked} yet, or they were removed: the job is {job.status}")
    if not outcome.media and outcome.failure is not None:
        refuse(f"the dub into {asked} failed: {outcome.failure.reason}")
    return locale, outcome


def _check_ids(wanted: UtterancesUpdateRequest, outcome: LocaleOutcome) -> None:
    known = {utterance.utterance_id for utterance in outcome.utterances}
    unknown = [one.utterance_id for one in wanted.utterances if one.utterance_id not in known]
    if unknown:
        refuse(
            f"utterances: there is no utterance {', '.join(map(str, unknown))}; "
            f"allowed: {min(known, default=0)} to {max(known, default=0)}"
        )


def _resolve_voice_id(state: State, locale: str, correction: UtteranceCorrection) -> UtteranceCorrection:
    """Return a correction with the full id of its voice. Refuse a voice that does not speak the locale."""
    if correction.voice_id is None:
        return correction
    voices = state.languages.voices
    speaking = [voice_id for voice_id, voice in voices.items() if locale in voice.supported_locales]
    voice_id = state.languages.find_voice_id(correction.voice_id)
    if voice_id not in speaking:
        refuse(
            f"utterances: no voice {shorten_value(correction.voice_id)} speaks {locale}; "
            f"allowed: {', '.join(speaking)}"
        )
    return correction.model_copy(update={"voice_id": voice_id})


async def send_file(request: web.Request) -> web.StreamResponse:
    """Answer with a file of a dub, or with a part of the file (``Range``)."""
    state = request.app[STATE]
    link, name = request.match_info["link"], request.match_info["name"]
    found = await state.database.read(lambda c: dub_jobs.find_file(c, link, name))
    path = state.dubs.folder / (found or "-")
    if not path.is_file():
        refuse("there is no such file, or its link has expired")
    content_type = {**MEDIA_TYPES, **_TEXT_TYPES}.get(path.suffix, "application/octet-stream")
    # Clients must check for a newer file, because a corrected dub keeps its address.
    return web.FileResponse(
        path, headers={"Content-Type": content_type, "Cache-Control": "private, no-cache"}
    )


# Projects

_PROJECT_KIND = "dubbing project"
"""Kind of record in error messages."""
_skipped = SkippedRecords()
"""Projects that cannot be read, so that each is logged once."""


def find_project(connection: sqlite3.Connection, key_hash: bytes, project_id: str) -> Project | None:
    """Return a project of a key, or None if the key has no such project.

    Raises
    ------
    Unreadable
        The stored project is damaged, or another release wrote it.
    """
    row = connection.execute(
        "SELECT CAST(project AS BLOB) FROM dub_projects WHERE project_id = ? AND key_hash = ?",
        (project_id, key_hash),
    ).fetchone()
    return parse_record(Project, row[0], _PROJECT_KIND, project_id) if row else None


def _add_project(connection: sqlite3.Connection, key_hash: bytes, project: Project) -> None:
    """Store a new project. If the key has too many projects, replace one that was unused for 30 days.

    Raises
    ------
    Refusal
        400 if the key has too many projects, and none of them was unused for that long.
    """
    (count,) = connection.execute(
        "SELECT COUNT(*) FROM dub_projects WHERE key_hash = ?", (key_hash,)
    ).fetchone()
    if count >= chosen.MAX_DUB_PROJECTS:
        gone = connection.execute(
            "DELETE FROM dub_projects WHERE number = (SELECT number FROM dub_projects "
            "WHERE key_hash = ? AND used_at <= ? ORDER BY used_at LIMIT 1)",
            (key_hash, now() - chosen.PROJECT_JOB_LIFETIME_SECONDS),
        )
        if not gone.rowcount:
            refuse(
                f"this key has {count:,} projects; allowed: {chosen.MAX_DUB_PROJECTS:,}; use one of them, "
                "with other locales if need be (PUT /v1/dub/projects/{project_id}/update)"
            )
    connection.execute(
        "INSERT INTO dub_projects (project_id, key_hash, project, used_at) VALUES (?, ?, ?, ?)",
        (project.project_id, key_hash, project.model_dump_json(), now()),
    )


async def create_project(request: web.Request) -> web.Response:
    """Answer ``POST /v1/dub/projects/create``."""
    state = request.app[STATE]
    key = require_dub_key(request)
    wanted, result = check_fields(ProjectCreateRequest, await read_body(request))
    state.languages.check_installed()
    source = state.languages.check_source("source_locale", wanted.source_locale)
    project = Project(
        project_id=secrets.token_hex(16),
        dubbing_type=wanted.dubbing_type,
        target_locales=_check_targets(state, wanted),
        name=wanted.name,
        description=wanted.description,
        source_locale=source and convert_to_dubbing_spelling(source),
    )
    await state.database.run(lambda c: _add_project(c, key.key_hash, project))
    return build_json_response(project, [describe_unknown_fields(result.unknown)])


async def update_project(request: web.Request) -> web.Response:
    """Answer ``PUT /v1/dub/projects/{project_id}/update``, which changes the target locales of later jobs."""
    state = request.app[STATE]
    key = require_dub_key(request)
    wanted, result = check_fields(ProjectUpdateRequest, await read_body(request))
    state.languages.check_installed()
    targets = _check_targets(state, wanted)
    project_id = request.match_info["project_id"]

    def update(connection: sqlite3.Connection) -> Project | None:
        known = find_project(connection, key.key_hash, project_id)
        if known is None:
            return None
        project = known.model_copy(update={"target_locales": targets})
        connection.execute(
            "UPDATE dub_projects SET project = ?, used_at = ? WHERE project_id = ?",
            (project.model_dump_json(), now(), project_id),
        )
        return project

    project = await state.database.run(update)
    if project is None:
        refuse(f"there is no such project of this key (got {shorten_value(project_id)})")
    return build_json_response(project, [describe_unknown_fields(result.unknown)])


async def list_projects(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/projects/list``, the oldest project first.

    `next` in an answer is the id of the last project of its page. `next` in a request selects the page after
    this project.
    """
    state = request.app[STATE]
    key = require_dub_key(request)
    wanted, _ = check_fields(
        ProjectListQuery, {name: value for name, value in request.query.items() if value}
    )

    def read_page(connection: sqlite3.Connection) -> list[tuple[str, bytes]]:
        cursor = connection.execute(
            "SELECT 1 FROM dub_projects WHERE project_id = ? AND key_hash = ?", (wanted.next, key.key_hash)
        )
        if wanted.next is not None and cursor.fetchone() is None:
            refuse(
                f"next is not a project of this key (got {shorten_value(wanted.next)}); "
                "allowed: the value of next in the answer before"
            )
        rows = connection.execute(
            "SELECT project_id, CAST(project AS BLOB) FROM dub_projects "
            "WHERE key_hash = ? AND number > IFNULL("
            "(SELECT number FROM dub_projects WHERE project_id = ?), 0) ORDER BY number LIMIT ?",
            (key.key_hash, wanted.next, wanted.limit + 1),
        )
        return rows.fetchall()

    found = await state.database.read(read_page)
    # A page ends at its limit, or before the project that would make it too large.
    sizes = itertools.accumulate(len(text) for _, text in found)
    count = max(1, sum(size <= chosen.MAX_PROJECT_PAGE_BYTES for size in sizes))
    page, projects = found[: min(count, wanted.limit)], list[Project]()
    for project_id, text in page:
        try:
            projects.append(parse_record(Project, text, _PROJECT_KIND, project_id))
        except UnreadableRecord as record:
            _skipped.add(record)
    following = page[-1][0] if len(found) > len(page) else None
    return build_json_response(ProjectPage(projects=projects, next=following))


def _check_targets(state: State, wanted: ProjectCreateRequest | ProjectUpdateRequest) -> list[str]:
    return [*map(convert_to_dubbing_spelling, state.languages.check_targets(wanted.target_locales))]
