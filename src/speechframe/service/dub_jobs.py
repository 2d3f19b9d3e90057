"""Dubbing jobs as rows: what is asked for, how far each locale is, what it costs; steps of transactions.

A job that has no owner and is not over waits for a worker: a new one, one that is corrected, one whose
service process died. What it costs is set aside when it is first taken, under the job's own name, so that it
outlives the process; it is settled once, when the first version is finished.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from speechframe.dubbing.folder import DUB, SRT, VTT, Failure, Outcome, Task
from speechframe.service import quota, webhooks
from speechframe.service.database import now
from speechframe.service.idempotency import Mark
from speechframe.service.keys import Key
from speechframe.spec import billing, chosen
from speechframe.spec.dubbing import (
    DownloadDetail,
    DubbingType,
    DubJob,
    DubJobStatus,
    FailureCode,
    JobStatusValue,
    Priority,
    UtteranceCorrection,
)
from speechframe.spec.locales import dubbing_spelling

FILES_PATH = "/v1/dub/files"

_LOST = Failure(
    code=FailureCode.SERVER_ERROR,
    reason="the dubbing process crashed or took too long, twice; nothing was billed for what it left undone",
)
_LINKS = ("download_url", "download_srt_url", "download_vtt_url")
_OVER = f"the links are over: they live for {chosen.DUB_LINK_SECONDS // 3600} hours"

_Status = JobStatusValue
# Reservations of this owner are given back by whoever ends the job, and not when a service process dies.
_OWNER = "dubbing"


class Job(BaseModel):
    """A job, as it stands in its row.

    Parameters
    ----------
    link
        The unguessable part of the addresses of its files.
    answer
        What its creator was told.
    task
        What its worker is told.
    media_s
        Length of the medium in seconds.
    base_url
        The address under which its creator knows this service.
    steps
        Locale to what is being done for it now.
    results
        Locale to what became of it, but for its utterances.
    billed_millis
        What it cost; None until that is settled.
    ended_at
        Unix time; None while it is under way.
    """

    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    job_id: str
    key_hash: bytes
    project_id: str | None
    link: str
    answer: DubJob
    task: Task
    media_s: float
    base_url: str
    webhook_secret: str | None = Field(None, repr=False)
    status: JobStatusValue = _Status.QUEUED
    steps: Mapping[str, str] = Field(default_factory=dict)
    results: Mapping[str, Outcome] = Field(default_factory=dict)
    billed_millis: int | None = None
    ended_at: float | None = None

    @property
    def is_reviewed(self) -> bool:
        """Whether somebody is to look at it before it is done."""
        return self.answer.dubbing_type == DubbingType.QA

    @property
    def is_over(self) -> bool:
        """Whether its files are there no longer: those of a project stay."""
        is_old = self.ended_at is not None and self.ended_at <= now() - chosen.DUB_LINK_SECONDS
        return self.project_id is None and is_old


def _read(connection: sqlite3.Connection, condition: str, *values: object) -> Job | None:
    query = f"SELECT job FROM dubs WHERE {condition}"  # noqa: S608 - words of ours
    row = connection.execute(query, values).fetchone()
    return Job.model_validate_json(row[0]) if row else None


def _known(connection: sqlite3.Connection, job_id: str) -> Job:
    job = _read(connection, "job_id = ?", job_id)
    assert job is not None  # noqa: S101 - rows of jobs stay
    return job


def _changed(connection: sqlite3.Connection, job: Job, **changes: object) -> Job:
    """Return a job with changes, which are kept."""
    job = job.model_copy(update=changes)
    connection.execute(
        "UPDATE dubs SET status = ?, job = ? WHERE job_id = ?",
        (job.status, job.model_dump_json(), job.job_id),
    )
    return job


def repeated(connection: sqlite3.Connection, key_hash: bytes, mark: Mark | None) -> DubJob | None:
    """Return the answer that this request had within the last 24 hours.

    A job that failed is forgotten, as errors are: a repeat of its request is a new one.

    Raises
    ------
    idempotency.OtherBody
        When the idempotency key stands for another request.
    """
    if mark is None:
        return None
    row = connection.execute(
        "SELECT body_hash, job FROM dubs WHERE key_hash = ? AND idempotency = ? AND made_at > ? "
        "AND status != ? ORDER BY number DESC",
        (key_hash, mark.key_hash, now() - chosen.IDEMPOTENCY_SECONDS, _Status.FAILED),
    ).fetchone()
    if row is None:
        return None
    mark.check_body(row[0])
    return Job.model_validate_json(row[1]).answer


def add(connection: sqlite3.Connection, job: Job, mark: Mark | None) -> DubJob:
    """Put a job into the queue; return what its creator is told: of the first, where this is a repeat."""
    if (known := repeated(connection, job.key_hash, mark)) is not None:
        return known
    connection.execute(
        "INSERT INTO dubs "
        "(job_id, key_hash, idempotency, body_hash, made_at, priority, link, status, job) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            job.job_id,
            job.key_hash,
            mark and mark.key_hash,
            mark and mark.body_hash,
            now(),
            job.answer.priority,
            job.link,
            job.status,
            job.model_dump_json(),
        ),
    )
    return job.answer


def find(connection: sqlite3.Connection, key_hash: bytes, job_id: str) -> Job | None:
    """Return a job of a key."""
    return _read(connection, "job_id = ? AND key_hash = ?", job_id, key_hash)


def take(
    connection: sqlite3.Connection,
    owner: str,
    turn: Callable[[Collection[Priority]], Priority],
    under_way: Collection[str] = (),
) -> Job | None:
    """Return the job whose turn it is, with its credits set aside and as this owner's; None when none waits.

    A job that the key's credits do not cover fails here.

    Parameters
    ----------
    turn
        Says which of the priorities that wait is next.
    under_way
        Ids of the jobs that this owner is at: any other of its own waits, as nobody could note its end.
    """
    while waiting := dict(
        connection.execute(
            "SELECT priority, MIN(number) FROM dubs WHERE status IN (?, ?) AND (owner IS NULL OR "
            "owner = ? AND job_id NOT IN (SELECT value FROM json_each(?))) GROUP BY 1",
            (_Status.QUEUED, _Status.IN_PROGRESS, owner, json.dumps(list(under_way))),
        ).fetchall()
    ):
        number = waiting[turn([Priority(word) for word in waiting])]
        job = _read(connection, "number = ?", number)
        assert job is not None  # noqa: S101 - read a moment ago
        if (poor := _set_aside(connection, job)) is None:
            connection.execute("UPDATE dubs SET owner = ? WHERE number = ?", (owner, number))
            return _changed(connection, job, status=_Status.IN_PROGRESS)
        _end(connection, job, dict.fromkeys(job.task.targets, Outcome(version=1, failure=poor)))
    return None


def _set_aside(connection: sqlite3.Connection, job: Job) -> Failure | None:
    """Set a job's credits aside, unless that was done before; return why where they are not there."""
    is_done = connection.execute("SELECT 1 FROM reservations WHERE id = ?", (job.job_id,)).fetchone()
    if is_done or job.billed_millis is not None:
        return None
    price_millis = billing.dub_millicredits(job.media_s, len(job.task.targets))
    try:
        quota.reserve(connection, _reservation(connection, job), price_millis)
    except quota.QuotaExhausted as short:
        return Failure(
            code=FailureCode.INSUFFICIENT_CREDITS,
            reason=f"the job costs {billing.to_credits(price_millis):,g} credits, and "
            f"{short.left_millis // billing.CREDIT:,} are left (what is set aside for jobs under way "
            "counts as used); nothing was billed",
        )
    return None


def _reservation(connection: sqlite3.Connection, job: Job) -> quota.Reservation:
    return quota.Reservation(job.job_id, _OWNER, _payer(connection, job), None, "dub")


def _payer(connection: sqlite3.Connection, job: Job) -> Key:
    # From the table: a job goes on when its key is not among those of a later start.
    row = connection.execute("SELECT quota_millis FROM keys WHERE key_hash = ?", (job.key_hash,)).fetchone()
    return Key(job.key_hash, "", row[0], None)


def release_owner(connection: sqlite3.Connection, owner: str) -> None:
    """Let the jobs of a service process wait again; their credits stay set aside."""
    connection.execute("UPDATE dubs SET owner = NULL WHERE owner = ?", (owner,))


def note(
    connection: sqlite3.Connection, job_id: str, locale: str | None, step: str, outcome: Outcome | None
) -> None:
    """Keep what is being done now, for a locale or for all, or what became of it: its files are there."""
    job = _known(connection, job_id)
    steps = {**job.steps, **dict.fromkeys(job.task.targets if locale is None else [locale], step)}
    results = {**job.results, locale: _shortened(outcome)} if locale and outcome else job.results
    _changed(connection, job, steps=steps, results=results)


def _shortened(outcome: Outcome) -> Outcome:
    return outcome.model_copy(update={"utterances": ()})


def end(connection: sqlite3.Connection, job_id: str, outcomes: Mapping[str, Outcome | None]) -> None:
    """End a job, or hand it over to be reviewed; settle what it costs, and have its webhook delivered.

    Parameters
    ----------
    outcomes
        Locale to what became of it; what the worker left undone is lost.
    """
    job = _known(connection, job_id)
    results = {}
    for locale, found in outcomes.items():
        outcome = found or job.results.get(locale) or Outcome(version=job.task.version)
        is_done = job.task.is_done(locale, found)
        results[locale] = _shortened(outcome if is_done else outcome.model_copy(update={"failure": _LOST}))
    _end(connection, job, results)


def _end(connection: sqlite3.Connection, job: Job, results: Mapping[str, Outcome]) -> None:
    good = sum(bool(result.media) for result in results.values())
    if not good:
        status = _Status.FAILED
    elif job.is_reviewed:
        status = _Status.IN_REVIEW
    else:
        status = _Status.COMPLETED if good == len(results) else _Status.PARTIALLY_COMPLETED
    billed_millis = job.billed_millis
    if billed_millis is None:
        billed_millis = billing.dub_millicredits(job.media_s, good)
        if good:
            quota.settle(connection, _reservation(connection, job), billed_millis)
        else:
            quota.release(connection, job.job_id)
    connection.execute("UPDATE dubs SET owner = NULL WHERE job_id = ?", (job.job_id,))
    job = _changed(
        connection, job, status=status, results=results, billed_millis=billed_millis, ended_at=now()
    )
    if job.answer.webhook_url is not None:
        data = status_of(connection, job, job.base_url).model_dump(mode="json", exclude_none=True)
        body = json.dumps({"eventName": "DUB_JOB", "data": data}).encode()
        webhooks.add(connection, job.key_hash, job.answer.webhook_url, job.webhook_secret, body)


def correct(
    connection: sqlite3.Connection, job: Job, locale: str, corrections: Sequence[UtteranceCorrection]
) -> JobStatusValue:
    """Have a job that is under review done again with corrections, no other; return the status it had."""
    current = _known(connection, job.job_id)
    if current.status is _Status.IN_REVIEW:
        asked = {"version": current.task.version + 1, "corrected": locale, "corrections": tuple(corrections)}
        changes = {
            "task": current.task.model_copy(update=asked),
            "results": {other: result for other, result in current.results.items() if other != locale},
            "steps": {},
            "status": _Status.IN_PROGRESS,
            "ended_at": None,
        }
        _changed(connection, current, **changes)
    return current.status


def status_of(connection: sqlite3.Connection, job: Job, base_url: str) -> DubJobStatus:
    """Return how a job is doing, with links at an address of this service."""
    balance = quota.balance(connection, _payer(connection, job))
    failures = [result.failure for result in job.results.values() if job.status is _Status.FAILED]
    failure = next(iter(failures), None)
    return DubJobStatus(
        job_id=job.job_id,
        status=job.status,
        project_id=job.project_id,
        download_details=[_detail(job, locale, base_url) for locale in job.task.targets],
        credits_used=-(-(job.billed_millis or 0) // billing.CREDIT),
        credits_remaining=balance.remaining_characters,
        failure_reason=None if failure is None else failure.reason,
        failure_code=None if failure is None else failure.code,
    )


def _detail(job: Job, locale: str, base_url: str) -> DownloadDetail:
    result, found = job.results.get(locale), {"locale": dubbing_spelling(locale)}
    if result is None:
        return DownloadDetail(**found, status=job.status, step=job.steps.get(locale))
    failure = result.failure
    if not result.media:
        words = None if failure is None else f"{failure.code}: {failure.reason}"
        return DownloadDetail(**found, status=_Status.FAILED, error_message=words)
    found["status"] = _Status.IN_REVIEW if job.is_reviewed else _Status.COMPLETED
    if job.is_over:
        return DownloadDetail(**found, error_message=_OVER)
    names = zip(_LINKS, (result.media, SRT, VTT), strict=True)
    address = f"{base_url}{FILES_PATH}/{job.link}/{locale}"
    found |= {link: address + name.removeprefix(DUB) for link, name in names}
    if failure is not None:
        found["error_message"] = f"a correction failed, and the version before it stands: {failure.reason}"
    return DownloadDetail(**found)


def find_file(connection: sqlite3.Connection, link: str, name: str) -> str | None:
    """Return the path, below the folder of jobs, of a file that may be fetched."""
    job = _read(connection, "link = ?", link)
    locale, _, suffix = name.rpartition(".")
    result = job.results.get(locale) if job is not None and not job.is_over else None
    file = f"{DUB}.{suffix}"
    if job is None or result is None or not result.media or file not in {result.media, SRT, VTT}:
        return None
    return f"{job.job_id}/{locale}/{file}"


def known(connection: sqlite3.Connection, job_ids: Collection[str]) -> dict[str, Job]:
    """Return jobs by their ids, as far as there are such."""
    query = "SELECT job FROM dubs WHERE job_id IN (SELECT value FROM json_each(?))"
    rows = connection.execute(query, (json.dumps(list(job_ids)),))
    return {job.job_id: job for job in (Job.model_validate_json(row[0]) for row in rows.fetchall())}
