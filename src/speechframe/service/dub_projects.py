"""Dubbing projects (sections 2.11 and 4.5): rows of a key, listed page by page.

They are listed in the order they were made in, and `next` is the id of the last one that was shown: what
appears meanwhile comes at the end, and nothing moves.
"""

import secrets
import sqlite3

from aiohttp import web

from speechframe.service.answers import json_response, refuse
from speechframe.service.auth import require_dub_key
from speechframe.service.body import checked, read_body_in_time, unknown_warning
from speechframe.service.state import STATE, State
from speechframe.spec.check import shown
from speechframe.spec.dubbing import (
    Project,
    ProjectCreateRequest,
    ProjectListQuery,
    ProjectPage,
    ProjectUpdateRequest,
)
from speechframe.spec.locales import dubbing_spelling


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
        refuse(f"there is no such project of this key (got {shown(project_id)})")
    return json_response(project, [unknown_warning(result.unknown)])


async def list_projects(request: web.Request) -> web.Response:
    """Answer ``GET /v1/dub/projects/list``."""
    state = request.app[STATE]
    key = require_dub_key(request)
    wanted, _ = checked(ProjectListQuery, {name: value for name, value in request.query.items() if value})

    def read(connection: sqlite3.Connection) -> list[Project]:
        if wanted.next is not None and find(connection, key.key_hash, wanted.next) is None:
            refuse(
                f"next is no place in this list (got {shown(wanted.next)}); "
                "allowed: the next of the page before"
            )
        rows = connection.execute(
            "SELECT project FROM dub_projects WHERE key_hash = ? AND number > IFNULL("
            "(SELECT number FROM dub_projects WHERE project_id = ?), 0) ORDER BY number LIMIT ?",
            (key.key_hash, wanted.next, wanted.limit + 1),
        )
        return [Project.model_validate_json(project) for (project,) in rows.fetchall()]

    found = await state.database.run(read)
    page = found[: wanted.limit]
    return json_response(
        ProjectPage(projects=page, next=page[-1].project_id if len(found) > len(page) else None)
    )


def _targets(state: State, wanted: ProjectCreateRequest | ProjectUpdateRequest) -> list[str]:
    return [*map(dubbing_spelling, state.languages.checked_targets(wanted.target_locales))]
