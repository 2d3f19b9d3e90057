"""Create a job of the verb `dub`, wait for it, and fetch its files into the run's folder."""

import asyncio
import filecmp
import json
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from speechframe.audio.lengths import HEAD_BYTES, media_type_of, seconds_of
from speechframe.audio.media import refuse_truncated
from speechframe.backends.files import kept_path
from speechframe.backends.service import ServiceBackend
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
from speechframe.spec.billing import to_credits
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
from speechframe.store.folder import Folder, storing, sync
from speechframe.store.reader import StoredRun
from speechframe.store.verify import DUBS_FOLDER
from speechframe.wire import subtitles
from speechframe.wire.answers import amount
from speechframe.wire.requests import canonical

_UNSAFE = re.compile(r"[^\w.-]+")
_NAME_CHARACTERS = 100
_PAGE, _MOST_PAGES = 100, 1000  # projects a page, and pages
_SUBTITLES = frozenset({".srt", ".vtt"})
_MOST_SUBTITLE_BYTES = 16 << 20
_NO_MEDIUM = "application/octet-stream"
_NO_CREDITS = frozenset({FailureCode.INSUFFICIENT_CREDITS, FailureCode.CREDITS_EXHAUSTED})


class Delivered(NamedTuple):
    """A dub whose files are on disk."""

    values: dict[str, Any]
    """The columns of its row."""
    warnings: list[str]
    seconds: float | None
    """Length of the dub's file, or None if no installed library can measure it."""


@dataclass
class Dub:
    """One medium with one locale, as stored in a request's body.

    `medium` contains a ``url``, or the fields of an :class:`Upload`. `fields` are the fields of the form.
    `targets` are all locales of the `project`.
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
        """Return the dub in a request's body."""
        return cls(**json.loads(request.body))

    @property
    def job(self) -> bytes:
        """The part that all rows of a job share."""
        return canonical({**asdict(self), "locale": None})

    @property
    def name(self) -> str:
        """The name of the medium for people."""
        return Path(urlsplit(self.medium.get("url", "")).path or self.medium.get("path", "")).name

    def upload(self, folder: Path) -> Upload | None:
        """Return the file that is sent, or None for a URL. Relative paths begin in the run's `folder`."""
        if "path" not in self.medium:
            return None
        path = kept_path(folder, self.medium["path"])
        return Upload(**{**self.medium, "path": path}, audio_seconds=0.0)


class JobBackend(ServiceBackend):
    """A backend whose attempt is a job. It creates the job unless its id is noted, waits, and fetches.

    Attributes
    ----------
    secret
        Signs the webhooks of the jobs.
    """

    secret: SecretStr | None = None

    @property
    def refuses_above(self) -> bool:
        """True if the service publishes that it refuses a job above ``max_credits``."""
        published = self.limits.get("dubbing")
        return isinstance(published, Mapping) and published.get("max_credits") is True

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Return the status of the job, the dub or error of each row, and the warning of its creation."""
        noted, dubbing = attempt.noted, Dubbing(self.client, call_s=attempt.deadline_s)
        if noted is None:
            if self.is_budgeted and not request.price:
                return Answer(
                    JobFailed("the price is unknown, but a budget is set; give the length as seconds=")
                )
            try:
                job = await self._create(dubbing, request, attempt.idempotency_key)
            except (AudioError, BadRequest, JobFailed) as error:
                return Answer(
                    error
                )  # for all locales, because the service would refuse parts of the job, too
            noted = json.dumps([job.job_id, job.warning]).encode()
            await attempt.note(noted)
        job_id, warning = json.loads(noted)
        # The job is paid from here on. Only its own status makes it a failure.
        try:
            status = await self._wait(dubbing, request, job_id)
            found = [await self._deliver(dubbing, row, status) for row in request.rows]
        except PaymentRequired:
            raise
        except ConnectionFailed as error:
            raise ConnectionFailed(f"job {job_id} goes on at the service: {error}", sent=True) from None
        except ServiceError as error:
            raise BadAnswer(f"the status of job {job_id} cannot be read: {error}") from None
        return Answer((status, found, warning))

    async def _create(self, dubbing: Dubbing, request: Request, key: str | None) -> DubJob:
        """Create the job of a request's rows in one attempt, and return it."""
        dub, targets = Dub.of(request.rows[0]), [Dub.of(row).locale for row in request.rows]
        upload, project, fields = dub.upload(Path(self.folder or "")), dub.project, dict(dub.fields)
        fields |= {"file_url": dub.medium["url"]} if upload is None else {"file": b""}
        if self.refuses_above and request.price:
            fields["max_credits"] = to_credits(request.price)
        if self.secret is not None:
            fields["webhook_secret"] = self.secret.get_secret_value()
        if project is not None and {*targets} != {*dub.targets}:
            raise JobFailed(
                f"a job of project {project} makes all locales of the project, and some are paid already; "
                f"use dub(..., targets={targets}) to make the missing locales"
            )
        if dub.review:
            project = await self._review_project(request, dub, targets, fields.pop("source_locale", None))
        form = (
            JobCreateRequest(target_locales=targets, **fields)
            if project is None
            else JobCreateWithProjectRequest(project_id=project, **fields)
        )
        return await dubbing.create(form, upload, key=key, once=True)

    async def _review_project(
        self, request: Request, dub: Dub, targets: list[str], source_locale: str | None
    ) -> str:
        """Return the id of the job's project. A repeated creation finds the project by its name."""
        name = f"Review of {dub.name or 'a medium'} ({request.key[:12]})"
        async for project in projects(self.client):
            if project.name == name:
                return project.project_id
        made = await self.client.dubbing.create_project(
            name, dubbing_type=DubbingType.QA, target_locales=targets, source_locale=source_locale
        )
        return made.project_id

    async def _wait(self, dubbing: Dubbing, request: Request, job_id: str) -> DubJobStatus:
        """Wait for a job and return its status. PaymentRequired if the key's credits do not suffice."""
        name, steps = Dub.of(request.rows[0]).name or job_id, dict[str, str]()

        def report_steps(status: DubJobStatus) -> None:
            for detail in status.download_details or ():
                step = detail.step or detail.status or status.status
                if detail.locale and steps.get(detail.locale) != step:
                    steps[detail.locale] = step
                    self.tell(f"{name}, {detail.locale}: {step}")

        status = await dubbing.wait(job_id, told=report_steps)
        is_unpaid = status.failure_code in _NO_CREDITS and not amount(status.credits_used)
        if status.status == JobStatusValue.FAILED and is_unpaid:
            words = status.failure_reason or "no credits are left on the dubbing key"
            raise PaymentRequired(words, status=402, code=status.failure_code)
        return status

    async def _deliver(
        self, dubbing: Dubbing, row: Request, status: DubJobStatus
    ) -> Delivered | SpeechframeError:
        """Fetch the files of a row's dub, and return the dub or its error."""
        dub, fit, warnings = Dub.of(row), dict[str, Any](), list[str]()
        files: dict[str, Any] = {"srt_path": None, "vtt_path": None}
        try:
            detail = detail_of(status, dub.locale)
            ending = f"{dub.locale}{_suffix(dub, detail)}"
            files["dub_path"], seconds = await self._file(dubbing, row, detail.download_url or "", ending)
        except (BadAnswer, JobFailed) as error:
            return error
        for name, kind, url in (
            ("srt_path", "srt", detail.download_srt_url),
            ("vtt_path", "vtt", detail.download_vtt_url),
        ):
            if url is None:
                continue
            try:
                # The dub is paid and on disk, so missing subtitles must not fail the row.
                files[name], problem = await self._file(dubbing, row, url, f"{dub.locale}.{kind}")
            except BadAnswer as error:
                problem = str(error)
            if problem:
                warnings.append(f"the {kind.upper()} subtitles: {problem}")
        if self.limits:  # only speechframe's own service lists utterances
            try:
                listed = await dubbing.utterances(status.job_id, dub.locale)
                fit, warnings = fit_of(listed), [*warnings, *listed.warnings]
            except (ServiceError, BadAnswer) as error:
                warnings.append(f"the fit of the dub could not be measured: {error}")
        known = {"job_id": status.job_id, "job_status": detail.status or status.status}
        return Delivered({**known, **files, "audio_seconds": dub.seconds, **fit}, warnings, seconds)

    async def _file(self, dubbing: Dubbing, row: Request, url: str, ending: str) -> tuple[str, Any]:
        """Fetch a file. Return its path below the run's folder, and the result of :func:`fetch_file`."""
        folder, stem = Folder(self.folder or Path()), stem_of(row.row_id)
        with storing(folder, "making the folder of dubs"):
            folder.inside(DUBS_FOLDER).mkdir(exist_ok=True)
        path = first = folder.inside(f"{DUBS_FOLDER}/{stem}.{ending}")
        if first.exists():
            # Keep the file of a killed attempt, or of an earlier call of the row.
            path = folder.inside(f"{DUBS_FOLDER}/{stem}-{row.key[:8]}.{ending}")
        found = await fetch_file(dubbing, url, path, max_bytes=self.max_answer_bytes)
        if path != first and await asyncio.to_thread(filecmp.cmp, first, path, shallow=False):
            path.unlink()
            path = first
        return f"{DUBS_FOLDER}/{path.name}", found


async def fetch_file(dubbing: Dubbing, url: str, path: Path, *, max_bytes: int | None = None) -> Any:
    """Fetch a file of a dub, check its kind, and put it in its place.

    Returns
    -------
    float or str or None
        For a medium, the length in seconds, or None if no installed library can measure it. For subtitles, a
        fault that leaves them usable, or None.

    Raises
    ------
    BadAnswer
        If the file cannot be fetched or has another kind. An existing file at `path` stays.
    """
    is_text = path.suffix in _SUBTITLES
    if is_text:
        max_bytes = min(max_bytes or _MOST_SUBTITLE_BYTES, _MOST_SUBTITLE_BYTES)
    beside = path.with_name(f".{path.name}.tmp")
    try:
        await dubbing.fetch(url, beside, max_bytes=max_bytes)
        found = await asyncio.to_thread(_check_subtitles if is_text else _measure, beside)
        beside.replace(path)
        await asyncio.to_thread(sync, path.parent)
    except AudioError as error:
        raise BadAnswer(f"the fetched file is unusable: {error}") from None
    finally:
        beside.unlink(missing_ok=True)
    return found


def _measure(path: Path) -> float | None:
    """Return the length of a dub in seconds. AudioError if the file is not a medium."""
    refuse_truncated(path)
    try:
        return seconds_of(path)
    except AudioError:
        with path.open("rb") as file:
            kind = media_type_of(file.read(HEAD_BYTES))
        # Only the extra ``media`` reads videos. Without it, check the first bytes alone.
        if find_spec("av") is None and kind != _NO_MEDIUM:
            return None
        raise


def _check_subtitles(path: Path) -> str | None:
    """Return a fault that leaves subtitles usable, or None. AudioError if the file contains no cues."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except ValueError:
        raise AudioError("it is not text in UTF-8") from None
    if "-->" not in text:
        raise AudioError("it is neither SRT nor WebVTT" if text.strip() else "it is empty")
    try:
        faults = subtitles.read(text).warnings
    except ValueError as error:
        faults = (str(error),)
    return f"they are kept unchanged, but {'; '.join(faults)}" if faults else None


def _suffix(dub: Dub, detail: DownloadDetail) -> str:
    """Return the extension of a dub, from its address, the name of the medium or the media type."""
    for name in (urlsplit(detail.download_url or "").path, dub.name):
        if (suffix := Path(name).suffix.lower()) in MEDIA_TYPES:
            return suffix
    kind = dub.medium.get("media_type")
    return next((suffix for suffix, media_type in MEDIA_TYPES.items() if media_type == kind), ".bin")


async def projects(client: Client) -> AsyncIterator[Project]:
    """Yield all projects of the key. BadAnswer if the pages of the list never end."""
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
    """Return the links of a locale, or raise JobFailed."""
    details = {plain(detail.locale or ""): detail for detail in status.download_details or ()}
    detail = details.get(locale, DownloadDetail.model_validate({}))
    if detail.download_url is None or detail.status == JobStatusValue.FAILED:
        words = detail.error_message or status.failure_reason
        words = words or "the service returned no dub and no reason"
        code, _, rest = words.partition(": ")  # our service begins with the code of the failure
        if code not in {*FailureCode}:
            code, rest = status.failure_code or "", words
        raise JobFailed(rest, code=code or None)
    return detail


def jobs_of(run: StoredRun) -> dict[str, list[str]]:
    """Return the known job ids of a run, each with the ids of its rows."""
    noted = parts.read_notes(run.folder)
    found: dict[str, list[str]] = {}
    for batch in run.batches([run.name_of(name) for name in ("row_id", "request_key", "job_id")]):
        for row_id, key, job_id in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            known = job_id or (json.loads(noted[key])[0] if key in noted else None)
            if known is not None:
                found.setdefault(known, []).append(row_id)
    return found


def fit_of(found: DubUtterances) -> dict[str, Any]:
    """Return the columns that measure the fit of a dub's utterances."""
    totals = {"utterances": len(found.utterances), "overlap": found.overlap, "cues_over": found.cues_over}
    if not found.utterances:
        return totals
    offsets_ms = [each.dub_start_ms - each.start_ms for each in found.utterances]
    speeds = [each.speed for each in found.utterances]
    return totals | {
        "start_offset_ms_median": float(median(offsets_ms)),
        "start_offset_ms_worst": max(offsets_ms, key=abs),
        "speed_min": min(speeds),
        "speed_max": max(speeds),
        "overruns": sum(each.fit == Fit.OVERRUN for each in found.utterances),
    }


def stem_of(row_id: str) -> str:
    """Return the name of a row's files, without locale and extension.

    Examples
    --------
    >>> stem_of("intro/pt-BR"), stem_of("../a b/pt-BR")
    ('intro', '_a_b-75e96e29')
    """
    base = row_id.rpartition("/")[0]
    safe = _UNSAFE.sub("_", base)[:_NAME_CHARACTERS].lstrip(".") or "_"
    # Add a checksum, because two different ids must not get the same name.
    return safe if safe == base else f"{safe}-{zlib.crc32(base.encode()):08x}"


def plain(locale: str) -> str:
    """Return a locale in the spelling of speech, and any other word unchanged."""
    try:
        return locales.normalise(locale)
    except ValueError:
        return locale
