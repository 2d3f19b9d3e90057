"""One job of the verb `dub`: created, waited for, and its files fetched into the run's folder."""

import asyncio
import filecmp
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from speechframe.batch.backend import Request
from speechframe.client import Client
from speechframe.client.upload import Upload
from speechframe.errors import BadAnswer, JobFailed, PaymentRequired, ServiceError, SpeechframeError
from speechframe.spec import locales
from speechframe.spec.dubbing import (
    DownloadDetail,
    DubbingType,
    DubJob,
    DubJobStatus,
    DubUtterances,
    FailureCode,
    Fit,
    JobCreateRequest,
    JobCreateWithProjectRequest,
    JobStatusValue,
    Project,
)
from speechframe.store import parts
from speechframe.store.reader import StoredRun
from speechframe.store.verify import DUBS_FOLDER
from speechframe.wire.errors import warnings_of
from speechframe.wire.forms import canonical

MEDIA_SUFFIXES = frozenset({".mp4", ".mkv", ".mov", ".webm", ".mp3", ".wav", ".flac", ".m4a"})
_FETCH_WAITS_S = (0.0, 2.0, 10.0)
_UNSAFE = re.compile(r"[^\w.-]+")
_NAME_CHARACTERS = 100
_PAGE = 100
_NO_CREDITS = frozenset({FailureCode.INSUFFICIENT_CREDITS, FailureCode.CREDITS_EXHAUSTED})

Found = dict[str, tuple[dict[str, Any], list[str]] | SpeechframeError]
"""Locale to the columns and warnings of its dub, or why there is none."""


@dataclass
class Dub:
    """One medium with one locale, as a request's body keeps it.

    `medium` has a ``url``, or what an :class:`Upload` has; `fields` are those of the form; `targets` are
    all locales of the `project`.
    """

    locale: str
    medium: dict[str, Any]
    fields: dict[str, Any]
    project: str | None
    review: bool
    targets: list[str]
    seconds: float | None

    @classmethod
    def of(cls, request: Request) -> "Dub":
        """Return what is in a request's body."""
        return cls(**json.loads(request.body))

    @property
    def job(self) -> bytes:
        """What the rows of one job have in common."""
        return canonical({**asdict(self), "locale": None})

    @property
    def name(self) -> str:
        """What people call the medium."""
        return Path(urlsplit(self.medium.get("url", "")).path or self.medium.get("path", "")).name

    def upload(self, folder: Path) -> Upload | None:
        """Return the file that is sent, None for a URL; a relative path is one below the run's `folder`."""
        if "path" not in self.medium:
            return None
        return Upload(**{**self.medium, "path": folder / self.medium["path"]}, audio_seconds=0.0)


@dataclass(frozen=True)
class JobCalls:
    """The calls for one job: to a region, each in `call_s` seconds, its files going below `folder`."""

    client: Client
    folder: Path
    region: str | None
    call_s: float | None
    max_bytes: int | None
    is_ours: bool  # whether the service has our additions to the document
    tell: Callable[[str], object]

    async def create(self, request: Request, key: str | None, secret: SecretStr | None) -> DubJob:
        """Return the job of a request's rows, made in one attempt."""
        dub, targets = Dub.of(request.rows[0]), [Dub.of(row).locale for row in request.rows]
        upload, project, asked = dub.upload(self.folder), dub.project, dict(dub.fields)
        asked |= {"file_url": dub.medium["url"]} if upload is None else {"file": b""}
        if secret is not None:
            asked["webhook_secret"] = secret.get_secret_value()
        if project is not None and {*targets} != {*dub.targets}:
            raise JobFailed(
                f"a job of project {project} makes all of its locales, and some are paid already: "
                f"dub(..., targets={targets}) makes what is missing"
            )
        if dub.review:
            project = await self._review_project(request, dub, targets, asked.pop("source_locale", None))
        form = (
            JobCreateRequest(target_locales=targets, **asked)
            if project is None
            else JobCreateWithProjectRequest(project_id=project, **asked)
        )
        return await self.client.dubbing.create(
            form, upload, key=key, region=self.region, timeout_s=self.call_s, once=True
        )

    async def _review_project(
        self, request: Request, dub: Dub, targets: list[str], source_locale: str | None
    ) -> str:
        """Return the id of a job's own project, the same one whenever the job is created again."""
        name = f"Review of {dub.name or 'a medium'} ({request.key[:12]})"
        async for project in projects(self.client):
            if project.name == name:
                return project.project_id
        made = await self.client.dubbing.create_project(
            name, dubbing_type=DubbingType.QA, target_locales=targets, source_locale=source_locale
        )
        return made.project_id

    async def wait(self, request: Request, job_id: str) -> DubJobStatus:
        """Return the status of a job that is ready; PaymentRequired where there were no credits for it."""
        name, said = Dub.of(request.rows[0]).name or job_id, dict[str, str]()

        def told(status: DubJobStatus) -> None:
            for detail in status.download_details or ():
                step = detail.step or detail.status or status.status
                if detail.locale and said.get(detail.locale) != step:
                    said[detail.locale] = step
                    self.tell(f"{name}, {detail.locale}: {step}")

        status = await self.client.dubbing.wait(job_id, call_s=self.call_s, told=told, region=self.region)
        if status.status == JobStatusValue.FAILED and status.failure_code in _NO_CREDITS:
            words = status.failure_reason or "no credits are left on the dubbing key"
            raise PaymentRequired(words, status=402, code=status.failure_code)
        return status

    async def fetch(self, request: Request, status: DubJobStatus) -> Found:
        """Return what there is of each row, with its files on disk."""
        found: Found = {}
        for row in request.rows:
            dub = Dub.of(row)
            try:
                found[dub.locale] = await self._delivered(row, dub, status)
            except (BadAnswer, JobFailed) as error:
                found[dub.locale] = error
        return found

    async def _delivered(
        self, row: Request, dub: Dub, status: DubJobStatus
    ) -> tuple[dict[str, Any], list[str]]:
        detail = detail_of(status, dub.locale)
        suffix = Path(urlsplit(detail.download_url or "").path).suffix.lower()
        if suffix not in MEDIA_SUFFIXES:
            kind = dub.medium.get("media_type", "application/octet-stream")
            suffix = Path(Upload("", 0, 0.0, kind).name).suffix
        warnings, fit = await self._fit(status.job_id, dub.locale)
        return {
            "job_id": status.job_id,
            "job_status": detail.status or status.status,
            "dub_path": await self._file(row, dub, detail.download_url, suffix),
            "srt_path": await self._file(row, dub, detail.download_srt_url, ".srt"),
            "vtt_path": await self._file(row, dub, detail.download_vtt_url, ".vtt"),
            "audio_seconds": dub.seconds,
            **fit,
        }, warnings

    async def _fit(self, job_id: str, locale: str) -> tuple[list[str], dict[str, Any]]:
        """Return warnings about a dub, and how its utterances fit; nothing from services that do not tell."""
        if not self.is_ours:
            return [], {}
        dubbing = self.client.dubbing
        try:
            raw = await dubbing.ask("utterances", job_id, query={"locale": locale}, region=self.region)
            return [*warnings_of(raw.headers, clean=raw.redactor.clean)], fit_of(
                dubbing.read(DubUtterances, raw)
            )
        except (ServiceError, BadAnswer) as error:
            return [f"how the dub fits is not known: {error}"], {}

    async def _file(self, row: Request, dub: Dub, url: str | None, suffix: str) -> str | None:
        """Return where a file is, below the run's folder; None where the job has none such."""
        if url is None:
            return None
        folder, stem = self.folder / DUBS_FOLDER, stem_of(row.row_id, dub.locale)
        folder.mkdir(exist_ok=True)
        path = first = folder / f"{stem}{suffix}"
        if first.exists():
            # Of an attempt that was killed, or of another call that the row had before: that one is kept.
            path = folder / f"{stem}-{row.key[:8]}{suffix}"
        for wait_s in _FETCH_WAITS_S:  # what fails for a moment must not cost a dub
            await asyncio.sleep(wait_s)
            try:
                await self.client.dubbing.fetch(
                    url, path, timeout_s=self.call_s, max_bytes=self.max_bytes, region=self.region
                )
                break
            except BadAnswer as error:
                problem = error
        else:
            raise problem
        if path != first and await asyncio.to_thread(filecmp.cmp, first, path, shallow=False):
            path.unlink()
            path = first
        return f"{DUBS_FOLDER}/{path.name}"


async def projects(client: Client) -> AsyncIterator[Project]:
    """Yield all projects of the key."""
    after: str | None = None
    while True:
        page = await client.dubbing.list_projects(limit=_PAGE, next=after)
        for project in page.projects:
            yield project
        if not page.next or page.next == after:
            return
        after = page.next


def detail_of(status: DubJobStatus, locale: str) -> DownloadDetail:
    """Return what there is to fetch of a locale, or raise JobFailed."""
    details = {plain(detail.locale or ""): detail for detail in status.download_details or ()}
    detail = details.get(locale, DownloadDetail.model_validate({}))
    if detail.download_url is None or detail.status == JobStatusValue.FAILED:
        words = detail.error_message or status.failure_reason
        words = words or "there is no dub, and the service does not say why"
        code, _, rest = words.partition(": ")  # our service begins with the code of the failure
        if code not in {*FailureCode}:
            code, rest = status.failure_code or "", words
        raise JobFailed(rest, code=code or None)
    return detail


def jobs_of(run: StoredRun) -> dict[str, list[str]]:
    """Return the ids of a run's jobs, as far as they are known, each with the ids of its rows."""
    noted = parts.noted(run.folder)
    found: dict[str, list[str]] = {}
    for batch in run.batches([run.name_of(name) for name in ("row_id", "request_key", "job_id")]):
        for row_id, key, job_id in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            known = job_id or (json.loads(noted[key])[0] if key in noted else None)
            if known is not None:
                found.setdefault(known, []).append(row_id)
    return found


def fit_of(found: DubUtterances) -> dict[str, Any]:
    """Return the columns that tell how the utterances of a dub fit into their slots.

    Examples
    --------
    >>> fit_of(DubUtterances(job_id="j", locale="pt_BR", version=1, overlap=1, cues_over=0, utterances=[]))
    {'utterances': 0, 'overlap': 1.0, 'cues_over': 0}
    """
    told = {"utterances": len(found.utterances), "overlap": found.overlap, "cues_over": found.cues_over}
    if not found.utterances:
        return told
    offsets_ms = [each.dub_start_ms - each.start_ms for each in found.utterances]
    speeds = [each.speed for each in found.utterances]
    return told | {
        "start_offset_ms_median": float(median(offsets_ms)),
        "start_offset_ms_worst": max(offsets_ms, key=abs),
        "speed_min": min(speeds),
        "speed_max": max(speeds),
        "overruns": sum(each.fit == Fit.OVERRUN for each in found.utterances),
    }


def stem_of(row_id: str, locale: str) -> str:
    """Return what the files of a row are called, without their ending.

    Examples
    --------
    >>> stem_of("intro/pt-BR", "pt-BR"), stem_of("../a b/pt-BR", "pt-BR")
    ('intro.pt-BR', '_a_b-75e96e29.pt-BR')
    """
    base = row_id.removesuffix(f"/{locale}")
    safe = _UNSAFE.sub("_", base)[:_NAME_CHARACTERS].lstrip(".") or "_"
    # Two ids must not become one name.
    return f"{safe}.{locale}" if safe == base else f"{safe}-{zlib.crc32(base.encode()):08x}.{locale}"


def plain(locale: str) -> str:
    """Return a locale in the spelling of speech; what is none as it is."""
    try:
        return locales.normalise(locale)
    except ValueError:
        return locale
