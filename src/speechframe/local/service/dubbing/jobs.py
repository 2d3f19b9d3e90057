"""Dubbing jobs as rows of the database. Each function is a step of a transaction.

The owner of a job is the service process whose worker runs the job. A job that has no owner and has not ended
waits for a worker: it is new or was corrected, or its service process died. The credits of a job are reserved
when its first worker starts. The id of the reservation is the id of the job, so the reservation outlives the
process. It is settled once, when the first version of the dub is finished.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from speechframe.local.dubbing.folder import DUB_STEM, SRT, VTT, Failure, LocaleOutcome, Task
from speechframe.local.service.books import quota
from speechframe.local.service.books.database import now
from speechframe.local.service.books.idempotency import IdempotencyMark
from speechframe.local.service.books.keys import Key
from speechframe.local.service.books.unreadable import UnreadableRecord, parse_record
from speechframe.local.service.dubbing import webhooks
from speechframe.local.service.http.answers import Refusal, refuse
from speechframe.spec import billing, chosen
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.dubbing import (
    DownloadDetail,
    DubbingType,
    DubJob,
    DubJobStatus,
    FailureCode,
    JobStatusValue,
    Priority,
    UtteranceCorrection,
    is_terminal,
)
from speechframe.spec.locales import convert_to_dubbing_spelling
from speechframe.writing.words import format_count

FILES_PATH = "/v1/dub/files"
"""Beginning of the addresses of dubbed files."""

_RECORD_KIND = "dubbing job"
"""Kind of record in error messages."""
# Failure of a locale without an outcome.
_LOST_FAILURE = Failure(
    code=FailureCode.SERVER_ERROR,
    reason="the dubbing process crashed or took too long, twice; nothing was billed for this locale",
)
_LINK_FIELDS = ("download_url", "download_srt_url", "download_vtt_url")
"""Fields of the three files of a locale: the media file, and the subtitles as SRT and as WebVTT."""
_FULL_RETRY_S = 10.0
"""Seconds after which a caller with too many waiting jobs should retry."""
_ROWS_PER_REMOVAL = 200
"""Largest number of rows that one transaction removes. Other writes wait until the transaction ends."""

_Status = JobStatusValue
# Literal text without parameters, because only then does SQLite use its partial indexes.
_HAS_NOT_ENDED = "status IN ('QUEUED', 'IN_PROGRESS')"
_HAS_FAILED = "status = 'FAILED'"
_IS_KEPT = "(expires_at IS NULL OR expires_at > ?)"
# Owner of the reservations of dubbing jobs. It is not a service process, so they outlive processes.
_RESERVATION_OWNER = "dubbing"


class JobRow(BaseModel):
    """A job, as the column ``job`` stores it.

    Parameters
    ----------
    link
        The part of the addresses of its files that cannot be guessed.
    answer
        The answer to the request that created the job.
    task
        The input of the worker process.
    media_s
        Length of the media file in seconds.
    base_url
        The address of this service that the creator of the job used.
    steps
        The current step of each locale, such as ``translate``.
    results
        The outcome of each locale that has one, without the utterances.
    billed_millis
        The billed price in thousandths of a credit. None until it is settled.
    ended_at
        Unix time in seconds. None while the job waits or is under way.
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
    results: Mapping[str, LocaleOutcome] = Field(default_factory=dict)
    billed_millis: int | None = None
    ended_at: float | None = None

    @property
    def is_reviewed(self) -> bool:
        """True if the caller reviews the dub before the job is completed."""
        return self.answer.dubbing_type == DubbingType.QA

    @property
    def kept_s(self) -> float:
        """Seconds for which the job is stored after its end."""
        return (
            chosen.DUB_LINK_LIFETIME_SECONDS
            if self.project_id is None
            else chosen.PROJECT_JOB_LIFETIME_SECONDS
        )


def _parse_job(job_id: str, text: bytes) -> JobRow:
    job = parse_record(JobRow, text, _RECORD_KIND, job_id)
    if job.job_id != job_id:
        raise UnreadableRecord(_RECORD_KIND, job_id, "job_id: differs from that of the row")
    return job


def _find_row(connection: sqlite3.Connection, condition: str, *values: object) -> JobRow | None:
    # Read the JSON as a blob, because sqlite3 raises an error for a text that is not UTF-8.
    query = f"SELECT job_id, CAST(job AS BLOB) FROM dubs WHERE {condition} AND {_IS_KEPT}"  # noqa: S608 - words of ours
    row = connection.execute(query, (*values, now())).fetchone()
    return _parse_job(*row) if row else None


def _require_job(connection: sqlite3.Connection, job_id: str) -> JobRow:
    job = _find_row(connection, "job_id = ?", job_id)
    if job is None:
        # Only a damaged row gets here, because a job expires only after its end.
        raise UnreadableRecord(_RECORD_KIND, job_id, "it has expired")
    return job


def _store_changes(connection: sqlite3.Connection, job: JobRow, **changes: object) -> JobRow:
    """Store a job with changed fields, and return the changed job."""
    job = job.model_copy(update=changes)
    connection.execute(
        "UPDATE dubs SET status = ?, job = ?, expires_at = ? WHERE job_id = ?",
        (
            job.status,
            job.model_dump_json(),
            None if job.ended_at is None else job.ended_at + job.kept_s,
            job.job_id,
        ),
    )
    return job


# Condition for jobs that a request may repeat.
_IS_REPEATED = "key_hash = ? AND idempotency = ? AND made_at > ? AND status != 'FAILED'"


def find_repeated(
    connection: sqlite3.Connection, key_hash: bytes, mark: IdempotencyMark | None
) -> DubJob | None:
    """Return the answer that this request got within the last 24 hours, or None if it is new.

    A failed job does not count, because a repeat of a failed request is a new request.

    Raises
    ------
    BodyMismatch
        The idempotency key belongs to a request with another body.
    Unreadable
        The job of the request cannot be read. A second job would be billed again.
    """
    if mark is None:
        return None
    row = connection.execute(
        f"SELECT body_hash, job_id, CAST(job AS BLOB) FROM dubs WHERE {_IS_REPEATED} ORDER BY number DESC",  # noqa: S608
        (key_hash, mark.key_hash, now() - chosen.IDEMPOTENCY_SECONDS),
    ).fetchone()
    if row is None:
        return None
    body_hash, job_id, text = row
    mark.check_body(body_hash)
    return _parse_job(job_id, text).answer


def check_room(
    connection: sqlite3.Connection,
    key_hash: bytes,
    skipped: Collection[str] = (),
    repeats: bytes | None = None,
) -> None:
    """Refuse with 503 if the key's jobs that wait or are under way have reached their limit.

    Parameters
    ----------
    skipped
        Ids of jobs that do not count, because they cannot be read.
    repeats
        Hash of the request's idempotency key. If this key already has a job, nothing is refused, because the
        request may be a repeat.
    """
    (count,) = connection.execute(
        f"SELECT COUNT(*) FROM dubs WHERE key_hash = ? AND {_HAS_NOT_ENDED} "  # noqa: S608 - words of ours
        "AND job_id NOT IN (SELECT value FROM json_each(?))",
        (key_hash, json.dumps(list(skipped))),
    ).fetchone()
    if count < chosen.MAX_UNFINISHED_DUB_JOBS:
        return
    since = now() - chosen.IDEMPOTENCY_SECONDS
    query = f"SELECT 1 FROM dubs WHERE {_IS_REPEATED}"  # noqa: S608 - words of ours
    if repeats is not None and connection.execute(query, (key_hash, repeats, since)).fetchone():
        return
    raise Refusal(
        HttpErrorCode.UNAVAILABLE,
        f"this key has {count:,} dubbing jobs that wait or are under way; allowed: "
        f"{chosen.MAX_UNFINISHED_DUB_JOBS:,}; send the request again when one of them has ended",
        retry_after_s=_FULL_RETRY_S,
    )


def add_job(
    connection: sqlite3.Connection, job: JobRow, mark: IdempotencyMark | None, skipped: Collection[str] = ()
) -> DubJob:
    """Put a job into the queue and return its answer. For a repeat, only return the earlier answer.

    Raises
    ------
    Refusal
        503 if the key has too many waiting jobs.
    BodyMismatch, Unreadable
        As :func:`find_repeated`.
    """
    if (known := find_repeated(connection, job.key_hash, mark)) is not None:
        return known
    check_room(connection, job.key_hash, skipped)
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
    connection.execute("UPDATE dub_projects SET used_at = ? WHERE project_id = ?", (now(), job.project_id))
    return job.answer


def find_job(connection: sqlite3.Connection, key_hash: bytes, job_id: str) -> JobRow | None:
    """Return a job of a key, or None if the key has no such job or the job has expired.

    Raises
    ------
    Unreadable
        The stored job is damaged, or another release wrote it.
    """
    return _find_row(connection, "job_id = ? AND key_hash = ?", job_id, key_hash)


def take_job(
    connection: sqlite3.Connection,
    owner: str,
    turn: Callable[[Collection[Priority]], Priority],
    left_out: Collection[str] = (),
) -> JobRow | None:
    """Give the next waiting job to an owner, reserve its credits, and return the job.

    Return None if no job waits. Keys take turns inside a priority: the key whose last turn is longest ago is
    next. If the key has too few credits for the job, the job ends and is returned with the status FAILED.

    Parameters
    ----------
    owner
        Name of the service process that will run the job.
    turn
        Returns the priority to start next, given the priorities of waiting jobs.
    left_out
        Ids of jobs that this owner runs now or cannot read. Any other job of this owner is taken again,
        because its end could not be stored.

    Raises
    ------
    Unreadable
        The next job cannot be read. Its ``name`` is the id of the job.
    """
    # The query returns one row for each priority and key: the job with the least number. SQLite takes the
    # columns beside MIN() from this job.
    query = (
        "SELECT priority, IFNULL(turn, 0), MIN(number), job_id "  # noqa: S608 - words of ours
        f"FROM dubs LEFT JOIN dub_turns USING (key_hash) WHERE {_HAS_NOT_ENDED} "
        "AND (owner IS NULL OR owner = ?) AND job_id NOT IN (SELECT value FROM json_each(?)) "
        "GROUP BY priority, dubs.key_hash"
    )
    rows = connection.execute(query, (owner, json.dumps(list(left_out)))).fetchall()
    waiting: dict[Priority, list[tuple[int, int, str]]] = {}
    for word, last_turn, number, job_id in rows:
        if word not in Priority.__members__:
            raise UnreadableRecord(_RECORD_KIND, job_id, "priority: unknown value")
        waiting.setdefault(Priority(word), []).append((last_turn, number, job_id))
    if not waiting:
        return None
    _, _, job_id = min(waiting[turn(waiting)])
    try:
        return _begin_job(connection, _require_job(connection, job_id), owner)
    except (TypeError, ValueError, ArithmeticError, sqlite3.IntegrityError) as error:
        raise UnreadableRecord(_RECORD_KIND, job_id, type(error).__name__) from None


def _begin_job(connection: sqlite3.Connection, job: JobRow, owner: str) -> JobRow:
    connection.execute(
        "INSERT INTO dub_turns SELECT ?, IFNULL(MAX(turn), 0) + 1 FROM dub_turns WHERE true "
        "ON CONFLICT (key_hash) DO UPDATE SET turn = excluded.turn",
        (job.key_hash,),
    )
    if (failure := _reserve_credits(connection, job)) is not None:
        return _end_job(
            connection, job, dict.fromkeys(job.task.targets, LocaleOutcome(version=1, failure=failure))
        )
    connection.execute("UPDATE dubs SET owner = ? WHERE job_id = ?", (owner, job.job_id))
    return _store_changes(connection, job, status=_Status.IN_PROGRESS)


def _reserve_credits(connection: sqlite3.Connection, job: JobRow) -> Failure | None:
    """Reserve the credits of a job if they are not reserved yet. Return a failure if the key has too few."""
    is_done = connection.execute("SELECT 1 FROM reservations WHERE id = ?", (job.job_id,)).fetchone()
    if is_done or job.billed_millis is not None:
        return None
    reservation = _make_reservation(connection, job)
    try:
        quota.reserve(connection, reservation)
    except quota.QuotaExhausted as short:
        price_credits = billing.convert_to_credits(reservation.price_millis)
        return Failure(
            code=FailureCode.INSUFFICIENT_CREDITS,
            reason=f"the job costs {format_count(price_credits, 'credit')}, and "
            f"{short.left_millis // billing.MILLICREDITS_PER_CREDIT:,} are left (credits reserved for jobs "
            "under way count as used); nothing was billed",
        )
    return None


def _make_reservation(connection: sqlite3.Connection, job: JobRow) -> quota.Reservation:
    price_millis = billing.compute_dub_millicredits(job.media_s, len(job.task.targets))
    payer = _find_payer(connection, job)
    return quota.Reservation(_RESERVATION_OWNER, payer, None, "dub", price_millis, id=job.job_id)


def _find_payer(connection: sqlite3.Connection, job: JobRow) -> Key:
    # Read the quota from the table, because the job goes on even if its key is no longer accepted.
    row = connection.execute("SELECT quota_millis FROM keys WHERE key_hash = ?", (job.key_hash,)).fetchone()
    if row is None or not isinstance(row[0], int):
        raise UnreadableRecord(_RECORD_KIND, job.job_id, "its key has no quota")
    return Key(job.key_hash, "", row[0], None)


def release_owner(connection: sqlite3.Connection, owner: str) -> None:
    """Put the jobs of a service process back into the queue. Their credits stay reserved."""
    connection.execute("UPDATE dubs SET owner = NULL WHERE owner = ?", (owner,))


def record_step(
    connection: sqlite3.Connection, job_id: str, locale: str | None, step: str, outcome: LocaleOutcome | None
) -> None:
    """Store the current step of a job, and the outcome of a locale.

    Parameters
    ----------
    locale
        The locale of the step. None stands for all locales of the job.
    step
        Name of the step.
    outcome
        Outcome of the locale. None until its files are written.
    """
    job = _require_job(connection, job_id)
    steps = {**job.steps, **dict.fromkeys(job.task.targets if locale is None else [locale], step)}
    results = {**job.results, locale: _drop_utterances(outcome)} if locale and outcome else job.results
    _store_changes(connection, job, steps=steps, results=results)


def _drop_utterances(outcome: LocaleOutcome) -> LocaleOutcome:
    return outcome.model_copy(update={"utterances": ()})


def end_job(
    connection: sqlite3.Connection, job_id: str, outcomes: Mapping[str, LocaleOutcome | None]
) -> None:
    """End a job or put it into review. Settle its price, and queue its webhook.

    Parameters
    ----------
    outcomes
        The outcome of each locale. A locale that the worker did not finish gets a failure.
    """
    job = _require_job(connection, job_id)
    results = {}
    for locale, found in outcomes.items():
        outcome = found or job.results.get(locale) or LocaleOutcome(version=job.task.version)
        is_done = job.task.is_done(locale, found)
        results[locale] = _drop_utterances(
            outcome if is_done else outcome.model_copy(update={"failure": _LOST_FAILURE})
        )
    _end_job(connection, job, results)


def _end_job(connection: sqlite3.Connection, job: JobRow, results: Mapping[str, LocaleOutcome]) -> JobRow:
    dubbed_locales = sum(bool(result.media) for result in results.values())
    if not dubbed_locales:
        status = _Status.FAILED
    elif job.is_reviewed:
        status = _Status.IN_REVIEW
    else:
        status = _Status.COMPLETED if dubbed_locales == len(results) else _Status.PARTIALLY_COMPLETED
    billed_millis = job.billed_millis
    if billed_millis is None:
        billed_millis = billing.compute_dub_millicredits(job.media_s, dubbed_locales)
        quota.settle(connection, _make_reservation(connection, job), billed_millis)
    connection.execute("UPDATE dubs SET owner = NULL WHERE job_id = ?", (job.job_id,))
    changes = {"status": status, "results": results, "billed_millis": billed_millis, "ended_at": now()}
    if is_terminal(status):
        # Remove the script, which is not needed again and may be most of the row.
        changes["task"] = job.task.model_copy(update={"script": None})
    job = _store_changes(connection, job, **changes)
    if status is _Status.FAILED:
        # Keep only the newest failed jobs of a key. A key without credits can make thousands of jobs an hour,
        # which all fail at once.
        connection.execute(
            f"DELETE FROM dubs WHERE number = (SELECT number FROM dubs WHERE key_hash = ? AND {_HAS_FAILED} "  # noqa: S608
            "ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (job.key_hash, chosen.MAX_KEPT_FAILED_DUB_JOBS),
        )
    if job.answer.webhook_url is not None:
        data = describe_status(connection, job, job.base_url).model_dump(mode="json", exclude_none=True)
        body = json.dumps({"eventName": "DUB_JOB", "data": data}).encode()
        webhooks.add_webhook(connection, job.key_hash, job.answer.webhook_url, job.webhook_secret, body)
    return job


def correct_job(
    connection: sqlite3.Connection,
    job: JobRow,
    locale: str,
    corrections: Sequence[UtteranceCorrection],
    skipped: Collection[str] = (),
) -> JobStatusValue:
    """Put a job that is under review back into the queue with corrections. Return its status before.

    A job that is not under review does not change.

    Raises
    ------
    Refusal
        400 if the job was corrected as often as allowed, or was removed. 503 if the key has too many waiting
        jobs.
    """
    current = find_job(connection, job.key_hash, job.job_id)
    if current is None:
        refuse("the job has expired and was removed; create a new job")
    if current.status is _Status.IN_REVIEW:
        max_corrections = chosen.MAX_CORRECTIONS_PER_LOCALE * len(current.task.targets)
        if current.task.version > max_corrections:
            refuse(
                f"the job was corrected {format_count(max_corrections, 'time')}; allowed for each target "
                f"locale: {chosen.MAX_CORRECTIONS_PER_LOCALE}; create a new job"
            )
        check_room(connection, job.key_hash, skipped)
        task_changes = {
            "version": current.task.version + 1,
            "corrected": locale,
            "corrections": tuple(corrections),
        }
        changes = {
            "task": current.task.model_copy(update=task_changes),
            "results": {other: result for other, result in current.results.items() if other != locale},
            "steps": {},
            "status": _Status.IN_PROGRESS,
            "ended_at": None,
        }
        _store_changes(connection, current, **changes)
    return current.status


def describe_status(connection: sqlite3.Connection, job: JobRow, base_url: str) -> DubJobStatus:
    """Return the status of a job, as the status call answers it. Its links begin with `base_url`."""
    balance = quota.read_balance(connection, _find_payer(connection, job))
    failures = [result.failure for result in job.results.values() if job.status is _Status.FAILED]
    failure = next(iter(failures), None)
    return DubJobStatus(
        job_id=job.job_id,
        status=job.status,
        project_id=job.project_id,
        download_details=[_describe_locale(job, locale, base_url) for locale in job.task.targets],
        credits_used=-(-(job.billed_millis or 0) // billing.MILLICREDITS_PER_CREDIT),
        credits_remaining=balance.remaining_characters,
        failure_reason=None if failure is None else failure.reason,
        failure_code=None if failure is None else failure.code,
    )


def _describe_locale(job: JobRow, locale: str, base_url: str) -> DownloadDetail:
    result, found = job.results.get(locale), {"locale": convert_to_dubbing_spelling(locale)}
    if result is None:
        return DownloadDetail(**found, status=job.status, step=job.steps.get(locale))
    failure = result.failure
    if not result.media:
        message = None if failure is None else f"{failure.code}: {failure.reason}"
        return DownloadDetail(**found, status=_Status.FAILED, error_message=message)
    found["status"] = _Status.IN_REVIEW if job.is_reviewed else _Status.COMPLETED
    names = zip(_LINK_FIELDS, (result.media, SRT, VTT), strict=True)
    address = f"{base_url}{FILES_PATH}/{job.link}/{locale}"
    found |= {link: address + name.removeprefix(DUB_STEM) for link, name in names}
    if failure is not None:
        found["error_message"] = f"a correction failed, and the version before it is kept: {failure.reason}"
    return DownloadDetail(**found)


def find_file(connection: sqlite3.Connection, link: str, name: str) -> str | None:
    """Return the path of a dubbed file, relative to the folder of jobs, or None if there is no such file.

    Parameters
    ----------
    link
        The part of the job's addresses that cannot be guessed.
    name
        The locale and the suffix of the file, such as ``de-DE.mp4``.
    """
    job = _find_row(connection, "link = ?", link)
    locale, _, suffix = name.rpartition(".")
    result = job.results.get(locale) if job is not None else None
    file = f"{DUB_STEM}.{suffix}"
    if job is None or result is None or not result.media or file not in {result.media, SRT, VTT}:
        return None
    return f"{job.job_id}/{locale}/{file}"


def read_statuses(connection: sqlite3.Connection, job_ids: Iterable[str]) -> dict[str, str]:
    """Return the status of each job that exists, readable or not."""
    query = "SELECT job_id, status FROM dubs WHERE job_id IN (SELECT value FROM json_each(?))"
    return dict(connection.execute(query, (json.dumps(list(job_ids)),)).fetchall())


def remove_old(connection: sqlite3.Connection) -> bool:
    """Remove up to 200 rows of expired jobs. Return True if there may be more."""
    gone = connection.execute(
        "DELETE FROM dubs WHERE number IN (SELECT number FROM dubs WHERE expires_at <= ? LIMIT ?)",
        (now(), _ROWS_PER_REMOVAL),
    )
    return gone.rowcount == _ROWS_PER_REMOVAL
