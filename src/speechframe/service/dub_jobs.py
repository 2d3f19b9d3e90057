"""Dubbing jobs as rows: what is asked for, how far each locale is, what it costs; steps of transactions.

A job that has no owner and is not over waits for a worker: a new one, one that is corrected, one whose
service process died. What it costs is set aside when it is first taken, under the job's own name, so that it
outlives the process; it is settled once, when the first version is finished.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from speechframe.dubbing.folder import Failure, Outcome, Task
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
    is_ready,
    is_terminal,
)
from speechframe.spec.locales import dubbing_spelling

FILES_PATH = "/v1/dub/files"

LOST = Failure(
    code=FailureCode.SERVER_ERROR,
    reason="the dubbing process crashed or took too long, twice; nothing was billed for what it left undone",
)
_OVER = f"the links are over: they live for {chosen.DUB_LINK_SECONDS // 3600} hours"
_NOT_CORRECTED = "the correction could not be made; the version before it stands"

_Status = JobStatusValue
# Reservations of this owner are given back by whoever ends the job, and not when a service process dies.
_OWNER = "dubbing"


@dataclass(frozen=True)
class Job:
    """A job, as it stands in its row.

    Parameters
    ----------
    answer
        What its creator was told.
    task
        What its worker is told.
    media_s
        Length of the medium in seconds.
    base_url
        The address under which its creator knows this service.
    billed_millis
        What it cost; None until that is settled.
    failure
        Why all of it failed, if it did.
    """

    job_id: str
    key_hash: bytes
    project_id: str | None
    answer: DubJob
    task: Task
    media_s: float
    base_url: str
    webhook_secret: str | None = field(repr=False)
    status: str
    billed_millis: int | None = None
    failure: Failure | None = None

    @property
    def is_reviewed(self) -> bool:
        """Whether somebody is to look at it before it is done."""
        return self.answer.dubbing_type == DubbingType.QA


_COLUMNS = (
    "job_id, key_hash, project_id, answer, task, media_s, base_url, webhook_secret, "
    "status, billed_millis, failure"
)


def _read(connection: sqlite3.Connection, condition: str, *values: object) -> Job | None:
    query = f"SELECT {_COLUMNS} FROM dub_jobs WHERE {condition}"  # noqa: S608 - words of ours
    row = connection.execute(query, values).fetchone()
    if row is None:
        return None
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    fields["answer"] = DubJob.model_validate_json(fields["answer"])
    fields["task"] = Task.model_validate_json(fields["task"])
    fields["failure"] = fields["failure"] and Failure.model_validate_json(fields["failure"])
    return Job(**fields)


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
        "SELECT body_hash, answer FROM dub_jobs WHERE key_hash = ? AND idempotency = ? AND made_at > ? "
        "AND status != ? ORDER BY number DESC",
        (key_hash, mark.key_hash, now() - chosen.IDEMPOTENCY_SECONDS, _Status.FAILED),
    ).fetchone()
    if row is None:
        return None
    mark.check_body(row[0])
    return DubJob.model_validate_json(row[1])


def add(connection: sqlite3.Connection, job: Job, links: Sequence[str], mark: Mark | None) -> DubJob:
    """Put a job into the queue; return what its creator is told: of the first, where this is a repeat.

    Parameters
    ----------
    links
        The unguessable part of the address of each locale's files.
    """
    if (known := repeated(connection, job.key_hash, mark)) is not None:
        return known
    connection.execute(
        "INSERT INTO dub_jobs (job_id, key_hash, idempotency, body_hash, made_at, answer, task, media_s, "
        "priority, project_id, webhook_secret, base_url, status) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            job.job_id,
            job.key_hash,
            mark and mark.key_hash,
            mark and mark.body_hash,
            now(),
            job.answer.model_dump_json(exclude_none=True),
            job.task.model_dump_json(),
            job.media_s,
            job.answer.priority,
            job.project_id,
            job.webhook_secret,
            job.base_url,
            job.status,
        ),
    )
    connection.executemany(
        "INSERT INTO dub_locales (job_id, locale, link, status) VALUES (?, ?, ?, ?)",
        [
            (job.job_id, locale, link, job.status)
            for locale, link in zip(job.task.targets, links, strict=True)
        ],
    )
    return job.answer


def find(connection: sqlite3.Connection, key_hash: bytes, job_id: str) -> Job | None:
    """Return a job of a key."""
    return _read(connection, "job_id = ? AND key_hash = ?", job_id, key_hash)


def take(
    connection: sqlite3.Connection, owner: str, turn: Callable[[Collection[Priority]], Priority]
) -> Job | None:
    """Return the job whose turn it is, with its credits set aside and as this owner's; None when none waits.

    A job that the key's credits do not cover fails here.

    Parameters
    ----------
    turn
        Says which of the priorities that wait is next.
    """
    while waiting := dict(
        connection.execute(
            "SELECT priority, MIN(number) FROM dub_jobs WHERE owner IS NULL AND status IN (?, ?) GROUP BY 1",
            (_Status.QUEUED, _Status.IN_PROGRESS),
        ).fetchall()
    ):
        number = waiting[turn([Priority(word) for word in waiting])]
        job = _read(connection, "number = ?", number)
        assert job is not None  # noqa: S101 - read a moment ago
        if (poor := _set_aside(connection, job)) is not None:
            end(connection, job, {}, poor)
            continue
        connection.execute(
            "UPDATE dub_jobs SET owner = ?, status = ? WHERE number = ?", (owner, _Status.IN_PROGRESS, number)
        )
        connection.execute(
            "UPDATE dub_locales SET status = ? WHERE job_id = ? AND status = ?",
            (_Status.IN_PROGRESS, job.job_id, _Status.QUEUED),
        )
        return job
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
    connection.execute("UPDATE dub_jobs SET owner = NULL WHERE owner = ?", (owner,))


def note_step(connection: sqlite3.Connection, job_id: str, locale: str | None, step: str) -> None:
    """Keep what is being done now, for one locale or for all that are under way."""
    connection.execute(
        "UPDATE dub_locales SET step = ?1 WHERE job_id = ?2 AND status = ?4 AND locale = IFNULL(?3, locale)",
        (step, job_id, locale, _Status.IN_PROGRESS),
    )


def note_outcome(connection: sqlite3.Connection, job: Job, locale: str, outcome: Outcome) -> None:
    """Keep what became of a locale; its files can be fetched from now on."""
    words, status, files = None, _Status.FAILED, {}
    if outcome.failure is not None:
        words = f"{outcome.failure.code}: {outcome.failure.reason}"
    else:
        status = _Status.IN_REVIEW if job.is_reviewed else _Status.COMPLETED
        files = outcome.model_dump(include={"media", "content_type", "srt", "vtt"})
        if outcome.version < job.task.version:
            words = _NOT_CORRECTED
    connection.execute(
        "UPDATE dub_locales SET status = ?, step = NULL, error_message = ?, files = ? "
        "WHERE job_id = ? AND locale = ?",
        (status, words, json.dumps(files), job.job_id, locale),
    )


def end(
    connection: sqlite3.Connection, job: Job, outcomes: Mapping[str, Outcome], failure: Failure | None
) -> None:
    """End a job, or hand it over to be reviewed; settle what it costs, and have its webhook delivered.

    Parameters
    ----------
    outcomes
        Locale to what became of it.
    failure
        What is wrong with the locales that have no outcome.
    """
    failure = failure or LOST
    for locale in job.task.targets:
        outcome = outcomes.get(locale) or Outcome(version=job.task.version, failure=failure)
        note_outcome(connection, job, locale, outcome)
    failures = [outcome.failure for outcome in outcomes.values() if outcome.failure is not None]
    good = len(outcomes) - len(failures)
    if not good:
        status = _Status.FAILED
    elif job.is_reviewed:
        status = _Status.IN_REVIEW
    else:
        status = _Status.COMPLETED if good == len(job.task.targets) else _Status.PARTIALLY_COMPLETED
    billed_millis = job.billed_millis
    if billed_millis is None:
        billed_millis = billing.dub_millicredits(job.media_s, good)
        if good:
            quota.settle(connection, _reservation(connection, job), billed_millis)
        else:
            quota.release(connection, job.job_id)
    told = (*failures, failure)[0] if status is _Status.FAILED else None
    connection.execute(
        "UPDATE dub_jobs SET status = ?, owner = NULL, billed_millis = ?, failure = ?, ended_at = ? "
        "WHERE job_id = ?",
        (status, billed_millis, told and told.model_dump_json(), now(), job.job_id),
    )
    if job.answer.webhook_url is not None:
        ended = replace(job, status=status, billed_millis=billed_millis, failure=told)
        data = status_of(connection, ended, job.base_url).model_dump(mode="json", exclude_none=True)
        body = {"eventName": "DUB_JOB", "data": data}
        webhooks.add(connection, job.answer.webhook_url, job.webhook_secret, json.dumps(body).encode())


def correct(
    connection: sqlite3.Connection,
    job: Job,
    locale: str,
    corrections: Sequence[UtteranceCorrection],
) -> bool:
    """Have a job under review done again with corrections; return False when it is not under review.

    A later correction of an utterance stands beside an earlier one, as far as they are of different things.
    """
    current = find(connection, job.key_hash, job.job_id)
    if current is None or current.status != _Status.IN_REVIEW:
        return False
    before = current.task.corrections
    merged = {one.utterance_id: one for one in before.get(locale, ())}
    for one in corrections:
        told = one.model_dump(exclude_none=True)
        known = merged.get(one.utterance_id, one)
        merged[one.utterance_id] = known.model_copy(update=told)
    task = current.task.model_copy(
        update={
            "version": current.task.version + 1,
            "corrections": {**before, locale: tuple(merged.values())},
        }
    )
    connection.execute(
        "UPDATE dub_jobs SET task = ?, status = ?, ended_at = NULL WHERE job_id = ?",
        (task.model_dump_json(), _Status.IN_PROGRESS, job.job_id),
    )
    connection.execute(
        "UPDATE dub_locales SET status = ?, error_message = NULL WHERE job_id = ? AND locale = ?",
        (_Status.IN_PROGRESS, job.job_id, locale),
    )
    return True


def status_of(connection: sqlite3.Connection, job: Job, base_url: str) -> DubJobStatus:
    """Return how a job is doing, with links at an address of this service."""
    rows = connection.execute(
        "SELECT locale, link, status, step, error_message, files FROM dub_locales WHERE job_id = ? "
        "ORDER BY rowid",
        (job.job_id,),
    ).fetchall()
    balance = quota.balance(connection, _payer(connection, job))
    return DubJobStatus(
        job_id=job.job_id,
        status=job.status,
        project_id=job.project_id,
        download_details=[_detail(row, base_url) for row in rows],
        credits_used=-(-(job.billed_millis or 0) // billing.CREDIT),
        credits_remaining=balance.remaining_characters,
        failure_reason=job.failure.reason if job.failure is not None else None,
        failure_code=job.failure.code if job.failure is not None else None,
    )


def _detail(row: Sequence[Any], base_url: str) -> DownloadDetail:
    locale, link, status, step, error_message, files = row
    named = json.loads(files) if is_ready(status) else {}
    urls = {
        kind: f"{base_url}{FILES_PATH}/{link}/{quote(named[kind])}" if named.get(kind) else None
        for kind in ("media", "srt", "vtt")
    }
    return DownloadDetail(
        locale=dubbing_spelling(locale),
        status=status,
        error_message=error_message,
        download_url=urls["media"],
        download_srt_url=urls["srt"],
        download_vtt_url=urls["vtt"],
        step=step,
    )


_TEXT_TYPES = {"srt": "application/x-subrip", "vtt": "text/vtt"}


def find_file(connection: sqlite3.Connection, link: str, name: str) -> tuple[str, str, str] | None:
    """Return job, locale and content type of a file that may be fetched; names are the index's own."""
    row = connection.execute(
        "SELECT job_id, locale, files, status FROM dub_locales WHERE link = ?", (link,)
    ).fetchone()
    if row is None or not is_ready(row[3]):
        return None
    files = json.loads(row[2])
    types = {files.get("media"): files.get("content_type")}
    types |= {files.get(kind): content_type for kind, content_type in _TEXT_TYPES.items()}
    return (row[0], row[1], types[name]) if name in types else None


def drop_links(connection: sqlite3.Connection, job_ids: Collection[str]) -> dict[str, set[str] | None]:
    """Forget the files of jobs without project whose 72 hours are over; return what is needed of each folder.

    Returns
    -------
    dict
        Job to the paths, below its folder, of what can still be asked for; None for all of a job that is not
        over.
    """
    connection.execute(
        "UPDATE dub_locales SET files = '{}', error_message = ? WHERE files != '{}' AND job_id IN "
        "(SELECT job_id FROM dub_jobs WHERE project_id IS NULL AND ended_at <= ?)",
        (_OVER, now() - chosen.DUB_LINK_SECONDS),
    )
    rows = connection.execute(
        "SELECT job_id, dub_jobs.status, locale, files FROM dub_jobs JOIN dub_locales USING (job_id) "
        "WHERE job_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(job_ids)),),
    ).fetchall()
    needed: dict[str, set[str] | None] = {job_id: set() for job_id, *_ in rows}
    for job_id, status, locale, files in rows:
        if not is_terminal(status):
            needed[job_id] = None
        elif (paths := needed[job_id]) is not None:
            named = json.loads(files)
            paths |= {f"{locale}/{named[kind]}" for kind in ("media", *_TEXT_TYPES) if named}
    return needed
