"""The two calls that create a dubbing job, from the form to a row in the queue.

Section 4.5 of the service document describes the calls. The checks have the same order as in the other calls.
The form is read to disk, a ``file_url`` is fetched, and a worker reads the whole media file. A refused
request leaves nothing on disk.
"""

import asyncio
import hashlib
import json
import secrets
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from aiohttp import web

from speechframe.local.dubbing import script
from speechframe.local.dubbing.folder import Task
from speechframe.local.service.books.idempotency import IdempotencyMark
from speechframe.local.service.books.keys import Key
from speechframe.local.service.dubbing import calls as dub_calls
from speechframe.local.service.dubbing import jobs as dub_jobs
from speechframe.local.service.dubbing.jobs import JobRow
from speechframe.local.service.http.answers import build_json_response, refuse
from speechframe.local.service.http.auth import require_dub_key
from speechframe.local.service.http.body import check_fields, describe_unknown_fields
from speechframe.local.service.http.fetch import fetch_file
from speechframe.local.service.http.forms import ReceivedForm, receive_form
from speechframe.local.service.http.guard import ForbiddenAddress, HostNotFound, parse_url
from speechframe.local.service.http.middleware import LOG_NOTE_KEY
from speechframe.local.service.http.threads import NoFreeThread
from speechframe.local.service.http.uploads import ReceivedFile
from speechframe.local.service.speech.audio import build_base_url
from speechframe.local.service.speech.paid import read_mark, refuse_errors, refuse_no_slot, run_job
from speechframe.local.service.state import STATE, State
from speechframe.local.service.workers.changer import ProbeJob
from speechframe.spec import billing, chosen
from speechframe.spec.check import shorten_value
from speechframe.spec.dubbing import (
    DubbingType,
    DubJob,
    JobCreateRequest,
    JobCreateWithProjectRequest,
    Project,
)
from speechframe.spec.locales import convert_to_dubbing_spelling
from speechframe.wire import subtitles
from speechframe.writing.words import format_count

# Names of fields of the form.
_FILE_FIELD, _TARGETS_FIELD, _LIMIT_FIELD = "file", "target_locales", "max_credits"
_MAX_NAME_CHARACTERS = 200
"""Characters to which a file name is cut. The end of the name is kept."""
_MIN_BYTES_PER_S = 1000
"""Assumed smallest size in bytes of one second of media. The time limit for measuring a file uses it."""

_Wanted = JobCreateRequest | JobCreateWithProjectRequest


async def create_job(request: web.Request) -> web.Response:
    """Answer ``POST /v1/dub/jobs/create``."""
    return await _create_job(request, JobCreateRequest)


async def create_job_with_project(request: web.Request) -> web.Response:
    """Answer ``POST /v1/dub/jobs/create-with-project-id``."""
    return await _create_job(request, JobCreateWithProjectRequest)


async def _create_job(request: web.Request, model: type[_Wanted]) -> web.Response:
    state = request.app[STATE]
    key = require_dub_key(request)
    state.languages.check_installed()
    with refuse_no_slot(state), state.slots.count_upload(key), refuse_errors():
        header = request.headers.get(chosen.IDEMPOTENCY_HEADER)
        # Check before the body is read, so that a key with too many waiting jobs is refused at once.
        await state.dubs.check_room(key, repeats=state.ring.hash_secret(header) if header else None)
        async with receive_form(request, state, key.key_hash, files=(_FILE_FIELD,)) as form:
            wanted, result = check_fields(model, form.collect_fields(lists=(_TARGETS_FIELD,)))
            mark = _make_mark(request, wanted, form)
            answer = await state.database.read(lambda c: dub_jobs.find_repeated(c, key.key_hash, mark))
            if answer is None:
                job = await _make_job(request, key, wanted, describe_unknown_fields(result.unknown))
                await _check_webhook(state, key, wanted.webhook_url)
                # Check before the media file is fetched and measured, so that a full queue refuses at once.
                state.pools.fast.check_room(key.key_hash)
                with state.uploads.lend_path() as path:
                    upload = form.files.get(_FILE_FIELD) or await fetch_file(
                        wanted.file_url or "", state, key.key_hash, path
                    )
                    media_s, name = (
                        await _measure_media(state, key, upload, job.task.source_locale),
                        _choose_file_name(wanted, upload),
                    )
                    await _check_script(wanted, media_s)
                    _refuse_expensive(wanted, media_s, len(job.task.targets))
                    named_answer = job.answer.model_copy(update={"file_name": name})
                    job = job.model_copy(update={"answer": named_answer, "media_s": media_s})
                    answer = await state.dubs.add(job, upload.path, mark)
    request[LOG_NOTE_KEY] = f"key {key.fingerprint} job {answer.job_id}"
    return build_json_response(answer)


async def _check_webhook(state: State, key: Key, address: str | None) -> None:
    """Refuse an address to which the service would not deliver a webhook.

    A host name that does not resolve now is accepted, because it may resolve when the job ends. The delivery
    checks the address again.
    """
    if address is None:
        return
    try:
        await state.guard.resolve_addresses(key.key_hash, parse_url(address))
    except (HostNotFound, NoFreeThread):
        return
    except ForbiddenAddress as problem:
        refuse(f"webhook_url cannot be called: {problem}; give another address, or none and poll the status")


def _make_mark(request: web.Request, wanted: _Wanted, form: ReceivedForm) -> IdempotencyMark | None:
    # Leave max_credits out, because a repeat with another limit is still the same job.
    fields = wanted.model_dump(mode="json", exclude={_FILE_FIELD, _LIMIT_FIELD}, exclude_none=True)
    content = json.dumps(fields, sort_keys=True).encode()
    upload = form.files.get(_FILE_FIELD)
    if upload is not None:
        content += hashlib.sha256(upload.file_name.encode(errors="surrogateescape")).digest() + upload.sha256
    return read_mark(request, type(wanted).__name__, content)


async def _make_job(request: web.Request, key: Key, wanted: _Wanted, warning: str | None) -> JobRow:
    """Return the job that a form describes. Its `media_s` is 0 until the media file is measured."""
    state = request.app[STATE]
    project = await _find_project(state, key, wanted)
    # Check the locales of a project again, because engines may have been removed since it was created.
    targets = state.languages.check_targets(project.target_locales)
    source = state.languages.check_source("source_locale", project.source_locale)
    job_id = secrets.token_hex(16)
    return JobRow(
        job_id=job_id,
        key_hash=key.key_hash,
        project_id=project.project_id or None,
        link=secrets.token_hex(16),
        answer=DubJob(
            job_id=job_id,
            dubbing_type=project.dubbing_type,
            file_name="",
            priority=wanted.priority,
            target_locales=[*map(convert_to_dubbing_spelling, targets)],
            file_url=wanted.file_url,
            webhook_url=wanted.webhook_url,
            source_locale=source and convert_to_dubbing_spelling(source),
            warning=warning,
        ),
        task=Task(
            targets=targets,
            source_locale=source,
            script=wanted.script,
            script_locale=await _check_script_locale(state, wanted),
            cast={
                speaker: _find_voice_id(state, speaker, name) for speaker, name in (wanted.cast or {}).items()
            },
            original_gain_db=wanted.original_gain_db,
        ),
        media_s=0.0,
        base_url=build_base_url(request),
        webhook_secret=wanted.webhook_secret,
    )


async def _find_project(state: State, key: Key, wanted: _Wanted) -> Project:
    """Return the project of a job. For a job without a project, return a new one with an empty id."""
    if isinstance(wanted, JobCreateRequest):
        return Project(
            project_id="",
            dubbing_type=DubbingType.AUTOMATED,
            target_locales=wanted.target_locales,
            source_locale=wanted.source_locale,
        )
    project = await state.database.read(lambda c: dub_calls.find_project(c, key.key_hash, wanted.project_id))
    if project is None:
        refuse(f"project_id is not a project of this key (got {shorten_value(wanted.project_id)})")
    return project


async def _check_script_locale(state: State, wanted: _Wanted) -> str | None:
    if wanted.script is None:
        return None
    try:
        # Parsing a long script takes a quarter of a second, so it runs in a thread.
        await asyncio.to_thread(subtitles.read_subtitles, wanted.script)
    except ValueError as error:
        refuse(f"script is neither SRT nor WebVTT: {error}")
    return state.languages.check_source("script_locale", wanted.script_locale, is_script=True)


async def _check_script(wanted: _Wanted, media_s: float) -> None:
    if wanted.script is not None:
        try:
            await asyncio.to_thread(script.read_script, wanted.script, media_s, cast=wanted.cast or ())
        except ValueError as error:
            refuse(f"script: {error}")


def _find_voice_id(state: State, speaker: str, name: str) -> str:
    voice_id = state.languages.find_voice_id(name)
    if voice_id is None:
        refuse(
            f"cast: the voice of {shorten_value(speaker)} is not a voice of this service "
            f"(got {shorten_value(name)}); allowed: ids and names of the voice listing"
        )
    return voice_id


async def _measure_media(state: State, key: Key, upload: ReceivedFile, locale: str | None) -> float:
    """Return the length in seconds of a media file. Refuse a file that cannot be dubbed.

    `locale` is the locale of the speech. It selects one of several audio tracks.
    """
    most_s = min(upload.size_bytes / _MIN_BYTES_PER_S, chosen.MAX_DUB_SECONDS)
    reply = await run_job(
        state.pools.fast,
        ProbeJob(upload.path, chosen.MAX_DUB_SECONDS, locale),
        key,
        limit_s=state.config.limits.compute_job_limit_s(0, most_s),
        refused="the media file cannot be dubbed",
        failed="the media file could not be read",
    )
    return reply.facts.audio_seconds


def _refuse_expensive(wanted: _Wanted, media_s: float, locale_count: int) -> None:
    """Refuse a job that costs more than the request's ``max_credits`` (chosen: dub-max-credits)."""
    price = billing.compute_dub_millicredits(media_s, locale_count)
    if wanted.max_credits is not None and price > round(wanted.max_credits * billing.MILLICREDITS_PER_CREDIT):
        refuse(
            f"the job costs {format_count(billing.convert_to_credits(price), 'credit')}, because the medium "
            f"is {format_count(media_s, 'second')} long; allowed by max_credits are "
            f"{wanted.max_credits:,.10g}. Nothing was billed: raise max_credits, or give the right length of "
            "the medium when you plan it"
        )


def _choose_file_name(wanted: _Wanted, upload: ReceivedFile) -> str:
    """Return the file name of the media file, without folders and without unprintable characters."""
    fetched_name = unquote(urlsplit(wanted.file_url or "").path, errors="replace")
    name = wanted.file_name or upload.file_name or fetched_name
    # Browsers on Windows once sent whole paths.
    name = PurePosixPath(name.replace("\\", "/")).name
    plain = "".join(filter(str.isprintable, name))[-_MAX_NAME_CHARACTERS:].strip()
    return "medium" if plain in {"", ".", ".."} else plain
