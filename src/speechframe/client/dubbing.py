"""Dubbing: the calls of section 4.5, waiting for a job, and its files on disk."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar

from speechframe.client.caller import JSON, Caller, Patience
from speechframe.client.calls import accepted
from speechframe.client.download import save
from speechframe.client.masking import Redactor, without_secrets
from speechframe.client.upload import Body, Upload, medium_of
from speechframe.errors import AudioError, InvalidRows, SpeechframeError, TimedOut
from speechframe.settings.hidden import hidden_key
from speechframe.spec._model import DocumentModel
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
from speechframe.wire.dubbing import decode, decode_list, encode_job, encode_json

T = TypeVar("T")
M = TypeVar("M", bound=DocumentModel)

Media = bytes | str | PathLike[str]
"""A medium: the bytes of a file, the path of one, or the http(s) URL of one, which the service fetches."""

FIRST_WAIT_S, LONGEST_WAIT_S, WAIT_GROWTH = 0.5, 15.0, 1.3
"""Between two questions how a job is doing; each wait is drawn between half of its bound and the bound."""
AWAY = Patience(attempts=1_000_000, patience_s=900.0, repeat_unknown=True)
"""How long a service may be away while a job is waited for, such as one that is started anew."""


def is_url(media: Any) -> TypeGuard[str]:
    """Return whether a medium is given as a URL."""
    return isinstance(media, str) and media.strip().lower().startswith(("http://", "https://"))


def hide_secret(fields: dict[str, Any]) -> dict[str, Any]:
    """Hide the secret among the fields of a job; changes and returns `fields`."""
    if "webhook_secret" in fields:
        fields["webhook_secret"] = hidden_key(fields["webhook_secret"])
    return fields


class Dubbing:
    """The dubbing calls of a :class:`Client`, as ``client.dubbing``.

    They are made with the dubbing key (``SPEECHFRAME_DUB_API_KEY``), else with the client's own. Errors are
    those of :meth:`Client.call`; what is wrong with a request is an :class:`InvalidRows` before it is sent.
    All of them go to the first of the client's regions: a job is known where it was made.

    Parameters
    ----------
    caller
        The client.
    call_s
        Limit of each exchange in seconds; None for the client's own.

    Examples
    --------
    >>> job = await client.dubbing.create_job("film.mp4", target_locales=["pt-BR"])  # doctest: +SKIP
    >>> status = await client.dubbing.wait(job.job_id)  # doctest: +SKIP
    >>> for detail in status.download_details or ():  # doctest: +SKIP
    ...     await client.dubbing.fetch(detail.download_url, f"film.{detail.locale}.mp4")
    """

    def __init__(self, caller: Caller, *, call_s: float | None = None) -> None:
        self._caller, self._call_s = caller, call_s

    async def list_destination_languages(self) -> list[DestinationLocale]:
        """Return the locales that can be dubbed into, and how."""
        return await self._ask(partial(decode_list, DestinationLocale), "list_destination_languages")

    async def list_source_languages(self) -> list[SourceLocale]:
        """Return the locales that can be dubbed from."""
        return await self._ask(partial(decode_list, SourceLocale), "list_source_languages")

    async def create_job(self, media: Media, *, target_locales: Iterable[str], **fields: Any) -> DubJob:
        """Return a new job that dubs a medium.

        Parameters
        ----------
        media
            A path (read piece by piece while it is sent), a URL, or the bytes of a file.
        target_locales
            Locales in any spelling.
        **fields
            Any other field of :class:`speechframe.spec.dubbing.JobCreateRequest`: ``source_locale``,
            ``priority``, ``webhook_url``, ``webhook_secret``, ``file_name``. Our own service has
            ``script``, ``script_locale``, ``cast``, ``original_gain_db`` and ``max_credits``, too. If the
            service knows the header, all calls with one `idempotency_key` make one job.
        """
        fields = {"target_locales": _listed(target_locales), **hide_secret(fields)}
        return await self._create(JobCreateRequest, media, **fields)

    async def create_job_with_project(self, media: Media, *, project_id: str, **fields: Any) -> DubJob:
        """Return a new job that dubs a medium into the locales of a project; see :meth:`create_job`."""
        fields = {"project_id": project_id, **hide_secret(fields)}
        return await self._create(JobCreateWithProjectRequest, media, **fields)

    async def job_status(self, job_id: str) -> DubJobStatus:
        """Return how a job is doing; `is_terminal` and `is_ready` of `spec.dubbing` say what that means."""
        return await self._ask(partial(decode, DubJobStatus), "job_status", job_id)

    async def create_project(
        self,
        name: str,
        *,
        dubbing_type: str,
        target_locales: Iterable[str],
        source_locale: str | None = None,
        description: str | None = None,
    ) -> Project:
        """Return a new project, ``AUTOMATED`` or ``QA``; it costs nothing."""
        asked = {
            "name": name,
            "dubbing_type": dubbing_type,
            "target_locales": _listed(target_locales),
            "source_locale": source_locale,
            "description": description,
        }
        body = encode_json(_checked(ProjectCreateRequest, asked))
        return await self._ask(partial(decode, Project), "create_project", body=body)

    async def list_projects(self, *, limit: int | None = None, next: str | None = None) -> ProjectPage:  # noqa: A002 - the document's name
        """Return a page of the projects; its `next` asks for the following one."""
        query = _checked(ProjectListQuery, {"limit": limit, "next": next})
        asked = {name: str(value) for name, value in query.model_dump(exclude_none=True).items()}
        return await self._ask(partial(decode, ProjectPage), "list_projects", query=asked)

    async def update_project(self, project_id: str, *, target_locales: Iterable[str]) -> Project:
        """Return a project whose further jobs are dubbed into other locales."""
        body = encode_json(_checked(ProjectUpdateRequest, {"target_locales": _listed(target_locales)}))
        return await self._ask(partial(decode, Project), "update_project", project_id, body=body)

    async def utterances(self, job_id: str, locale: str) -> DubUtterances:
        """Return who says what in a dub, and when (our addition; other services answer with an error)."""
        query = {"locale": _checked(UtterancesQuery, {"locale": locale}).locale}
        return await self._ask(partial(decode, DubUtterances), "utterances", job_id, query=query)

    async def update_utterances(
        self, job_id: str, locale: str, corrections: Iterable[Mapping[str, Any]]
    ) -> DubJobStatus:
        """Correct a dub, and return the status of its job, which is made anew (our addition).

        Parameters
        ----------
        job_id, locale
            The dub.
        corrections
            Mappings with ``utterance_id`` and what is to change: ``text``, ``voice_id`` or both.
        """
        asked = {"locale": locale, "utterances": list(corrections)}
        body = encode_json(_checked(UtterancesUpdateRequest, asked))
        return await self._ask(partial(decode, DubJobStatus), "update_utterances", job_id, body=body)

    async def wait(
        self,
        job_id: str,
        *,
        timeout_s: float | None = None,
        told: Callable[[DubJobStatus], object] | None = None,
    ) -> DubJobStatus:
        """Return the status of a job once it is ready: over, in part too, or waiting for a review.

        It is asked for again and again, ever more rarely. A word that nobody knows does not end the wait, nor
        does a service that is away for less than a quarter of an hour.

        Parameters
        ----------
        job_id
            The job.
        timeout_s
            Seconds after which TimedOut is raised; the job goes on.
        told
            Is called with each status, the last one too.
        """
        bound_s, began_s = FIRST_WAIT_S, time.monotonic()
        while True:
            status = await self._ask(partial(decode, DubJobStatus), "job_status", job_id, patience=AWAY)
            if told is not None:
                told(status)
            if is_ready(status.status):
                return status
            wait_s = random.uniform(bound_s / 2, bound_s)  # noqa: S311 - spreads callers, keeps no secret
            if timeout_s is not None and time.monotonic() + wait_s > began_s + timeout_s:
                words = f"job {job_id} is {status.status} after {timeout_s:g} s; it goes on"
                raise TimedOut(words, sent=True)
            await asyncio.sleep(wait_s)
            bound_s = min(bound_s * WAIT_GROWTH, LONGEST_WAIT_S)

    async def fetch(self, url: str, path: str | PathLike[str], *, max_bytes: int | None = None) -> Path:
        """Download a file of a job and return where it is: it is there as a whole or not at all.

        Parameters
        ----------
        url
            A link of a download detail. The key is never sent to it, and it leads to the service itself, or
            by https to a public address.
        path
            The file to write; its folder exists.
        max_bytes
            The largest it may be; :attr:`Bounds.dubbed_bytes` by default.

        Raises
        ------
        BadAnswer
            It cannot be fetched (links expire), or must not.
        """
        caller, path = self._caller, Path(path)
        try:
            await save(
                caller.exchange,
                caller.addresses.values(),
                url,
                caller.url(caller.regions[0], "job_status", "job"),
                path,
                timeout_s=1e9 if self._call_s is None else self._call_s,
                window_s=caller.timeouts.download_s,
                slowest_bytes_s=caller.timeouts.download_bytes_a_second,
                max_bytes=caller.bounds.dubbed_bytes if max_bytes is None else max_bytes,
            )
        except SpeechframeError as error:
            raise without_secrets(error, caller.redactor) from None
        return path

    # -- what the calls share --------------------------------------------------------

    async def _create(
        self,
        model: type[JobCreateRequest | JobCreateWithProjectRequest],
        media: Media,
        *,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> DubJob:
        if (secret := fields.get("webhook_secret")) is not None:
            fields["webhook_secret"] = secret.get_secret_value()
        source = {"file_url": media.strip()} if is_url(media) else {"file": b""}
        request = _checked(model, {**fields, **source})
        upload = None if "file_url" in source else await asyncio.to_thread(_looked_at, media)
        return await self.create(request, upload, key=idempotency_key)

    async def create(
        self,
        request: JobCreateRequest | JobCreateWithProjectRequest,
        upload: Upload | None,
        *,
        key: str | None,
        once: bool = False,
    ) -> DubJob:
        """Create a job of a checked request and its file, in one attempt (`once`) or as many as it takes."""
        body: bytes | Body
        if upload is None:
            form, size_bytes = encode_job(request), 0
            body = form.head + form.tail
        else:
            form = encode_job(request, upload.sha256, name=upload.name, media_type=upload.media_type)
            size_bytes, body = upload.size_bytes, Body(upload, form)
        return await self._ask(
            partial(decode, DubJob),
            "create_job_with_project" if isinstance(request, JobCreateWithProjectRequest) else "create_job",
            body=body,
            headers={"Content-Type": form.content_type} | ({IDEMPOTENCY_HEADER: key} if key else {}),
            secret=request.webhook_secret,
            timeout_s=self._caller.timeouts.message_s(size_bytes),
            once=once,
        )

    async def _ask(
        self,
        read: Callable[[bytes], T],
        endpoint: str,
        place: str = "",
        *,
        headers: Mapping[str, str] = MappingProxyType({"Content-Type": JSON}),
        secret: str | None = None,
        timeout_s: float | None = None,
        **how: Any,
    ) -> T:
        """Return what is read in the answer of an endpoint; `how` are arguments of :meth:`Caller.read`."""
        caller = self._caller
        if secret is not None:
            known = (*caller.key_header.values(), *caller.dub_key_header.values(), secret)
            how["redactor"] = Redactor(*known)
        return await caller.read(
            endpoint,
            read,
            {**headers, **caller.dub_key_header},
            region=caller.regions[0],
            place=place,
            timeout_s=self._call_s or timeout_s,
            **how,
        )


def _looked_at(media: Any) -> Upload:
    """Return a medium to be sent, or raise InvalidRows; blocks while it is read for its hash."""
    try:
        return medium_of(media)
    except AudioError as error:
        line = {"field": "media", "problem": str(error), "value": "", "allowed": "a file that is not empty"}
        raise InvalidRows([line]) from None


def _checked(model: type[M], asked: Mapping[str, Any]) -> M:
    return accepted(check(model, asked), model)


def _listed(locales: Iterable[str]) -> list[str]:
    return [locales] if isinstance(locales, str) else list(locales)
