"""Make the dubbing calls of section 4.5 of the service document, wait for a job, and download its files."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar

from speechframe.client.caller import JSON_TYPE, Caller, Patience
from speechframe.client.calls import require_valid
from speechframe.client.download import DownloadSource, save_file
from speechframe.client.masking import Redactor, remove_secrets
from speechframe.client.upload import Body, Upload, read_medium
from speechframe.errors import AudioError, InvalidRows, SpeechframeError, TimedOut
from speechframe.settings.hidden import wrap_key
from speechframe.spec.check import check
from speechframe.spec.chosen import IDEMPOTENCY_HEADER
from speechframe.spec.dubbing import (
    DestinationLocale,
    DubJob,
    DubJobStatus,
    DubUtterances,
    JobCreateRequest,
    JobCreateWithProjectRequest,
    Project,
    ProjectCreateRequest,
    ProjectListQuery,
    ProjectPage,
    ProjectUpdateRequest,
    SourceLocale,
    UtterancesQuery,
    UtterancesUpdateRequest,
    is_ready,
)
from speechframe.spec.fields._model import DocumentModel
from speechframe.wire.dubbing import decode_model, decode_models, encode_job
from speechframe.wire.requests import encode_request

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=DocumentModel)

Media = bytes | str | PathLike[str]
"""A media file, given by its bytes, its path, or an http(s) URL from which the service fetches the file."""

FIRST_WAIT_S, LONGEST_WAIT_S, WAIT_GROWTH = 0.5, 15.0, 1.3
"""Upper bounds of the waits between requests for a job's status.

The values are the first and the largest upper bound in seconds, and the factor by which the bound grows. Each
wait is random, and at least half as long as its upper bound.
"""
JOB_WAIT_PATIENCE = Patience(attempts=1_000_000, patience_s=900.0, repeat_unknown=True)
"""Limits of retries during the wait for a job. The service may be away for 15 minutes, to restart."""


def is_url(media: Any) -> TypeGuard[str]:
    """Return whether a media file is given as a URL."""
    return isinstance(media, str) and media.strip().lower().startswith(("http://", "https://"))


def hide_secrets(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace the secrets in the arguments of a call by objects that hide them. Return `fields`."""
    for name in fields.keys() & {"webhook_secret", "token"}:
        fields[name] = wrap_key(fields[name])
    return fields


class Dubbing:
    """The dubbing calls of a :class:`Client`, as ``client.dubbing``.

    The calls use the dubbing key (``SPEECHFRAME_DUB_API_KEY``), or else the client's own key. Errors are
    those of :meth:`Client.call`. An invalid request raises :class:`InvalidRows` before it is sent. All calls
    go to the client's first region, because a job exists only in the region that created it.

    Parameters
    ----------
    caller
        The client.
    request_timeout_s
        Time limit in seconds of each request with its answer, and of each whole download by :meth:`fetch`.
        None (default) selects the client's own limits, and sets no limit on a whole download.

    Examples
    --------
    >>> job = await client.dubbing.create_job("film.mp4", target_locales=["pt-BR"])  # doctest: +SKIP
    >>> status = await client.dubbing.wait(job.job_id)  # doctest: +SKIP
    >>> for detail in status.download_details or ():  # doctest: +SKIP
    ...     await client.dubbing.fetch(detail.download_url, f"film.{detail.locale}.mp4")
    """

    def __init__(self, caller: Caller, *, request_timeout_s: float | None = None) -> None:
        self._caller, self._request_timeout_s = caller, request_timeout_s

    async def list_destination_languages(self) -> list[DestinationLocale]:
        """Return the locales that the service dubs into, each with its types of dubbing."""
        return await self._ask(partial(decode_models, DestinationLocale), "list_destination_languages")

    async def list_source_languages(self) -> list[SourceLocale]:
        """Return the locales that the service dubs from."""
        return await self._ask(partial(decode_models, SourceLocale), "list_source_languages")

    async def create_job(self, /, media: Media, *, target_locales: Iterable[str], **fields: Any) -> DubJob:
        """Create a job that dubs a media file, and return the job.

        Parameters
        ----------
        media
            A path, a URL, or the bytes of a file. The file of a path is read piece by piece while it is sent.
        target_locales
            Codes of locales, such as ``pt-BR``. Upper and lower case do not matter, nor whether the separator
            is ``-`` or ``_``.
        **fields
            Any other field of :class:`speechframe.spec.dubbing.JobCreateRequest`: ``source_locale``,
            ``priority``, ``webhook_url``, ``webhook_secret``, ``file_name``. Speechframe's own service also
            accepts ``script``, ``script_locale``, ``cast``, ``original_gain_db`` and ``max_credits``. Calls
            with the same `idempotency_key` create one job, if the service supports the header
            ``Idempotency-Key``.
        """
        fields = {"target_locales": _as_locale_list(target_locales), **hide_secrets(fields)}
        return await self._check_and_create(JobCreateRequest, media, **fields)

    async def create_job_with_project(self, /, media: Media, *, project_id: str, **fields: Any) -> DubJob:
        """Create a job for the locales of a project, as :meth:`create_job` does, and return the job."""
        fields = {"project_id": project_id, **hide_secrets(fields)}
        return await self._check_and_create(JobCreateWithProjectRequest, media, **fields)

    async def job_status(self, job_id: str) -> DubJobStatus:
        """Return the status of a job. Pass its `status` to `is_terminal` or `is_ready` of `spec.dubbing`."""
        return await self._ask(partial(decode_model, DubJobStatus), "job_status", job_id)

    async def create_project(
        self,
        name: str,
        *,
        dubbing_type: str,
        target_locales: Iterable[str],
        source_locale: str | None = None,
        description: str | None = None,
    ) -> Project:
        """Create a project of type ``AUTOMATED`` or ``QA``, free of charge, and return the project."""
        given = {
            "name": name,
            "dubbing_type": dubbing_type,
            "target_locales": _as_locale_list(target_locales),
            "source_locale": source_locale,
            "description": description,
        }
        body = encode_request(_check_request(ProjectCreateRequest, given))
        return await self._ask(partial(decode_model, Project), "create_project", body=body)

    async def list_projects(self, *, limit: int | None = None, next: str | None = None) -> ProjectPage:  # noqa: A002 - the document's name
        """Return a page of the projects. Pass its `next` to get the following page."""
        query = _check_request(ProjectListQuery, {"limit": limit, "next": next})
        given = {name: str(value) for name, value in query.model_dump(exclude_none=True).items()}
        return await self._ask(partial(decode_model, ProjectPage), "list_projects", query=given)

    async def update_project(self, project_id: str, *, target_locales: Iterable[str]) -> Project:
        """Set the target locales of a project for its future jobs, and return the project."""
        body = encode_request(
            _check_request(ProjectUpdateRequest, {"target_locales": _as_locale_list(target_locales)})
        )
        return await self._ask(partial(decode_model, Project), "update_project", project_id, body=body)

    async def utterances(self, job_id: str, locale: str) -> DubUtterances:
        """Return the utterances of a dub. Only speechframe's own service has this call."""
        query = {"locale": _check_request(UtterancesQuery, {"locale": locale}).locale}
        return await self._ask(partial(decode_model, DubUtterances), "utterances", job_id, query=query)

    async def update_utterances(
        self, job_id: str, locale: str, corrections: Iterable[Mapping[str, Any]]
    ) -> DubJobStatus:
        """Correct a dub, and return the status of its job, which starts again.

        Only speechframe's own service has this call.

        Parameters
        ----------
        job_id, locale
            The job, and the locale of the dub.
        corrections
            Mappings with ``utterance_id`` and the new ``text``, the new ``voice_id`` or both.
        """
        given = {"locale": locale, "utterances": list(corrections)}
        body = encode_request(_check_request(UtterancesUpdateRequest, given))
        return await self._ask(partial(decode_model, DubJobStatus), "update_utterances", job_id, body=body)

    async def wait(
        self,
        job_id: str,
        *,
        timeout_s: float | None = None,
        on_status: Callable[[DubJobStatus], object] | None = None,
    ) -> DubJobStatus:
        """Wait until a job is over or waits for a review, and return its status.

        A job that succeeded only in part is over, too. The status is requested at growing intervals. An
        unknown status does not end the wait. A failure to reach the service ends the wait only after 15
        minutes.

        Parameters
        ----------
        job_id
            The job.
        timeout_s
            Number of seconds after which the status is not requested again. TimedOut is raised as soon as the
            next request would be later than this, and the job goes on. None (default) sets no limit.
        on_status
            A function that is called with each status, including the last.
        """
        bound_s, began_s = FIRST_WAIT_S, time.monotonic()
        while True:
            status = await self._ask(
                partial(decode_model, DubJobStatus), "job_status", job_id, patience=JOB_WAIT_PATIENCE
            )
            if on_status is not None:
                on_status(status)
            if is_ready(status.status):
                return status
            wait_s = random.uniform(bound_s / 2, bound_s)  # noqa: S311 - spreads callers, keeps no secret
            if timeout_s is not None and time.monotonic() + wait_s > began_s + timeout_s:
                message = (
                    f"job {job_id} is {status.status}, and timeout_s={timeout_s:g} leaves no time to ask "
                    "again. The job goes on at the service. Wait for it again with a longer timeout_s"
                )
                raise TimedOut(message, sent=True)
            await asyncio.sleep(wait_s)
            bound_s = min(bound_s * WAIT_GROWTH, LONGEST_WAIT_S)

    async def fetch(self, url: str, path: str | PathLike[str], *, max_bytes: int | None = None) -> Path:
        """Download a file of a job and return its path. The file is replaced only by a complete one.

        Parameters
        ----------
        url
            The link in a download detail. The link must lead to the service itself, or by https to a public
            address. The key is not sent.
        path
            The file to write. Its folder must exist.
        max_bytes
            Largest size of the file. The default is :attr:`Bounds.dubbed_bytes`.

        Raises
        ------
        BadAnswer
            If the file cannot be fetched, for example because the link has expired, or its URL is forbidden.
        """
        caller, path = self._caller, Path(path)
        try:
            base = caller.url(caller.regions[0], "job_status", "job")
            await save_file(
                DownloadSource(caller.exchange, caller.addresses.values(), url, base),
                path,
                timeout_s=1e9 if self._request_timeout_s is None else self._request_timeout_s,
                window_s=caller.timeouts.download_s,
                min_bytes_per_s=caller.timeouts.download_bytes_a_second,
                max_bytes=caller.bounds.dubbed_bytes if max_bytes is None else max_bytes,
            )
        except SpeechframeError as error:
            raise remove_secrets(error, caller.redactor) from None
        return path

    # -- shared by the calls ---------------------------------------------------------

    async def _check_and_create(
        self,
        model: type[JobCreateRequest | JobCreateWithProjectRequest],
        media: Media,
        *,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> DubJob:
        """Check the request and inspect the file, then create the job."""
        if (secret := fields.get("webhook_secret")) is not None:
            fields["webhook_secret"] = secret.get_secret_value()
        source = {"file_url": media.strip()} if is_url(media) else {"file": b""}
        request = _check_request(model, {**fields, **source})
        upload = None if "file_url" in source else await asyncio.to_thread(_read_media, media)
        return await self.create_job_from_request(request, upload, idempotency_key=idempotency_key)

    async def create_job_from_request(
        self,
        request: JobCreateRequest | JobCreateWithProjectRequest,
        upload: Upload | None,
        *,
        idempotency_key: str | None,
        once: bool = False,
    ) -> DubJob:
        """Create a job from a checked request and its file, in one attempt (`once`) or with retries."""
        body: bytes | Body
        if upload is None:
            form, size_bytes = encode_job(request), 0
            body = form.head + form.tail
        else:
            form = encode_job(request, upload.sha256, name=upload.name, media_type=upload.media_type)
            size_bytes, body = upload.size_bytes, Body(upload, form)
        return await self._ask(
            partial(decode_model, DubJob),
            "create_job_with_project" if isinstance(request, JobCreateWithProjectRequest) else "create_job",
            body=body,
            headers={"Content-Type": form.content_type}
            | ({IDEMPOTENCY_HEADER: idempotency_key} if idempotency_key else {}),
            secret=request.webhook_secret,
            timeout_s=self._caller.timeouts.compute_upload_limit_s(size_bytes),
            once=once,
        )

    async def _ask(
        self,
        decode: Callable[[bytes], T],
        endpoint: str,
        resource_id: str = "",
        *,
        headers: Mapping[str, str] = MappingProxyType({"Content-Type": JSON_TYPE}),
        secret: str | None = None,
        timeout_s: float | None = None,
        **read_options: Any,
    ) -> T:
        """Send a request with the dubbing key to the first region, and return the decoded answer.

        `decode` decodes the body of the answer. `resource_id` is the job or project id in the path, and
        `secret` a webhook secret to mask in errors. `read_options` are further arguments of
        :meth:`Caller.read`.
        """
        caller = self._caller
        if secret is not None:
            known = (*caller.key_header.values(), *caller.dub_key_header.values(), secret)
            read_options["redactor"] = Redactor(*known)
        return await caller.read(
            endpoint,
            decode,
            {**headers, **caller.dub_key_header},
            region=caller.regions[0],
            resource_id=resource_id,
            timeout_s=self._request_timeout_s or timeout_s,
            **read_options,
        )


def _read_media(media: Any) -> Upload:
    """Return a media file as an upload, or raise InvalidRows. Blocks the thread while it reads the file."""
    try:
        return read_medium(media)
    except AudioError as error:
        allowed = "a file that is not empty"
        problem = {"field": "media", "problem": str(error), "value": "", "allowed": allowed}
        raise InvalidRows([problem]) from None


def _check_request(model: type[ModelT], given: Mapping[str, Any]) -> ModelT:
    return require_valid(check(model, given), model)


def _as_locale_list(locales: Iterable[str]) -> list[str]:
    return [locales] if isinstance(locales, str) else list(locales)
