"""Dubbing projects (sections 2.11 and 4.5): rows of a key, and a cursor over them.

They are listed in the order they were made in, and `next` stands for the last one that was shown: what
appears meanwhile comes at the end, and nothing moves.
"""

import base64
import hmac
import secrets
import sqlite3
from typing import NoReturn

from aiohttp import web

from speechframe.service.answers import Refusal, json_response
from speechframe.service.auth import require_dub_key
from speechframe.service.body import checked, read_body_in_time, unknown_warning
from speechframe.service.keys import Key, KeyRing
from speechframe.service.state import STATE, State
from speechframe.spec.check import shown
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.dubbing import (
    Project,
    ProjectCreateRequest,
    ProjectListQuery,
    ProjectPage,
    ProjectUpdateRequest,
)
from speechframe.spec.locales import dubbing_spelling

_MARK_BYTES = 12


def find(connection: sqlite3.Connection, key_hash: bytes, project_id: str) -> Project | None:
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
        known = find(connection, key.key_hash, project_id)
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
        _refuse(f"there is no such project of this key (got {shown(project_id)})")
    return json_response(project, [unknown_warning(result.unknown)])


async def list_projects(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/projects/list``."""
    state = request.app[STATE]
    key = require_dub_key(request)
    given = {name: request.query[name] for name in ProjectListQuery.model_fields if request.query.get(name)}
    wanted, _ = checked(ProjectListQuery, given)
    after = _read_cursor(state.dub_ring, key, wanted.next) if wanted.next is not None else 0
    rows = await state.database.run(
        lambda c: c.execute(
            "SELECT number, project FROM dub_projects WHERE key_hash = ? AND number > ? "
            "ORDER BY number LIMIT ?",
            (key.key_hash, after, wanted.limit + 1),
        ).fetchall()
    )
    shown_rows = rows[: wanted.limit]
    page = ProjectPage(
        projects=[Project.model_validate_json(project) for _, project in shown_rows],
        next=_cursor(state.dub_ring, key, shown_rows[-1][0]) if len(rows) > wanted.limit else None,
    )
    return json_response(page)


def _targets(state: State, wanted: ProjectCreateRequest | ProjectUpdateRequest) -> list[str]:
    return [*map(dubbing_spelling, state.languages.checked_targets(wanted.target_locales))]


def _cursor(ring: KeyRing, key: Key, number: int) -> str:
    """Return what stands for a project's place in the list of its key; nobody else can make one."""
    mark = ring.hashed(f"{key.key_hash.hex()} {number}")[:_MARK_BYTES]
    return base64.urlsafe_b64encode(mark + b"%d" % number).decode().rstrip("=")


def _read_cursor(ring: KeyRing, key: Key, words: str) -> int:
    try:
        data = base64.urlsafe_b64decode(words + "=" * (-len(words) % 4))
        number = int(data[_MARK_BYTES:])
    except ValueError:
        _refuse_cursor(words)
    if number < 0 or not hmac.compare_digest(_cursor(ring, key, number).encode(), words.encode()):
        _refuse_cursor(words)
    return number


def _refuse_cursor(words: str) -> NoReturn:
    _refuse(f"next is no place in this list (got {shown(words)}); allowed: the next of the page before")


def _refuse(message: str) -> NoReturn:
    raise Refusal(HttpErrorCode.INVALID_REQUEST, message)
