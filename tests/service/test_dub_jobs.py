"""The rows of dubbing jobs: whose turn it is, what is billed of a part, corrections, links that end."""

import asyncio
import sqlite3

import pytest
from pydantic import SecretStr

from speechframe.local.dubbing.folder import OUTCOME, Failure, LocaleOutcome, Task
from speechframe.local.service.books import database, keys, quota
from speechframe.local.service.books.database import FILE_NAME, Database, connect
from speechframe.local.service.books.keys import KeyRing
from speechframe.local.service.config import KeySpec, ServiceConfig
from speechframe.local.service.dubbing import jobs as dub_jobs
from speechframe.local.service.dubbing import queue as dub_queue
from speechframe.local.service.dubbing.jobs import JobRow
from speechframe.local.service.dubbing.queue import DubQueue, Turns
from speechframe.local.service.dubbing.webhooks import Webhooks
from speechframe.local.service.http.answers import Refusal
from speechframe.spec import chosen
from speechframe.spec.dubbing import DubJob, Priority, UtteranceCorrection

HIGH, NORMAL, LOW = Priority.HIGH, Priority.NORMAL, Priority.LOW
MEDIA_S = 10.0
DONE = LocaleOutcome(version=1, media="dub.mp4")
FAILED = LocaleOutcome(version=1, failure=Failure(code="LANGUAGE_NOT_SUPPORTED", reason="no pair"))


@pytest.fixture
def ring():
    return KeyRing(
        b"salt", [KeySpec(SecretStr("key"), 35), KeySpec(SecretStr("other"), 1000)], balance="dubbing"
    )


@pytest.fixture
def rows(tmp_path, ring):
    connection = connect(tmp_path / FILE_NAME)
    keys.record_keys(connection, ring)
    yield connection
    connection.close()


@pytest.fixture
def add(rows, ring):
    def add(
        name, *, key="key", targets=("pt-BR", "en-GB"), priority=NORMAL, kind="AUTOMATED", project_id=None
    ):
        answer = DubJob(
            job_id=name, dubbing_type=kind, file_name="a.mp4", priority=priority, target_locales=list(targets)
        )
        job = JobRow(
            job_id=name,
            key_hash=ring.find(key).key_hash,
            project_id=project_id,
            link=f"link-{name}",
            answer=answer,
            task=Task(targets=targets),
            media_s=MEDIA_S,
            base_url="http://x",
        )
        dub_jobs.add_job(rows, job, None)
        return job

    return add


def status(rows, job):
    return dub_jobs.describe_status(rows, dub_jobs.find_job(rows, job.key_hash, job.job_id), "http://x")


def reserved(rows):
    return rows.execute("SELECT COALESCE(SUM(millis), 0) FROM reservations").fetchone()[0]


def test_each_lower_class_that_waits_has_every_fifth_start():
    turns = Turns()
    started = "".join(turns.choose_next([LOW, NORMAL, HIGH])[0] for _ in range(16))
    assert started == "HHHHNLHHHNLHHHNL"
    # One that does not wait is not passed over.
    turns = Turns()
    waiting = [[HIGH], [HIGH], [HIGH], [HIGH], *[[LOW, HIGH]] * 5, [LOW]]
    assert "".join(turns.choose_next(each)[0] for each in waiting) == "HHHHHHHHLL"


def test_jobs_start_by_priority_and_then_in_their_order(rows, add):
    for name, priority in (("a", LOW), ("b", NORMAL), ("c", HIGH), ("d", HIGH)):
        add(name, priority=priority, targets=())
    turns, taken = Turns(), []
    for _ in range(4):
        taken.append(dub_jobs.take_job(rows, "me", turns.choose_next, taken).job_id)
    assert taken == ["c", "d", "b", "a"]
    assert dub_jobs.take_job(rows, "me", turns.choose_next, taken) is None


def test_a_job_that_its_owner_is_no_longer_at_waits_again(rows, add):
    add("first", targets=())
    taken = dub_jobs.take_job(rows, "me", Turns().choose_next)
    assert dub_jobs.take_job(rows, "me", Turns().choose_next, [taken.job_id]) is None
    assert dub_jobs.take_job(rows, "other", Turns().choose_next) is None
    assert dub_jobs.take_job(rows, "me", Turns().choose_next).job_id == "first"


async def test_a_job_whose_end_could_not_be_noted_is_gone_on_with_after_a_pause(
    rows, add, tmp_path, monkeypatch
):
    add("first", targets=("pt-BR",))
    config = ServiceConfig(data=tmp_path, keys=(KeySpec(SecretStr("key"), 35),))
    opened = Database(tmp_path / FILE_NAME)
    queue = DubQueue(config, opened, "me", Webhooks(config, opened))

    async def worked(*_):
        (queue.folder / "first" / "pt-BR").mkdir(parents=True, exist_ok=True)
        (queue.folder / "first" / "pt-BR" / OUTCOME).touch()
        return True

    def broken(*_):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(queue, "_run_worker", worked)
    monkeypatch.setattr(dub_queue, "_FIRST_PAUSE_S", 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(dub_jobs, "end_job", broken)
        work = await queue.find_work()
        assert await queue.find_work() is None
        with pytest.raises(sqlite3.OperationalError):
            await work
    assert await queue.find_work() is None
    await asyncio.sleep(0.6)
    await (await queue.find_work())
    assert dub_jobs.read_statuses(rows, ["first"]) == {"first": "FAILED"}
    opened.close()


def test_credits_are_set_aside_once_and_billed_for_what_succeeded(rows, add):
    job = add("first")
    # Of 35 credits, the first job sets 20 aside; the second has to fail.
    taken = dub_jobs.take_job(rows, "dead", Turns().choose_next)
    add("second")
    assert dub_jobs.take_job(rows, "other", Turns().choose_next).status == "FAILED"
    assert dub_jobs.take_job(rows, "other", Turns().choose_next) is None
    assert reserved(rows) == 20_000
    # Its process dies: it waits again with what was set aside, and is not paid twice for.
    quota.release_owner(rows, "dead")
    dub_jobs.release_owner(rows, "dead")
    assert reserved(rows) == 20_000
    taken = dub_jobs.take_job(rows, "other", Turns().choose_next)
    assert (taken.job_id, reserved(rows)) == ("first", 20_000)
    dub_jobs.end_job(rows, "first", {"pt-BR": DONE, "en-GB": FAILED})
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
    taken = [dub_jobs.take_job(rows, "me", Turns().choose_next) for _ in range(2)]
    assert [(job.job_id, job.status) for job in taken] == [("long", "FAILED"), ("short", "IN_PROGRESS")]
    found = status(rows, long)
    assert (found.status, found.failure_code) == ("FAILED", "INSUFFICIENT_CREDITS")
    assert "costs 40 credits, and 35 are left" in found.failure_reason


def test_a_correction_costs_nothing_and_one_that_fails_leaves_the_version_before(rows, add):
    job = add("qa", kind="QA", project_id="p", targets=("pt-BR", "en-GB"))
    correction = UtteranceCorrection(utterance_id=1, text="Oi.")
    assert dub_jobs.correct_job(rows, job, "pt-BR", [correction]) == "QUEUED"
    dub_jobs.take_job(rows, "me", Turns().choose_next)
    dub_jobs.record_step(rows, "qa", "pt-BR", "done", DONE)
    dub_jobs.end_job(rows, "qa", {"pt-BR": DONE, "en-GB": DONE})
    assert dub_jobs.correct_job(rows, job, "pt-BR", [correction]) == "IN_REVIEW"
    # One that comes at the same moment, and saw the job under review, is told what it is by now.
    assert dub_jobs.correct_job(rows, job, "pt-BR", [correction]) == "IN_PROGRESS"
    details = status(rows, job).download_details
    assert [(each.status, each.step, each.download_url is None) for each in details] == [
        ("IN_PROGRESS", None, True),
        ("IN_REVIEW", None, False),
    ]
    taken = dub_jobs.take_job(rows, "me", Turns().choose_next)
    assert (taken.task.version, taken.task.corrected, taken.task.corrections) == (2, "pt-BR", (correction,))
    assert reserved(rows) == 0
    # The process falls over: the version before stands, and is told to be that.
    dub_jobs.end_job(rows, "qa", {"pt-BR": DONE, "en-GB": DONE})
    found = status(rows, job)
    assert (found.status, found.credits_used, found.credits_remaining) == ("IN_REVIEW", 20, 15)
    brazil, britain = found.download_details
    assert "the version before it is kept: the dubbing process crashed" in brazil.error_message
    assert brazil.download_url == "http://x/v1/dub/files/link-qa/pt-BR.mp4"
    assert britain.error_message is None
    assert dub_jobs.correct_job(rows, job, "pt-BR", [correction]) == "IN_REVIEW"


def test_a_correction_leaves_a_locale_alone_that_crashed_its_process(rows, add):
    job = add("qa", kind="QA", project_id="p")
    dub_jobs.take_job(rows, "me", Turns().choose_next)
    dub_jobs.end_job(rows, "qa", {"pt-BR": DONE, "en-GB": None})
    lost = status(rows, job).download_details[1]
    assert (lost.status, "crashed" in lost.error_message) == ("FAILED", True)
    dub_jobs.correct_job(rows, job, "pt-BR", [UtteranceCorrection(utterance_id=1, text="Oi.")])
    task = dub_jobs.take_job(rows, "me", Turns().choose_next).task
    # It was not paid, and would take the correction with it.
    assert [task.is_done(locale, None) for locale in task.targets] == [False, True]
    dub_jobs.end_job(rows, "qa", {"pt-BR": DONE.model_copy(update={"version": 2}), "en-GB": None})
    brazil, britain = status(rows, job).download_details
    assert (brazil.status, brazil.error_message, britain) == ("IN_REVIEW", None, lost)


@pytest.mark.parametrize(
    ("project_id", "kept_s"),
    [(None, chosen.DUB_LINK_LIFETIME_SECONDS), ("p", chosen.PROJECT_JOB_LIFETIME_SECONDS)],
)
def test_a_job_is_unknown_and_then_removed_when_its_time_is_over(rows, add, monkeypatch, project_id, kept_s):
    job = add("job", targets=("pt-BR",), project_id=project_id)
    dub_jobs.take_job(rows, "me", Turns().choose_next)
    assert dub_jobs.find_file(rows, "link-job", "pt-BR.mp4") is None
    dub_jobs.end_job(rows, "job", {"pt-BR": DONE})
    for name in ("mp4", "srt", "vtt"):
        assert dub_jobs.find_file(rows, "link-job", f"pt-BR.{name}") == f"job/pt-BR/dub.{name}"
    for link, name in (("link-job", "pt-BR.json"), ("link-job", "en-GB.mp4"), ("link-other", "pt-BR.mp4")):
        assert dub_jobs.find_file(rows, link, name) is None
    add("waits", targets=("pt-BR",))
    later(monkeypatch, kept_s - 60)
    dub_jobs.remove_old(rows)
    assert status(rows, job).download_details[0].download_url
    later(monkeypatch, 120)
    assert dub_jobs.find_file(rows, "link-job", "pt-BR.mp4") is None
    assert dub_jobs.find_job(rows, job.key_hash, "job") is None
    assert set(dub_jobs.read_statuses(rows, ["job", "waits", "stranger"])) == {"job", "waits"}
    dub_jobs.remove_old(rows)
    assert set(dub_jobs.read_statuses(rows, ["job", "waits"])) == {"waits"}


def later(monkeypatch, seconds):
    """Move the service's clock."""
    moment = dub_jobs.now() + seconds
    monkeypatch.setattr(dub_jobs, "now", lambda: moment)


def test_of_the_failed_jobs_of_a_key_the_newest_are_kept(rows, add, monkeypatch):
    monkeypatch.setattr(chosen, "MAX_KEPT_FAILED_DUB_JOBS", 2)
    for number in range(4):
        add(f"poor{number}", targets=("pt-BR",) * 4)
        assert dub_jobs.take_job(rows, "me", Turns().choose_next).status == "FAILED"
    done = add("rich", key="other")
    dub_jobs.take_job(rows, "me", Turns().choose_next)
    dub_jobs.end_job(rows, "rich", {"pt-BR": FAILED, "en-GB": FAILED})
    left = dub_jobs.read_statuses(rows, ["rich", *(f"poor{number}" for number in range(4))])
    assert set(left) == {"poor2", "poor3", "rich"}
    assert status(rows, done).status == "FAILED"


def test_keys_take_turns_inside_a_priority_in_every_process_and_after_a_restart(rows, add, tmp_path):
    for number in range(4):
        add(f"many{number}", targets=())
    taken = [dub_jobs.take_job(rows, "first", Turns().choose_next).job_id]
    add("few0", key="other", targets=())
    add("few1", key="other", targets=())
    add("high", targets=(), priority=HIGH)
    # Another process over the same folder goes on with the turns.
    other = connect(tmp_path / FILE_NAME)
    for _ in range(6):
        taken.append(dub_jobs.take_job(other, "second", Turns().choose_next, taken).job_id)
    other.close()
    assert taken == ["many0", "high", "few0", "many1", "few1", "many2", "many3"]


def test_a_key_has_a_bound_of_waiting_jobs_that_holds_for_corrections_too(rows, add, monkeypatch):
    monkeypatch.setattr(chosen, "MAX_UNFINISHED_DUB_JOBS", 2)
    reviewed = add("qa", kind="QA", project_id="p", targets=("pt-BR",))
    dub_jobs.take_job(rows, "me", Turns().choose_next)
    dub_jobs.end_job(rows, "qa", {"pt-BR": DONE})
    add("first", targets=("pt-BR",))
    add("second", targets=("pt-BR",))
    correction = UtteranceCorrection(utterance_id=1, text="Oi.")
    for refused in (
        lambda: add("third"),
        lambda: dub_jobs.correct_job(rows, reviewed, "pt-BR", [correction]),
    ):
        with pytest.raises(Refusal, match="2 dubbing jobs that wait or are under way; allowed: 2") as info:
            refused()
        assert (info.value.code.status, info.value.retry_after_s) == (503, 10)
    add("of another key", key="other")
    dub_jobs.take_job(rows, "me", Turns().choose_next)
    dub_jobs.end_job(rows, "first", {"pt-BR": DONE})
    assert dub_jobs.correct_job(rows, reviewed, "pt-BR", [correction]) == "IN_REVIEW"
    with pytest.raises(Refusal, match="allowed: 2"):
        add("third")


def test_a_job_is_corrected_a_hundred_times_for_each_locale(rows, add, monkeypatch):
    monkeypatch.setattr(chosen, "MAX_CORRECTIONS_PER_LOCALE", 1)
    job = add("qa", kind="QA", project_id="p")
    dub_jobs.take_job(rows, "me", Turns().choose_next)
    dub_jobs.end_job(rows, "qa", {"pt-BR": DONE, "en-GB": DONE})
    for version in (2, 3):
        assert dub_jobs.correct_job(rows, job, "pt-BR", [UtteranceCorrection(utterance_id=1)]) == "IN_REVIEW"
        dub_jobs.end_job(rows, "qa", {"pt-BR": DONE.model_copy(update={"version": version}), "en-GB": DONE})
    with pytest.raises(Refusal, match="was corrected 2 times; allowed for each target locale: 1"):
        dub_jobs.correct_job(rows, job, "pt-BR", [UtteranceCorrection(utterance_id=1)])


def test_a_folder_of_before_gets_the_time_of_its_ended_jobs(rows, add, tmp_path):
    for name, project_id in (("alone", None), ("of a project", "p"), ("damaged", None)):
        add(name, targets=("pt-BR",), project_id=project_id)
        dub_jobs.take_job(rows, "me", Turns().choose_next)
        dub_jobs.end_job(rows, name, {"pt-BR": DONE})
    add("waits")
    rows.execute("UPDATE dubs SET job = 'not JSON' WHERE job_id = 'damaged'")
    rows.execute("DROP INDEX dubs_by_expiry")
    rows.execute("ALTER TABLE dubs DROP COLUMN expires_at")
    rows.execute("ALTER TABLE dub_projects DROP COLUMN used_at")
    connect(tmp_path / FILE_NAME).close()
    kept_s = dict(rows.execute("SELECT job_id, ROUND(expires_at - ?) FROM dubs", (database.now(),)))
    assert (kept_s["damaged"], kept_s["waits"]) == (None, None)
    assert kept_s["alone"] == pytest.approx(chosen.DUB_LINK_LIFETIME_SECONDS, abs=60)
    assert kept_s["of a project"] == pytest.approx(chosen.PROJECT_JOB_LIFETIME_SECONDS, abs=60)
