"""One job of the verb `dub`: created, waited for, and its files fetched into the run's folder."""

import asyncio
import filecmp
import json
import re
import zlib
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from speechframe.batch.backend import Answer, Attempt, Request
from speechframe.client import Client, Dubbing
from speechframe.client.upload import Upload
from speechframe.errors import (
    AudioError,
    BadAnswer,
    BadRequest,
    ConnectionFailed,
    JobFailed,
    PaymentRequired,
    ServiceError,
    SpeechframeError,
)
from speechframe.spec import locales
from speechframe.spec.dubbing import (
    MEDIA_TYPES,
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
from speechframe.store.folder import storing
from speechframe.store.reader import StoredRun
from speechframe.store.verify import DUBS_FOLDER
from speechframe.verbs.service import ServiceBackend
from speechframe.wire.requests import canonical

_UNSAFE = re.compile(r"[^\w.-]+")
_NAME_CHARACTERS = 100
_PAGE, _MOST_PAGES = 100, 1000  # projects a page, and pages
_NO_CREDITS = frozenset({FailureCode.INSUFFICIENT_CREDITS, FailureCode.CREDITS_EXHAUSTED})

Delivered = tuple[dict[str, Any], list[str]] | SpeechframeError
"""The columns and warnings of a dub, or why there is none."""


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


class JobBackend(ServiceBackend):
    """A backend of which an attempt is a job: created unless its id is noted, waited for, fetched.

    Attributes
    ----------
    secret
        Signs the webhooks of the jobs.
    """

    secret: SecretStr | None = None

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Return the job's status, what was delivered of each row, and what its creation warned of."""
        noted, dubbing = attempt.noted, Dubbing(self.client, call_s=attempt.deadline_s)
        if noted is None:
            if self.is_budgeted and not request.price:
                return Answer(
                    JobFailed("its price is unknown, and there is a budget: seconds= tells its length")
                )
            try:
                job = await self._created(dubbing, request, attempt.idempotency_key)
            except (AudioError, BadRequest, JobFailed) as error:
                return Answer(error)  # of all its locales: halves of the job would be refused as well
            noted = json.dumps([job.job_id, job.warning]).encode()
            await attempt.note(noted)
        job_id, warning = json.loads(noted)
        # From here on nothing but the job itself says that it failed: what it makes is paid.
        try:
            status = await self._ready(dubbing, request, job_id)
            found = [await self._delivered(dubbing, row, status) for row in request.rows]
        except PaymentRequired:
            raise
        except ConnectionFailed as error:
            raise ConnectionFailed(f"job {job_id} goes on at the service: {error}", sent=True) from None
        except ServiceError as error:
            raise BadAnswer(f"job {job_id} cannot be asked for: {error}") from None
        return Answer((status, found, warning))

    async def _created(self, dubbing: Dubbing, request: Request, key: str | None) -> DubJob:
        """Return the job of a request's rows, made in one attempt."""
        dub, targets = Dub.of(request.rows[0]), [Dub.of(row).locale for row in request.rows]
        upload, project, asked = dub.upload(Path(self.folder or "")), dub.project, dict(dub.fields)
        asked |= {"file_url": dub.medium["url"]} if upload is None else {"file": b""}
        if self.secret is not None:
            asked["webhook_secret"] = self.secret.get_secret_value()
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
        return await dubbing.create(form, upload, key=key, once=True)

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

    async def _ready(self, dubbing: Dubbing, request: Request, job_id: str) -> DubJobStatus:
        """Return the status of a job that is ready; PaymentRequired where there were no credits for it."""
        name, said = Dub.of(request.rows[0]).name or job_id, dict[str, str]()

        def told(status: DubJobStatus) -> None:
            for detail in status.download_details or ():
                step = detail.step or detail.status or status.status
                if detail.locale and said.get(detail.locale) != step:
                    said[detail.locale] = step
                    self.tell(f"{name}, {detail.locale}: {step}")

        status = await dubbing.wait(job_id, told=told)
        if status.status == JobStatusValue.FAILED and status.failure_code in _NO_CREDITS:
            words = status.failure_reason or "no credits are left on the dubbing key"
            raise PaymentRequired(words, status=402, code=status.failure_code)
        return status

    async def _delivered(self, dubbing: Dubbing, row: Request, status: DubJobStatus) -> Delivered:
        """Return what there is of a row, with its files on disk."""
        dub, fit, warnings = Dub.of(row), dict[str, Any](), list[str]()
        try:
            detail = detail_of(status, dub.locale)
            paths = {
                name: await self._file(dubbing, row, url, f"{dub.locale}{suffix}")
                for name, url, suffix in (
                    ("dub_path", detail.download_url, _suffix(dub, detail)),
                    ("srt_path", detail.download_srt_url, ".srt"),
                    ("vtt_path", detail.download_vtt_url, ".vtt"),
                )
            }
        except (BadAnswer, JobFailed) as error:
            return error
        if self.limits:  # our own service tells more than the document says
            try:
                said = await dubbing.utterances(status.job_id, dub.locale)
                fit, warnings = fit_of(said), said.warnings
            except (ServiceError, BadAnswer) as error:
                warnings = [f"how the dub fits is not known: {error}"]
        known = {"job_id": status.job_id, "job_status": detail.status or status.status}
        return {**known, **paths, "audio_seconds": dub.seconds, **fit}, warnings

    async def _file(self, dubbing: Dubbing, row: Request, url: str | None, ending: str) -> str | None:
        """Return where a file is, below the run's folder; None where the job has none such."""
        if url is None:
            return None
        folder, stem = Path(self.folder or "") / DUBS_FOLDER, stem_of(row.row_id)
        with storing(folder, "making the folder of dubs"):
            folder.mkdir(exist_ok=True)
        path = first = folder / f"{stem}.{ending}"
        if first.exists():
            # Of an attempt that was killed, or of another call that the row had before: that one is kept.
            path = folder / f"{stem}-{row.key[:8]}.{ending}"
        await dubbing.fetch(url, path, max_bytes=self.max_answer_bytes)
        if path != first and await asyncio.to_thread(filecmp.cmp, first, path, shallow=False):
            path.unlink()
            path = first
        return f"{DUBS_FOLDER}/{path.name}"


def _suffix(dub: Dub, detail: DownloadDetail) -> str:
    """Return how a dub's file ends: as its address or the medium's name, else as the medium's type says."""
    for name in (urlsplit(detail.download_url or "").path, dub.name):
        if (suffix := Path(name).suffix.lower()) in MEDIA_TYPES:
            return suffix
    kind = dub.medium.get("media_type")
    return next((suffix for suffix, media_type in MEDIA_TYPES.items() if media_type == kind), ".bin")


async def projects(client: Client) -> AsyncIterator[Project]:
    """Yield all projects of the key; raise BadAnswer for a list of pages that has no end."""
    after, seen = None, set[str | None]()
    while after not in seen and len(seen) < _MOST_PAGES:
        seen.add(after)
        page = await client.dubbing.list_projects(limit=_PAGE, next=after)
        for project in page.projects:
            yield project
        if not page.next:
            return
        after = page.next
    why = "goes in a circle" if after in seen else f"has more than {_MOST_PAGES:,} pages"
    raise BadAnswer(f"the service's list of projects {why}; report it to the service")


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
    """Return the columns that tell how the utterances of a dub fit into their slots."""
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


def stem_of(row_id: str) -> str:
    """Return what the files of a row are called, without locale and ending.

    Examples
    --------
    >>> stem_of("intro/pt-BR"), stem_of("../a b/pt-BR")
    ('intro', '_a_b-75e96e29')
    """
    base = row_id.rpartition("/")[0]
    safe = _UNSAFE.sub("_", base)[:_NAME_CHARACTERS].lstrip(".") or "_"
    # Two ids must not become one name.
    return safe if safe == base else f"{safe}-{zlib.crc32(base.encode()):08x}"


def plain(locale: str) -> str:
    """Return a locale in the spelling of speech; what is none as it is."""
    try:
        return locales.normalise(locale)
    except ValueError:
        return locale
