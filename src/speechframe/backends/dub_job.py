"""Create a job of the verb `dub`, wait for the job, and fetch its files into the run's folder.

A job dubs one medium (a video or audio file) into several locales. Each row of a run is one of these dubs.
"""

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

from speechframe.audio.lengths import HEAD_BYTES, measure_media_seconds, recognise_media_type
from speechframe.audio.media import refuse_truncated
from speechframe.backends.files import resolve_path
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
from speechframe.spec.billing import convert_to_credits
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
from speechframe.store.folder import Folder, convert_os_errors, sync_to_disk
from speechframe.store.reader import StoredRun
from speechframe.store.records import read_notes
from speechframe.store.verify import DUBS_FOLDER
from speechframe.wire import subtitles
from speechframe.wire.answers import read_amount
from speechframe.wire.requests import encode_canonical_json

# Characters that a file name must not contain.
_UNSAFE_CHARACTERS = re.compile(r"[^\w.-]+")
# Longest part of a row id in a file name, because file names have a limited length.
_MAX_NAME_CHARACTERS = 100
# Projects on a page of the service's list, and pages that are read.
_PROJECTS_A_PAGE, _MAX_PAGES = 100, 1000
_SUBTITLE_SUFFIXES = frozenset({".srt", ".vtt"})
_MAX_SUBTITLE_BYTES = 16 << 20
# Media type of a file whose first bytes belong to no known kind of media.
_UNKNOWN_MEDIA_TYPE = "application/octet-stream"
# Failures of a job because credits are missing.
_CREDIT_FAILURES = frozenset({FailureCode.INSUFFICIENT_CREDITS, FailureCode.CREDITS_EXHAUSTED})


class DeliveredDub(NamedTuple):
    """A dub whose files are on disk."""

    values: dict[str, Any]
    """Column name to value, for the row of this dub."""
    warnings: list[str]
    seconds: float | None
    """Length of the dub's file in seconds, or None if no installed library can measure the file."""


@dataclass
class Dub:
    """One medium with one locale, as stored in the body of a request.

    `medium` contains a ``url``, or fields of an :class:`Upload`. `fields` are further fields of the request
    that creates the job. `project` is a project id or None. `review` is True if a project for reviews must be
    created. `targets` are all locales of the `project`. `seconds` is the length of the medium, or None if
    unknown.
    """

    locale: str
    medium: dict[str, Any]
    fields: dict[str, Any]
    project: str | None
    review: bool
    targets: list[str]
    seconds: float | None

    @classmethod
    def from_request(cls, request: Request) -> "Dub":
        """Return the dub in a request's body."""
        return cls(**json.loads(request.body))

    @property
    def job(self) -> bytes:
        """The values that all rows of a job share, as bytes for comparison."""
        return encode_canonical_json({**asdict(self), "locale": None})

    @property
    def name(self) -> str:
        """The file name of the medium, for messages. Empty for bytes."""
        return Path(urlsplit(self.medium.get("url", "")).path or self.medium.get("path", "")).name

    def make_upload(self, folder: Path) -> Upload | None:
        """Return the file to send, or None if the service fetches a URL. Relative paths begin at `folder`."""
        if "path" not in self.medium:
            return None
        path = resolve_path(folder, self.medium["path"])
        return Upload(**{**self.medium, "path": path}, audio_seconds=0.0)


class JobBackend(ServiceBackend):
    """A backend whose attempt is a whole job: create the job, wait for its end, and fetch its files.

    An attempt notes (stores in the run's folder) the id of its job. A later attempt waits for the noted job
    and creates none.

    Attributes
    ----------
    secret
        The secret that signs the webhooks of the jobs. None (default) for webhooks without a signature.
    """

    secret: SecretStr | None = None

    @property
    def refuses_above(self) -> bool:
        """True if the service publishes that it refuses a job above ``max_credits``."""
        published = self.limits.get("dubbing")
        return isinstance(published, Mapping) and published.get("max_credits") is True

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Make one attempt, or continue the job of an earlier attempt.

        ``data`` of the result is the error of the whole job. Or it has the status of the job, a list with the
        dub or error of each row, and the service's warning about the creation.
        """
        noted, dubbing = attempt.noted, Dubbing(self.client, request_timeout_s=attempt.deadline_s)
        if noted is None:
            if self.is_budgeted and not request.price:
                return Answer(
                    JobFailed("the price is unknown, but a budget is set; give the length as seconds=")
                )
            try:
                job = await self._create_job(dubbing, request, attempt.idempotency_key)
            except (AudioError, BadRequest, JobFailed) as error:
                # The error of all rows, because the service would refuse parts of the job, too.
                return Answer(error)
            noted = json.dumps([job.job_id, job.warning]).encode()
            await attempt.note(noted)
        job_id, warning = json.loads(noted)
        # From here on, the job may be billed. Only the status of the job can make it fail.
        try:
            status = await self._wait_for_job(dubbing, request, job_id)
            found = [await self._fetch_dub(dubbing, row, status) for row in request.rows]
        except PaymentRequired:
            raise
        except ConnectionFailed as error:
            raise ConnectionFailed(f"job {job_id} goes on at the service: {error}", sent=True) from None
        except ServiceError as error:
            raise BadAnswer(f"the status of job {job_id} cannot be read: {error}") from None
        return Answer((status, found, warning))

    async def _create_job(self, dubbing: Dubbing, request: Request, key: str | None) -> DubJob:
        """Create the job for the rows of a request in one attempt, and return the job."""
        dub = Dub.from_request(request.rows[0])
        targets = [Dub.from_request(row).locale for row in request.rows]
        upload, project, fields = dub.make_upload(Path(self.folder or "")), dub.project, dict(dub.fields)
        fields |= {"file_url": dub.medium["url"]} if upload is None else {"file": b""}
        if self.refuses_above and request.price:
            fields["max_credits"] = convert_to_credits(request.price)
        if self.secret is not None:
            fields["webhook_secret"] = self.secret.get_secret_value()
        if project is not None and {*targets} != {*dub.targets}:
            raise JobFailed(
                f"a job of project {project} makes all locales of the project, and some are paid already; "
                f"use dub(..., targets={targets}) to make the missing locales"
            )
        if dub.review:
            project = await self._provide_review_project(
                request, dub, targets, fields.pop("source_locale", None)
            )
        form = (
            JobCreateRequest(target_locales=targets, **fields)
            if project is None
            else JobCreateWithProjectRequest(project_id=project, **fields)
        )
        return await dubbing.create_job_from_request(form, upload, idempotency_key=key, once=True)

    async def _provide_review_project(
        self, request: Request, dub: Dub, targets: list[str], source_locale: str | None
    ) -> str:
        """Return the id of a project for reviews of this job. Create the project unless its name exists."""
        name = f"Review of {dub.name or 'a medium'} ({request.key[:12]})"
        async for project in iterate_projects(self.client):
            if project.name == name:
                return project.project_id
        made = await self.client.dubbing.create_project(
            name, dubbing_type=DubbingType.QA, target_locales=targets, source_locale=source_locale
        )
        return made.project_id

    async def _wait_for_job(self, dubbing: Dubbing, request: Request, job_id: str) -> DubJobStatus:
        """Wait for the end of a job and return its status. PaymentRequired if the key has too few credits."""
        name, steps = Dub.from_request(request.rows[0]).name or job_id, dict[str, str]()

        def report_steps(status: DubJobStatus) -> None:
            for detail in status.download_details or ():
                step = detail.step or detail.status or status.status
                if detail.locale and steps.get(detail.locale) != step:
                    steps[detail.locale] = step
                    self.tell(f"{name}, {locales.normalise(detail.locale)}: {step}")

        status = await dubbing.wait(job_id, on_status=report_steps)
        is_unpaid = status.failure_code in _CREDIT_FAILURES and not read_amount(status.credits_used)
        if status.status == JobStatusValue.FAILED and is_unpaid:
            message = status.failure_reason or "no credits are left on the dubbing key"
            raise PaymentRequired(message, status=402, code=status.failure_code)
        return status

    async def _fetch_dub(
        self, dubbing: Dubbing, row: Request, status: DubJobStatus
    ) -> DeliveredDub | SpeechframeError:
        """Fetch the files of a row's dub. Return the dub, or the error of the row."""
        dub, fit, warnings = Dub.from_request(row), dict[str, Any](), list[str]()
        files: dict[str, Any] = {"srt_path": None, "vtt_path": None}
        try:
            detail = find_detail(status, dub.locale)
            ending = f"{dub.locale}{_choose_suffix(dub, detail)}"
            files["dub_path"], seconds = await self._fetch_row_file(
                dubbing, row, detail.download_url or "", ending
            )
        except (BadAnswer, JobFailed) as error:
            return error
        for kind, url in (("srt", detail.download_srt_url), ("vtt", detail.download_vtt_url)):
            if url is None:
                continue
            try:
                # Missing subtitles add only a warning, because the dub is paid and on disk.
                files[f"{kind}_path"], problem = await self._fetch_row_file(
                    dubbing, row, url, f"{dub.locale}.{kind}"
                )
            except BadAnswer as error:
                problem = str(error)
            if problem:
                warnings.append(f"the {kind.upper()} subtitles: {problem}")
        if self.limits:  # only speechframe's own service lists utterances
            try:
                listed = await dubbing.utterances(status.job_id, dub.locale)
                fit, warnings = measure_fit(listed), [*warnings, *listed.warnings]
            except (ServiceError, BadAnswer) as error:
                warnings.append(f"the fit of the dub could not be measured: {error}")
        known = {"job_id": status.job_id, "job_status": detail.status or status.status}
        return DeliveredDub({**known, **files, "audio_seconds": dub.seconds, **fit}, warnings, seconds)

    async def _fetch_row_file(self, dubbing: Dubbing, row: Request, url: str, ending: str) -> tuple[str, Any]:
        """Fetch a file of a row. Return its path below the run's folder, and its length or faults."""
        folder, stem = Folder(self.folder or Path()), make_stem(row.row_id)
        with convert_os_errors(folder, "making the folder of dubs"):
            folder.find_path(DUBS_FOLDER).mkdir(exist_ok=True)
        path = usual_path = folder.find_path(f"{DUBS_FOLDER}/{stem}.{ending}")
        if usual_path.exists():
            # Do not overwrite the file of a killed attempt, or of an earlier call of the row.
            path = folder.find_path(f"{DUBS_FOLDER}/{stem}-{row.key[:8]}.{ending}")
        found = await fetch_file(dubbing, url, path, max_bytes=self.max_answer_bytes)
        if path != usual_path and await asyncio.to_thread(filecmp.cmp, usual_path, path, shallow=False):
            path.unlink()
            path = usual_path
        return f"{DUBS_FOLDER}/{path.name}", found


async def fetch_file(dubbing: Dubbing, url: str, path: Path, *, max_bytes: int | None = None) -> Any:
    """Fetch a file of a dub, check that it is a medium or subtitles, and move it to `path`.

    Returns
    -------
    float or str or None
        For a medium, the length in seconds, or None if no installed library can measure it. For subtitles, a
        text about faults that leave the subtitles usable, or None.

    Raises
    ------
    BadAnswer
        If the file cannot be fetched or is of another kind. An existing file at `path` then stays.
    """
    is_text = path.suffix in _SUBTITLE_SUFFIXES
    if is_text:
        max_bytes = min(max_bytes or _MAX_SUBTITLE_BYTES, _MAX_SUBTITLE_BYTES)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        await dubbing.fetch(url, temporary, max_bytes=max_bytes)
        found = await asyncio.to_thread(_find_subtitle_faults if is_text else _measure_dub, temporary)
        temporary.replace(path)
        await asyncio.to_thread(sync_to_disk, path.parent)
    except AudioError as error:
        raise BadAnswer(f"the fetched file is unusable: {error}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return found


def _measure_dub(path: Path) -> float | None:
    """Return the length of a dub in seconds, or None if it cannot be measured. AudioError for no medium."""
    refuse_truncated(path)
    try:
        return measure_media_seconds(path)
    except AudioError:
        with path.open("rb") as file:
            kind = recognise_media_type(file.read(HEAD_BYTES))
        # Only the library of the extra ``media`` reads videos. Without it, check only the first bytes.
        if find_spec("av") is None and kind != _UNKNOWN_MEDIA_TYPE:
            return None
        raise


def _find_subtitle_faults(path: Path) -> str | None:
    """Return a text about the faults of usable subtitles, or None. AudioError if they have no cue."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except ValueError:
        raise AudioError("it is not text in UTF-8") from None
    if "-->" not in text:
        raise AudioError("it is neither SRT nor WebVTT" if text.strip() else "it is empty")
    try:
        faults = subtitles.read_subtitles(text).warnings
    except ValueError as error:
        faults = (str(error),)
    return f"they are kept unchanged, but {'; '.join(faults)}" if faults else None


def _choose_suffix(dub: Dub, detail: DownloadDetail) -> str:
    """Return the extension of a dub, from its URL, the name of the medium or the media type."""
    for name in (urlsplit(detail.download_url or "").path, dub.name):
        if (suffix := Path(name).suffix.lower()) in MEDIA_TYPES:
            return suffix
    kind = dub.medium.get("media_type")
    return next((suffix for suffix, media_type in MEDIA_TYPES.items() if media_type == kind), ".bin")


async def iterate_projects(client: Client) -> AsyncIterator[Project]:
    """Yield all projects of the dubbing key. BadAnswer if the list repeats itself or has over 1000 pages."""
    after, seen = None, set[str | None]()
    while after not in seen and len(seen) < _MAX_PAGES:
        seen.add(after)
        page = await client.dubbing.list_projects(limit=_PROJECTS_A_PAGE, next=after)
        for project in page.projects:
            yield project
        if not page.next:
            return
        after = page.next
    why = "goes in a circle" if after in seen else f"has more than {_MAX_PAGES:,} pages"
    raise BadAnswer(f"the service's list of projects {why}; report it to the service")


def find_detail(status: DubJobStatus, locale: str) -> DownloadDetail:
    """Return the links to the files of a locale, or raise JobFailed if this locale has no dub."""
    details = {normalise_locale(detail.locale or ""): detail for detail in status.download_details or ()}
    detail = details.get(locale, DownloadDetail.model_validate({}))
    if detail.download_url is None or detail.status == JobStatusValue.FAILED:
        message = detail.error_message or status.failure_reason
        message = message or "the service returned no dub and no reason"
        code, _, reason = message.partition(": ")  # our service begins with the code of the failure
        if code not in {*FailureCode}:
            code, reason = status.failure_code or "", message
        raise JobFailed(reason, code=code or None)
    return detail


def list_jobs(run: StoredRun) -> dict[str, list[str]]:
    """Return each known job id of a run with the ids of its rows. Unfinished jobs count, too."""
    noted = read_notes(run.folder)
    found: dict[str, list[str]] = {}
    for batch in run.batches([run.name_of(name) for name in ("row_id", "request_key", "job_id")]):
        for row_id, key, job_id in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            known = job_id or (json.loads(noted[key])[0] if key in noted else None)
            if known is not None:
                found.setdefault(known, []).append(row_id)
    return found


def measure_fit(found: DubUtterances) -> dict[str, Any]:
    """Return the columns that measure how well the speech of a dub fits in the times of the original."""
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


def make_stem(row_id: str) -> str:
    """Return a safe file name for a row id `<id>/<locale>`, without locale and extension.

    Examples
    --------
    >>> make_stem("intro/pt-BR"), make_stem("../a b/pt-BR")
    ('intro', '_a_b-75e96e29')
    """
    base = row_id.rpartition("/")[0]
    safe = _UNSAFE_CHARACTERS.sub("_", base)[:_MAX_NAME_CHARACTERS].lstrip(".") or "_"
    # If a character was replaced, add a checksum, because two ids must not get the same name.
    return safe if safe == base else f"{safe}-{zlib.crc32(base.encode()):08x}"


def normalise_locale(locale: str) -> str:
    """Return a locale in our spelling, such as ``pt-BR``. Return any other word unchanged."""
    try:
        return locales.normalise(locale)
    except ValueError:
        return locale
