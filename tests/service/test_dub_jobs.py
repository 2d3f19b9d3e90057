"""The rows of dubbing jobs: whose turn it is, what is billed of a part, corrections, links that end."""

import asyncio
import sqlite3

import pytest
from pydantic import SecretStr

from speechframe.dubbing.folder import OUTCOME, Failure, Outcome, Task
from speechframe.service import dub_jobs, dub_queue, keys, quota
from speechframe.service.config import KeySpec, ServiceConfig
from speechframe.service.database import Database, connect, now
from speechframe.service.dub_jobs import Job
from speechframe.service.dub_queue import DubQueue, Turns
from speechframe.service.keys import KeyRing
from speechframe.service.webhooks import Webhooks
from speechframe.spec import chosen
from speechframe.spec.dubbing import DubJob, Priority, UtteranceCorrection

HIGH, NORMAL, LOW = Priority.HIGH, Priority.NORMAL, Priority.LOW
MEDIA_S = 10.0
DONE = Outcome(version=1, media="dub.mp4")
FAILED = Outcome(version=1, failure=Failure(code="LANGUAGE_NOT_SUPPORTED", reason="no pair"))


@pytest.fixture
def ring():
    return KeyRing(b"salt", [KeySpec(SecretStr("key"), 35)], balance="dubbing")


@pytest.fixture
def rows(tmp_path, ring):
    connection = connect(tmp_path / "service.sqlite3")
    keys.record_keys(connection, ring)
    yield connection
    connection.close()


@pytest.fixture
def add(rows, ring):
    key_hash = next(iter(ring)).key_hash

    def add(name, *, targets=("pt-BR", "en-GB"), priority=NORMAL, kind="AUTOMATED", project_id=None):
        answer = DubJob(
            job_id=name, dubbing_type=kind, file_name="a.mp4", priority=priority, target_locales=list(targets)
        )
        job = Job(
            job_id=name,
            key_hash=key_hash,
            project_id=project_id,
            link=f"link-{name}",
            answer=answer,
            task=Task(targets=targets),
            media_s=MEDIA_S,
            base_url="http://x",
        )
        dub_jobs.add(rows, job, None)
        return job

    return add


def status(rows, job):
    return dub_jobs.status_of(rows, dub_jobs.find(rows, job.key_hash, job.job_id), "http://x")


def reserved(rows):
    return rows.execute("SELECT COALESCE(SUM(millis), 0) FROM reservations").fetchone()[0]


def test_each_lower_class_that_waits_has_every_fifth_start():
    turns = Turns()
    started = "".join(turns.next([LOW, NORMAL, HIGH])[0] for _ in range(16))
    assert started == "HHHHNLHHHNLHHHNL"
    # One that does not wait is not passed over.
    turns = Turns()
    waiting = [[HIGH], [HIGH], [HIGH], [HIGH], *[[LOW, HIGH]] * 5, [LOW]]
    assert "".join(turns.next(each)[0] for each in waiting) == "HHHHHHHHLL"


def test_jobs_start_by_priority_and_then_in_their_order(rows, add):
    for name, priority in (("a", LOW), ("b", NORMAL), ("c", HIGH), ("d", HIGH)):
        add(name, priority=priority, targets=())
    turns, taken = Turns(), []
    for _ in range(4):
        taken.append(dub_jobs.take(rows, "me", turns.next, taken).job_id)
    assert taken == ["c", "d", "b", "a"]
    assert dub_jobs.take(rows, "me", turns.next, taken) is None


def test_a_job_that_its_owner_is_no_longer_at_waits_again(rows, add):
    add("first", targets=())
    taken = dub_jobs.take(rows, "me", Turns().next)
    assert dub_jobs.take(rows, "me", Turns().next, [taken.job_id]) is None
    assert dub_jobs.take(rows, "other", Turns().next) is None
    assert dub_jobs.take(rows, "me", Turns().next).job_id == "first"


async def test_a_job_whose_end_could_not_be_noted_is_gone_on_with_after_a_pause(
    rows, add, tmp_path, monkeypatch
):
    add("first", targets=("pt-BR",))
    config = ServiceConfig(data=tmp_path, keys=(KeySpec(SecretStr("key"), 35),))
    database = Database(tmp_path / "service.sqlite3")
    queue = DubQueue(config, database, "me", Webhooks(config, database))

    async def worked(*_):
        (queue.folder / "first" / "pt-BR").mkdir(parents=True, exist_ok=True)
        (queue.folder / "first" / "pt-BR" / OUTCOME).touch()
        return True

    def broken(*_):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(queue, "_is_worked", worked)
    monkeypatch.setattr(dub_queue, "_PAUSE_S", 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(dub_jobs, "end", broken)
        work = await queue.take()
        assert await queue.take() is None
        with pytest.raises(sqlite3.OperationalError):
            await work
    assert await queue.take() is None
    await asyncio.sleep(0.6)
    await (await queue.take())
    assert dub_jobs.known(rows, ["first"])["first"].ended_at is not None
    database.close()


def test_credits_are_set_aside_once_and_billed_for_what_succeeded(rows, add):
    job = add("first")
    # Of 35 credits, the first job sets 20 aside; the second has to fail.
    taken = dub_jobs.take(rows, "dead", Turns().next)
    add("second")
    assert dub_jobs.take(rows, "other", Turns().next) is None
    assert reserved(rows) == 20_000
    # Its process dies: it waits again with what was set aside, and is not paid twice for.
    quota.release_owner(rows, "dead")
    dub_jobs.release_owner(rows, "dead")
    assert reserved(rows) == 20_000
    taken = dub_jobs.take(rows, "other", Turns().next)
    assert (taken.job_id, reserved(rows)) == ("first", 20_000)
    dub_jobs.end(rows, "first", {"pt-BR": DONE, "en-GB": FAILED})
    found = status(rows, job)
    assert (found.status, found.credits_used, found.credits_remaining) == ("PARTIALLY_COMPLETED", 10, 25)
    assert [detail.status for detail in found.download_details] == ["COMPLETED", "FAILED"]
    assert found.download_details[1].error_message == "LANGUAGE_NOT_SUPPORTED: no pair"
    assert found.failure_code is None
    assert reserved(rows) == 0
    assert rows.execute("SELECT operation, millis FROM billed").fetchall() == [("dub", 10_000)]


def test_a_job_whose_key_is_short_fails_and_those_behind_it_go_on(rows, add):
    long = add("long", targets=("pt-BR", "en-GB", "pt-PT", "en-US"))
    add("short", targets=("pt-BR",))
    assert dub_jobs.take(rows, "me", Turns().next).job_id == "short"
    found = status(rows, long)
    assert (found.status, found.failure_code) == ("FAILED", "INSUFFICIENT_CREDITS")
    assert "costs 40 credits, and 35 are left" in found.failure_reason


def test_a_correction_costs_nothing_and_one_that_fails_leaves_the_version_before(rows, add):
    job = add("qa", kind="QA", project_id="p", targets=("pt-BR", "en-GB"))
    correction = UtteranceCorrection(utterance_id=1, text="Oi.")
    assert dub_jobs.correct(rows, job, "pt-BR", [correction]) == "QUEUED"
    dub_jobs.take(rows, "me", Turns().next)
    dub_jobs.note(rows, "qa", "pt-BR", "done", DONE)
    dub_jobs.end(rows, "qa", {"pt-BR": DONE, "en-GB": DONE})
    assert dub_jobs.correct(rows, job, "pt-BR", [correction]) == "IN_REVIEW"
    # One that comes at the same moment, and saw the job under review, is told what it is by now.
    assert dub_jobs.correct(rows, job, "pt-BR", [correction]) == "IN_PROGRESS"
    details = status(rows, job).download_details
    assert [(each.status, each.step, each.download_url is None) for each in details] == [
        ("IN_PROGRESS", None, True),
        ("IN_REVIEW", None, False),
    ]
    taken = dub_jobs.take(rows, "me", Turns().next)
    assert (taken.task.version, taken.task.corrected, taken.task.corrections) == (2, "pt-BR", (correction,))
    assert reserved(rows) == 0
    # The process falls over: the version before stands, and is told to be that.
    dub_jobs.end(rows, "qa", {"pt-BR": DONE, "en-GB": DONE})
    found = status(rows, job)
    assert (found.status, found.credits_used, found.credits_remaining) == ("IN_REVIEW", 20, 15)
    brazil, britain = found.download_details
    assert "the version before it stands: the dubbing process crashed" in brazil.error_message
    assert brazil.download_url == "http://x/v1/dub/files/link-qa/pt-BR.mp4"
    assert britain.error_message is None
    assert dub_jobs.correct(rows, job, "pt-BR", [correction]) == "IN_REVIEW"


def test_a_correction_leaves_a_locale_alone_that_crashed_its_process(rows, add):
    job = add("qa", kind="QA", project_id="p")
    dub_jobs.take(rows, "me", Turns().next)
    dub_jobs.end(rows, "qa", {"pt-BR": DONE, "en-GB": None})
    lost = status(rows, job).download_details[1]
    assert (lost.status, "crashed" in lost.error_message) == ("FAILED", True)
    dub_jobs.correct(rows, job, "pt-BR", [UtteranceCorrection(utterance_id=1, text="Oi.")])
    task = dub_jobs.take(rows, "me", Turns().next).task
    # It was not paid, and would take the correction with it.
    assert [task.is_done(locale, None) for locale in task.targets] == [False, True]
    dub_jobs.end(rows, "qa", {"pt-BR": DONE.model_copy(update={"version": 2}), "en-GB": None})
    brazil, britain = status(rows, job).download_details
    assert (brazil.status, brazil.error_message, britain) == ("IN_REVIEW", None, lost)


@pytest.mark.parametrize("project_id", [None, "p"])
def test_links_of_a_job_without_project_end_after_72_hours(rows, add, project_id):
    job = add("job", targets=("pt-BR",), project_id=project_id)
    dub_jobs.take(rows, "me", Turns().next)
    assert dub_jobs.find_file(rows, "link-job", "pt-BR.mp4") is None
    dub_jobs.end(rows, "job", {"pt-BR": DONE})
    for name in ("mp4", "srt", "vtt"):
        assert dub_jobs.find_file(rows, "link-job", f"pt-BR.{name}") == f"job/pt-BR/dub.{name}"
    for link, name in (("link-job", "pt-BR.json"), ("link-job", "en-GB.mp4"), ("link-other", "pt-BR.mp4")):
        assert dub_jobs.find_file(rows, link, name) is None
    ended(rows, now() - chosen.DUB_LINK_SECONDS + 60)
    assert not dub_jobs.known(rows, ["job", "stranger"])["job"].is_over
    ended(rows, now() - chosen.DUB_LINK_SECONDS - 60)
    assert dub_jobs.known(rows, ["job"])["job"].is_over != bool(project_id)
    is_there = dub_jobs.find_file(rows, "link-job", "pt-BR.mp4") is not None
    assert is_there == bool(project_id) == bool(status(rows, job).download_details[0].download_url)


def ended(rows, moment):
    rows.execute("UPDATE dubs SET job = json_set(job, '$.ended_at', ?)", (moment,))
